"""What an operation is verified for before it works: static checks of its registers, and the bank ports it claims.

Registers are given as the sequence of a unit's values in the order of :data:`REGISTERS`. Values may be arrays, of many
operations at once that have the opcode and MODE in common: what comes out then are arrays, too.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from dovetail.isa.common.sizes import round_up
from dovetail.isa.config.resolved import COLUMN_TAPS, RESULT_STEPS, ROW_STEPS, Config
from dovetail.isa.instructions.table import CFG_PARAM, INSTRUCTIONS, REGISTERS, Cause, Instruction, Op, Stage, Unit

INDEX = {unit: {name: r.index for name, r in registers.items()} for unit, registers in REGISTERS.items()}
"""Where each register stands in its unit's sequence."""

_FIELDS = {
    unit: {(r.name, f.name): (r.index, f.low, (1 << f.width) - 1) for r in registers.values() for f in r.fields}
    for unit, registers in REGISTERS.items()
}

ROW_ELEMENTS = 4096
"""Of the longest row of an operation with passes."""

MAX_SLIDE = 2
"""The most kernel columns from an output pixel to the next that a depthwise convolution can slide by."""

MAX_SKIP = 4
"""The most lines from one with results to the next, of a depthwise convolution with several kernel rows at once."""

Region = tuple[int, int]
"""(SRAM byte address, bytes)."""
READS, WRITES = 4, 1
"""Regions that an operation claims, at most."""
REGIONS = READS + WRITES


def known(config: Config) -> list[Instruction]:
    """The instructions that an accelerator's front end knows; any other opcode is trapped as OPCODE."""
    return [row for row in INSTRUCTIONS.values() if row.extension in (None, *config.extensions)]


def has(config: Config, op: Op) -> bool:
    """Whether an accelerator has the instruction; what it knows but lacks is trapped as UNIT_ABSENT."""
    row = INSTRUCTIONS[op]
    return row.extension in (None, *config.extensions) and (row.feature is None or bool(getattr(config, row.feature)))


def reserved_bits(config: Config, row: Instruction) -> int:
    """Mask of the bits of an instruction's word that an accelerator wants to be zero."""
    return row.reserved if config.parameters else row.reserved | CFG_PARAM.mask * (row.op == Op.CFG)


def built(config: Config, unit: Unit) -> list[Instruction]:
    """The instructions that an accelerator's unit has."""
    return [row for row in known(config) if row.unit == unit and has(config, row.op)]


def offers(config: Config, trait: str) -> bool:
    """Whether the vector unit has an operation with the trait."""
    return any(getattr(row, trait) for row in built(config, Unit.VECTOR))


def stages(config: Config) -> list[Stage]:
    """What makes the results of the vector unit's operations, the quickest first."""
    return sorted({row.stage for row in built(config, Unit.VECTOR)}, key=lambda stage: (stage.latency, stage.name))


class View:
    """Reads a unit's registers by name: ``view["KC"]``, ``view["KC", "blocks"]``; all unsigned."""

    def __init__(self, unit: Unit, values: Sequence[int]) -> None:
        self.unit = unit
        self.values = values
        self._index = INDEX[unit]
        self._fields = _FIELDS[unit]

    def __getitem__(self, key: str | tuple[str, str]) -> int:
        if isinstance(key, str):
            return self.values[self._index[key]]
        index, low, mask = self._fields[key]
        return self.values[index] >> low & mask

    def region(self, name: str) -> Region:
        """``<name>_ADDR`` and ``<name>_BYTES``."""
        return self.values[self._index[name + "_ADDR"]], self.values[self._index[name + "_BYTES"]]

    @property
    def pixels(self) -> int:
        """Of the output tile."""
        return self["TILE", "height"] * self["TILE", "width"]

    @property
    def taps(self) -> int:
        """Of the kernel."""
        return self["GEOMETRY", "kh"] * self["GEOMETRY", "kw"]

    @property
    def moved(self) -> int:
        """Bytes of a transfer."""
        return self["LENGTH"] * self["COUNT", "rows"] * self["COUNT", "planes"]


@dataclass(frozen=True)
class Regions:
    """The SRAM regions that an operation declares, in the order input, weights or operand B, accumulators; output."""

    reads: tuple[Region, ...]
    writes: tuple[Region, ...]
    exclusive: tuple[tuple[Region, Region], ...] = ()
    """Pairs of read regions that must not share a bank: they are read at the same time."""
    apart: tuple[tuple[Region, Region], ...] = ()
    """Pairs that must not share a byte: one is written while the other is read."""


