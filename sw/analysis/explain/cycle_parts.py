"""Splits the duration of an operation into causes, by its timing rule, so that they add up exactly.

The rules are those of `dovetail.isa.timing`; this file says what their terms are spent on. What no closed form gives,
such as the cycles in which the array waits for its requantiser, is what is left of the duration. A program has many
operations, and few kinds of them: those that take the same time for the same reasons.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache
from operator import itemgetter

from dovetail.isa.common.sizes import ceil_div, round_up
from dovetail.isa.config.resolved import Config
from dovetail.isa.instructions.checks import (
    INDEX,
    View,
    channels_of,
    columns_of,
    input_blocks,
    lines_of,
    multiplier_of,
    pairs_of,
    rows_of,
    sets_of,
    skip_of,
    weight_rows,
)
from dovetail.isa.instructions.table import INSTRUCTIONS, Op, Unit, unit_of
from dovetail.isa.timing.array import (
    ACCUMULATE,
    DRAIN,
    NOTHING,
    Free,
    group_reads,
    least_window,
    matrix_reads,
    steps_of_tap,
    to_accumulator,
)
from dovetail.isa.timing.depthwise import Depthwise
from dovetail.isa.timing.dma import BOUNDARY
from dovetail.isa.timing.operations import duration, rules_of
from dovetail.isa.timing.sequencer import CHECK
from dovetail.isa.timing.timeline import FETCH, Timeline
from dovetail.isa.timing.vector import groups_of, record_reads, table_reads, vector_reads, vector_steps

Parts = dict[str, int]
"""Cycles by the name of the cause; those with none are left out."""


def parts_of(
    config: Config, op: Op, view: View, duration: int, useful: Fraction = Fraction(1), free: Free = NOTHING
) -> Parts:
    """The causes of an operation's ``duration`` cycles.

    ``useful``: which share of the MACs that `array_macs` counts are the network's. Lanes that have a channel are
    counted in whole cycles of all lanes, rounded down for each operation. ``free``: what takes the array no time.
    """
    if view.unit == Unit.ARRAY:
        parts = _array(config, op, view, duration, useful, free)
    elif view.unit == Unit.VECTOR:
        parts = _vector(config, op, view, duration)
    else:
        parts = _transfer(config, op, view, duration)
    return {name: cycles for name, cycles in parts.items() if cycles}


def array_macs(config: Config, op: Op, view: View) -> int:
    """MACs of an array operation, as if all of its input lanes had a channel; of a depthwise one a tap that it has."""
    taps = view.taps * rows_of(op, view) if INSTRUCTIONS[op].depthwise else _steps(op, view) * config.ic_lanes
    return view.pixels * taps * channels_of(config, op, view)


def _depthwise(config: Config, op: Op, view: View, duration: int, useful: Fraction, free: Free) -> Parts:
    sets = sets_of(op, view)
    machine = Depthwise.of(
        config,
        kh=view["GEOMETRY", "kh"],
        kw=view["GEOMETRY", "kw"],
        sets=sets,
        slide=view["MODE", "slide"],
        multiplier=multiplier_of(op, view),
        int32=bool(view["MODE", "int32"]),
        columns=columns_of(config, op, view),
        rows=rows_of(op, view),
        skip=skip_of(op, view),
    )
    blocks, lines = view["BLOCKS", "count"], lines_of(op, view)
    lengths = _row_stripes(view, lines)
    words = sets * ceil_div(4 * config.oc_lanes, config.word_bytes) if view["MODE", "accumulate"] else 0
    together = config.pixel_lanes
    rows, records = (0, 0) if free.weights else (sets * machine.rows, sets * config.oc_lanes // config.records_at_once)
    least = 0 if free.steps else ACCUMULATE

    def passing(size: int) -> int:
        return 0 if free.steps else machine.passing(size)

    slots = blocks * machine.steps * sum(n * passing(size) for size, n in lengths.items())
    visits = used = filled = multiply = old = 0
    if not free.steps:
        macs = array_macs(config, op, view)
        visits = blocks * machine.steps * machine.visits * view.pixels
        used = blocks * machine.steps * sets * view.pixels // together
        filled = macs // (together * config.oc_lanes * machine.taps)
        multiply = macs * useful // config.macs_per_cycle
        turns = together - 1 + ACCUMULATE
        old = blocks * words * sum(n * max(round_up(size, together), turns) for size, n in lengths.items() if size)
    weights = turnaround = 0
    for (size, reads), count in _depthwise_windows(view, lines, machine.steps, rows, records).items():
        weights += count * max(reads - passing(size), 0)
        turnaround += count * max(least - max(passing(size), reads), 0)
    begins = max(rows, least)
    latency = CHECK + 1 + machine.fill + DRAIN
    return {
        "multiply": multiply,
        "input_lanes": filled - multiply,
        "output_lanes": used - filled,
        "pixel_lanes": visits - used,
        "input_reads": slots - visits,
        "turnaround": turnaround,
        "partial_sums": old,
        "weights": begins + weights,
        "requantise": duration - (slots + turnaround + old + begins + weights + latency),
        "array_latency": latency,
    }


def _row_stripes(view: View, lines: int) -> Counter[int]:
    """Pixels of a stripe, which ends with its line -> how many."""
    most, width = view["STRIPE", "pixels"], view["TILE", "width"]
    lengths = Counter({most: width // most * lines})
    lengths[width % most] += lines * (width % most > 0)
    return lengths


def _depthwise_windows(view: View, lines: int, steps: int, rows: int, records: int) -> Counter[tuple[int, int]]:
    """(pixels that pass in a window, reads of weights and records in it) -> how many; as of `_windows`."""
    most, width = view["STRIPE", "pixels"], view["TILE", "width"]
    first, last = min(most, width), width % most or most
    blocks = view["BLOCKS", "count"]
    windows: Counter[tuple[int, int]] = Counter()
    for size, count in _row_stripes(view, lines).items():
        windows[size, rows] += blocks * steps * count
    windows[first, rows] -= blocks
    windows[first, rows + records] += blocks
    ends = records if lines * ceil_div(width, most) == steps == 1 else 0
    windows[last, rows + ends] -= 1
    windows[last, ends] += 1
    return windows


@dataclass(frozen=True)
class _Pixels:
    """How long pixels pass: ``together`` at once, in ``share`` reads of the input; ``free``: in no time."""

    together: int
    share: int
    free: bool

    def passing(self, pixels: int, visit: int) -> int:
        """Cycles of so many pixels, each of which meets the weights of ``visit`` input blocks."""
        return 0 if self.free else ceil_div(pixels, self.together) * max(self.share, visit)

    def least(self, pixels: int, visit: int) -> int:
        """Cycles of a window at least."""
        return 0 if self.free else least_window(pixels > self.together, visit)


def _array(config: Config, op: Op, view: View, duration: int, useful: Fraction, free: Free) -> Parts:
    row = INSTRUCTIONS[op]
    if row.depthwise:
        return _depthwise(config, op, view, duration, useful, free)
    pixels, steps, blocks = view.pixels, _steps(op, view), view["BLOCKS", "count"]
    rows, records = weight_rows(config, op, view), config.oc_lanes // config.records_at_once
    if row.matrix:
        rows = matrix_reads(config, transposed=bool(view["B_FORM", "transposed"]))
    if free.weights:
        rows = records = 0
    together = config.pixel_lanes
    through = _Pixels(together, group_reads(together, pairs=pairs_of(config, op, view)), free.steps)
    held = _held(view)
    slots = busy = weights = turnaround = 0
    for (pixels_, visit, reads), count in _windows(view, held, rows, records).items():
        cycles = through.passing(pixels_, visit)
        slots += count * cycles
        busy += count * min(cycles, ceil_div(pixels_, together) * visit)
        weights += count * max(reads - cycles, 0)
        turnaround += count * max(through.least(pixels_, visit) - max(cycles, reads), 0)
    first = max(rows * held[0], through.least(1, 1))
    words = ceil_div(4 * config.oc_lanes, config.word_bytes) if view["MODE", "accumulate"] else 0
    old = sum(
        count * max(through.passing(size, together), through.least(together + 1, together))
        for size, count in _stripes(view)
    )
    old *= blocks * words
    macs = 0 if free.steps else array_macs(config, op, view)
    multiply = macs * useful // config.macs_per_cycle
    filled = macs // config.macs_per_cycle
    used = 0 if free.steps else pixels * steps * blocks // together
    latency = CHECK + 1 + to_accumulator(config) - 1 + DRAIN
    return {
        "multiply": multiply,
        "input_lanes": filled - multiply,
        "output_lanes": used - filled,
        "pixel_lanes": busy - used,
        "input_reads": slots - busy,
        "turnaround": turnaround,
        "partial_sums": old,
        "weights": first + weights,
        "requantise": duration - (slots + turnaround + old + first + weights + latency),
        "array_latency": latency,
    }


def _stripes(view: View) -> tuple[tuple[int, int], tuple[int, int]]:
    """(pixels, how many stripes have so many): of all but the last stripe, and of that one."""
    size = min(view["STRIPE", "pixels"], view.pixels)
    count = ceil_div(view.pixels, size)
    return (size, count - 1), (view.pixels - (count - 1) * size, 1)


def _windows(view: View, held: Sequence[int], rows: int, records: int) -> Counter[tuple[int, int, int]]:
    """(pixels that pass in a window, input blocks of its step, reads of weights and records in it) -> how many.

    ``held``: input blocks of each step; ``rows``: reads of weights for a block; ``records``: reads of them.
    """
    windows: Counter[tuple[int, int, int]] = Counter()
    blocks = view["BLOCKS", "count"]
    (size, before), (rest, _) = stripes = _stripes(view)
    for number, visit in enumerate(held):
        reads = rows * held[(number + 1) % len(held)]  # the next step's, or that of the next tap, stripe or block
        for pixels, count in stripes:
            windows[pixels, visit, reads] += blocks * count * view.taps
    begins, ends = (size, held[0], rows * held[1 % len(held)]), (rest, held[-1], rows * held[0])
    windows[begins] -= blocks
    windows[*begins[:2], begins[2] + records] += blocks
    last = records if before + 1 == view.taps == len(held) == 1 else 0
    windows[*ends[:2], ends[2] + last] -= 1
    windows[*ends[:2], last] += 1
    return windows


def _held(view: View) -> list[int]:
    """Input blocks of each step of a tap."""
    group = view["KC", "group"] + 1
    before, last = steps_of_tap(view["KC", "blocks"], group)
    return [*[group] * before, last]


def _vector(config: Config, op: Op, view: View, duration: int) -> Parts:
    groups = groups_of(config, op, view)
    steps = groups * vector_steps(config, op, vector_reads(op, view))
    table = table_reads(config, op)
    records = groups * record_reads(op, view["BLOCKS", "count"])
    slots = steps * view["BLOCKS", "count"]
    filled = steps * channels_of(config, op, view) // config.vector_lanes
    return {
        "vector": table + records + filled,
        "vector_lanes": slots - filled,
        "vector_latency": duration - table - records - slots,
    }


def _transfer(config: Config, op: Op, view: View, duration: int) -> Parts:
    name = unit_of(op).name.lower()
    bus, rows, planes, length = config.bus_bytes, view["COUNT", "rows"], view["COUNT", "planes"], view["LENGTH"]
    steps = view["MEM_ROW_STEP"] % bus, view["MEM_PLANE_STEP"] % bus
    beats = _beats(bus, view["MEM_ADDR"] % bus, rows, planes, *steps, length)
    full = ceil_div(length * rows * planes, bus)
    # The bus is busy from the first beat to the last one.
    busy = (beats - 1) * config.like_fixed.beat_cycles + 1
    partial = (beats - full) * config.like_fixed.beat_cycles
    return {name: busy - partial, name + "_partial": partial, name + "_latency": duration - busy}


@lru_cache(maxsize=65536)
def _beats(bus: int, address: int, rows: int, planes: int, row_step: int, plane_step: int, length: int) -> int:
    """Beats of a transfer's rows; what matters of addresses and steps is where in a beat they lead."""
    total = 0
    for plane, same_planes in _places(bus, address, planes, plane_step).items():
        for start, same_rows in _places(bus, plane, rows, row_step).items():
            total += same_planes * same_rows * ceil_div(start + length, bus)
    return total


