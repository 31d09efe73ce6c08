"""Functional coverage: which corners of the instruction set programs have been in.

A bin is a place in a table: an operation and a flag, an operation and a corner of its shape, an operation and the check
it failed, a unit and what it waited for. All bins come from the tables of `isa/`, so a new instruction, flag or cause
brings its own. Only programs that both engines have run are counted.
"""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from operator import attrgetter

from dovetail.isa.config.given import BUS_WIDTHS, DEPTHWISE, FEATURES, PARAMETERS, PIXEL_LANES
from dovetail.isa.config.resolved import Config
from dovetail.isa.host import STALLS
from dovetail.isa.instructions.checks import (
    View,
    channels_of,
    columns_of,
    lanes_of,
    lines_of,
    pairs_of,
    result_pairs_of,
    rows_of,
    sets_of,
    skip_of,
    stream_words,
)
from dovetail.isa.instructions.table import (
    BY_NUMBER,
    CFG_PARAM,
    CFG_REG,
    INSTRUCTIONS,
    PAGE_WORDS,
    REGISTERS,
    Cause,
    Instruction,
    Op,
    Unit,
    decode,
    unit_of,
)
from dovetail.isa.timing.dma import BOUNDARY, MAX_BURST
from dovetail.isa.timing.timeline import Timeline
from dovetail.sw.random.programs.targeted import checks_of

Bin = tuple[str, str, str]
"""Table, row, column."""
Counts = Counter[Bin]


def operations() -> dict[Op, Unit]:
    """Every operation and its unit, those of the extensions that are loaded among them."""
    return {op: row.unit for op, row in INSTRUCTIONS.items() if row.unit is not None}


@dataclass(frozen=True)
class Operation:
    """An operation as it ran."""

    config: Config
    op: Op
    view: View
    base: int

    def __getitem__(self, key: str | tuple[str, str]) -> int:
        return self.view[key]

    @property
    def row(self) -> Instruction:
        """The operation's row of the instruction table."""
        return INSTRUCTIONS[self.op]

    @property
    def lanes(self) -> int:
        """Channels per block."""
        return lanes_of(self.config, self.op, self.view)

    @property
    def pixels(self) -> int:
        """Of the output tile."""
        return self.view.pixels

    @property
    def channels(self) -> int:
        """Of the output."""
        return channels_of(self.config, self.op, self.view)

    @property
    def lines(self) -> int:
        """Of the window walk."""
        return lines_of(self.op, self.view)

    def reach(self, y: str, x: str) -> int:
        """Bytes from the first to the last output pixel, in steps of two registers."""
        return (self["TILE", "height"] - 1) * self[y] + (self["TILE", "width"] - 1) * self[x]

    @property
    def longest_stripe(self) -> int:
        """Pixels of a stripe, at most."""
        config = self.config
        if not self.row.depthwise:
            return config.stripe
        return config.depthwise_pixels(sets_of(self.op, self.view))

    @property
    def last_tap(self) -> int:
        """Offset in the input region of the last tap of the last pixel, modulo 2^offset_bits."""
        off = self["ORIGIN"] + (self.lines - 1) * self["Y_STEP"] + (self["TILE", "width"] - 1) * self["X_STEP"]
        if self.row.taps:
            off += (self["GEOMETRY", "kh"] - 1) * self["KY_STEP"] + (self["GEOMETRY", "kw"] - 1) * self["KX_STEP"]
        return off % (1 << self.config.offset_bits)

    @property
    def last_row(self) -> int:
        """Input row of that tap."""
        row = (self.lines - 1) * self["GEOMETRY", "stride_y"] - self["PAD_TOP"]
        return row + (self["GEOMETRY", "kh"] - 1) * self["GEOMETRY", "dilation_y"] * self.row.taps

    @property
    def weights(self) -> int:
        """Bytes of the whole weight stream."""
        return stream_words(self.config, self.op, self.view) * self.config.word_bytes


@dataclass(frozen=True)
class Corner:
    """A corner of shapes: for which operations there is one, and when an operation is in it."""

    name: str
    applies: Callable[[Instruction], bool]
    holds: Callable[[Operation], bool]


