"""Counts of events: against loops that follow docs/architecture.md step by step, and on a network."""

import random
from collections import Counter
from collections.abc import Iterator

import numpy as np
import pytest

from dovetail.isa.config.resolved import Config
from dovetail.isa.instructions.checks import View, lanes_of, multiplier_of
from dovetail.isa.instructions.table import INSTRUCTIONS, PAGE_WORDS, Op, Unit
from dovetail.isa.timing.dma import Shape, bursts
from dovetail.isa.timing.run import time_program
from dovetail.isa.timing.timeline import Timeline
from dovetail.sw.analysis.cost.accesses import Image, Lanes, Offsets, bus_use
from dovetail.sw.analysis.cost.activity import EVENTS, activity_of, events_of
from dovetail.sw.random.programs.configurations import WHOLE
from dovetail.sw.random.programs.legal import legal_program
from dovetail.sw.runtime.compiled_network import compile_network

WRAP = 1 << 17
"""What offsets are modulo: twice the SRAM of both configurations, 40 and 64 KiB, as a power of two."""
WIDE = Config(ic_lanes=20, oc_lanes=3, sram="64 KiB", requant_lanes=1, vector_lanes=4, bus=128)
DEEP = Config(ic_lanes=3, oc_lanes=5, pixel_lanes=4, sram="64 KiB", requant_lanes=2, vector_lanes=1, bus=64)


def timeline_of(config: Config, seed: int, count: int = 12) -> Timeline:
    program = legal_program(random.Random(seed), config, count=count)
    words = list(program.words)
    return time_program(config, words, address=program.program, base=program.base, memory_bytes=len(program.memory))


def window(
    view: View, lanes: int, item: int, limit: int, taps: tuple[int, int], step: int, blocks: int, shared: int = 1
) -> int:
    """Reads of the window walk, one by one; a read has so many pixels."""
    made = 0
    for oy in range(view["TILE", "height"]):
        for ox in range(0, view["TILE", "width"], shared):
            for block in range(blocks):
                for ky in range(taps[0]):
                    for kx in range(taps[1]):
                        row = oy * view["GEOMETRY", "stride_y"] + ky * view["GEOMETRY", "dilation_y"] - view["PAD_TOP"]
                        across = ox * view["X_STEP"] + kx * view["KX_STEP"] + block * step
                        off = view["ORIGIN"] + oy * view["Y_STEP"] + ky * view["KY_STEP"] + across
                        made += row % WRAP < view["IN_ROWS"] % WRAP and any(
                            (across - view["PAD_LEFT"] + lane * item) % WRAP < view["ROW_BYTES"] % WRAP
                            and (off + lane * item) % WRAP < limit
                            for lane in range(lanes)
                        )
    return made


def places(view: View, names: tuple[str, str]) -> Iterator[int]:
    """Offset of every output pixel by the steps of these names."""
    for oy in range(view["TILE", "height"]):
        for ox in range(view["TILE", "width"]):
            yield oy * view[names[0]] + ox * view[names[1]]


def inside(offsets: Iterator[int], lanes: int, item: int, limit: int) -> int:
    return sum(any((off + lane * item) % WRAP < limit for lane in range(lanes)) for off in offsets)


def whole(size: int, item: int) -> int:
    """Where values of ``item`` bytes can begin in a region."""
    return max(size - item + 1, 0)


def drained(config: Config, view: View, pixels: list[int], lanes: int, span: int, at_once: int = 1) -> Counter[str]:
    """Results of all blocks, as they leave: ``span`` channels after each other, in groups of requantise lanes, of
    ``at_once`` pixels."""
    events: Counter[str] = Counter()
    item = 4 if view["MODE", "int32"] else 1
    for block in range(view["BLOCKS", "count"]):
        made = view["BLOCKS", "last"] if block == view["BLOCKS", "count"] - 1 else lanes
        for channel in range(made):
            in_span = channel % span
            if in_span % config.requant_lanes == 0:
                size = min(config.requant_lanes, span - in_span, made - channel) * item
                for first in range(0, len(pixels), at_once):
                    events["requantises"] += config.requant_lanes
                    leaving = pixels[first : first + at_once]
                    ends = ((pixel + (block * lanes + channel) * item) % WRAP + size for pixel in leaving)
                    events["sram_write_array"] += any(end <= view["OUT_BYTES"] for end in ends)
    return events


