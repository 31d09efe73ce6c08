"""Spaces: numbers, points, constraints on parameters, the order in which points are handed out."""

from __future__ import annotations

import pickle
import re
from dataclasses import replace
from itertools import islice, pairwise, product
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dovetail.flows.explore.space.design_space import SLOWEST_FIRST, Space, Workload
from dovetail.flows.explore.space.expressions import parse
from dovetail.flows.explore.space.near_miss import check
from dovetail.flows.options import parameters
from dovetail.flows.options.parameters import changed, flat, label
from dovetail.isa.config.given import ConfigError, MemoryTiming
from dovetail.isa.config.memory import memory_of
from dovetail.isa.config.resolved import Config
from dovetail.sw.analysis.cost.area import area_of

NETWORK = (Workload("zoo:dscnn"),)


BASE = Config.load("8x8")


def space(axes: dict[str, Any], *constraints: str, base: Config = BASE) -> Space:
    return Space(NETWORK, base, axes, constraints)


def test_a_space_without_axes_is_its_base() -> None:
    (point,) = space({})
    assert (point.number, point.axes, point.config, label(point.axes)) == (0, {}, Config.load("8x8"), "as configured")


def test_the_last_axis_is_fastest() -> None:
    grid = space({"sram": [65536, 131072], "stripe": [8, 16, 32]})
    assert len(grid) == 6
    assert [tuple(grid.point(n).axes.values()) for n in range(6)] == list(product([65536, 131072], [8, 16, 32]))
    assert [grid.indices(n) for n in range(6)] == list(product(range(2), range(3)))
    assert [grid.number(grid.indices(n)) for n in range(6)] == list(range(6))
    for number in (-1, 6):
        with pytest.raises(IndexError, match=rf"^number must be 0\.\.5, not {number}$"):
            grid.point(number)


def test_points_say_what_varies() -> None:
    point = space({"lanes": [(8, 16), (4, 4)], "sram": [1 << 20], "matmul": [True, False]}).point(1)
    assert point.axes == {"lanes": (8, 16), "matmul": False}
    assert point.config == Config(ic_lanes=8, oc_lanes=16, sram="1 MiB", matmul=False)
    assert label(point.axes) == "lanes 8x16, matmul false"


def test_every_setting_can_be_an_axis() -> None:
    assert sorted(SLOWEST_FIRST) == sorted(parameters.AXES)
    timing = space({"read_latency": [10, 20], "write_latency": [30], "beat_cycles": [1, 2]}).point(3).config
    assert timing is not None and timing.memory == MemoryTiming(read_latency=20, write_latency=30, beat_cycles=2)


def test_values_are_read_as_in_a_space_file() -> None:
    space = Space((Workload("net"),), Config(), {"sram": ["64 KiB", 1 << 17], "lanes": [[8, 8]]})
    assert space.axes == {"sram": (1 << 16, 1 << 17), "lanes": ((8, 8),)}
    with pytest.raises(ConfigError, match=r"^axis bus: must be an integer, not '64 bits'$"):
        replace(space, axes={"bus": ["64 bits"]})


def test_a_combination_that_breaks_a_rule_is_a_point_with_its_reason() -> None:
    grid = space({"stripe": [32, 64], "requant_lanes": [8, 9]})
    errors = ["", "requant_lanes must be 1..8, not 9"]
    assert [point.error for point in grid] == [errors[0]] * 2 + [errors[1]] * 2
    assert [point.config is None for point in grid] == [False, False, True, True]


def test_a_combination_without_area_keeps_no_constraint_on_area() -> None:
    """Else a random search among small accelerators would find mostly those that cannot be built."""
    axes = {"ic_lanes": [8, 64], "oc_lanes": [8, 64]}
    assert [bool(point.error) for point in space(axes)] == [False, False, False, True]
    assert list(space(axes, "lut > 0").numbers()) == [0, 1, 2]


def test_numbers_stay_when_a_constraint_comes() -> None:
    free, tight = (space({"ic_lanes": [4, 8, 16], "bus": [32, 64]}, *rules) for rules in ((), ("ic_lanes <= 8",)))
    assert list(free.numbers()) == [0, 1, 2, 3, 4, 5]
    assert list(tight.numbers()) == [0, 1, 2, 3]
    assert len(free) == len(tight) and free.point(2) == tight.point(2)


def test_neighbours_share_what_the_compiler_keeps() -> None:
    """However the axes are listed: lanes change last, then depthwise; system memory and SRAM with each point."""
    axes = {
        "sram": [65536, 131072],
        "read_latency": [10, 20],
        "depthwise": ["none", "native"],
        "lanes": [(4, 4), (8, 8)],
    }
    points = [space(axes).point(n) for n in space(axes).numbers()]
    changes = {name: sum(a.axes[name] != b.axes[name] for a, b in pairwise(points)) for name in axes}
    assert changes == {"lanes": 1, "depthwise": 3, "sram": 7, "read_latency": 15}
    numbers = list(space(axes).numbers())
    assert numbers == sorted(numbers, key=space(axes).rank)


AXES: dict[str, list[Any]] = {
    "lanes": [(4, 4), (8, 8), (4, 32), (32, 4), (1, 16)],
    "pe": [4, 16, 60, 64],
    "dataflow": ["input", "output", "mixed"],
    "ic_lanes": [2, 8, 16],
    "oc_lanes": [4, 8],
    "depthwise": ["none", "native"],
    "requant_lanes": [1, 8],
    "sram": [65536, 1 << 20],
    "banks": [4, 16],
    "matmul": [True, False],
    "read_latency": [10, 40],
}
CONSTRAINTS = [
    "pe <= 64",
    "16 <= ic_lanes * oc_lanes <= 128",
    "ic_lanes >= oc_lanes",
    'dataflow != "input"',
    "sram / banks >= 16 KiB",
    'depthwise == "native" or not matmul',
    "requant_lanes * 4 <= pe",
    "vector_lanes >= 2",
    "read_latency > 10 if matmul else sram == 64 KiB",
    "stripe == 32",
    "lut <= 30000 or bram < pe",
]


