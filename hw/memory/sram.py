"""The on-chip memory: banks with one read and one write port each, four readers, three writers, any byte alignment.

Two forms that behave alike for what bank claims allow: FPGA (block RAM of ``lib.memory``, an even and an odd half per
bank) and simulation (one Verilog module behind an ``Instance``, see :func:`sram_verilog`).

Of the FPGA form, what is shared comes first: a bank has one owner, so its halves become one word in front of the
readers, and selection is by registers that are 0 where they are not meant (:func:`gated`).
"""

from collections.abc import Iterable
from functools import reduce
from operator import or_
from typing import Any

from amaranth import Cat, ClockSignal, Const, Instance, Module, Mux, ResetSignal, Signal, Value
from amaranth.lib import wiring
from amaranth.lib.wiring import In
from amaranth.utils import exact_log2

from dovetail.hw.common.clocking import delayed
from dovetail.hw.common.ports import SramRead, SramWrite
from dovetail.hw.memory.cells import block_ram, read_row
from dovetail.isa.common.sizes import INT32_BYTES
from dovetail.isa.config.resolved import RESULT_STEPS, Config
from dovetail.isa.instructions.checks import offers
from dovetail.isa.timing.memory import SRAM_READ

READERS = ("array_input", "array_weights", "vector", "store")
WRITERS = ("load", "array", "vector")
MODULE = "dovetail_sram"
PIECE_BYTES = 8
"""What computers work on at once. Verilator computes with what is wider word by word."""


def read_bytes(config: Config, reader: str) -> int:
    """Bytes that a reader takes of a read at most, rounded up to a power of two."""
    words = offers(config, "int32_input") or offers(config, "records")
    most = {"vector": _vector_bytes(config, words=words), "store": config.bus_bytes}
    return 1 << (most.get(reader, config.word_bytes) - 1).bit_length()


def write_bytes(config: Config, writer: str) -> int:
    """Bytes that a writer's write has at most, rounded up to a power of two."""
    results = max(config.requant_lanes, INT32_BYTES * min(config.requant_lanes, config.oc_lanes))
    vector = _vector_bytes(config, words=offers(config, "int32_output"))
    most = {"load": config.bus_bytes, "array": results, "vector": vector}
    return 1 << (most[writer] - 1).bit_length()


def _vector_bytes(config: Config, *, words: bool) -> int:
    """Bytes that the vector unit reads or writes at once at most: int32 ``words``, or bytes."""
    return config.vector_lanes * (INT32_BYTES if words else 1)


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


def gated(m: Module, name: str, value: Value, enable: Value) -> Signal:
    """``value`` in a register, 0 where ``enable`` is. The OR of several, of which one is enabled, then selects it: for
    each that is an input of a LUT, where a multiplexer takes a LUT, and the 0 is the reset that a register has."""
    register = Signal(len(value), name=name, reset_less=True)
    m.d.sync += register.eq(Mux(enable, value, 0))
    return register


def any_of(values: Iterable[Value]) -> Value:
    """The OR of all values, as a balanced tree: a chain of a thousand is too deep for Amaranth."""
    level = list(values)
    while len(level) > 1:
        level = [reduce(or_, level[at : at + 2]) for at in range(0, len(level), 2)]
    return level[0]