def _compute(row: Instruction) -> bool:
    return row.unit in (Unit.ARRAY, Unit.VECTOR)


def _array(row: Instruction) -> bool:
    return row.unit == Unit.ARRAY


def _softmax(row: Instruction) -> bool:
    return row.op == Op.SOFTMAX


def _blocks(row: Instruction) -> bool:
    return _array(row) and not row.depthwise


_taps, _two, _table, _depthwise, _dma = map(attrgetter, ("taps", "two_operands", "looks_up", "depthwise", "moves"))
_records = attrgetter("records")


CORNERS = (
    Corner("one pixel", _compute, lambda o: o.pixels == 1),
    Corner("one row", _compute, lambda o: o["TILE", "height"] == 1 < o["TILE", "width"]),
    Corner("one column", _compute, lambda o: o["TILE", "width"] == 1 < o["TILE", "height"]),
    Corner("rows and columns", _compute, lambda o: min(o["TILE", "height"], o["TILE", "width"]) > 1),
    Corner("one channel", _compute, lambda o: o.channels == 1),
    Corner("several blocks", _compute, lambda o: o["BLOCKS", "count"] > 1),
    Corner("last block full", _compute, lambda o: o["BLOCKS", "last"] == o.lanes),
    Corner("last block partial", _compute, lambda o: o["BLOCKS", "last"] < o.lanes),
    Corner("kernel rows", _taps, lambda o: o["GEOMETRY", "kh"] > 1),
    Corner("kernel columns", _taps, lambda o: o["GEOMETRY", "kw"] > 1),
    Corner("row stride", _compute, lambda o: o["GEOMETRY", "stride_y"] > 1 < o["TILE", "height"]),
    Corner("row dilation", _taps, lambda o: o["GEOMETRY", "dilation_y"] > 1 < o["GEOMETRY", "kh"]),
    Corner("padding above", _compute, lambda o: o["PAD_TOP"] > 0),
    Corner("padding left", _compute, lambda o: o["PAD_LEFT"] > 0),
    Corner("padding below", _compute, lambda o: 0 < o["IN_ROWS"] <= o.last_row),
    Corner("input cut", _compute, lambda o: o.last_tap >= o["IN_BYTES"]),
    Corner(
        "output cut",
        _compute,
        lambda o: o.reach("OUT_Y_STEP", "OUT_X_STEP") + o.channels * o.row.output_bytes > o["OUT_BYTES"],
    ),
    Corner("input aligned", _compute, lambda o: o["IN_ADDR"] % o.config.word_bytes == 0),
    Corner("input unaligned", _compute, lambda o: o["IN_ADDR"] % o.config.word_bytes > 0),
    Corner("output unaligned", _compute, lambda o: o["OUT_ADDR"] % o.config.word_bytes > 0),
    Corner(
        "output in several banks",
        _compute,
        lambda o: o["OUT_ADDR"] % o.config.bank_bytes + o["OUT_BYTES"] > o.config.bank_bytes,
    ),
    Corner("narrow clamp", _compute, lambda o: o["QUANT"] >> 16 != 0x7F80),
    Corner("stripe of one", _array, lambda o: o["STRIPE", "pixels"] == 1 < o.pixels),
    Corner("largest stripe", _array, lambda o: o["STRIPE", "pixels"] == o.longest_stripe),
    Corner("several stripes", _array, lambda o: o["STRIPE", "pixels"] < o.pixels),
    Corner("last stripe shorter", _array, lambda o: o.pixels % o["STRIPE", "pixels"] > 0),
    Corner("several input blocks", _blocks, lambda o: o["KC", "blocks"] > 1),
    Corner("several input blocks held", _blocks, lambda o: o["KC", "blocks"] > 1 and o["KC", "group"] > 0),
    Corner("last group smaller", _blocks, lambda o: o["KC", "blocks"] % (o["KC", "group"] + 1) > 0),
    Corner("all weight sets", _blocks, lambda o: o.config.weight_sets == o["KC", "group"] + 1 <= o["KC", "blocks"] > 1),
    Corner(
        "pixel lanes left over",
        _blocks,
        lambda o: min(o["STRIPE", "pixels"], o.pixels) % o.config.pixel_lanes > 0,
    ),
    Corner("pairs of pixels", _blocks, lambda o: pairs_of(o.config, o.op, o.view)),
    Corner("results of two pixels at once", _blocks, lambda o: result_pairs_of(o.config, o.op, o.view)),
    Corner("columns of a word", _depthwise, lambda o: columns_of(o.config, o.op, o.view) > 1),
    Corner("kernel rows at once", _depthwise, lambda o: rows_of(o.op, o.view) > 1),
    Corner("several steps of kernel rows", _depthwise, lambda o: rows_of(o.op, o.view) > 1 < o["GEOMETRY", "kh"]),
    Corner("chain of steps", _depthwise, lambda o: o["MODE", "chain"] == 1 < o["GEOMETRY", "kh"]),
    Corner("lines without results", _depthwise, lambda o: skip_of(o.op, o.view) > 1 < o["TILE", "height"]),
    Corner("weights cut", _array, lambda o: o["W_BYTES"] < o.weights),
    Corner("int8 from old values", _array, lambda o: o["MODE", "accumulate"] > o["MODE", "int32"]),
    Corner("int32 from old values", _array, lambda o: bool(o["MODE", "accumulate"] & o["MODE", "int32"])),
    Corner("several channels per input", _depthwise, lambda o: o["MODE", "extra"] > 0),
    Corner("lanes left over", _depthwise, lambda o: o.config.oc_lanes % (1 + o["MODE", "extra"]) > 0),
    Corner("second operand repeats rows", _two, lambda o: o["B_Y_STEP"] == 0 and o["TILE", "height"] > 1),
    Corner("second operand repeats pixels", _two, lambda o: o["B_X_STEP"] == 0 and o["TILE", "width"] > 1),
    Corner(
        "second operand cut",
        _two,
        lambda o: o.reach("B_Y_STEP", "B_X_STEP") + o.channels * o.row.input_bytes > o["B_BYTES"],
    ),
    Corner("table cut", _table, lambda o: o["B_BYTES"] < o.row.table_bytes),
    Corner("records cut", _records, lambda o: o["B_BYTES"] < 8 * o.lanes * o["BLOCKS", "count"]),
    Corner("row of many blocks", _records, lambda o: o["BLOCKS", "count"] > 16),
    Corner("no term of eps", _records, lambda o: not o["SUM_BIAS"] and not o["B_MULT"] % (1 << 24)),
    Corner("no element counts", _softmax, lambda o: o["POOL_COUNT", "count"] == 0),
    Corner("some elements count", _softmax, lambda o: 0 < o["POOL_COUNT", "count"] < o.channels),
    Corner("more elements count in the next pixel", _softmax, lambda o: o["B_X_STEP"] == 1 and o["TILE", "width"] > 1),
    Corner("one byte", _dma, lambda o: o["LENGTH"] == 1),
    Corner("one row", _dma, lambda o: o["COUNT", "rows"] == 1),
    Corner("several rows", _dma, lambda o: o["COUNT", "rows"] > 1),
    Corner("several planes", _dma, lambda o: o["COUNT", "planes"] > 1),
    Corner("rows backwards", _dma, lambda o: o["MEM_ROW_STEP"] >= 1 << 31 and o["COUNT", "rows"] > 1),
    Corner("memory aligned", _dma, lambda o: o["MEM_ADDR"] % o.config.bus_bytes == 0),
    Corner("memory unaligned", _dma, lambda o: o["MEM_ADDR"] % o.config.bus_bytes > 0),
    Corner("across 4 KiB", _dma, lambda o: (o.base + o["MEM_ADDR"]) % BOUNDARY + o["LENGTH"] > BOUNDARY),
    Corner("longest burst", _dma, lambda o: o["LENGTH"] > min(BOUNDARY, MAX_BURST * o.config.bus_bytes)),
    Corner(
        "region cut",
        _dma,
        lambda o: (
            (o["COUNT", "planes"] - 1) * o["SRAM_PLANE_STEP"]
            + (o["COUNT", "rows"] - 1) * o["SRAM_ROW_STEP"]
            + o["LENGTH"]
            > o["SRAM_BYTES"]
        ),
    ),
)
"""What shapes can be like, beside flags."""

