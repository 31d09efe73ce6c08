"""DEPTH_CONV's timing rule against a machine that goes on cycle by cycle, which also sees that every tap meets its
weight once, that nothing is overwritten while it is needed, and that sums have settled when they are read."""

import random
import time
from collections import defaultdict
from dataclasses import dataclass, field
from itertools import product
from typing import Any

import pytest

from dovetail.isa.common.sizes import ceil_div
from dovetail.isa.config.resolved import COLUMN_TAPS, ROW_KERNELS, ROW_STEPS, Config
from dovetail.isa.instructions.checks import longest_line
from dovetail.isa.timing.array import ACCUMULATE, DRAIN, SETTLE, Free, tree_stages
from dovetail.isa.timing.depthwise import depthwise_duration, to_accumulator
from dovetail.isa.timing.memory import SRAM_READ
from dovetail.isa.timing.sequencer import CHECK

ARRIVES = 4 + SRAM_READ
"""Cycles from a position to its bytes, of a word of the input or of the weight stream."""


@dataclass
class Window:
    """A kernel row, or some of its taps, of a stripe; ``old``: a word of old values."""

    stripe: int
    block: int
    row: int
    columns: range
    tap: tuple[int, int]
    first_of_stripe: bool
    last_of_stripe: bool
    first_of_block: bool
    loads: bool
    old: bool = False
    dry: bool = False
    """The line has no results."""