@settings(max_examples=60, deadline=None)
@given(
    st.sampled_from([["lanes"], ["pe", "dataflow"], ["dataflow"], ["ic_lanes", "oc_lanes"], ["oc_lanes"], []]),
    st.lists(st.sampled_from(list(AXES)[5:]), unique=True, max_size=4),
    st.lists(st.sampled_from(CONSTRAINTS), unique=True, max_size=3),
    st.randoms(use_true_random=False),
)
def test_constraints_keep_what_the_finished_configuration_keeps(
    shape: list[str], more: list[str], rules: list[str], random: Any
) -> None:
    names = [*shape, *more]
    random.shuffle(names)
    grid = space({name: AXES[name] for name in names}, *rules)
    assert isinstance(grid.base, Config)
    expected = []
    for number, combination in enumerate(product(*(AXES[name] for name in names))):
        values = dict(zip(names, combination, strict=True))
        try:
            config = changed(grid.base, values)
        except ConfigError:
            continue
        area = area_of(config)
        known = flat(config) | {"lut": area.lut, "bram": area.bram} | values
        if all(parse(rule).holds(known) for rule in rules):
            expected.append(number)
    valid = [number for number in grid.numbers() if grid.point(number).config]
    assert sorted(valid) == expected
    assert sorted(grid.numbers()) == [number for number in range(len(grid)) if grid.admits(number)]
    assert grid.count() == len(list(grid.numbers()))
    assert [grid.count(most) for most in (1, 3)] == [min(grid.count(), most) for most in (1, 3)]


def test_ten_million_combinations_are_not_made() -> None:
    grid = space(
        {
            "stripe": list(range(1, 65)),
            "ic_lanes": list(range(1, 65)),
            "oc_lanes": list(range(1, 65)),
            "bus": [32, 64, 128, 256, 512],
            "sram": [32768 << n for n in range(8)],
        },
        "ic_lanes * oc_lanes <= 64",
    )
    assert len(grid) == 10_485_760
    assert grid.count() == sum(64 // ic for ic in range(1, 65)) * 64 * 5 * 8
    assert [point.number for point in islice(grid, 3)] == [0, 1, 2]
    assert grid.point(len(grid) - 1).axes["ic_lanes"] == 64


def test_copies_are_equal() -> None:
    grid = space({"sram": [65536], "lanes": [(4, 4), (8, 8)]}, "pe <= 32", "cycles < 1000")
    assert grid.count() == 1
    assert pickle.loads(pickle.dumps(grid)) == grid == replace(grid)
    assert [constraint.text for constraint in grid.metric_constraints] == ["cycles < 1000"]


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"axes": {"buss": (32, 64)}}, 'axes must be configuration parameters, not "buss"; did you mean "bus"?'),
        (
            {"axes": {n: range(65536) for n in ("bus", "sram", "stripe", "read_latency")}},
            "axes must have fewer than 2^63 combinations; leave some out, or values of some",
        ),
        ({"objectives": ("cycle",)}, 'objectives must be metrics, not "cycle"; did you mean "cycles"?'),
        ({"objectives": ()}, "objectives must be one metric or more, each once, not ''"),
        ({"objectives": ("fps", "fps")}, "objectives must be one metric or more, each once, not 'fps, fps'"),
        ({"clock": 0.0}, "clock must be 1 to 1e+12 Hz, not 0.0"),
        ({"clock": float("nan")}, "clock must be 1 to 1e+12 Hz, not nan"),
    ],
)
def test_what_a_space_refuses(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=f"^{re.escape(message)}$"):
        replace(space({}), **changes)
    with pytest.raises(ConfigError, match=r"^weight must be 1e-09 to 1e\+09, not 0$"):
        Workload("zoo:dscnn", 0)


def test_constraints_that_leave_nothing() -> None:
    check(space({"bus": [32, 64]}, "bus > 32"))
    with pytest.raises(ConfigError, match=r"^constraints rule every combination of the axes out; loosen them or add"):
        check(space({"bus": [32, 64]}, "lut < 10"))


@pytest.mark.parametrize(
    ("names", "message"),
    [
        (["lanes", "pe"], "give lanes without pe, dataflow, ic_lanes, oc_lanes and pixel_lanes"),
        (["pe", "oc_lanes"], "give either pe and dataflow or ic_lanes, oc_lanes and pixel_lanes, not both"),
    ],
)
def test_one_shape(names: list[str], message: str) -> None:
    with pytest.raises(ConfigError, match=f"^{message}$"):
        space({name: AXES[name] for name in names})


def test_memories_are_scenarios() -> None:
    memories = ("fixed", "ddr3-1600-x16@200MHz")
    grid = space({"lanes": [(4, 4), (8, 8)], "memory_model": memories})
    points = list(grid)
    assert grid.scenario_axes == ("memory_model",)
    assert [(p.config.array, p.axes["memory_model"]) for p in points if isinstance(p.config, Config)] == [
        (lanes, name) for lanes in ("4 x 4", "8 x 8") for name in memories
    ]
    assert [p.config.memory for p in points[:2] if p.config] == [memory_of(name) for name in memories]
    with pytest.raises(ConfigError, match="axis memory_model: must be a kind or a preset, not 'hbm'"):
        space({"memory_model": ["hbm"]})
