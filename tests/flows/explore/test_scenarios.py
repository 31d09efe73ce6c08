"""Scenarios: the memory's timing does not compete, the worst, the mean or one of them counts."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest

from dovetail.flows.explore.pricing.cost import Cost
from dovetail.flows.explore.results.row import Row, row_of
from dovetail.flows.explore.results.sweep_results import Results
from dovetail.flows.explore.search import search_of
from dovetail.flows.explore.space.design_space import Plan, Point, Space, Workload
from dovetail.flows.report.page.payload import payload_of
from dovetail.isa.config.resolved import Config

SPACE = Space(
    (Workload("zoo:dscnn"),),
    Config.load("ulx3s"),
    {"lanes": ((8, 8), (4, 8)), "read_latency": (20, 40, 60)},
    objectives=("cycles", "pe"),
)


def priced(space: Space, point: Point, cycles: int) -> Row:
    return row_of(space, point, [Cost(cycles, 640, 50, 7, 4, {"conv": cycles}, host_cycles=0)])


def results(cycles: Sequence[int] = (100, 110, 180, 130, 140, 150), **changes: Any) -> Results:
    space = replace(SPACE, **changes)
    rows = [priced(space, point, count) for point, count in zip(space, cycles, strict=True)]
    return Results(space, tuple(rows), len(rows)).marked()


def test_the_worst_case_counts() -> None:
    """At a latency of 20 the 8 x 8 array is the faster one; at 60 it is the slower and the larger one."""
    found = results()
    assert [(row.number, row.axes, row.values["cycles"], row.scenarios) for row in found.choices] == [
        (2, {"lanes": (8, 8)}, 180, 3),
        (5, {"lanes": (4, 8)}, 150, 3),
    ]
    assert [row.number for row in found.ranked()] == [5, 2]
    assert [row.front for row in found.rows] == [False] * 3 + [True] * 3


def test_the_mean_or_one_may_count() -> None:
    mean = results(scenario="mean")
    assert [row.values["cycles"] for row in mean.choices] == [130, 140]
    assert all(row.front for row in mean.rows)
    one = results(scenario={"read_latency": 20})
    assert [(row.number, row.values["cycles"]) for row in one.choices] == [(0, 100), (3, 130)]
    assert all(row.front for row in one.rows)


def test_a_choice_is_feasible_if_its_worst_case_is() -> None:
    rows = results(constraints=("cycles < 160",)).choices
    assert [row.feasible for row in rows] == [False, True]
    assert [row.feasible for row in results(constraints=("cycles < 160",), scenario="mean").choices] == [True, True]


def test_a_scenario_that_fails_fails_the_choice() -> None:
    found = results()
    broken = Row(1, SPACE.point(1).axes, SPACE.point(1).config, error="too small", feasible=False)
    rows = (found.rows[0], broken, *found.rows[2:])
    assert [row.error for row in replace(found, rows=rows).choices] == ["too small", ""]


def test_the_page_has_a_row_for_each_choice() -> None:
    page = payload_of(results(), {}, "")
    assert [row[0] for row in page["rows"]] == [2, 5] and page["total"] == 2
    assert page["states"]["front"] == [5]
    assert page["header"]["scenarios"] == "scenarios: read latency 20, 40, 60: the worst counts"


@pytest.mark.parametrize("plan", [Plan(), Plan("random", 1), Plan("narrow")], ids=lambda plan: plan.method)
def test_searches_look_at_every_scenario_of_a_choice(plan: Plan) -> None:
    space = replace(SPACE, search=plan)
    search, seen = search_of(space), []
    while points := search.ask(4):
        for point in points:
            seen.append(point.number)
            search.tell(priced(space, point, 100 + point.number))
    choices = {number // 3 for number in seen}
    assert sorted(seen) == sorted(3 * choice + n for choice in choices for n in range(3))
    assert len(choices) == (1 if plan.method == "random" else 2)
    assert search.total in (0, len(seen))


def test_one_scenario_is_all_that_is_looked_at() -> None:
    search = search_of(replace(SPACE, scenario={"read_latency": 40}))
    assert [point.number for point in search.ask(9)] == [1, 4]
