"""What a layer's shape says of the array."""

import pytest

from dovetail.isa.config.resolved import Config
from dovetail.isa.timing.array import array_duration
from dovetail.sw.compiler.layer import group_blocks, tap_cycles, use_packing


@pytest.mark.parametrize(("lanes", "blocks"), [(1, 7), (2, 1), (2, 3), (2, 5), (4, 2), (4, 8), (4, 9), (8, 33)])
def test_cycles_of_a_tap_are_the_timing_rule(lanes: int, blocks: int) -> None:
    """Two instructions that differ in taps only: of as many pixels that nothing else limits the time."""
    config = Config(ic_lanes=2, oc_lanes=2, pixel_lanes=lanes)
    once, twice = (
        array_duration(
            config, taps=taps, kc=blocks, group=group_blocks(config, blocks),
            pixels=16 * lanes, stripe=16 * lanes, blocks=1, last=2, accumulate=False,
        )
        for taps in (2, 3)
    )  # fmt: skip
    assert twice - once == 16 * tap_cycles(config, blocks)


def test_kernel_columns_run_together_where_that_is_quicker() -> None:
    """Nine bytes are three input blocks, packed or not; but with pixel lanes a block alone takes longer."""
    assert not use_packing(Config(ic_lanes=4, oc_lanes=8), 3, (3, 3), 1)
    assert use_packing(Config(ic_lanes=4, oc_lanes=8, pixel_lanes=2), 3, (3, 3), 1)
    assert not use_packing(Config(ic_lanes=4, oc_lanes=8, pixel_lanes=2), 3, (3, 3), 2)