FLAGS = {
    unit: tuple((r.name, f.name) for r in REGISTERS[unit].values() for f in r.fields if f.width == 1) for unit in Unit
}
"""The one-bit fields of each unit's registers; also those that an operation ignores must make no difference to it."""

_ROWS = "softmax", "norm", "norm_bits"
_PARAMETERS = ("whole register", "packed register")
"""What a parameter is added to."""

_FRONT_END = (Cause.OPCODE, Cause.RESERVED, Cause.REGISTER, Cause.UNIT_ABSENT, Cause.NO_END, Cause.BUS_FETCH)


def all_bins() -> list[Bin]:
    """Every bin, table by table."""
    bins: list[Bin] = []
    ops = operations()
    for op, unit in ops.items():
        for register, field in FLAGS[unit]:
            bins += [("flags", op.name, f"{register}.{field}={value}") for value in (0, 1)]
    bins += [("shapes", op.name, corner.name) for op in ops for corner in CORNERS if corner.applies(INSTRUCTIONS[op])]
    bins += [("checks", op.name, cause.name) for op in ops for cause in checks_of(op)]
    bins += [("words", kind, Cause.RESERVED.name) for kind in ("CFG", "SYNC", "END", "operation")]
    bins += [("words", kind, Cause.REGISTER.name) for kind in ("CFG", "SYNC")]
    bins += [("words", "none", cause.name) for cause in (Cause.OPCODE, Cause.NO_END, Cause.BUS_FETCH)]
    absent = [op.name for op, row in INSTRUCTIONS.items() if row.feature] + ["CFG", "SYNC"]
    bins += [("words", name, Cause.UNIT_ABSENT.name) for name in absent]
    bins += [("parameters", unit.name, column) for unit in Unit for column in _PARAMETERS]
    bins.append(("parameters", "not built", Cause.RESERVED.name))
    bins += [("stalls", unit.name, stall) for unit in Unit for stall in STALLS]
    bins += [("waits", unit.name, on.name) for unit in Unit for on in Unit]
    bins += [("configurations", name, str(value)) for name in FEATURES for value in (True, False)]
    bins += [("configurations", name, str(rows)) for name in _ROWS for rows in PARAMETERS[name].among]
    bins += [("configurations", "depthwise", value) for value in DEPTHWISE]
    bins += [("configurations", "bus", str(value)) for value in BUS_WIDTHS]
    bins += [("configurations", "pixel_lanes", str(value)) for value in PIXEL_LANES]
    return bins


