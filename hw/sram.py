"""The on-chip memory: banks with one read and one write port each, four readers, three writers, any byte alignment.

Two forms that behave alike for what bank claims allow: FPGA (block RAM of ``lib.memory``, an even and an odd half per
bank) and simulation (one Verilog module behind an ``Instance``, see :func:`sram_verilog`).
"""

from amaranth import Array, Cat, ClockSignal, Instance, Module, Mux, ResetSignal, Signal, Value
from amaranth.lib import memory, wiring
from amaranth.lib.wiring import In
from amaranth.utils import exact_log2

from dovetail.hw.ports import SramRead, SramWrite
from dovetail.isa.config import Config
from dovetail.isa.timing.common import SRAM_READ

READERS = ("array_input", "array_weights", "vector", "store")
WRITERS = ("load", "array", "vector")
MODULE = "dovetail_sram"


def rotate(m: Module, word: Value, count: Signal, *, left: bool) -> Signal:
    """``word`` rotated by ``count`` bytes, towards the upper bytes if ``left``; a multiplexer per bit of ``count``."""
    stage = Signal(len(word))
    m.d.comb += stage.eq(word)
    for n in range(len(count)):
        step = 8 << n
        rotated = Signal(len(word))
        m.d.comb += rotated.eq(Mux(count[n], stage.rotate_left(step) if left else stage.rotate_right(step), stage))
        stage = rotated
    return stage


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
    array_reads, vector_reads, store_reads: banks whose read port the unit has claimed. A bank's read port follows its
        owner, so a word that a reader merely straddles into never disturbs another unit.
    array_streams: banks that ARRAY reads by its weights port; the others it reads by its input port.

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
                "array_reads": In(config.n_banks),
                "array_streams": In(config.n_banks),
                "vector_reads": In(config.n_banks),
                "store_reads": In(config.n_banks),
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
            self._banks(m, readers, writers)
        return m

    def _banks(self, m: Module, readers: list, writers: list) -> None:
        config = self.config
        assert SRAM_READ == 3, "memory, bank selection and rotation take a register stage each"
        byte_bits = exact_log2(config.word_bytes)
        half_rows = config.bank_bytes // config.word_bytes // 2
        half_bits = exact_log2(half_rows)
        width = 8 * config.word_bytes
        address_bits = len(readers[0].addr)
        bank_bits = address_bits - byte_bits - 1 - half_bits

        # Row r of a bank stands in its half r mod 2. An access that begins in row r needs rows r and r + 1, one of each
        # half; in units of two rows these are `pair(half)`, whose upper bits name the bank.
        def pair(addr: Signal, half: int) -> Signal:
            row = addr[byte_bits:]
            if half:
                return row[1:]
            return (row[1:] + row[0])[: len(row) - 1]

        # Writes: rotate, then one register, then the memory.
        steps = []
        for name, port in zip(WRITERS, writers, strict=True):
            offset = Signal(byte_bits, name=f"{name}_offset")
            mask = Signal(2 * config.word_bytes, name=f"{name}_mask")
            keep = Signal(config.word_bytes, name=f"{name}_keep")
            rotated = Signal(width, name=f"{name}_rotated")
            row = Signal(address_bits - byte_bits, name=f"{name}_row")
            m.d.comb += [
                offset.eq(port.addr),
                row.eq(port.addr >> byte_bits),
                keep.eq(Cat(n < port.size for n in range(config.word_bytes))),
                mask.eq(keep << offset),
                rotated.eq(rotate(m, port.data, offset, left=True)),
            ]
            halves = []
            for half in range(2):
                enable = Signal(config.word_bytes, name=f"{name}_enable{half}")
                where = Signal(half_bits + bank_bits, name=f"{name}_pair{half}")
                m.d.comb += enable.eq(
                    Mux(port.en, Mux(row[0] == half, mask[: config.word_bytes], mask[config.word_bytes :]), 0)
                )
                m.d.comb += where.eq(pair(port.addr, half))
                halves.append((enable, where))
            steps.append((halves, rotated))

        bank_data: list[list[Signal]] = [[], []]
        for bank in range(config.n_banks):
            for half in range(2):
                cells = memory.Memory(shape=width, depth=half_rows, init=[], attrs={"no_rw_check": True})
                m.submodules[f"bank{bank}_{'odd' if half else 'even'}"] = cells
                read = cells.read_port()
                pairs = [pair(port.addr, half)[:half_bits] for port in readers]
                m.d.comb += read.addr.eq(
                    Mux(
                        self.array_reads[bank],
                        Mux(self.array_streams[bank], pairs[1], pairs[0]),
                        Mux(self.vector_reads[bank], pairs[2], pairs[3]),
                    )
                )
                bank_data[half].append(read.data)
                write = cells.write_port(granularity=8)
                enable = Signal(config.word_bytes)
                hit = [
                    (where[half_bits:] == bank) if bank_bits else enables.any()
                    for ((enables, where),) in ((halves[half : half + 1]) for halves, _ in steps)
                ]
                masks = [Mux(h, halves[half][0], 0) for h, (halves, _) in zip(hit, steps, strict=True)]
                m.d.comb += enable.eq(masks[0] | masks[1] | masks[2])
                m.d.sync += write.en.eq(enable)
                takes = [mask.any() for mask in masks]
                with m.If(takes[0]):
                    m.d.sync += [write.addr.eq(steps[0][0][half][1]), write.data.eq(steps[0][1])]
                with m.Elif(takes[1]):
                    m.d.sync += [write.addr.eq(steps[1][0][half][1]), write.data.eq(steps[1][1])]
                with m.Elif(takes[2]):
                    m.d.sync += [write.addr.eq(steps[2][0][half][1]), write.data.eq(steps[2][1])]

        for name, port in zip(READERS, readers, strict=True):
            # While the memory reads: which half and bank each byte lane comes from. Then selection; then rotation.
            banks = [Signal(bank_bits, name=f"{name}_bank{half}") for half in range(2)]
            offset = [Signal(byte_bits + 1, name=f"{name}_offset{n}") for n in range(2)]
            lanes = Signal(width, name=f"{name}_lanes")
            m.d.sync += [offset[0].eq(port.addr[: byte_bits + 1]), offset[1].eq(offset[0])]
            m.d.sync += [banks[half].eq(pair(port.addr, half)[half_bits:]) for half in range(2)]
            for lane in range(config.word_bytes):
                odd = Signal(name=f"{name}_odd{lane}")
                m.d.comb += odd.eq(offset[0][-1] ^ (lane < offset[0][:-1]))
                choice = [
                    Array(words)[banks[half]] if bank_bits else words[0]
                    for half, words in enumerate(
                        [word.word_select(lane, 8) for word in bank_data[half]] for half in range(2)
                    )
                ]
                m.d.sync += lanes.word_select(lane, 8).eq(Mux(odd, choice[1], choice[0]))
            m.d.sync += port.data.eq(rotate(m, lanes, offset[1][:-1], left=False))


