"""Configurations for random programs: reproducible, different, and between them every value."""

import pytest

from dovetail.isa.config.given import FEATURES, MAX_STRIPE
from dovetail.sw.random.programs.configurations import MOST_MULTIPLIERS, VALUES, configurations


def test_a_seed_gives_the_same_configurations() -> None:
    assert configurations(3, 20) == configurations(3, 20)
    assert configurations(3, 20)[:5] == configurations(3, 5)
    assert configurations(3, 20) != configurations(4, 20)


@pytest.mark.parametrize("seed", range(3))
def test_all_differ_and_every_value_occurs(seed: int) -> None:
    configs = configurations(seed, 50)
    assert len({config.hash for config in configs}) == 50
    assert {(c.ic_lanes, c.oc_lanes) for c in configs} == set(VALUES["lanes"])
    for name in ("pixel_lanes", "banks", "depthwise", "bus", "outstanding"):
        assert {getattr(c, name) for c in configs} == set(VALUES[name])
    for c in configs:
        assert c.stripe in (*VALUES["stripe"], MAX_STRIPE * c.pixel_lanes)
        assert c.pixel_lanes == 1 or c.macs_per_cycle <= MOST_MULTIPLIERS
    assert {MAX_STRIPE, 2 * MAX_STRIPE} <= {c.stripe for c in configs}
    assert min(c.sram for c in configs) == 32 << 10
    assert any(c.sram & c.sram - 1 for c in configs)


def test_every_feature_is_built_and_left_out() -> None:
    configs = configurations(0, 12)
    for name in FEATURES:
        assert {getattr(config, name) for config in configs} == {True, False}
    assert {config.vector for config in configs} == {True, False}
