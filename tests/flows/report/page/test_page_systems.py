"""The page of a sweep of systems: what accelerators do in the place of kinds of layers."""

from __future__ import annotations

from collections.abc import Callable

from dovetail.flows.explore.pricing.evaluation import price
from dovetail.flows.explore.results.row import row_of
from dovetail.flows.explore.results.sweep_results import Results
from dovetail.flows.explore.space.deployment import Deployment
from dovetail.flows.explore.space.design_space import Space, Workload
from dovetail.flows.explore.space.networks import read
from dovetail.flows.report.page import render
from dovetail.isa.config.system import Part, System
from tests.flows.report.page.conftest import Page
from tests.sw.compiler.devices.test_plan import TINY


def test_points_of_systems(open_page: Callable[[str], Page]) -> None:
    axes = {"accelerators": ("tiny", "2*tiny", "3*tiny"), "total_sram": (64 << 10,), "mode": ("throughput",)}
    space = Space((Workload("zoo:dscnn"),), Deployment(System((Part("tiny", TINY, 0),))), axes)
    graph = read(space.workloads[0]).graph
    points = list(space)
    rows = [row_of(space, point, [price(graph, point.config)] if point.config else []) for point in points]
    page = open_page(render(Results(space, tuple(rows), 3).marked(), {}, version="x"))
    assert rows[2].error in page.text("body")
    for number in (0, 1):
        page.row(number)
    page.frame()
    assert page.text("#kind-bars h3") == "Cycles by what accelerators do"
    assert not page.js("return document.querySelector('details.texts')")  # there is no configuration to copy
    (cost,) = rows[1].costs
    assert "all busy" in page.cells("#difference tbody tr")[0]
    assert f"{cost.bar:,} cycles of the plan per inference" in page.text("#layers")
    assert "2*tiny" in page.texts("tr[data-number='1'] td")
