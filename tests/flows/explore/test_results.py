"""Rows, metrics, the Pareto front, and which rows may be compared at all."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dovetail.flows.explore.pricing.cost import Cost
from dovetail.flows.explore.results.records import records_of
from dovetail.flows.explore.results.row import common, front_of, pareto, row_of, values_of
from dovetail.flows.explore.results.sweep_results import Results
from dovetail.flows.explore.space.design_space import Space, Workload
from dovetail.flows.explore.space.metrics import METRICS
from dovetail.isa.config.resolved import Config
from dovetail.sw.analysis.cost.activity import EVENTS
from dovetail.sw.analysis.cost.area import area_of
from dovetail.sw.analysis.cost.energy import energy_of, load_table
from dovetail.sw.compiler.partition.host_cost import default_host
from dovetail.sw.errors import DovetailError

TWO = (Workload("zoo:dscnn", 3.0), Workload("zoo:resnet8", 0.5))
SPACE = Space(TWO, Config.load("8x8"), {"stripe": (4, 8, 16, 32)}, objectives=("cycles", "sram"), clock=2e6)


def cost(cycles: int, *host: tuple[str, str, int], **changes: Any) -> Cost:
    given = {
        "macs": 640,
        "bound_cycles": 50,
        "read_bytes": 7,
        "write_bytes": 4,
        "kinds": {"conv": cycles},
        "host": host,
        "host_cycles": 0,
    }
    return Cost(cycles, **{**given, **changes})


def test_metrics_add_networks_up_by_weight() -> None:
    own = cost(200, ("a", "softmax", 6), ("b", "conv", 2), macs=1280, host_cycles=1200)
    every = values_of(SPACE, Config.load("8x8"), [cost(100), own])
    assert (every["dscnn.cycles"], every["resnet8.cycles"], every["resnet8.latency"]) == (100, 200, 0.7)
    values = {name: value for name, value in every.items() if "." not in name}
    assert values == {
        "cycles": 400,
        "host_cycles": 600,
        "total_cycles": 1000,
        "latency": 0.5,
        "fps": 2000,
        "utilisation": 2560 / (400 * 64),
        "roofline": 400 / 175,
        "dram_bytes": 38.5,
        "host_macs": 4,
        "host_nodes": 2,
        "pe": 64,
        "sram": 512 << 10,
    } | {name: getattr(area_of(Config.load("8x8")), name) for name in ("lut", "ff", "dsp", "bram")}


def test_times_are_left_out_where_the_host_was_not_counted() -> None:
    values = values_of(SPACE, Config.load("8x8"), [cost(100), cost(200, host_cycles=None)])
    assert values["cycles"] == 400
    assert not {"host_cycles", "total_cycles", "latency", "fps", "power", "edp"} & set(values)


def test_a_host_with_a_clock_of_its_own() -> None:
    """Its time stays when the accelerator gets faster."""
    space = replace(SPACE, host_cost=replace(default_host(), clock=1e6))
    costs = [cost(100, host_cycles=10), cost(200, host_cycles=10)]
    slow, fast = (values_of(space, Config.load("8x8"), costs, clock) for clock in (1e6, 4e6))
    assert (slow["host_cycles"], fast["host_cycles"]) == (35, 140)
    assert (slow["latency"], fast["latency"]) == (0.435, 0.135)


def test_energy() -> None:
    config, activity = Config.load("8x8"), {name: 1000 + n for n, name in enumerate(EVENTS)}
    costs = [cost(100, activity=activity), cost(200, activity=activity)]
    values = values_of(SPACE, config, costs)
    table = load_table("45nm")
    joules = sum(
        weight * energy_of(config, activity, cycles, table).total * 1e-12 for weight, cycles in ((3, 100), (0.5, 200))
    )
    seconds = 400 / 2e6
    assert values["energy"] == pytest.approx(joules * 1e6)
    assert values["power"] == pytest.approx(joules / seconds * 1e3)
    assert values["edp"] == pytest.approx(joules * seconds * 1e9)
    assert "energy" not in values_of(SPACE, config, [costs[0], cost(200)])
    assert {name.rpartition(".")[2] for name in values} <= set(METRICS)


def test_nothing_on_the_accelerator() -> None:
    nothing = cost(0, ("a", "conv", 5), macs=0, bound_cycles=0, activity=dict.fromkeys(EVENTS, 0))
    values = values_of(SPACE, Config.load("8x8"), [nothing, nothing])
    assert {name: values[name] for name in ("cycles", "fps", "utilisation", "roofline", "energy", "power", "edp")} == {
        "cycles": 0, "fps": 0, "utilisation": 0, "roofline": 0, "energy": 0, "power": 0, "edp": 0,
    }  # fmt: skip


def test_rows() -> None:
    space = replace(SPACE, constraints=("cycles <= 400", "stripe < 20", "cycles * stripe <= 3000"))
    point = space.point(1)
    row = row_of(space, point, [cost(100), cost(200)], seconds=0.5)
    assert (row.number, row.axes, row.config, row.seconds) == (1, {"stripe": 8}, point.config, 0.5)
    assert not row.feasible and row.violation == pytest.approx(200 / 3200)
    row = row_of(space, point, [cost(200), cost(200)])
    assert row.violation == pytest.approx(300 / 700 + 2600 / 5600)
    assert row_of(space, space.point(0), [cost(100), cost(200)]).feasible
    failed = row_of(space, point, [], "too small")
    assert (failed.error, failed.values, failed.feasible, failed.costs) == ("too small", {}, False, ())
    broken = replace(point, config=None, error="no such thing")
    assert row_of(space, broken, []).error == "no such thing"


COSTS = st.integers(1, 4).flatmap(
    lambda width: st.lists(st.lists(st.integers(0, 5), min_size=width, max_size=width), min_size=1, max_size=25)
)


@given(COSTS)
def test_the_front_is_what_nothing_dominates(costs: list[list[int]]) -> None:
    expected = [
        not any(all(o <= m for o, m in zip(other, mine, strict=True)) and other != mine for other in costs)
        for mine in costs
    ]
    assert pareto(np.array(costs, dtype=float)).tolist() == expected


def rows(space: Space, costs: list[Cost | str]) -> Results:
    """One network; the axis gives each row another SRAM size, from large to small."""
    made = [
        row_of(space, space.point(n), [] if isinstance(c, str) else [c], c if isinstance(c, str) else "")
        for n, c in enumerate(costs)
    ]
    return Results(space, tuple(made))


SRAM = Space(
    TWO[:1],
    Config.load("8x8"),
    {"sram": tuple(32768 << n for n in (6, 5, 4, 3, 2, 1, 0))},
    objectives=("cycles", "sram"),
)


def test_front() -> None:
    results = rows(SRAM, [cost(10), cost(10), cost(30), "broken", cost(20), cost(40)]).marked()
    assert [row.number for row in results.rows if row.front] == [1, 4, 5]
    assert [row.number for row in rows(replace(SRAM, objectives=("fps",)), [cost(9), cost(7), cost(7)]).marked().rows
            if row.front] == [1, 2]  # fmt: skip
    infeasible = rows(replace(SRAM, constraints=("cycles > 60",)), [cost(10), cost(10), cost(30)]).marked()
    assert [row.front for row in infeasible.rows] == [False, False, True]
    assert front_of(SRAM, []) == []


def test_what_leaves_more_to_the_host_does_not_compete() -> None:
    """It wins by doing less, unless the user says that host work is free, or weighs it up himself."""
    host = ("depthwise", "depthwise", 100)
    costs: list[Cost | str] = [cost(50), cost(10, host), cost(60), cost(5, ("softmax", "softmax", 0))]
    assert [row.front for row in rows(SRAM, costs).marked().rows] == [True, False, True, False]
    assert [row.front for row in rows(SRAM, costs[1:2]).marked().rows] == [True]  # all leave as much
    assert [row.front for row in rows(replace(SRAM, host="any"), costs).marked().rows] == [False, False, False, True]
    weighed = replace(SRAM, objectives=("cycles", "host_macs"))
    assert [row.front for row in rows(weighed, [cost(50), cost(10, host), cost(60)]).marked().rows] == [
        True,
        True,
        False,
    ]


def test_a_metric_that_nobody_knows_keeps_off_the_front() -> None:
    space = replace(SRAM, objectives=("cycles", "energy"))
    assert not any(row.front for row in rows(space, [cost(10), cost(20)]).marked().rows)


def test_ranking_is_the_front_first() -> None:
    results = rows(SRAM, [cost(20), cost(30), cost(20), cost(25), "broken", cost(40)])
    assert [row.number for row in results.ranked()] == [2, 3, 5, 0, 1]
    assert [row.number for row in results.ranked("sram")] == [5, 3, 2, 1, 0]
    assert [row.number for row in results.ranked("fps")] == [2, 3, 5, 0, 1]
    with pytest.raises(
        DovetailError, match=re.escape('rank must be by a metric, not "speed"; known: cycles, host_cycles, ')
    ):
        results.ranked("speed")


def test_records_tell_networks_of_one_name_apart() -> None:
    (record,) = records_of(SPACE, [row_of(SPACE, SPACE.point(0), [cost(100), cost(200)])], ["net", "net"])
    assert (record["net 1.cycles"], record["net 2.cycles"], record["cycles"]) == (100, 200, 400)
    assert (record["network"], record["net 2.cycles_conv"], record["stripe"]) == ("net 1 + net 2", 200, 4)


def test_common() -> None:
    shared = common(rows(SRAM, [cost(20), cost(30), "broken"]).rows)
    assert shared["bus"] == 64 and shared["pe"] == 64 and "sram" not in shared
    assert common([]) == {}
    none = Space(TWO, Config(), {"requant_lanes": (4, 999)})
    assert common([row_of(none, none.point(n), []) for n in (1,)]) == {}