@dataclass(frozen=True)
class Claim:
    """Bank ports as masks: bit k is bank k. ``twice``: the instruction is in its own way, needing a read port twice or
    writing over what it reads."""

    reads: int
    writes: int
    twice: bool


def regions(op: Op, view: View) -> Regions:
    """The regions that ``op`` claims."""
    if view.unit == Unit.LOAD:
        return Regions((), (view.region("SRAM"),))
    if view.unit == Unit.STORE:
        return Regions((view.region("SRAM"),), ())
    source, target = view.region("IN"), view.region("OUT")
    second = (view.region("B"),) if INSTRUCTIONS[op].reads_b else ()
    if view.unit == Unit.VECTOR:
        operands = (source, *second)
        return Regions(operands, (target,), (), tuple((operand, target) for operand in operands))
    streams = (view.region("W"), *second)
    exclusive = [(source, stream) for stream in streams]
    apart = tuple((region, target) for region in (source, *streams))
    if not view["MODE", "accumulate"]:
        return Regions((source, *streams), (target,), tuple(exclusive), apart)
    exclusive += [(stream, target) for stream in streams]
    return Regions((source, *streams, target), (target,), tuple(exclusive), apart)


def lanes_of(config: Config, op: Op, view: View) -> int:
    """Channels per block of output channels."""
    if view.unit == Unit.VECTOR:
        return config.vector_lanes
    lanes = array_lanes(config, op, view)
    return lanes - lanes % multiplier_of(op, view)


def row_blocks(config: Config) -> int:
    """Blocks of the longest row of an operation with passes."""
    return ROW_ELEMENTS // config.vector_lanes


def channels_of(config: Config, op: Op, view: View) -> int:
    """Output channels."""
    return (view["BLOCKS", "count"] - 1) * lanes_of(config, op, view) + view["BLOCKS", "last"]


def multiplier_of(op: Op, view: View) -> int:
    """Output channels per input channel of a depthwise convolution; 1 for other operations."""
    return 1 + view["MODE", "extra"] if INSTRUCTIONS[op].depthwise else 1


def sets_of(op: Op, view: View) -> int:
    """Weight sets of an ARRAY operation that are held at the same time: of input blocks, or of depthwise channels."""
    return view["KC", "group"] + 1


def pairs_of(config: Config, op: Op, view: View) -> bool:
    """Whether a read has the input of two pixels of an ARRAY operation."""
    return config.pixel_lanes > 1 and not INSTRUCTIONS[op].depthwise and bool(view["MODE", "pairs"])


def result_pairs_of(config: Config, op: Op, view: View) -> bool:
    """Whether the results of two pixels of an ARRAY operation leave together, see :func:`results_apart`."""
    return pairs_of(config, op, view) and not view["MODE", "int32"] and results_apart(config, view["OUT_X_STEP"])


def results_apart(config: Config, step: int) -> bool:
    """Whether int8 results of two pixels can leave together that are ``step`` bytes apart: whole blocks."""
    blocks, rest = divmod(step, config.oc_lanes)
    return config.result_pairs and 1 <= blocks <= RESULT_STEPS and not rest


def columns_of(config: Config, op: Op, view: View) -> int:
    """Columns of the input that a word of a depthwise convolution has beside each other; 1 for other operations."""
    return 1 << view["MODE", "columns"] if config.pixel_lanes > 1 and INSTRUCTIONS[op].depthwise else 1


def array_lanes(config: Config, op: Op, view: View) -> int:
    """Records per block of output channels in the weight stream of an ARRAY operation."""
    return config.oc_lanes * (sets_of(op, view) if INSTRUCTIONS[op].depthwise else 1)


def input_blocks(op: Op, view: View) -> int:
    """Blocks of input channels per tap of an ARRAY operation."""
    return 1 if INSTRUCTIONS[op].depthwise else view["KC", "blocks"]


def rows_of(op: Op, view: View) -> int:
    """Kernel rows of a step of a depthwise convolution; 1 for other operations."""
    return 1 + view["MODE", "rows"] if INSTRUCTIONS[op].depthwise else 1


def skip_of(op: Op, view: View) -> int:
    """Lines from one with results to the next one of a depthwise convolution; 1 for other operations."""
    return 1 + view["MODE", "skip"] if INSTRUCTIONS[op].depthwise else 1