def cover(config: Config, words: Sequence[int], timeline: Timeline, base: int = 0) -> Counts:
    """The bins of a run."""
    counts: Counts = Counter()
    for op, works, registers in zip(timeline.op.tolist(), timeline.works.tolist(), timeline.registers, strict=True):
        if works and registers:
            _cover_operation(counts, Op(op), registers, config, base)
    _cover_fault(counts, config, words, timeline)
    executed = executed_words(words, timeline)
    if timeline.fault and timeline.fault.cause not in (Cause.NO_END, Cause.BUS_FETCH):
        executed -= 1  # the one that faulted
    for word in words[:executed]:
        if CFG_PARAM.get(word) and word & 0xFF == Op.CFG:
            register = BY_NUMBER[CFG_REG.get(word)]
            counts["parameters", register.unit.name, _PARAMETERS[bool(register.fields)]] += 1
        if word & 0xFF == Op.SYNC:
            decoded = decode(word)
            if decoded.unit is None or decoded.on is None:
                break  # a fetch failed before this word was executed
            counts["waits", decoded.unit.name, decoded.on.name] += 1
    for unit, counters in timeline.counters.items():
        counts.update(("stalls", unit.name, stall) for stall in STALLS if getattr(counters, stall.lower()))
    for name in FEATURES:
        counts["configurations", name, str(getattr(config, name))] += 1
    for name in _ROWS:
        counts["configurations", name, str(getattr(config, name))] += 1
    counts["configurations", "depthwise", config.depthwise] += 1
    counts["configurations", "bus", str(config.bus)] += 1
    counts["configurations", "pixel_lanes", str(config.pixel_lanes)] += 1
    return counts