class Sram(wiring.Component):
    """The memory.

    Parameters
    ----------
    config: size, banks and word.
    simulation: take the Verilog module of :func:`sram_verilog` instead of block RAM.

    Members
    -------
    read_<reader>: read ports, see :data:`READERS`. Of the data count the low :func:`read_bytes`.
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
            if self.config.result_pairs:
                ports |= {f"i_{name}": getattr(self.write_array, name) for name in ("apart", "skips")}
            m.submodules.memory = Instance(module_of(self.config), **ports)
        else:
            self._banks(m, readers, writers, platform)
        return m

    # Row r of a bank is in its half r mod 2. An access that begins in row r needs rows r and r + 1, one of each half;
    # in units of two rows these are `_pair(half)`, whose upper bits name the bank.

    @property
    def _byte_bits(self) -> int:
        return int(exact_log2(self.config.word_bytes))

    @property
    def _half_rows(self) -> int:
        return self.config.bank_bytes // self.config.word_bytes // 2

    def _pair(self, addr: Value, half: int) -> Value:
        row = addr[self._byte_bits :]
        return row[1:] if half else (row[1:] + row[0])[: len(row) - 1]

    def _row(self, pair: Value) -> Value:
        return pair[: exact_log2(self._half_rows)]

    def _bank(self, pair: Value) -> Value:
        return pair[exact_log2(self._half_rows) :]

    def _banks(self, m: Module, readers: list[Any], writers: list[Any], platform: object) -> None:
        assert SRAM_READ == 5, "address, memory, its output, bank selection and rotation take a register stage each"
        config = self.config
        array, streams, vector = self.array_reads, self.array_streams, self.vector_reads
        owners = (array & ~streams, array & streams, vector, ~(array | vector))
        wheres = [[self._pair(port.addr, half) for half in range(2)] for port in readers]
        written = self._writes(m, writers)
        words = []
        for bank in range(config.banks):

            def of_owner(name: str, values: Iterable[Value], bank: int = bank) -> Value:
                registers = zip(READERS, values, owners, strict=True)
                return any_of(gated(m, f"{reader}_{name}", value, owner[bank]) for reader, value, owner in registers)

            # 1: where its owner reads; 2: the memory, meanwhile which half each byte lane comes from; 3: the word.
            # Which of its lanes are meant: of a first row those from the first byte on, of a row beyond those before.
            begin = of_owner(
                f"begin{bank}",
                (
                    Cat(port.addr[: self._byte_bits + 1], *(self._bank(pairs[half]) == bank for half in (1, 0)))
                    for port, pairs in zip(readers, wheres, strict=True)
                ),
            )
            low = begin[: self._byte_bits]
            row_odd, is_first, is_beyond = begin[self._byte_bits :]
            odd, meant = (Signal(config.word_bytes, name=f"{name}{bank}", reset_less=True) for name in ("odd", "meant"))
            before = [lane < low for lane in range(config.word_bytes)]
            m.d.sync += [
                odd.eq(Cat(row_odd ^ lower for lower in before)),
                meant.eq(Cat(Mux(lower, is_beyond, is_first) for lower in before)),
            ]
            rows = []
            for half in range(2):
                cells = block_ram(width=8 * config.word_bytes, depth=self._half_rows)
                m.submodules[f"bank{bank}_{'odd' if half else 'even'}"] = cells
                write = cells.write_port(granularity=8)
                m.d.comb += Cat(write.en, write.addr, write.data).eq(written[bank][half])
                where = of_owner(f"where{bank}_{half}", (self._row(pairs[half]) for pairs in wheres))
                rows.append(read_row(m, cells, name=f"row{bank}_{half}", addr=where, platform=platform))
            word = Signal(8 * config.word_bytes, name=f"word{bank}", reset_less=True)
            for lane in range(config.word_bytes):
                even_byte, odd_byte = (row.word_select(lane, 8) for row in rows)
                byte = Mux(odd[lane], odd_byte, even_byte)
                m.d.sync += word.word_select(lane, 8).eq(byte & meant[lane].replicate(8))
            words.append(word)
        for name, port, owner in zip(READERS, readers, owners, strict=True):
            self._read(m, name, port, owner, words)

    def _writes(self, m: Module, writers: list[Any]) -> list[list[Value]]:
        """What each bank's halves write: enable per byte, row and word. Rotation, then a register per bank and writer.
        A writer of few bytes has them in every group of as many."""
        config = self.config
        owners = (~(self.array_writes | self.vector_writes), self.array_writes, self.vector_writes)
        written: list[list[list[Value]]] = [[[], []] for _ in range(config.banks)]
        for name, port, owner in zip(WRITERS, writers, owners, strict=True):
            few = write_bytes(config, name)
            offset, group = port.addr[: exact_log2(few)], port.addr[exact_log2(few) : self._byte_bits]
            rotated = rotate(m, port.data[: 8 * few], offset, left=True)
            # Bytes that it reaches, from the group of its first one on: in the row of that one, and in the next row.
            reached = Signal(2 * few, name=f"{name}_reached")
            m.d.comb += reached.eq(self._written(name, port, few) << offset)
            is_group = [group == n for n in range(config.word_bytes // few)]
            first, second = ([reached[at : at + few] & here.replicate(few) for here in is_group] for at in (0, few))
            lower = Cat(a | b for a, b in zip(first, [Const(0, few), *second[:-1]], strict=True))
            datas = [gated(m, f"{name}_data{bank}", rotated, owner[bank]) for bank in range(config.banks)]
            for half in range(2):
                bytes_ = Signal(config.word_bytes, name=f"{name}_bytes{half}")
                m.d.comb += bytes_.eq(Mux(port.addr[self._byte_bits] == half, lower, second[-1]))
                pair = self._pair(port.addr, half)
                for bank, data in enumerate(datas):
                    here = port.en & (self._bank(pair) == bank)
                    enable = gated(m, f"{name}_enable{bank}_{half}", bytes_, here)
                    where = gated(m, f"{name}_where{bank}_{half}", self._row(pair), owner[bank])
                    written[bank][half].append(Cat(enable, where, data.replicate(config.word_bytes // few)))
        return [[any_of(values) for values in halves] for halves in written]

    def _written(self, name: str, port: Any, few: int) -> Value:
        """Bytes that a write has, of the first ``few`` from its address on."""
        written = Cat(port.size[: few.bit_length()] > n for n in range(few))
        if name != "array" or not self.config.result_pairs:
            return written
        both = [written & (~port.skips).replicate(few)]
        for n in range(1, RESULT_STEPS + 1):
            both.append(written << n * self.config.oc_lanes & (port.apart == n).replicate(few))
        return any_of(both)[:few]

    def _read(self, m: Module, name: str, port: Any, owner: Value, words: list[Signal]) -> None:
        """The bytes of a reader, from the words of the banks that it owns; the first three cycles are the banks'."""
        few, lanes = read_bytes(self.config, name), self.config.word_bytes
        bits = exact_log2(few)
        low = delayed(m, f"{name}_low", port.addr[: self._byte_bits], 4)
        owned = delayed(m, f"{name}_owned", owner, 3)[-1]
        # 4: selection. Of few bytes each is then in one group of as many, in its lane modulo their number. 5: rotation.
        chosen = Signal(8 * lanes, name=f"{name}_chosen")  # all of it once, not for each of its bytes
        m.d.comb += chosen.eq(
            any_of(gated(m, f"{name}_of{bank}", word, owned[bank]) for bank, word in enumerate(words))
        )
        taken = []
        for place in range(few):
            group = Signal(range(lanes // few), name=f"{name}_group{place}", reset_less=True)
            m.d.sync += group.eq(low[3][bits:] + (place < low[3][:bits]))
            groups = Cat(chosen.word_select(at + place, 8) for at in range(0, lanes, few))
            taken.append(groups.word_select(group, 8))
        m.d.sync += port.data.eq(rotate(m, Cat(taken), low[4][:bits], left=False))


def module_of(config: Config) -> str:
    """The name of the simulation form's module. A system may hold several, of different sizes and ports."""
    reads, writes = (
        "_".join(str(few) for few in sizes.values()) for sizes in (_read_sizes(config), _write_sizes(config))
    )
    apart = f"_apart_{config.oc_lanes}" if config.result_pairs else ""
    return f"{MODULE}_{config.sram}x{8 * config.word_bytes}_reads_{reads}_writes_{writes}{apart}"


def _read_sizes(config: Config) -> dict[str, int]:
    return {name: read_bytes(config, name) for name in READERS}


def _write_sizes(config: Config) -> dict[str, int]:
    return {name: write_bytes(config, name) for name in WRITERS}


def sram_verilog(config: Config) -> str:
    """The simulation form: one array of pieces, each as wide as a register of the computer that simulates, or a word if
    that is less. It is cleared when reset ends; a write may still be pending when reset begins.

    What is read waits in one of four places until it is shown, instead of going from register to register.
    """
    width, piece = 8 * config.word_bytes, min(config.word_bytes, PIECE_BYTES)
    bits, byte_bits = 8 * piece, exact_log2(piece)
    address_bits = (config.sram - 1).bit_length()
    size_bits = config.word_bytes.bit_length()
    cells = 1 << (address_bits - byte_bits)

    def cell(k: int) -> str:
        """The k-th piece from the one that is meant; behind the last comes the first."""
        return f"cells[at + {address_bits - byte_bits}'d{k}]"

    ports = ["input clk", "input rst"]
    variables = [
        f"reg [{bits - 1}:0] cells [0:{cells - 1}]",
        f"reg [{address_bits - byte_bits - 1}:0] at",
        f"reg [{byte_bits + 2}:0] shift",
        "reg [1:0] turn = 0",
        "reg was_reset = 0",
        "integer i",
    ]
    body: list[str] = []
    for n, few in enumerate(_read_sizes(config).values()):
        count = -(-few // piece)
        ports += [f"input r{n}_en", f"input [{address_bits - 1}:0] r{n}_addr", f"output reg [{width - 1}:0] r{n}_data"]
        variables += [f"reg [3:0] r{n}_on_way = 0", f"reg [{address_bits - 1}:0] r{n}_at"]
        variables += [f"reg [{bits - 1}:0] r{n}_waits{k} [0:3]" for k in range(count)]
        shown = ", ".join(f"r{n}_waits{k}[turn + 2'd1]" for k in reversed(range(count)))
        body += [
            f"if (r{n}_on_way[3]) r{n}_data <= {{{shown}}};",
            f"if (r{n}_on_way[0]) begin",
            f"  at = r{n}_at[{address_bits - 1}:{byte_bits}];",
            f"  shift = {{r{n}_at[{byte_bits - 1}:0], 3'd0}};",
            # Two shifts of the piece beyond, since one by all its bits is not what registers of a host do.
            *(f"  r{n}_waits{k}[turn] = {cell(k)} >> shift | {cell(k + 1)} << 1 << ~shift;" for k in range(count)),
            "end",
            f"if (r{n}_en) r{n}_at = r{n}_addr;",
            f"r{n}_on_way = {{r{n}_on_way[2:0], r{n}_en}};",
        ]
    if config.result_pairs:
        ports += [f"input [{RESULT_STEPS.bit_length() - 1}:0] apart", "input skips"]
    ones = f"{bits}'h{(1 << bits) - 1:x}"

    def written(n: int, first: int) -> str:
        """Bytes that writer ``n`` has of a piece that begins with the ``first`` one."""
        rest = f"~({ones} << {{w{n}_size[{byte_bits - 1}:0], 3'd0}})"
        return f"(w{n}_size >= {first + piece} ? {ones} : w{n}_size <= {first} ? {bits}'d0 : {rest})"

    for n, (writer, few) in enumerate(_write_sizes(config).items()):
        count = -(-few // piece)
        ports += [
            f"input w{n}_en",
            f"input [{address_bits - 1}:0] w{n}_addr",
            f"input [{size_bits - 1}:0] w{n}_size",
            f"input [{width - 1}:0] w{n}_data",
        ]
        variables += [f"reg [{bits - 1}:0] w{n}_part{k}, w{n}_mask{k}" for k in range(count)]
        body += [f"if (w{n}_en) begin", f"  at = w{n}_addr[{address_bits - 1}:{byte_bits}];"]
        body += [f"  shift = {{w{n}_addr[{byte_bits - 1}:0], 3'd0}};"]
        for k in range(count):
            first = piece * k
            body += [
                f"  w{n}_part{k} = w{n}_data[{8 * first} +: {bits}];",
                f"  w{n}_mask{k} = {written(n, first)};",
            ]
            if writer == "array" and config.result_pairs:
                body += [f"  if (skips) w{n}_mask{k} = 0;"]
                for block in range(1, min(first // config.oc_lanes, RESULT_STEPS) + 1):
                    further = written(n, first - block * config.oc_lanes)
                    body += [f"  if (apart == 2'd{block}) w{n}_mask{k} = w{n}_mask{k} | {further};"]
        for k in range(count + 1):
            here, before = range(count)[k : k + 1], range(count)[max(k - 1, 0) : k]
            part, mask = (
                " | ".join(
                    [*(f"w{n}_{name}{j} << shift" for j in here), *(f"w{n}_{name}{j} >> 1 >> ~shift" for j in before)]
                )
                for name in ("part", "mask")
            )
            body += [f"  {cell(k)} = {cell(k)} & ~({mask}) | ({part}) & ({mask});"]
        body += ["end"]
    body += [
        "turn = turn + 1;",
        f"if (was_reset & ~rst) for (i = 0; i < {cells}; i = i + 1) cells[i] = 0;",
        "was_reset = rst;",
    ]
    return "\n".join(
        [
            f"module {module_of(config)}({', '.join(ports)});",
            *(f"  {variable};" for variable in variables),
            f"  initial for (i = 0; i < {cells}; i = i + 1) cells[i] = 0;",
            "  always @(posedge clk) begin",
            *(f"    {line}" for line in body),
            "  end",
            "endmodule",
            "",
        ]
    )


def simulation_sources(config: Config) -> dict[str, str]:
    """Verilog files, by name, that the simulation form needs beside the generated ones."""
    return {f"{module_of(config)}.v": sram_verilog(config)}