def old_values(config: Config, view: View, pixels: list[int], lanes: int, sets: int = 1) -> int:
    """Reads of the int32 sums that are added to."""
    words = range(0, 4 * config.oc_lanes, config.word_bytes) if view["MODE", "accumulate"] else ()
    starts = (
        pixel + 4 * (block * lanes + set_ * config.oc_lanes) + word
        for block in range(view["BLOCKS", "count"])
        for pixel in pixels
        for set_ in range(sets)
        for word in words
    )
    return inside(starts, config.word_bytes // 4, 4, whole(view["OUT_BYTES"], 4))


def streamed(config: Config, view: View, records: int, words: int, stripes: int) -> int:
    """Reads of the weight stream: per block its records once, its words of weights for every stripe."""
    made, pointer, limit = 0, 0, view["W_BYTES"] // config.word_bytes
    for _ in range(view["BLOCKS", "count"]):
        reads = range(0, records, config.records_at_once)
        made += sum(pointer + record // (config.word_bytes // 16) < limit for record in reads)
        pointer += config.param_rows(records)
        made += stripes * sum(pointer + word < limit for word in range(words))
        pointer += words
    return made


def depthwise_events(config: Config, op: Op, view: View) -> Counter[str]:
    sets, slide, height, width = (
        view["KC", "group"] + 1,
        view["MODE", "slide"],
        view["TILE", "height"],
        view["TILE", "width"],
    )
    lanes, blocks = lanes_of(config, op, view), view["BLOCKS", "count"]
    kh, kw = view["GEOMETRY", "kh"], view["GEOMETRY", "kw"]
    together, rows, skip = min(config.ic_lanes, kw), 1 + view["MODE", "rows"], 1 + view["MODE", "skip"]
    steps = [(ky, first) for ky in range(kh) for first in range(0, kw, together)]
    bytes_ = max(config.weight_sets * config.ic_lanes, config.depthwise_sets * config.oc_lanes)
    of_pixel = -(-sets // config.pixel_lanes)  # visits

    # A window is a line's stripe and a step: columns (of the input, in steps of the kernel) that are read. A line reads
    # the last of a step's kernel rows.
    lines = range((height - 1) * skip + rows)
    starts = range(0, width, view["STRIPE", "pixels"])
    stripes = [(oy, x, min(view["STRIPE", "pixels"], width - x)) for oy in lines for x in starts]
    reads = 0
    for oy, x, pixels in stripes:
        columns: list[int] = []
        if slide:
            seen = {slide * (x + pixel) + tap for pixel in range(pixels) for tap in range(together)}
            # All words from the first to the last pass by, those between strided pixels too.
            last = x + pixels if view["MODE", "columns"] and config.pixel_lanes > 1 else max(seen)
            columns = [view["KX_STEP"] * n for n in range(min(seen), last + 1)]
        else:
            columns = [
                (x + pixel) * view["X_STEP"] + tap * view["KX_STEP"]
                for pixel in range(pixels)
                for tap in range(together)
            ]
        for block in range(blocks):
            for ky, first in steps:
                row = oy * view["GEOMETRY", "stride_y"] + ky * view["GEOMETRY", "dilation_y"] - view["PAD_TOP"]
                start = view["ORIGIN"] + oy * view["Y_STEP"] + ky * view["KY_STEP"]
                for column in columns:
                    across = column + first * view["KX_STEP"] + block * (lanes // multiplier_of(op, view))
                    reads += row % WRAP < view["IN_ROWS"] % WRAP and any(
                        (across - view["PAD_LEFT"] + lane) % WRAP < view["ROW_BYTES"] % WRAP
                        and (start + across + lane) % WRAP < view["IN_BYTES"]
                        for lane in range(bytes_)
                    )
    places_ = list(places(view, ("OUT_Y_STEP", "OUT_X_STEP")))
    visits = blocks * len(places_) * len(steps) * of_pixel
    old = (
        blocks * len(places_) * sets * -(-4 * config.oc_lanes // config.word_bytes) if view["MODE", "accumulate"] else 0
    )
    words = len(steps) * sets * -(-rows * together * config.oc_lanes // config.word_bytes)
    span = config.oc_lanes if view["MODE", "int32"] else config.oc_lanes * config.pixel_lanes
    return drained(config, view, places_, lanes, span) + Counter(
        multiplies=visits * config.ic_lanes * config.oc_lanes * config.pixel_lanes,
        accumulates=(visits + old) * config.acc_lanes,
        accumulator_visits=(visits + old) * config.acc_lanes,
        sram_read_input=reads + old_values(config, view, places_, lanes, sets),
        sram_read_weights=streamed(config, view, sets * config.oc_lanes, words, len(stripes)),
    )


def array_events(config: Config, op: Op, view: View) -> Counter[str]:
    if op == Op.DEPTH_CONV:
        return depthwise_events(config, op, view)
    lanes, together = config.oc_lanes, config.pixel_lanes
    taps = view["GEOMETRY", "kh"], view["GEOMETRY", "kw"]
    count, held = view["BLOCKS", "count"], view["KC", "group"] + 1  # input blocks per read
    reads_of_tap = -(-view["KC", "blocks"] // held)
    bytes_ = max(config.weight_sets * config.ic_lanes, config.depthwise_sets * config.oc_lanes)
    pixels, most = list(places(view, ("OUT_Y_STEP", "OUT_X_STEP"))), view["STRIPE", "pixels"]
    sizes = [-(-len(pixels[start : start + most]) // together) for start in range(0, len(pixels), most)]
    steps, passes = taps[0] * taps[1] * view["KC", "blocks"], sum(sizes) * count
    old = -(-4 * lanes // config.word_bytes) if view["MODE", "accumulate"] else 0
    # Pixels that pass at once, all of a stripe, are visited once.
    visits = count * sum(size * (taps[0] * taps[1] * reads_of_tap if size > 1 else 1) for size in sizes)
    rows = config.weight_rows
    shared = 2 if view["MODE", "pairs"] and together > 1 else 1
    made = count * window(view, bytes_, 1, view["IN_BYTES"], taps, held * config.ic_lanes, reads_of_tap, shared)
    weights = streamed(config, view, lanes, 0 if op == Op.MAT_MUL else steps * rows, len(sizes))
    if op == Op.MAT_MUL:
        wide = -(-lanes // config.word_bytes)
        weights += count * steps * len(sizes) * (lanes if view["B_FORM", "transposed"] else config.ic_lanes * wide)
    near = config.result_pairs and not view["MODE", "int32"] and view["OUT_X_STEP"] in (lanes, 2 * lanes, 3 * lanes)
    return drained(config, view, pixels, lanes, lanes, shared if near else 1) + Counter(
        multiplies=steps * passes * config.ic_lanes * lanes * together,
        accumulates=(steps + old * together) * passes * config.acc_lanes,
        accumulator_visits=(visits + old * passes) * config.acc_lanes,
        sram_read_input=made + old_values(config, view, pixels, lanes),
        sram_read_weights=weights,
    )


def vector_events(config: Config, op: Op, view: View) -> Counter[str]:
    events: Counter[str] = Counter()
    lanes, item = config.vector_lanes, INSTRUCTIONS[op].input_bytes
    taps = (view["GEOMETRY", "kh"], view["GEOMETRY", "kw"]) if op == Op.POOL else (1, 1)
    blocks = view["BLOCKS", "count"]
    limit, second = whole(view["IN_BYTES"], item), whole(view["B_BYTES"], item)
    events["sram_read_vector"] += window(view, lanes, item, limit, taps, lanes * item, blocks)
    pixels = list(places(view, ("OUT_Y_STEP", "OUT_X_STEP")))
    steps = len(pixels) * blocks * taps[0] * taps[1]
    if INSTRUCTIONS[op].two_operands:
        starts = [p + block * lanes * item for p in places(view, ("B_Y_STEP", "B_X_STEP")) for block in range(blocks)]
        events["sram_read_vector"] += inside(iter(starts), lanes, item, second)
        steps *= 2
    if op == Op.ACT_LUT:
        row = 1 << lanes.bit_length() - 1
        events["sram_read_vector"] += inside(iter(range(0, 256, row)), lanes, 1, second)
        steps += 256 // row
    result = INSTRUCTIONS[op].output_bytes
    for block in range(blocks):
        size = (view["BLOCKS", "last"] if block == blocks - 1 else lanes) * result
        ends = ((pixel + block * lanes * result) % WRAP + size for pixel in pixels)
        events["sram_write_vector"] += sum(end <= view["OUT_BYTES"] for end in ends)
    events["vector_taps"] += steps * lanes
    events["vector_results"] += len(pixels) * blocks * lanes
    return events


def transfer_events(config: Config, op: Op, view: View) -> Counter[str]:
    events: Counter[str] = Counter()
    rows, planes, length = view["COUNT", "rows"], view["COUNT", "planes"], view["LENGTH"]
    way, port = ("read", "sram_write_load") if op == Op.DMA_READ else ("write", "sram_read_store")
    targets = Shape(0, rows, planes, view["SRAM_ROW_STEP"], view["SRAM_PLANE_STEP"], length)
    for start, target in zip(Shape.of(view).starts(), targets.starts(), strict=True):
        events[f"dram_{way}_bytes"] += length
        for address, size, beats in bursts(start, length, config.bus_bytes):
            events[f"dram_{way}_bursts"] += 1
            events[f"dram_{way}_beats"] += beats
            while size:
                beat = min(size, config.bus_bytes - address % config.bus_bytes)
                place = (target + address - start) % WRAP
                events[port] += place + beat <= view["SRAM_BYTES"]
                address, size = address + beat, size - beat
    return events


def by_hand(config: Config, timeline: Timeline) -> dict[str, int]:
    events: Counter[str] = Counter(dict.fromkeys(EVENTS, 0))
    events["cycles"] = timeline.cycles
    for number, code in enumerate(timeline.op.tolist()):
        unit = Unit(int(timeline.unit[number]))
        events[f"busy_{unit.name.lower()}"] += int(timeline.end[number] - timeline.start[number]) + 1
        if code:
            count = {Unit.ARRAY: array_events, Unit.VECTOR: vector_events}.get(unit, transfer_events)
            events.update(count(config, Op(code), View(unit, timeline.registers[number])))
        else:
            events["fetched_words"] += PAGE_WORDS
    return dict(events)


@pytest.mark.parametrize("config", [WHOLE, WIDE, DEEP], ids=["whole", "wide", "deep"])
@pytest.mark.parametrize("seed", range(12))
def test_random_programs(config: Config, seed: int) -> None:
    timeline = timeline_of(config, seed)
    assert events_of(config, [timeline]) == by_hand(config, timeline)


@pytest.mark.parametrize("seed", range(40))
def test_walks_that_wrap_around(seed: int) -> None:
    """Walks that no compiler makes: offsets around 0, rows longer than half the address space."""
    rng = random.Random(seed)

    def near() -> int:
        return rng.choice((0, 5, 40, WRAP - 7, WRAP - 60, WRAP >> 1, rng.randrange(WRAP)))

    numbers, offsets, columns = (np.array([near() + n for n in range(8)]) % WRAP for _ in range(3))
    image = Image(rng.choice((3, 50, WRAP - 1)), rng.choice((4, 90, (WRAP >> 1) + 9, WRAP - 3)), near(), near())
    lanes, origin = Lanes(rng.randint(1, 9), rng.choice((1, 4)), rng.choice((0, 6, 64, 4096))), near()
    made = 0
    for number, offset in zip(numbers.tolist(), offsets.tolist(), strict=True):
        for column in columns.tolist() if (number - image.top) % WRAP < image.rows else ():
            made += any(
                (column + lane * lanes.item - image.left) % WRAP < image.row_bytes
                and (origin + offset + column + lane * lanes.item) % WRAP < lanes.limit
                for lane in range(lanes.count)
            )
    walk = Offsets(17)
    assert walk.reads((numbers, offsets), columns, origin, image, lanes) == made
    assert walk.reads_inside(offsets, lanes) == inside(iter(offsets.tolist()), lanes.count, lanes.item, lanes.limit)
    sizes = np.array([rng.randint(1, 9) for _ in columns])
    ends = [(o + c) % WRAP + s for o in offsets.tolist() for c, s in zip(columns.tolist(), sizes.tolist(), strict=True)]
    assert walk.writes(offsets, columns, sizes, lanes.limit) == sum(end <= lanes.limit for end in ends)


def test_runs_add_up() -> None:
    one, other = timeline_of(WHOLE, 1), timeline_of(WHOLE, 2)
    alone = [events_of(WHOLE, [timeline]) for timeline in (one, other)]
    assert events_of(WHOLE, [one, other]) == {name: alone[0][name] + alone[1][name] for name in EVENTS}


@pytest.mark.parametrize("bus_bytes", [4, 8, 64])
def test_bus_use(bus_bytes: int) -> None:
    rng = random.Random(bus_bytes)
    for _ in range(200):
        transfer = Shape(
            rng.choice((0, 64, rng.randrange(4096))),
            rng.choice((1, 2, 5, 70)),
            rng.choice((1, 1, 3, 40)),
            rng.choice((0, 512, 4096, rng.randrange(1 << 20))),
            rng.choice((0, 8192, 12288, rng.randrange(1 << 20))),
            rng.choice((1, 16, 512, 5000, rng.randrange(1, 20000))),
        )
        found = [b for a in transfer.starts() for *_, b in bursts(a, transfer.length, bus_bytes)]
        assert bus_use(transfer, bus_bytes) == (sum(found), len(found)), transfer


def test_a_transfer_of_billions_of_rows() -> None:
    transfer = Shape(4, 65535, 65535, 4160, 33, 8)
    beats, count = bus_use(transfer, 8)
    rows = 65535**2
    assert rows < count <= 2 * rows and rows <= beats <= 2 * rows


def test_network() -> None:
    compiled = compile_network("zoo:dscnn", WIDE, effort=0)
    report, events = compiled.report(), activity_of(compiled)
    assert set(events) == set(EVENTS)
    assert events["cycles"] == report.cycles and events["macs"] == report.macs == 2_656_768
    assert events["multiplies"] >= events["macs"]
    assert events["dram_read_bytes"] + events["dram_write_bytes"] == report.moved_bytes
    assert all(events[f"busy_{unit.name.lower()}"] == report.counters[unit].busy for unit in Unit)


def test_a_run_with_a_fault() -> None:
    with pytest.raises(ValueError, match="events must be those of runs without faults, not Fault"):
        events_of(WHOLE, [time_program(WHOLE, [])])