def kernel_rows_of(op: Op, view: View) -> list[tuple[int, int]]:
    """(line, step) in which each kernel row of an ARRAY operation is read, those that its first step sees first. Line 0
    is as many lines before that of the results as a step has rows less one."""
    rows, steps = rows_of(op, view), view["GEOMETRY", "kh"]
    if rows == 1 or not view["MODE", "chain"]:
        return [(row, step) for step in range(steps) for row in range(rows)]
    reads = [step - before for step in range(steps) for before in reversed(range(rows))]  # steps from the results' line
    return [(rows - 1 + read // steps, read % steps) for read in reads]


def lines_of(op: Op, view: View) -> int:
    """Lines of an ARRAY operation, with those that have no results: before the first one its kernel's other rows."""
    return (view["TILE", "height"] - 1) * skip_of(op, view) + rows_of(op, view)


def longest_line(config: Config, slide: int) -> int:
    """Output pixels of a line, at most, for whose words there is room in the row buffer."""
    return config.line_words // 2 - 2 if slide > 1 else config.stripe_rows


def columns_at_once(config: Config, op: Op, view: View) -> int:
    """Taps of a kernel row that are multiplied in one step of an ARRAY operation: the input lanes of a depthwise
    convolution carry them."""
    return min(config.ic_lanes, view["GEOMETRY", "kw"]) if INSTRUCTIONS[op].depthwise else 1


def taps_at_once(config: Config, op: Op, view: View) -> int:
    """Taps that are multiplied in one step of an ARRAY operation, of all of its kernel rows."""
    return rows_of(op, view) * columns_at_once(config, op, view)


def kernel_columns(config: Config, op: Op, view: View) -> int:
    """Kernel columns that the steps of an ARRAY operation cover: as many taps in every one."""
    return round_up(view["GEOMETRY", "kw"], columns_at_once(config, op, view))


def weight_sets(config: Config, op: Op, view: View) -> int:
    """Weight sets in the stream per block of output channels of an ARRAY operation; a matrix product has none."""
    row = INSTRUCTIONS[op]
    if row.matrix:
        return 0
    if row.depthwise:
        steps = view["GEOMETRY", "kh"] * kernel_columns(config, op, view) // columns_at_once(config, op, view)
        return steps * sets_of(op, view)
    return view.taps * view["KC", "blocks"]


def weight_rows(config: Config, op: Op, view: View) -> int:
    """SRAM words of a weight set of an ARRAY operation."""
    row = INSTRUCTIONS[op]
    if row.matrix:
        return 0
    return config.depthwise_rows(taps_at_once(config, op, view)) if row.depthwise else config.weight_rows


def stream_words(config: Config, op: Op, view: View) -> int:
    """SRAM words of the weight stream of an ARRAY operation."""
    records = config.param_rows(array_lanes(config, op, view))
    weights = weight_sets(config, op, view) * weight_rows(config, op, view)
    return view["BLOCKS", "count"] * (records + weights)


def _sizes(op: Op, view: View) -> Iterable[int]:
    """Everything that must not be zero, regions aside."""
    if INSTRUCTIONS[op].moves:
        return view["LENGTH"], view["COUNT", "rows"], view["COUNT", "planes"]
    sizes = [
        view["TILE", "height"],
        view["TILE", "width"],
        view["BLOCKS", "count"],
        view["BLOCKS", "last"],
        view["GEOMETRY", "kh"],
        view["GEOMETRY", "kw"],
    ]
    if view.unit == Unit.ARRAY:
        sizes += [view["STRIPE", "pixels"], input_blocks(op, view)]
    elif op == Op.POOL and view["MODE", "average"] and not view["MODE", "requantise"]:
        sizes.append(view["POOL_COUNT", "count"])
    return sizes


def _rows(config: Config, op: Op, view: View) -> int:
    """Rows of accumulators that a depthwise stripe takes."""
    return config.depthwise_visits(sets_of(op, view)) * view["STRIPE", "pixels"]


def _sets(config: Config, op: Op, view: View) -> int:
    """The most weight sets; 0 if the operation's MODE is wrong for any."""
    if not INSTRUCTIONS[op].depthwise:
        return config.pair_sets if pairs_of(config, op, view) else config.weight_sets
    if view["MODE", "slide"] > MAX_SLIDE or view["MODE", "extra"] >= config.oc_lanes:
        return 0
    if config.serial and (view["MODE", "pairs"] or view["MODE", "columns"]):
        return 0
    has_rows = _has_rows(config, op, view)
    if (columns := columns_of(config, op, view)) == 1:
        return has_rows * (1 if view["MODE", "extra"] else config.depthwise_sets)
    # A word is full of columns, of one pixel each or two of one, and the next pixels begin in the next word.
    fits = columns <= config.word_columns and view["MODE", "slide"] == 1 and not view["MODE", "extra"]
    full = view["KX_STEP"] == config.acc_lanes
    if columns == 2 and config.has_wide_words:
        full |= view["KX_STEP"] == 2 * config.acc_lanes
    full &= (sets_of(op, view) == config.pixel_lanes) & (view["GEOMETRY", "kw"] == COLUMN_TAPS)
    return config.pixel_lanes * (has_rows & fits & full)


def _has_rows(config: Config, op: Op, view: View) -> bool:
    """Whether a depthwise convolution may have the kernel rows of its MODE in a step: all of their taps have an input
    lane, a line is a stripe, and the row buffer has room for its words."""
    rows, slide, kw = rows_of(op, view), view["MODE", "slide"], view["GEOMETRY", "kw"]
    if rows == 1:
        return not view["MODE", "skip"] | view["MODE", "chain"]
    if rows > config.kernel_rows or not slide or view["MODE", "accumulate"] or view["MODE", "extra"]:
        return False
    fits = sum((kw == columns) for columns in config.row_kernels(rows)) > 0
    fits &= (view["GEOMETRY", "kh"] <= ROW_STEPS) & (view["TILE", "width"] <= view["STRIPE", "pixels"])
    return fits & (view["TILE", "width"] <= longest_line(config, slide))


def failures(config: Config, op: Op, view: View) -> Iterator[tuple[Cause, bool]]:
    """The static checks and whether they fail, the lowest cause number first."""
    declared = regions(op, view)
    spaces = declared.reads + declared.writes
    empty = False
    for size in (*_sizes(op, view), *(size for _, size in spaces)):
        empty |= size == 0
    yield Cause.ZERO_SIZE, empty
    if view.unit in (Unit.ARRAY, Unit.VECTOR):
        yield Cause.TOO_LARGE, view["BLOCKS", "last"] > lanes_of(config, op, view)
    if INSTRUCTIONS[op].passes:
        yield Cause.TOO_LARGE, view["BLOCKS", "count"] > row_blocks(config)
    if view.unit == Unit.ARRAY:
        yield Cause.TOO_LARGE, view["STRIPE", "pixels"] > config.stripe
        if INSTRUCTIONS[op].depthwise:
            yield Cause.TOO_LARGE, _rows(config, op, view) > config.stripe_rows
        yield Cause.TOO_LARGE, sets_of(op, view) > _sets(config, op, view)
        if pairs_of(config, op, view):
            odd = (view["TILE", "width"] | view["STRIPE", "pixels"] | view["MODE", "accumulate"]) % 2 != 0
            yield Cause.TOO_LARGE, odd | (view["X_STEP"] > config.pair_step)
        yield Cause.ALIGNMENT, (view["W_ADDR"] | view["W_BYTES"]) % config.word_bytes != 0
    outside = False
    for address, size in spaces:
        outside |= address + size > config.sram
    yield Cause.SRAM_RANGE, outside


def check(config: Config, op: Op, view: View) -> Cause:
    """The lowest cause number among the static checks that fail, else ``NONE``."""
    return next((cause for cause, fails in failures(config, op, view) if fails), Cause.NONE)


def banks_of(config: Config, space: Region) -> tuple[int, int]:
    """The first and the last bank of a region."""
    address, size = space
    return address // config.bank_bytes, (address + size - 1) // config.bank_bytes


def share_bank(config: Config, a: Region, b: Region) -> bool:
    """Whether two regions lie in one bank."""
    (first, last), (begin, end) = banks_of(config, a), banks_of(config, b)
    return (first <= end) & (begin <= last)


def share_byte(a: Region, b: Region) -> bool:
    """Whether two regions overlap."""
    (first, size), (begin, length) = a, b
    return (first < begin + length) & (begin < first + size)


def in_its_own_way(config: Config, declared: Regions) -> bool:
    """Whether an operation that passes :func:`check` needs a read port twice or writes over what it reads."""
    twice = False
    for a, b in declared.exclusive:
        twice |= share_bank(config, a, b)
    for a, b in declared.apart:
        twice |= share_byte(a, b)
    return twice


def _banks(config: Config, spaces: Iterable[Region]) -> int:
    mask = 0
    for space in spaces:
        first, last = banks_of(config, space)
        mask |= (2 << last) - (1 << first)
    return mask


def claim(config: Config, op: Op, view: View) -> Claim:
    """The bank ports of an operation that passes :func:`check`."""
    declared = regions(op, view)
    twice = in_its_own_way(config, declared)
    return Claim(_banks(config, declared.reads), _banks(config, declared.writes), twice)
