"""The on-chip memory: banks with one read and one write port each, four readers, three writers, any byte alignment.

Two forms that behave alike for what bank claims allow: FPGA (block RAM of ``lib.memory``, an even and an odd half per
bank) and simulation (one Verilog module behind an ``Instance``, see :func:`sram_verilog`).
"""

from collections.abc import Sequence

from amaranth import Cat, ClockSignal, Instance, Module, Mux, ResetSignal, Signal, Value
from amaranth.lib import wiring
from amaranth.lib.wiring import In
from amaranth.utils import exact_log2

from dovetail.hw.common.clocking import delayed
from dovetail.hw.common.ports import SramRead, SramWrite
from dovetail.hw.memory.cells import block_ram, read_row
from dovetail.isa.common.sizes import INT32_BYTES
from dovetail.isa.config.resolved import Config
from dovetail.isa.timing.memory import SRAM_READ

READERS = ("array_input", "array_weights", "vector", "store")
WRITERS = ("load", "array", "vector")
MODULE = "dovetail_sram"


def write_bytes(config: Config, writer: str) -> int:
    """Bytes that a writer's write has at most, rounded up to a power of two."""
    most = {
        "load": config.bus_bytes,
        "array": INT32_BYTES * config.requant_lanes,
        "vector": config.vector_lanes * (INT32_BYTES if config.elementwise else 1),
    }[writer]
    return 1 << (most - 1).bit_length()


def rotate(m: Module, word: Value, count: Value, *, left: bool) -> Value:
    """``word`` rotated by ``count`` bytes, towards the upper bytes if ``left``; a multiplexer per bit of ``count``. The
    upper bits go first: of a result that is read in part, less is needed of the stages before."""
    stage = word
    for n in reversed(range(len(count))):
        step = 8 << n
        rotated = Signal(len(word))
        m.d.comb += rotated.eq(Mux(count[n], stage.rotate_left(step) if left else stage.rotate_right(step), stage))
        stage = rotated
    return stage


def choose(words: Sequence[Value], index: Value) -> Value:
    """``words[index]``; a multiplexer per bit of ``index``. An index beyond the words gives any of them."""
    words = list(words)
    for n in range(len(index)):
        pairs = [words[k : k + 2] for k in range(0, len(words), 2)]
        words = [Mux(index[n], pair[1], pair[0]) if len(pair) > 1 else pair[0] for pair in pairs]
    return words[0]


