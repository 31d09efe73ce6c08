"""The picture of a sweep: kinds, colours, places of bars, and that every shape of sweep can be drawn."""

from collections.abc import Mapping, Sequence
from io import BytesIO
from typing import Any

import matplotlib.image
import pytest

from dovetail.flows.explore.pricing.cost import Cost
from dovetail.flows.explore.results.row import Row, row_of
from dovetail.flows.explore.space.design_space import STUDY, Space, Workload
from dovetail.flows.report.charts import stacked
from dovetail.flows.report.pictures.render import DPI, draw, figure_bytes
from dovetail.isa.config.resolved import Config


def price(config: Config) -> Cost:
    kinds = {"depthwise": 0 if config.depthwise == "none" else 200_000, "conv": 9_000_000 * 64 // config.macs_per_cycle}
    host = (("dw1", "depthwise", 500),) if config.depthwise == "none" else ()
    return Cost(sum(kinds.values()), 550_000_000, 8_000_000, 4096, 0, kinds, host)


def rows_of(axes: Mapping[str, Sequence[Any]]) -> list[Row]:
    space = Space((Workload("net"),), Config(), axes)
    points = map(space.point, range(len(space)))
    return [row_of(space, point, [price(point.config)] if isinstance(point.config, Config) else []) for point in points]


def bars_of(axes: Mapping[str, Sequence[Any]]) -> list[stacked.Bar]:
    return [stacked.Bar(row.axes, row.costs[0]) for row in rows_of(axes)]


@pytest.mark.parametrize(
    "axes",
    [STUDY, {}, {"bus": [32, 64]}, {"pe": [64, 2000], "sram": [1 << 19]}, {"pe": [2000, 3000]}],
    ids=["study", "one", "row", "failed", "all failed"],
)
def test_every_sweep_can_be_drawn(axes: Mapping[str, Sequence[Any]]) -> None:
    png = figure_bytes(draw(stacked.chart(rows_of(axes), "net: cycles", "subtitle")))
    image = matplotlib.image.imread(BytesIO(png))
    assert image.ndim == 3
    assert image.shape[0] > 500


def test_the_same_rows_give_the_same_bytes() -> None:
    rows = rows_of({"bus": [32, 64]})
    assert figure_bytes(draw(stacked.chart(rows, "net"))) == figure_bytes(draw(stacked.chart(rows, "net")))


def test_kinds_are_in_the_order_of_the_stack_and_zeros_are_left_out() -> None:
    assert stacked.kinds_of(bars_of(STUDY)) == ["conv", "depthwise"]
    assert stacked.kinds_of(bars_of({"depthwise": ["none"]})) == ["conv"]


def test_host_depthwise_is_counted() -> None:
    counts = [stacked.host_depthwise(bar) for bar in bars_of({"depthwise": ["none", "native"]})]
    assert counts == [1, 0]


@pytest.mark.parametrize(
    "axes",
    [
        {"stripe": range(1, 65)},
        {"stripe": range(1, 61), "bus": [32]},
        {"pe": [16, 32], "bus": [32, 64], "stripe": [1, 2, 4, 8], "read_latency": [10, 20, 30, 40]},
    ],
    ids=["one axis", "two", "four"],
)
def test_no_picture_is_too_wide(axes: Mapping[str, Sequence[Any]]) -> None:
    image = matplotlib.image.imread(BytesIO(figure_bytes(draw(stacked.chart(rows_of(axes), "net: cycles")))))
    assert image.shape[1] <= stacked.WIDEST * DPI
    bars = bars_of(axes)
    assert [bar for line in stacked._lines(bars, list(bars[0].axes)) for bar in line] == bars


def test_bars_are_parted_where_an_outer_axis_changes() -> None:
    lines = stacked._lines(bars_of(STUDY), list(STUDY))
    assert [{bar.axes["pe"] for bar in line} for line in lines] == [{64}, {128}]