def executed_words(words: Sequence[int], timeline: Timeline) -> int:
    """Words up to the END, or up to the one that faulted."""
    fault = timeline.fault
    if fault is None:
        return next(n for n, word in enumerate(words, 1) if word & 0xFF == Op.END)
    if fault.cause == Cause.BUS_FETCH:
        return fault.pc * PAGE_WORDS
    return fault.pc + (fault.cause != Cause.NO_END)


def _cover_operation(counts: Counts, op: Op, registers: Sequence[int], config: Config, base: int) -> None:
    unit = unit_of(op)
    operation = Operation(config, op, View(unit, registers), base)
    for register, field in FLAGS[unit]:
        counts["flags", op.name, f"{register}.{field}={operation[register, field]}"] += 1
    counts.update(("shapes", op.name, c.name) for c in CORNERS if c.applies(operation.row) and c.holds(operation))


def _cover_fault(counts: Counts, config: Config, words: Sequence[int], timeline: Timeline) -> None:
    fault = timeline.fault
    if fault is None:
        return
    if fault.cause in (Cause.OPCODE, Cause.NO_END, Cause.BUS_FETCH):
        counts["words", "none", fault.cause.name] += 1
        return
    # Beyond the words there are zeros, which are no opcode.
    op = Op(words[fault.pc] & 0xFF)
    if op == Op.CFG and fault.cause == Cause.RESERVED and CFG_PARAM.get(words[fault.pc]) > config.parameters > 0:
        counts["parameters", "not built", fault.cause.name] += 1
    if fault.cause not in _FRONT_END:
        counts["checks", op.name, fault.cause.name] += 1
    elif fault.cause == Cause.RESERVED and INSTRUCTIONS[op].unit is not None:
        counts["words", "operation", fault.cause.name] += 1
    else:
        counts["words", op.name, fault.cause.name] += 1


def holes(counts: Mapping[Bin, int]) -> list[Bin]:
    """Bins that no run was in."""
    return [each for each in all_bins() if not counts.get(each)]


def markdown(counts: Mapping[Bin, int]) -> str:
    """A table of counts per kind of bin, and the holes."""
    bins = all_bins()
    lines = ["# Functional coverage", "", f"{len(bins) - len(holes(counts))} of {len(bins)} bins.", ""]
    for table in dict.fromkeys(table for table, _, _ in bins):
        mine = [(row, column) for kind, row, column in bins if kind == table]
        rows, columns = (list(dict.fromkeys(names)) for names in zip(*mine, strict=True))
        # The longer side goes down.
        turned = len(columns) > len(rows)
        down, across = (columns, rows) if turned else (rows, columns)
        lines += [f"## {table}", "", "| | " + " | ".join(across) + " |", "|---|" + "---:|" * len(across)]
        for first in down:
            cells = []
            for second in across:
                key = (second, first) if turned else (first, second)
                cells.append(f"{counts.get((table, *key), 0):,}" if key in mine else "")
            lines.append(f"| {first} | " + " | ".join(cells) + " |")
        lines.append("")
    missing = [f"- {table}: {row}, {column}" for table, row, column in holes(counts)]
    return "\n".join([*lines, "## Holes", "", *(missing or ["none"])]) + "\n"


def as_json(counts: Mapping[Bin, int]) -> dict[str, object]:
    """Bins and holes as JSON has them."""
    bins = all_bins()
    nested: dict[str, dict[str, dict[str, int]]] = {}
    for table, row, column in bins:
        nested.setdefault(table, {}).setdefault(row, {})[column] = counts.get((table, row, column), 0)
    return {"bins": len(bins), "hit": len(bins) - len(holes(counts)), "tables": nested, "holes": holes(counts)}