def sram_verilog(config: Config) -> str:
    """The simulation form: one array of words, read and written whole, cleared when reset ends (when it begins a write
    may be on its way)."""
    word = config.word_bytes
    width, byte_bits = 8 * word, exact_log2(word)
    address_bits = (config.sram_bytes - 1).bit_length()
    row_bits = address_bits - byte_bits
    size_bits = word.bit_length()
    ports = ["input clk", "input rst"]
    body: list[str] = []
    for n in range(len(READERS)):
        ports += [f"input r{n}_en", f"input [{address_bits - 1}:0] r{n}_addr", f"output reg [{width - 1}:0] r{n}_data"]
        body += [
            f"  reg r{n}_en1 = 0, r{n}_en2 = 0;",
            f"  reg [{width - 1}:0] r{n}_q1, r{n}_q2;",
            f"  wire [{row_bits - 1}:0] r{n}_row = r{n}_addr[{address_bits - 1}:{byte_bits}];",
            f"  wire [{row_bits - 1}:0] r{n}_next = r{n}_row + 1'd1;",
            f"  wire [{byte_bits - 1}:0] r{n}_byte = r{n}_addr[{byte_bits - 1}:0];",
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
            f"    if (r{n}_en2) r{n}_data <= r{n}_q2;",
            f"    if (r{n}_en1) r{n}_q2 <= r{n}_q1;",
            f"    if (r{n}_en) begin",
            f"      if (r{n}_byte == 0) r{n}_q1 <= cells[r{n}_row];",
            f"      else r{n}_q1 <= {{cells[r{n}_next], cells[r{n}_row]}} >> {{r{n}_byte, 3'd0}};",
            "    end",
            f"    r{n}_en1 <= r{n}_en;",
            f"    r{n}_en2 <= r{n}_en1;",
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
