"""Points, records and the pool of a sweep, with a made-up cost."""

import pytest

from dovetail.flows.study import STUDY, Cost, Evaluate, Point, points_of, run_point, run_points
from dovetail.flows.sweep import NetworkCost
from dovetail.isa import Config


def price(config: Config) -> Cost:
    """A cost that only depends on the configuration."""
    if config.stripe == 13:
        raise ValueError("stripe is unlucky\nand so on")
    cycles = 1_000_000 // config.macs_per_cycle
    host = (("dw1", "depthwise", 500),) if config.depthwise == "none" else ()
    return Cost(cycles, 640_000, cycles // 2, 4096, {"conv": cycles - 10, "mean": 10}, host)


def test_the_study_has_36_points() -> None:
    points = points_of(Config(), STUDY)
    assert len({point.config for point in points}) == 36
    assert points[0].axes == {"pe": 64, "sram": 512 << 10, "dataflow": "input", "depthwise": "none"}
    assert points[0].config == Config(pe=64, dataflow="input", sram="512 KiB", depthwise="none")
    assert points[-1].config == Config(pe=128, dataflow="output", sram="256 MiB")
    assert points[0].label == "PEs 64, SRAM 512 KiB, dataflow input, depthwise none"


def test_axes_are_what_varies() -> None:
    points = points_of(Config(), {"pe": [64], "bus": [32, 64]})
    assert [point.axes for point in points] == [{"bus": 32}, {"bus": 64}]
    assert points_of(Config(), {})[0].label == "as configured"


def test_an_impossible_combination_is_a_record() -> None:
    points = points_of(Config(), {"pe": [64, 2000]})
    record = run_point(price, points[1])
    assert record.cost is None
    assert record.error == "pe must be 8..1024, not 2000"
    assert record.row(["conv"])["pe"] == 2000


def test_a_failing_point_is_a_record() -> None:
    record = run_point(price, Point({"stripe": 13}, Config(stripe=13)))
    assert (record.cost, record.error) == (None, "stripe is unlucky")
    assert (record.utilisation, record.roofline) == (0, 0)
    assert record.row([])["cycles"] == ""


def test_record_by_hand() -> None:
    record = run_point(price, Point({}, Config(depthwise="none")))
    assert record.utilisation == 640_000 / (15_625 * 64)
    assert record.roofline == pytest.approx(2.0, abs=1e-3)
    row = record.row(["conv", "add"])
    assert (row["cycles"], row["cycles_conv"], row["cycles_add"]) == (15_625, 15_615, 0)
    assert (row["host_nodes"], row["host_macs"], row["error"]) == (1, 500, "")
    assert row["config_hash"] == f"{Config(depthwise='none').hash:016x}"


@pytest.mark.parametrize(("evaluate", "jobs"), [(price, 1), (NetworkCost("zoo:autoencoder"), 2)])
def test_points_run_here_and_in_processes(evaluate: Evaluate, jobs: int) -> None:
    points = points_of(Config(), {"stripe": [8, 16], "pe": [64, 2000]})
    records = dict(run_points(evaluate, points, jobs))
    assert sorted(records) == list(range(4))
    assert [records[n].point for n in range(4)] == points
    assert [records[n].error for n in range(4)] == ["", "", *["pe must be 8..1024, not 2000"] * 2]
    assert all(records[n].cost == evaluate(point.config) for n, point in enumerate(points) if point.config)
