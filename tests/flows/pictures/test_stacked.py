"""The picture of a sweep: kinds, colours, places of bars, and that every shape of sweep can be drawn."""

from collections.abc import Mapping, Sequence
from io import BytesIO
from typing import Any

import matplotlib.image
import pytest

from dovetail.flows.pictures import stacked
from dovetail.flows.study import STUDY, Cost, Record, points_of, run_point
from dovetail.isa import Config


def price(config: Config) -> Cost:
    kinds = {"depthwise": 0 if config.depthwise == "none" else 200_000, "conv": 9_000_000 * 64 // config.macs_per_cycle}
    host = (("dw1", "depthwise", 500),) if config.depthwise == "none" else ()
    return Cost(sum(kinds.values()), 550_000_000, 8_000_000, 4096, kinds, host)


def records_of(lists: Mapping[str, Sequence[Any]]) -> list[Record]:
    return [run_point(price, point) for point in points_of(Config(), lists)]


@pytest.mark.parametrize(
    "lists",
    [STUDY, {}, {"bus": [32, 64]}, {"pe": [64, 2000], "sram": [1 << 19]}, {"pe": [2000, 3000]}],
    ids=["study", "one", "row", "failed", "all failed"],
)
def test_every_sweep_can_be_drawn(lists: Mapping[str, Sequence[Any]]) -> None:
    png = stacked.draw(records_of(lists), "net: cycles", "subtitle")
    image = matplotlib.image.imread(BytesIO(png))
    assert image.ndim == 3
    assert image.shape[0] > 500


def test_the_same_records_give_the_same_bytes() -> None:
    records = records_of({"bus": [32, 64]})
    assert stacked.draw(records, "net") == stacked.draw(records, "net")


def test_kinds_are_in_the_order_of_the_stack_and_zeros_are_left_out() -> None:
    assert stacked.kinds_of(records_of(STUDY)) == ["conv", "depthwise"]
    assert stacked.kinds_of(records_of({"depthwise": ["none"]})) == ["conv"]


def test_host_depthwise_is_counted() -> None:
    counts = [stacked.host_depthwise(record) for record in records_of({"depthwise": ["none", "native"]})]
    assert counts == [1, 0]
