"""What an operation's cycles are spent on, against loops over its windows, reads and beats."""

from __future__ import annotations

import random
from fractions import Fraction
from itertools import product

import pytest

from dovetail.isa.common.sizes import ceil_div
from dovetail.isa.config.given import MemoryTiming
from dovetail.isa.config.resolved import Config
from dovetail.isa.instructions.checks import View, lanes_of, lines_of
from dovetail.isa.instructions.table import INSTRUCTIONS, REGISTERS, Op, Unit, pack, unit_of
from dovetail.isa.timing.array import ACCUMULATE, DRAIN, NOTHING, SETTLE, Free, matrix_reads, to_accumulator
from dovetail.isa.timing.depthwise import Depthwise
from dovetail.isa.timing.dma import Shape, bursts
from dovetail.isa.timing.operations import duration
from dovetail.isa.timing.sequencer import CHECK
from dovetail.sw.analysis.explain.causes import CAUSES
from dovetail.sw.analysis.explain.cycle_parts import Parts, array_macs, parts_of
from dovetail.sw.random.programs.accelerators import random_config
from dovetail.sw.random.programs.registers import legal_registers, operations

STEPS = ("multiply", "input_lanes", "output_lanes", "pixel_lanes", "input_reads")
FREES = [Free(*flags) for flags in product((False, True), repeat=3)]


def random_view(rng: random.Random, config: Config, unit: Unit) -> tuple[Op, View]:
    op = rng.choice([op for op in operations(config) if unit_of(op) == unit])
    values = legal_registers(rng, config, op)
    return op, View(unit, [values[name] for name in REGISTERS[unit]])


def split(config: Config, op: Op, view: View, useful: Fraction = Fraction(1), free: Free = NOTHING) -> Parts:
    return parts_of(config, op, view, duration(config, op, view, free), useful, free)


@pytest.mark.parametrize("seed", range(60))
def test_parts_add_up(seed: int) -> None:
    rng = random.Random(seed)
    config = random_config(rng, vector=True)
    for unit in Unit:
        for _ in range(10):
            op, view = random_view(rng, config, unit)
            free = rng.choice(FREES)
            parts = split(config, op, view, Fraction(rng.randint(0, 7), 7), free)
            assert sum(parts.values()) == duration(config, op, view, free)
            assert min(parts.values()) > 0
            assert set(parts) <= set(CAUSES)


def depthwise_of(config: Config, view: View) -> Depthwise:
    return Depthwise.of(
        config,
        kh=view["GEOMETRY", "kh"],
        kw=view["GEOMETRY", "kw"],
        sets=view["KC", "group"] + 1,
        slide=view["MODE", "slide"],
        multiplier=view["MODE", "extra"] + 1,
        columns=1 << view["MODE", "columns"] if config.pixel_lanes > 1 else 1,
        rows=1 + view["MODE", "rows"],
        skip=1 + view["MODE", "skip"],
    )