class Sram(wiring.Component):
    """The memory.

    Parameters
    ----------
    config: size, banks and word.
    simulation: take the Verilog module of :func:`sram_verilog` instead of block RAM.

    Members
    -------
    read_<reader>: read ports, see :data:`READERS`.
    write_<writer>: write ports, see :data:`WRITERS`.
    array_reads, vector_reads: banks whose read port the unit has claimed; all others are STORE's. A bank's read port
        follows its owner, so a word that a reader merely straddles into never disturbs another unit.
    array_streams: banks that ARRAY reads by its weights port; the others it reads by its input port.
    array_writes, vector_writes: banks whose write port the unit has claimed; all others are LOAD's.

    Latency
    -------
    SRAM_READ cycles from address to bytes. A read presented two or more cycles after a write sees it.
    """

    def __init__(self, config: Config, *, simulation: bool) -> None:
        self.config = config
        self.simulation = simulation
        super().__init__(
            {
                **{f"read_{name}": In(SramRead(config)) for name in READERS},
                **{f"write_{name}": In(SramWrite(config)) for name in WRITERS},
                "array_reads": In(config.banks),
                "array_streams": In(config.banks),
                "vector_reads": In(config.banks),
                "array_writes": In(config.banks),
                "vector_writes": In(config.banks),
            }
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        readers = [getattr(self, f"read_{name}") for name in READERS]
        writers = [getattr(self, f"write_{name}") for name in WRITERS]
        if self.simulation:
            ports: dict[str, object] = {"i_clk": ClockSignal(), "i_rst": ResetSignal()}
            for n, port in enumerate(readers):
                ports |= {f"i_r{n}_en": port.en, f"i_r{n}_addr": port.addr, f"o_r{n}_data": port.data}
            for n, port in enumerate(writers):
                ports |= {f"i_w{n}_{name}": getattr(port, name) for name in ("en", "addr", "size", "data")}
            m.submodules.memory = Instance(MODULE, **ports)
        else:
            self._banks(m, readers, writers, platform)
        return m

    def _banks(self, m: Module, readers: list, writers: list, platform: object) -> None:
        config = self.config
        assert SRAM_READ == 5, "address, memory, its output, bank selection and rotation take a register stage each"
        byte_bits = exact_log2(config.word_bytes)
        half_rows = config.bank_bytes // config.word_bytes // 2
        half_bits = exact_log2(half_rows)
        width = 8 * config.word_bytes
        address_bits = len(readers[0].addr)
        bank_bits = address_bits - byte_bits - 1 - half_bits

        # Row r of a bank is in its half r mod 2. An access that begins in row r needs rows r and r + 1, one of each
        # half; in units of two rows these are `pair(half)`, whose upper bits name the bank.
        def pair(addr: Signal, half: int) -> Signal:
            row = addr[byte_bits:]
            if half:
                return row[1:]
            return (row[1:] + row[0])[: len(row) - 1]

        # Writes: rotate, then one register, then the memory. `reached` are bytes of two words side by side. A writer of
        # few bytes has them in every group of as many.
        steps = []
        for name, port in zip(WRITERS, writers, strict=True):
            offset = Signal(byte_bits, name=f"{name}_offset")
            reached = Signal(2 * config.word_bytes, name=f"{name}_reached")
            few = write_bytes(config, name)
            rotated = rotate(m, port.data[: 8 * few], offset[: exact_log2(few)], left=True)
            m.d.comb += [offset.eq(port.addr), reached.eq(Cat(port.size > n for n in range(few)) << offset)]
            lower, upper = reached[: config.word_bytes], reached[config.word_bytes :]
            halves = []
            for half in range(2):
                bytes_ = Signal(config.word_bytes, name=f"{name}_bytes{half}")
                where = Signal(half_bits + bank_bits, name=f"{name}_pair{half}")
                m.d.comb += [
                    bytes_.eq(Mux(port.addr[byte_bits] == half, lower, upper)),
                    where.eq(pair(port.addr, half)),
                ]
                halves.append((bytes_, where))
            steps.append((halves, rotated.replicate(config.word_bytes // few)))

        bank_data: list[list[Signal]] = [[], []]
        for bank in range(config.banks):
            for half in range(2):
                cells = block_ram(width=width, depth=half_rows)
                write = cells.write_port(granularity=8)
                m.submodules[f"bank{bank}_{'odd' if half else 'even'}"] = cells
                pairs = [pair(port.addr, half)[:half_bits] for port in readers]
                where = Signal(half_bits, name=f"where{bank}_{half}", reset_less=True)
                m.d.sync += where.eq(
                    Mux(
                        self.array_reads[bank],
                        Mux(self.array_streams[bank], pairs[1], pairs[0]),
                        Mux(self.vector_reads[bank], pairs[2], pairs[3]),
                    )
                )
                word = Signal(width, name=f"word{bank}_{half}", reset_less=True)
                row = read_row(m, cells, name=f"row{bank}_{half}", addr=where, platform=platform)
                m.d.sync += word.eq(row)
                bank_data[half].append(word)

                # The owner's address and bytes; whether it writes here.
                enables = []
                for port, (halves, _) in zip(writers, steps, strict=True):
                    bytes_, where = halves[half]
                    here = port.en & (where[half_bits:] == bank) if bank_bits else port.en
                    enables.append(bytes_ & here.replicate(config.word_bytes))
                load, array, vector = (Cat(halves[half][1][:half_bits], rotated) for halves, rotated in steps)
                m.d.sync += [
                    write.en.eq(enables[0] | enables[1] | enables[2]),
                    Cat(write.addr, write.data).eq(
                        Mux(self.array_writes[bank], array, Mux(self.vector_writes[bank], vector, load))
                    ),
                ]

        for name, port in zip(READERS, readers, strict=True):
            # While the address is registered, the memory reads and its output is registered: which half and bank each
            # byte lane comes from. Then selection; then rotation.
            banks = [delayed(m, f"{name}_bank{half}", pair(port.addr, half)[half_bits:], 3)[-1] for half in range(2)]
            begin = delayed(m, f"{name}_begin", port.addr[: byte_bits + 1], 4)
            odd = Signal(config.word_bytes, name=f"{name}_odd")
            lanes = Signal(width, name=f"{name}_lanes", reset_less=True)
            low, row_odd = begin[2][:byte_bits], begin[2][byte_bits]
            m.d.sync += odd.eq(Cat(row_odd ^ (lane < low) for lane in range(config.word_bytes)))
            for lane in range(config.word_bytes):
                even_byte, odd_byte = (
                    choose([word.word_select(lane, 8) for word in bank_data[half]], banks[half]) for half in range(2)
                )
                m.d.sync += lanes.word_select(lane, 8).eq(Mux(odd[lane], odd_byte, even_byte))
            m.d.sync += port.data.eq(rotate(m, lanes, begin[4][:byte_bits], left=False))


def sram_verilog(config: Config) -> str:
    """The simulation form: one array of words, read and written whole. It is cleared when reset ends; a write may still
    be pending when reset begins. The first pipeline stage holds an address, which is shorter than a word."""
    word = config.word_bytes
    width, byte_bits = 8 * word, exact_log2(word)
    address_bits = (config.sram - 1).bit_length()
    row_bits = address_bits - byte_bits
    size_bits = word.bit_length()
    ports = ["input clk", "input rst"]
    body: list[str] = []
    for n in range(len(READERS)):
        ports += [f"input r{n}_en", f"input [{address_bits - 1}:0] r{n}_addr", f"output reg [{width - 1}:0] r{n}_data"]
        body += [
            f"  reg r{n}_en1 = 0, r{n}_en2 = 0, r{n}_en3 = 0, r{n}_en4 = 0;",
            f"  reg [{address_bits - 1}:0] r{n}_at;",
            f"  reg [{width - 1}:0] r{n}_q2, r{n}_q3, r{n}_q4;",
            f"  wire [{row_bits - 1}:0] r{n}_row = r{n}_at[{address_bits - 1}:{byte_bits}];",
            f"  wire [{row_bits - 1}:0] r{n}_next = r{n}_row + 1'd1;",
            f"  wire [{byte_bits - 1}:0] r{n}_byte = r{n}_at[{byte_bits - 1}:0];",
        ]
    for n in range(len(WRITERS)):
        ports += [
            f"input w{n}_en",
            f"input [{address_bits - 1}:0] w{n}_addr",
            f"input [{size_bits - 1}:0] w{n}_size",
            f"input [{width - 1}:0] w{n}_data",
        ]
        body += [
            f"  wire [{row_bits - 1}:0] w{n}_row = w{n}_addr[{address_bits - 1}:{byte_bits}];",
            f"  wire [{row_bits - 1}:0] w{n}_next = w{n}_row + 1'd1;",
            f"  wire [{byte_bits - 1}:0] w{n}_byte = w{n}_addr[{byte_bits - 1}:0];",
            f"  reg [{width - 1}:0] w{n}_ones;",
            f"  reg [{2 * width - 1}:0] w{n}_wide, w{n}_mask;",
        ]
    body += [
        f"  reg [{width - 1}:0] cells [0:{(1 << row_bits) - 1}];",
        "  reg was_reset = 0;",
        "  integer i;",
        f"  initial for (i = 0; i < {1 << row_bits}; i = i + 1) cells[i] = {width}'d0;",
        "  always @(posedge clk) begin",
    ]
    for n in range(len(READERS)):
        body += [
            f"    if (r{n}_en4) r{n}_data <= r{n}_q4;",
            f"    if (r{n}_en3) r{n}_q4 <= r{n}_q3;",
            f"    if (r{n}_en2) r{n}_q3 <= r{n}_q2;",
            f"    if (r{n}_en1) begin",
            f"      if (r{n}_byte == 0) r{n}_q2 <= cells[r{n}_row];",
            f"      else r{n}_q2 <= {{cells[r{n}_next], cells[r{n}_row]}} >> {{r{n}_byte, 3'd0}};",
            "    end",
            f"    if (r{n}_en) r{n}_at <= r{n}_addr;",
            f"    r{n}_en1 <= r{n}_en;",
            f"    r{n}_en2 <= r{n}_en1;",
            f"    r{n}_en3 <= r{n}_en2;",
            f"    r{n}_en4 <= r{n}_en3;",
        ]
    for n in range(len(WRITERS)):
        body += [
            f"    if (w{n}_en) begin",
            f"      w{n}_ones = {{{width}{{1'b1}}}} >> {{{size_bits}'d{word} - w{n}_size, 3'd0}};",
            f"      w{n}_mask = {{{width}'d0, w{n}_ones}} << {{w{n}_byte, 3'd0}};",
            f"      w{n}_wide = {{{width}'d0, w{n}_data}} << {{w{n}_byte, 3'd0}};",
            f"      cells[w{n}_row] = (cells[w{n}_row] & ~w{n}_mask[{width - 1}:0])"
            f" | (w{n}_wide[{width - 1}:0] & w{n}_mask[{width - 1}:0]);",
            f"      if (w{n}_byte + w{n}_size > {word})",
            f"        cells[w{n}_next] = (cells[w{n}_next] & ~w{n}_mask[{2 * width - 1}:{width}])"
            f" | (w{n}_wide[{2 * width - 1}:{width}] & w{n}_mask[{2 * width - 1}:{width}]);",
            "    end",
        ]
    body += [
        "    was_reset <= rst;",
        f"    if (was_reset & ~rst) for (i = 0; i < {1 << row_bits}; i = i + 1) cells[i] = {width}'d0;",
        "  end",
    ]
    return "\n".join([f"module {MODULE}({', '.join(ports)});", *body, "endmodule", ""])


def simulation_sources(config: Config) -> dict[str, str]:
    """Verilog files, by name, that the simulation form needs beside the generated ones."""
    return {f"{MODULE}.v": sram_verilog(config)}