@dataclass
class Machine:
    """DEPTH_CONV, cycle by cycle."""

    config: Config
    kh: int
    kw: int
    sets: int
    slide: int
    height: int
    width: int
    stripe: int
    blocks: int
    last: int
    accumulate: bool
    int32: bool = False
    multiplier: int = 1
    columns: int = 1
    rows: int = 1
    skip: int = 1
    found: dict[tuple[int, ...], list[tuple[int, int]]] = field(default_factory=lambda: defaultdict(list))
    """Taps that were added, by (block, row, column, set)."""
    ready: dict[int, int] = field(default_factory=dict)
    """When the sums of a stripe can be read."""

    def windows(self) -> list[Window]:
        taps = min(self.config.ic_lanes, self.kw)
        words = self.sets * ceil_div(4 * self.config.oc_lanes, self.config.word_bytes) if self.accumulate else 0
        every, stripe = [], 0
        for block in range(self.blocks):
            for y in range((self.height - 1) * self.skip + self.rows):
                dry = y < self.rows - 1 or (y - self.rows + 1) % self.skip > 0
                for x in range(0, self.width, self.stripe):
                    columns = range(x, min(x + self.stripe, self.width))
                    first = y == x == 0
                    steps = [(ky, kx) for ky in range(self.kh) for kx in range(0, self.kw, taps)]
                    place = stripe, block, y, columns
                    every += [Window(*place, (0, 0), n == 0, False, False, False, True) for n in range(words)]
                    for n, tap in enumerate(steps):
                        begins, ends = n == 0 and not words, n == len(steps) - 1
                        every.append(Window(*place, tap, begins, ends, first and n == 0, True, dry=dry))
                    stripe += not dry
        every[-1].loads = False
        return every

    def run(self) -> int:
        """Cycles that the operation takes."""
        config = self.config
        across, lanes, together = min(config.ic_lanes, self.kw), config.oc_lanes, config.pixel_lanes
        taps = self.rows * across
        length = config.ic_lanes  # of the chain of words
        visits = ceil_div(self.sets, together)
        set_words = ceil_div(taps * lanes, config.word_bytes)
        whole = self.sets * lanes - self.sets * lanes % self.multiplier
        every = self.windows()
        now = CHECK + 1
        # (row, column) of words, the newest first; of the line, and of those before it.
        chains: list[list[tuple[int, int] | None]] = [[None] * length for _ in range(self.rows)]
        buffer: dict[tuple[int, int], list[tuple[int, int] | None]] = {}
        drains: list[int] = []  # when each stripe's drain ends
        drained: dict[int, int] = {}  # and each block's
        seen: dict[tuple[int, int], int] = {}  # when a row of accumulators was visited last
        used = [[-1] * self.sets for _ in range(2)]  # when the sets in the halves of their memory were last read
        written = [[-1] * self.sets for _ in range(2)]  # when they can be
        half = 0

        def load(half: int, begin: int) -> None:
            """A set is written two cycles after the bytes of its last word have come."""
            for j in range(self.sets):
                last = begin + ARRIVES + 1 + (j + 1) * set_words
                assert last >= used[half][j], "weights that are still in use"
                written[half][j] = last + 1

        # The first window only loads.
        loads = self.sets * set_words
        load(half, now)
        now += max(loads, ACCUMULATE)
        for window in every:
            if window.first_of_stripe and (window.first_of_block or not window.dry):
                if window.stripe >= config.stripe_buffers:
                    now = max(now, drains[window.stripe - config.stripe_buffers] + 1)
                if self.accumulate and window.stripe >= 1:
                    now = max(now, drains[window.stripe - 1] + SETTLE)
            begin = now
            if window.first_of_block and window.block >= config.stripe_buffers:
                assert begin > drained[window.block - config.stripe_buffers], "records that are still in use"
            if window.old:
                groups = ceil_div(len(window.columns), together)
                now = begin + max(groups * together, together - 1 + ACCUMULATE)
                continue
            # Reads of the weights of the next step, then of records, one per cycle.
            fetched = (loads if window.loads else 0) + (
                self.sets * lanes // config.records_at_once if window.first_of_block else 0
            )
            if window.loads:
                load(1 - half, begin)
            ky, kx = window.tap
            row = window.row
            at, following, place = begin, window.columns.start * self.slide + kx, 0
            for pixel, x in enumerate(window.columns):
                if not self.slide:
                    reads = [(row * 1000 + ky, 1000 * x + kx + i) for i in range(across)]
                else:
                    seen_first = across if self.columns == 1 else 2
                    count = self.slide if pixel else seen_first
                    reads = [(row * 1000 + ky, following + n) for n in range(count)]
                    following += count
                for read in reads:
                    if self.rows > 1:
                        assert ky < ROW_STEPS and place < config.line_words
                    words = [read, *buffer.get((ky, place), [None] * (self.rows - 1))]
                    chains = [[word, *chain[:-1]] for word, chain in zip(words, chains, strict=True)]
                    buffer[ky, place] = words[:-1]
                    place += 1
                at += max(len(reads), visits)
                # The words move on at the end of the slot; there they meet the weights of a visit per cycle.
                token = at - 1 + ARRIVES + 2
                for visit in range(0 if window.dry else visits):
                    step = token + 1 + visit
                    for j in range(visit * together, min(visit * together + together, self.sets)):
                        assert step >= written[half][j], "weights must be there"
                        used[half][j] = step
                        for line, i in product(range(self.rows), range(across)):
                            chain, above = chains[self.rows - 1 - line], (row - self.rows + 1 + line) * 1000 + ky
                            tap = ky * self.rows + line, kx + i
                            if self.columns > 1:  # so many sets of channels further for every tap
                                beyond, _ = divmod(j + i * together // self.columns, together)
                                assert chain[1 - beyond] == (above, x + beyond)
                                self.found[window.block, row, x, j].append(tap)
                                continue
                            wanted = x * self.slide + kx + i if self.slide else 1000 * x + kx + i
                            assert chain[across - 1 - i] == (above, wanted)
                            self.found[window.block, row, x, j].append(tap)
                    cell = window.stripe % config.stripe_buffers, pixel * visits + visit
                    assert cell[1] < config.stripe_rows
                    assert step - seen.get(cell, -ACCUMULATE) >= ACCUMULATE
                    seen[cell] = step
                    # Operand, product, tree, term, sum: then it can be read.
                    readable = step + 1 + 1 + tree_stages(config) + 1 + 1
            now = max(at, begin + fetched, begin + ACCUMULATE)
            if window.last_of_stripe and not window.dry:
                self.ready[window.stripe] = readable
                channels = self.last if window.block == self.blocks - 1 else whole
                span = lanes if self.int32 else lanes * together  # a row of accumulators, or a set of int32 values
                writes = sum(
                    ceil_div(min(span, channels - first), config.requant_lanes) for first in range(0, channels, span)
                )
                before = drains[-1] if drains else 0
                start = max(before, now - 1 + to_accumulator(config, visits))
                assert start >= readable - 1
                drains.append(start + len(window.columns) * writes)
                drained[window.block] = drains[-1]
            if window.loads:
                half = 1 - half
        return drains[-1] + DRAIN


CONFIGS = (
    Config(ic_lanes=4, oc_lanes=8, pixel_lanes=2),
    Config(ic_lanes=4, oc_lanes=16, pixel_lanes=4),
    Config(ic_lanes=4, oc_lanes=8, pixel_lanes=4, bus=512, requant_lanes=5),
    Config(ic_lanes=8, oc_lanes=8),
    Config(ic_lanes=6, oc_lanes=8, requant_lanes=1, stripe=64),
    Config(ic_lanes=16, oc_lanes=4, stripe=16),
    Config(ic_lanes=9, oc_lanes=8, pixel_lanes=4, vector_lanes=1),
    Config(ic_lanes=3, oc_lanes=5, stripe=7, requant_lanes=1),
    Config(ic_lanes=1, oc_lanes=8, pixel_lanes=8),
    Config(ic_lanes=64, oc_lanes=1),
)


def random_shape(rng: random.Random, config: Config, most: int = 40) -> dict[str, Any]:
    sets = rng.randint(1, config.depthwise_sets)
    multiplier = rng.randint(1, min(8, config.oc_lanes)) if sets == 1 and rng.random() < 0.3 else 1
    slide = rng.choice([0, 1, 1, 2])
    stripe = config.stripe // config.pixel_lanes // ceil_div(sets, config.pixel_lanes)
    kw, columns = rng.choice([1, 2, 3, 3, 5, 7]), 1
    if config.word_columns > 1 and rng.random() < 0.3:
        kw, sets, slide, multiplier = 3, config.pixel_lanes, 1, 1
        columns = 2 ** rng.randint(1, config.word_columns.bit_length() - 1)
        stripe = config.stripe_rows
    rows, skip, kh, width = (
        1,
        1,
        rng.choice([1, 2, 3, 3, 5]),
        rng.choice([1, 2, rng.randint(1, 40), rng.randint(1, most)]),
    )
    across = [n for n in ROW_KERNELS if 2 * n <= config.ic_lanes and n == (n if columns == 1 else COLUMN_TAPS)]
    if across and rng.random() < 0.5:
        kw, multiplier, kh, skip = rng.choice(across), 1, rng.randint(1, ROW_STEPS), rng.randint(1, 4)
        slide = slide or 1
        rows = rng.randint(2, min(config.kernel_rows, config.ic_lanes // kw))
        width = rng.randint(1, min(stripe, longest_line(config, slide)))
    channels = sets * config.oc_lanes - sets * config.oc_lanes % multiplier
    return {
        "rows": rows,
        "skip": skip,
        "columns": columns,
        "kh": kh,
        "kw": kw,
        "sets": sets,
        "slide": slide,
        "height": rng.choice([1, 1, 2, 3, rng.randint(1, 12)]),
        "width": width,
        "stripe": stripe if rows > 1 else rng.choice([stripe, stripe, rng.randint(1, stripe), 1]),
        "blocks": rng.choice([1, 2, 3, rng.randint(1, 9)]),
        "last": rng.randint(1, channels),
        "accumulate": rows == 1 and rng.random() < 0.3,
        "int32": rng.random() < 0.2,
        "multiplier": multiplier,
    }


@pytest.mark.parametrize("config", CONFIGS, ids=lambda c: f"{c.ic_lanes}x{c.oc_lanes}x{c.pixel_lanes}")
def test_cycle_by_cycle(config: Config) -> None:
    rng = random.Random(config.macs_per_cycle)
    for _ in range(40):
        shape = random_shape(rng, config)
        if shape["height"] * shape["width"] * shape["blocks"] > 600:
            continue
        machine = Machine(config, **shape)
        assert depthwise_duration(config, **shape) == machine.run(), shape
        taps = min(config.ic_lanes, shape["kw"])
        kh = shape["kh"] * shape["rows"]
        whole = [(ky, kx) for ky in range(kh) for kx in range(ceil_div(shape["kw"], taps) * taps)]
        assert len(machine.found) == shape["blocks"] * shape["height"] * shape["width"] * shape["sets"]
        assert all(sorted(found) == whole for found in machine.found.values())


@pytest.mark.parametrize("free", [Free(*flags) for flags in product((False, True), repeat=3)][1:], ids=str)
def test_with_something_free(free: Free) -> None:
    rng = random.Random(str(free))
    for config in CONFIGS:
        for _ in range(40):
            shape = random_shape(rng, config, 400)
            assert depthwise_duration(config, **shape, free=free) <= depthwise_duration(config, **shape), shape


def test_huge_shape_takes_no_time() -> None:
    shape: dict[str, Any] = {"kh": 255, "kw": 255, "height": 65535, "width": 65535, "blocks": 65535, "last": 3}
    begin = time.perf_counter()
    for accumulate, slide in product((False, True), (0, 1, 2)):
        depthwise_duration(Config(), sets=1, slide=slide, stripe=7, accumulate=accumulate, **shape)
    assert time.perf_counter() - begin < 0.5


@pytest.mark.parametrize(
    ("lanes", "kernel", "slide", "sets", "cycles"),
    [
        ((4, 8, 2), (3, 3), 1, 4, 3 * (3 + 27 * 2)),  # two sets per cycle: three of four lanes work
        ((4, 8, 2), (3, 3), 1, 2, 3 * (3 + 27)),  # a word per cycle
        ((4, 8, 2), (3, 3), 2, 4, 3 * (3 + 27 * 2)),
        ((4, 8, 2), (3, 3), 0, 2, 3 * 28 * 3),  # three words per pixel
        ((8, 8, 1), (3, 3), 1, 1, 3 * (3 + 27)),
        ((2, 8, 4), (3, 3), 1, 4, 3 * 2 * (2 + 27)),  # rows of three taps take two steps
        ((4, 8, 2), (1, 5), 1, 4, 2 * (4 + 27 * 2)),
    ],
)
def test_by_hand(lanes: tuple[int, int, int], kernel: tuple[int, int], slide: int, sets: int, cycles: int) -> None:
    """Rows of 28 pixels that do not wait for anything: cycles of the words and of the sets."""
    ic, oc, pixel = lanes
    config = Config(ic_lanes=ic, oc_lanes=oc, pixel_lanes=pixel, stripe=64 * pixel, requant_lanes=oc * pixel)
    shape: dict[str, Any] = {"kh": kernel[0], "kw": kernel[1], "sets": sets, "slide": slide, "width": 28, "stripe": 28}
    shape |= {"blocks": 1, "last": 1, "accumulate": False}
    four, five = (depthwise_duration(config, **shape, height=height) for height in (4, 5))
    assert five - four == cycles


@pytest.mark.parametrize("columns", [2, 4])
def test_columns_by_hand(columns: int) -> None:
    """A row of 56 pixels, two or four of them in a cycle, of which the first waits for a word more."""
    config = Config(ic_lanes=4, oc_lanes=8, pixel_lanes=4, requant_lanes=32)
    shape: dict[str, Any] = {"kh": 3, "kw": 3, "sets": 4, "slide": 1, "width": 56 // columns, "columns": columns}
    shape |= {"stripe": config.stripe_rows, "blocks": 1, "last": 32, "accumulate": False}
    four, five = (depthwise_duration(config, **shape, height=height) for height in (4, 5))
    stripes = ceil_div(56 // columns, config.stripe_rows)
    assert five - four == 3 * (56 // columns + stripes)


@pytest.mark.parametrize(
    ("lanes", "kernel", "rows", "slide", "skip", "cycles"),
    [
        ((8, 8), (3, 3), 2, 1, 1, 2 * (3 + 27)),  # two of the three kernel rows in a step, and the last one in another
        ((16, 16), (3, 3), 3, 1, 1, 3 + 27),
        ((16, 16), (3, 3), 3, 2, 2, 2 * (3 + 27 * 2)),  # a stride of two: another line's words, and two per pixel
        ((16, 16), (5, 5), 3, 1, 1, 2 * (5 + 27)),
    ],
)
def test_rows_by_hand(
    lanes: tuple[int, int], kernel: tuple[int, int], rows: int, slide: int, skip: int, cycles: int
) -> None:
    """Lines of 28 pixels that do not wait for anything."""
    config = Config(ic_lanes=lanes[0], oc_lanes=lanes[1], requant_lanes=lanes[1])
    shape: dict[str, Any] = {"kh": ceil_div(kernel[0], rows), "kw": kernel[1], "sets": 1, "slide": slide, "width": 28}
    shape |= {"stripe": 32, "blocks": 1, "last": 1, "accumulate": False, "rows": rows, "skip": skip}
    four, five = (depthwise_duration(config, **shape, height=height) for height in (4, 5))
    assert five - four == cycles