def _places(bus: int, start: int, count: int, step: int) -> Counter[int]:
    """Where in a beat ``count`` addresses lie that are ``step`` apart, and how many of them."""
    places: Counter[int] = Counter()
    for number in range(min(count, bus)):  # then they come again
        places[(start + number * step) % bus] += ceil_div(count - number, bus)
    return places


def _steps(op: Op, view: View) -> int:
    return view.taps * input_blocks(op, view)


NO_LAYER = -1
"""Of instruction fetches."""

_TRANSFER = ("MEM_ADDR", "COUNT", "MEM_ROW_STEP", "MEM_PLANE_STEP", "LENGTH")
_RELEVANT = {
    Unit.LOAD: _TRANSFER,
    Unit.ARRAY: ("TILE", "STRIPE", "BLOCKS", "KC", "GEOMETRY", "MODE", "B_FORM"),
    Unit.VECTOR: ("TILE", "BLOCKS", "GEOMETRY"),
    Unit.STORE: _TRANSFER,
}
"""Registers that durations follow from; of a memory address what matters is where in 4 KiB it is."""
_PICK = {unit: itemgetter(*(INDEX[unit][name] for name in names)) for unit, names in _RELEVANT.items()}


@dataclass(frozen=True)
class Kind:
    """Operations alike; fetches have no ``op``. ``useful``: the share of the array's MACs that are the network's."""

    op: Op | None
    view: View
    useful: Fraction = Fraction(1)

    def parts(self, config: Config, free: Free = NOTHING) -> Parts:
        """What its cycles are spent on; ``free``: what takes the array no time."""
        if self.op is None:
            return {"fetch": rules_of(config).fetch}
        cycles = duration(config, self.op, self.view, free)
        return parts_of(config, self.op, self.view, cycles, self.useful, free)

    def moved(self, unit: Unit) -> int:
        """Bytes that an operation moves, if it is one of ``unit``, which is LOAD or STORE."""
        if self.op is None or self.view.unit != unit:
            return 0
        return self.view.moved


