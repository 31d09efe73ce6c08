"""The array's timing rule: fast-forwarding against a loop over all windows, and its speed."""

import random
import time
from itertools import product
from typing import Any

import pytest

from dovetail.isa.common.sizes import ceil_div
from dovetail.isa.config.resolved import Config
from dovetail.isa.timing.array import (
    ACCUMULATE,
    DRAIN,
    NOTHING,
    SETTLE,
    Free,
    array_duration,
    matrix_reads,
    to_accumulator,
    tree_stages,
)
from dovetail.isa.timing.sequencer import CHECK

CONFIGS = (
    Config.load("small"),
    Config.load("16x16"),
    Config(ic_lanes=64, oc_lanes=1),
    Config(ic_lanes=1, oc_lanes=64, requant_lanes=3),
    Config(ic_lanes=3, oc_lanes=5, stripe=7, requant_lanes=1),
    Config(ic_lanes=4, oc_lanes=8, pixel_lanes=2),
    Config(ic_lanes=3, oc_lanes=5, pixel_lanes=4, stripe=22),
    Config(ic_lanes=2, oc_lanes=8, pixel_lanes=2, stripe=22, requant_lanes=16),
)


def window_by_window(
    config: Config,
    *,
    taps: int,
    kc: int,
    group: int = 1,
    pixels: int,
    stripe: int,
    blocks: int,
    last: int,
    accumulate: bool,
    matrix_rows: int = 0,
    pairs: bool = False,
    result_pairs: bool = False,
    free: Free = NOTHING,
) -> int:
    """The same rule, without a shortcut."""
    lanes, together = config.oc_lanes, config.pixel_lanes
    held = [min(group, kc - first) for first in range(0, kc, group)] * taps
    reads = together // 2 if pairs else together
    rows = 0 if free.weights else matrix_rows or config.weight_rows
    words = ceil_div(4 * lanes, config.word_bytes)
    sizes = [stripe] * (pixels // stripe) + [pixels % stripe] * (pixels % stripe > 0)
    time = CHECK + 1 + max(rows * held[0], 0 if free.steps else ACCUMULATE)
    buffers = [time] * config.stripe_buffers
    drained = settled = time
    for block in range(blocks):
        last_block = block == blocks - 1
        groups = ceil_div(last if last_block else lanes, config.requant_lanes)
        for n, size in enumerate(sizes):
            time = max(time, buffers.pop(0))
            if accumulate and not free.steps:
                time = max(time, settled) + words * max(ceil_div(size, together) * together, together - 1 + ACCUMULATE)
            for step, visit in enumerate(held):
                more = not (last_block and n == len(sizes) - 1 and step == len(held) - 1)
                following = held[(step + 1) % len(held)]
                records = lanes // config.records_at_once if n == 0 and step == 0 and not free.weights else 0
                passing = 0 if free.steps else ceil_div(size, together) * max(reads, visit)
                least = 0 if free.steps else visit - 1 + ACCUMULATE if size > together else max(visit, ACCUMULATE)
                time += max(passing, rows * following * more + records, least)
            drained = max(drained, time + to_accumulator(config) - 1) + (
                0 if free.results else size // (2 if result_pairs else 1) * groups
            )
            buffers.append(drained + 1)
            settled = drained + SETTLE
    return drained + DRAIN


def random_shape(rng: random.Random, config: Config) -> dict[str, Any]:
    pairs = config.pixel_lanes > 1 and rng.random() < 0.5

    def whole(pixels: int) -> int:
        """Pixels that can be pairs."""
        return max(pixels // 2, 1) * 2 if pairs else pixels

    return {
        "pairs": pairs,
        "result_pairs": pairs and config.result_pairs and rng.random() < 0.5,
        "group": rng.randint(1, config.pair_sets if pairs else config.weight_sets),
        "taps": rng.choice([1, 1, 2, 9]),
        "kc": rng.choice([1, 1, 2, 5]),
        "pixels": whole(rng.choice([1, 2, rng.randint(1, 40), rng.randint(1, 700)])),
        "stripe": whole(rng.choice([config.stripe, rng.randint(1, config.stripe), 1])),
        "blocks": rng.choice([1, 2, 3, rng.randint(1, 20)]),
        "last": rng.randint(1, config.oc_lanes),
        "accumulate": rng.random() < 0.3,
        "matrix_rows": rng.choice([0, 0, config.ic_lanes, config.oc_lanes]),
    }


@pytest.mark.parametrize("config", CONFIGS, ids=lambda c: f"{c.ic_lanes}x{c.oc_lanes}x{c.pixel_lanes}")
def test_fast_forward(config: Config) -> None:
    rng = random.Random(config.macs_per_cycle)
    for _ in range(300):
        shape = random_shape(rng, config)
        assert array_duration(config, **shape) == window_by_window(config, **shape), shape


@pytest.mark.parametrize("free", [Free(*flags) for flags in product((False, True), repeat=3)][1:], ids=str)
def test_fast_forward_with_something_free(free: Free) -> None:
    rng = random.Random(str(free))
    for config in CONFIGS:
        for _ in range(40):
            shape = random_shape(rng, config)
            cycles = array_duration(config, **shape, free=free)
            assert cycles == window_by_window(config, **shape, free=free), shape
            assert cycles <= array_duration(config, **shape), shape


@pytest.mark.parametrize(("shape", "group", "cycles"), [((4, 8, 2), 1, 256), ((4, 8, 4), 3, 384), ((8, 32, 4), 2, 256)])
def test_pairs_by_hand(shape: tuple[int, int, int], group: int, cycles: int) -> None:
    """512 pixels, a step more: so many cycles if a read has two pixels; else one for each pixel."""
    ic, oc, lanes = shape
    config = Config(ic_lanes=ic, oc_lanes=oc, pixel_lanes=lanes)
    step: dict[str, Any] = {"kc": group, "group": group, "pixels": 512, "stripe": 64, "blocks": 1, "last": oc}
    for pairs, more in ((True, cycles), (False, 512)):
        two, three = (array_duration(config, taps=taps, accumulate=False, pairs=pairs, **step) for taps in (20, 21))
        assert three - two == more


@pytest.mark.parametrize(("shape", "cycles"), [((2, 8, 2), 256), ((1, 16, 4), 256), ((8, 32, 4), 256)])
def test_result_pairs_by_hand(shape: tuple[int, int, int], cycles: int) -> None:
    """512 pixels, a block more, of one step: the results of two pixels leave in a cycle; else those of one."""
    ic, oc, lanes = shape
    config = Config(ic_lanes=ic, oc_lanes=oc, pixel_lanes=lanes, requant_lanes=2 * oc)
    step: dict[str, Any] = {"taps": 1, "kc": 1, "pixels": 512, "stripe": 32, "last": oc, "accumulate": False}
    for together, more in ((True, cycles), (False, 512)):
        two, three = (
            array_duration(config, blocks=blocks, pairs=True, result_pairs=together, **step) for blocks in (20, 21)
        )
        assert three - two == more


def test_huge_shape_takes_no_time() -> None:
    shape: dict[str, Any] = {
        "taps": 65025,
        "kc": 65535,
        "pixels": 65535 * 65535,
        "stripe": 1,
        "blocks": 65535,
        "last": 3,
    }
    begin = time.perf_counter()
    for accumulate in (False, True):
        array_duration(Config(), accumulate=accumulate, **shape)
    assert time.perf_counter() - begin < 0.5


@pytest.mark.parametrize(("lanes", "stages"), [(1, 0), (2, 1), (4, 1), (5, 2), (16, 2), (64, 3), (128, 4)])
def test_tree_stages(lanes: int, stages: int) -> None:
    assert tree_stages(Config(ic_lanes=lanes, oc_lanes=1)) == stages


def test_matrix_reads_by_hand() -> None:
    config = Config(ic_lanes=3, oc_lanes=64, requant_lanes=1, vector_lanes=1, depthwise="none", bus=32)
    assert config.word_bytes == 16
    assert matrix_reads(config, transposed=True) == 64
    assert matrix_reads(config, transposed=False) == 3 * 4  # four words of 16 bytes each


def test_wide_matrix_makes_steps_longer() -> None:
    """A step's window lasts as long as its pixels or the reads of the next step's weights, whichever is more."""
    shape: dict[str, Any] = {"taps": 1, "pixels": 8, "stripe": 8, "blocks": 1, "last": 1}
    shape |= {"accumulate": False}
    config = Config.load("16x16")

    def step(matrix_rows: int) -> int:
        durations = [array_duration(config, kc=kc, matrix_rows=matrix_rows, **shape) for kc in (10, 11)]
        return durations[1] - durations[0]

    assert [step(n) for n in (1, 8, 9, 16)] == [8, 8, 9, 16]