def windows(config: Config, op: Op, view: View, free: Free) -> dict[str, int]:
    """Every window of an array operation, one after the other: its pixels, what it is longer by, waits before it."""
    depthwise = depthwise_of(config, view) if op == Op.DEPTH_CONV else None
    lanes = depthwise.sets * config.oc_lanes if depthwise else config.oc_lanes
    rows = depthwise.rows if depthwise else config.weight_rows
    if op == Op.MAT_MUL:
        rows = matrix_reads(config, transposed=bool(view["B_FORM", "transposed"]))
    rows, records = (0, 0) if free.weights else (rows, lanes // config.records_at_once)
    together = config.pixel_lanes
    reads_of_group = together // 2 if view["MODE", "pairs"] and together > 1 else together
    lines, pixels, dry = 1, view["TILE", "height"] * view["TILE", "width"], {0: False}
    if depthwise:
        lines, pixels = lines_of(op, view), view["TILE", "width"]
        dry = {
            line: line < depthwise.before or (line - depthwise.before) % (depthwise.between + 1) > 0
            for line in range(lines)
        }
    stripe = view["STRIPE", "pixels"]
    sizes = [*[stripe] * (pixels // stripe), *[pixels % stripe] * (pixels % stripe > 0)] * lines
    kc, group = view["KC", "blocks"], view["KC", "group"] + 1
    steps = [min(group, kc - first) for first in range(0, kc, group)] * view.taps
    if depthwise:
        steps = [depthwise.sets] * depthwise.steps
    stripes = [(block, number) for block in range(view["BLOCKS", "count"]) for number in range(len(sizes))]
    fill = depthwise.fill if depthwise else to_accumulator(config) - 1
    words = (depthwise.sets if depthwise else 1) * ceil_div(4 * config.oc_lanes, config.word_bytes)
    first = rows * steps[0] if free.steps else max(rows * steps[0], ACCUMULATE)
    found = {"steps": 0, "weights": first, "turnaround": 0, "partial_sums": 0, "requantise": 0}
    time = drained = 0
    buffers = [0] * config.stripe_buffers
    for block, number in stripes:
        size, rests = sizes[number], dry[number // (len(sizes) // lines)]
        begin = time if rests else max(time, buffers.pop(0))
        if view["MODE", "accumulate"] and not free.steps:
            begin = max(begin, drained + SETTLE) if drained else begin
            found["partial_sums"] += words * max(ceil_div(size, together) * together, together - 1 + ACCUMULATE)
        found["requantise"] += begin - time
        for step, visit in enumerate(steps):
            passing = depthwise.passing(size) if depthwise else ceil_div(size, together) * max(reads_of_group, visit)
            passing = 0 if free.steps else passing
            least = visit - 1 + ACCUMULATE if size > together else max(visit, ACCUMULATE)
            least = 0 if free.steps else ACCUMULATE if depthwise else least
            reads = records if number == step == 0 else 0
            if (block, number, step) != (*stripes[-1], len(steps) - 1):
                reads += rows * steps[(step + 1) % len(steps)]
            found["steps"] += passing
            found["weights"] += max(reads - passing, 0)
            found["turnaround"] += max(passing, reads, least) - max(passing, reads)
        time = sum(found.values()) - first
        if rests:
            continue
        channels = view["BLOCKS", "last"] if block == stripes[-1][0] else lanes_of(config, op, view)
        writes = depthwise.writes(channels) if depthwise else ceil_div(channels, config.requant_lanes)
        drained = max(drained, time + fill) + (0 if free.results else size * writes)
        buffers.append(drained + 1)
    found["requantise"] += drained - (time + fill)
    return found


@pytest.mark.parametrize("seed", range(40))
def test_array_window_by_window(seed: int) -> None:
    rng = random.Random(seed)
    config = random_config(rng)
    for _ in range(10):
        op, view = random_view(rng, config, Unit.ARRAY)
        free = rng.choice(FREES)
        parts = split(config, op, view, Fraction(rng.randint(0, 5), 5), free)
        found = windows(config, op, view, free)
        assert sum(parts.get(name, 0) for name in STEPS) == found.pop("steps")
        assert {name: parts.get(name, 0) for name in found} == found
        fill = depthwise_of(config, view).fill if op == Op.DEPTH_CONV else to_accumulator(config) - 1
        assert parts["array_latency"] == CHECK + 1 + fill + DRAIN


@pytest.mark.parametrize("seed", range(40))
def test_lanes_one_by_one(seed: int) -> None:
    """The slots of all lanes in all steps: those of the network, those of lanes without a channel."""
    rng = random.Random(seed)
    config = random_config(rng)
    op, view = random_view(rng, config, Unit.ARRAY)
    parts = split(config, op, view, Fraction(3, 4))
    depthwise = op == Op.DEPTH_CONV
    inputs = 1 if depthwise else config.ic_lanes
    pixels = view["TILE", "height"] * view["TILE", "width"]
    steps = view["GEOMETRY", "kh"] * view["GEOMETRY", "kw"]
    steps *= 1 + view["MODE", "rows"] if depthwise else view["KC", "blocks"]
    blocks = [lanes_of(config, op, view)] * (view["BLOCKS", "count"] - 1) + [view["BLOCKS", "last"]]
    macs = sum(pixels * steps * channels * inputs for channels in blocks)
    assert array_macs(config, op, view) == macs
    assert parts.get("multiply", 0) == macs * 3 // (4 * config.macs_per_cycle)
    if depthwise:
        machine, together = depthwise_of(config, view), config.pixel_lanes
        filled = macs // (together * config.oc_lanes * machine.taps)
        assert parts.get("input_lanes", 0) == filled - macs * 3 // (4 * config.macs_per_cycle)
        visits = len(blocks) * machine.steps * machine.sets
        assert parts.get("output_lanes", 0) == visits * pixels // together - filled
    else:
        together, stripe = config.pixel_lanes, view["STRIPE", "pixels"]
        assert parts.get("output_lanes", 0) == pixels * steps * len(blocks) // together - macs // config.macs_per_cycle
        groups = pixels // stripe * ceil_div(stripe, together) + ceil_div(pixels % stripe, together)
        idle = (groups * together - pixels) * steps * len(blocks)
        assert parts.get("pixel_lanes", 0) == ceil_div(idle, together)
        held = [min(view["KC", "group"] + 1, n) for n in range(view["KC", "blocks"], 0, -view["KC", "group"] - 1)]
        reads = together // 2 if view["MODE", "pairs"] and together > 1 else together
        waits = sum(max(reads - visit, 0) for visit in held)
        assert parts.get("input_reads", 0) == waits * view.taps * groups * len(blocks)


@pytest.mark.parametrize("seed", range(40))
def test_beats_one_by_one(seed: int) -> None:
    rng = random.Random(seed)
    config = random_config(rng)
    for unit, name in ((Unit.LOAD, "load"), (Unit.STORE, "store")):
        for _ in range(5):
            op, view = random_view(rng, config, unit)
            starts, length = list(Shape.of(view).starts()), view["LENGTH"]
            beats = sum(count for start in starts for _, _, count in bursts(start, length, config.bus_bytes))
            full = ceil_div(length * len(starts), config.bus_bytes)
            parts = split(config, op, view)
            pace = config.like_fixed.beat_cycles
            assert parts[name] == (full - 1) * pace + 1
            assert parts.get(f"{name}_partial", 0) == (beats - full) * pace


@pytest.mark.parametrize("seed", range(40))
def test_vector_reads(seed: int) -> None:
    rng = random.Random(seed)
    config = random_config(rng, vector=True)
    op, view = random_view(rng, config, Unit.VECTOR)
    parts = split(config, op, view)
    at_once = max(1, config.softmax) if op == Op.SOFTMAX else 1
    reads = view["TILE", "height"] * ceil_div(view["TILE", "width"], at_once)
    reads *= view["GEOMETRY", "kh"] * view["GEOMETRY", "kw"] if op == Op.POOL else 1 + INSTRUCTIONS[op].two_operands
    reads *= {Op.SOFTMAX: at_once + config.vector_lanes, Op.NORM: 2}.get(op, 1)
    idle = reads * (config.vector_lanes - view["BLOCKS", "last"])
    assert parts.get("vector_lanes", 0) == ceil_div(idle, config.vector_lanes)
    table = {Op.ACT_LUT: 256, Op.SOFTMAX: 1024}.get(op, 0) // (1 << config.vector_lanes.bit_length() - 1)
    spent = parts.get("vector", 0) + parts.get("vector_lanes", 0)
    records = 2 * view.pixels * view["BLOCKS", "count"] if op == Op.NORM else 0
    assert spent == table + records + reads * view["BLOCKS", "count"]


def test_convolution_by_hand() -> None:
    """One pixel, 20 of 24 output channels, 16 input channels of which 12 are there, on 8 x 8 lanes."""
    config = Config(ic_lanes=8, oc_lanes=8, requant_lanes=4, bus=256)
    assert config.weight_rows == 2
    values = dict.fromkeys(REGISTERS[Unit.ARRAY], 0)
    values["TILE"] = pack(Unit.ARRAY, "TILE", height=1, width=1)
    values["GEOMETRY"] = pack(Unit.ARRAY, "GEOMETRY", kh=1, kw=1, stride_y=1, dilation_y=1)
    values["STRIPE"] = pack(Unit.ARRAY, "STRIPE", pixels=32)
    values["BLOCKS"] = pack(Unit.ARRAY, "BLOCKS", count=3, last=4)
    values["KC"] = pack(Unit.ARRAY, "KC", blocks=2, group=0)
    view = View(Unit.ARRAY, [values[name] for name in REGISTERS[Unit.ARRAY]])
    parts = split(config, Op.CONV, view, Fraction(12, 16))
    # Six steps of 64 slots; 16 * 20 of them have an output channel, 12 * 20 an input channel as well.
    assert (parts["multiply"], parts["input_lanes"], parts["output_lanes"]) == (3, 5 - 3, 6 - 5)
    # The first weights; then a window a step: 6 reads where a block's records come as well, two of them in each of
    # four, else 2, in the last none.
    assert parts["weights"] == 3 + (5 + 1) + (5 + 1) + 5
    assert parts["turnaround"] == 1 + 1 + 2


@pytest.mark.parametrize("op", [Op.DMA_READ, Op.DMA_WRITE])
def test_unaligned_rows_by_hand(op: Op) -> None:
    """Three rows of 16 bytes, 20 apart, from byte 4 on, on a bus of 8 bytes: 3 + 2 + 3 beats where 6 would do."""
    unit = unit_of(op)
    config = Config(bus=64, memory=MemoryTiming(beat_cycles=2))
    values = dict.fromkeys(REGISTERS[unit], 0)
    values |= {"MEM_ADDR": 4, "MEM_ROW_STEP": 20, "LENGTH": 16, "COUNT": pack(unit, "COUNT", rows=3, planes=1)}
    parts = split(config, op, View(unit, [values[name] for name in REGISTERS[unit]]))
    name = "load" if op == Op.DMA_READ else "store"
    assert parts[name] == 2 * (6 - 1) + 1
    assert parts[f"{name}_partial"] == 2 * 2