def kinds_of(
    config: Config, timeline: Timeline, layers: Sequence[int], macs: Sequence[int]
) -> tuple[list[Kind], list[int]]:
    """The kinds of everything in a timeline, and the number of the kind of each element.

    ``layers``: of each element, or `NO_LAYER`; ``macs``: of each layer, 0 where all counts that the array multiplies.
    """
    numbers: dict[tuple[int, ...], int] = {}
    found: list[tuple[Op | None, View, int]] = []
    kind_of = []
    for code, registers, layer in zip(timeline.op.tolist(), timeline.registers, layers, strict=True):
        unit = Unit.LOAD if code == FETCH else unit_of(code)
        key = _key(code, unit, registers, layer)
        number = numbers.setdefault(key, len(found))
        if number == len(found):
            found.append((None if code == FETCH else Op(code), View(unit, registers), layer))
        kind_of.append(number)
    counts = Counter(kind_of)
    done = [0] * len(macs)
    for number, (op, view, layer) in enumerate(found):
        if op is not None and view.unit == Unit.ARRAY:
            done[layer] += counts[number] * array_macs(config, op, view)
    useful = [_share(own, all_) for own, all_ in zip(macs, done, strict=True)]
    return [Kind(op, view, Fraction(1) if op is None else useful[layer]) for op, view, layer in found], kind_of


def _key(code: int, unit: Unit, registers: Sequence[int], layer: int) -> tuple[int, ...]:
    if code == FETCH:
        return (code,)
    values = _PICK[unit](registers)
    if unit in (Unit.LOAD, Unit.STORE):
        return (code, values[0] % BOUNDARY, *values[1:])
    return (code, layer, *values)


def _share(macs: int, done: int) -> Fraction:
    """Which share of the MACs done in a layer are its own."""
    return Fraction(min(macs, done), done) if macs and done else Fraction(1)
