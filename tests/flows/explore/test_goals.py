"""What counts: metrics of one network and of one's own, constraints and their room, a part, clocks of points."""

from __future__ import annotations

import csv
import json
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from dovetail.flows.cli import main
from dovetail.flows.explore.pricing.cost import Cost
from dovetail.flows.explore.results.constraint_fates import fates_of, nearest_miss
from dovetail.flows.explore.results.records import records_of
from dovetail.flows.explore.results.row import row_of
from dovetail.flows.explore.results.sweep_results import Results
from dovetail.flows.explore.results.table import table_of
from dovetail.flows.explore.space.design_space import Space, Workload
from dovetail.flows.explore.space.expressions import ExpressionError, Scope, parse, parse_number
from dovetail.flows.explore.space.file import SpaceError, read
from dovetail.flows.explore.space.near_miss import check
from dovetail.isa.config.given import ConfigError
from dovetail.isa.config.resolved import Config
from dovetail.sw.analysis.cost.activity import EVENTS
from dovetail.sw.analysis.cost.area import area_of

TWO = (Workload("zoo:dscnn"), Workload("nets/my-net.onnx", 2.0))
SPACE = Space(
    TWO,
    Config.load("ulx3s").replace(depthwise="none"),
    {"lanes": ((8, 8), (8, 8, 8)), "clock": (50e6, 100e6)},
    objectives=("latency", "energy * latency", "max my_net.fps"),
    constraints=("my_net.latency < 2 ms", "clock <= 80 MHz or pe > 64"),
    metrics={"each": "lut / pe", "twice": "2 * each"},
)


def cost(cycles: int) -> Cost:
    return Cost(cycles, 640, 50, 7, 4, {"conv": cycles}, (), dict.fromkeys(EVENTS, 1000), 0)


def results(space: Space = SPACE) -> Results:
    rows = [row_of(space, point, [cost(100_000), cost(150_000)]) for point in space]
    return Results(space, tuple(rows), len(rows)).marked()


def test_metrics_of_a_network_of_one_s_own_and_by_clock() -> None:
    slow, fast = results().rows[0].values, results(replace(SPACE, constraints=())).rows[1].values
    assert (slow["latency"], slow["dscnn.latency"], slow["my_net.latency"]) == (8, 2, 3)
    assert (fast["latency"], fast["cycles"]) == (4, slow["cycles"])
    assert fast["my_net.fps"] == pytest.approx(1e8 / 150_000)
    assert slow["energy * latency"] == pytest.approx(slow["energy"] * 8)
    assert slow["twice"] == 2 * slow["each"] == 2 * slow["lut"] / 64
    assert SPACE.known["max my_net.fps"].more and not SPACE.known["energy * latency"].more


def test_a_point_has_a_clock_of_its_own() -> None:
    every = replace(SPACE, constraints=())
    assert [point.clock for point in every] == [50e6, 100e6, 50e6, 100e6]
    assert every.point(0).config == every.point(1).config
    assert [point.number for point in SPACE] == [0, 2, 3]  # a clock is known before anything is priced


def test_constraints_rule_out_before_and_after_pricing() -> None:
    early, late = reversed(fates_of(results()))
    assert (early.text, early.before, early.combinations, early.exact, early.slack) == (
        SPACE.constraints[1],
        1,
        4,
        True,
        None,
    )
    assert (late.before, late.broken, late.priced) == (None, 2, 3)
    assert late.slack == pytest.approx(0.25)  # 1.5 of 2 ms
    record = records_of(SPACE, results().rows, ["a", "b"])[0]
    assert (record["slack of my_net.latency < 2 ms"], record["feasible"], record["clock"]) == (-0.5, 0, 50_000_000)


def test_the_nearest_miss() -> None:
    assert nearest_miss(results()) is None
    miss = nearest_miss(results(replace(SPACE, constraints=("latency < 2 ms", "lut < 1000000"))))
    assert miss is not None
    assert miss.text == "point 1 (lanes 8x8, clock 100 MHz) misses latency < 2 ms by 100.0%"
    with pytest.raises(ConfigError, match=r"nearest: point 0 \(lanes 8x8, clock 50 MHz\) misses lut < 100 by"):
        check(replace(SPACE, constraints=("lut < 100",)))


def test_a_part_is_one_constraint() -> None:
    space = replace(SPACE, constraints=(), part="ecp5-85f")
    assert [point.number for point in space] == [0, 1]
    (fate,) = fates_of(results(space))
    assert (fate.text, fate.before, fate.combinations) == ('part = "ecp5-85f"', 2, 4)
    assert fate.slack is not None and 0 < fate.slack < 1
    with pytest.raises(ConfigError, match=r"^part must be one of ecp5-25f, ecp5-45f, ecp5-85f, not 'ecp5'$"):
        replace(SPACE, part="ecp5")


@pytest.mark.parametrize(
    ("text", "slack"),
    [
        ("latency < 10 ms", 0.2),
        ("latency < 0.01 s", 0.2),
        ("4 ms > latency", -1.0),
        ("energy <= 2 mJ and latency < 10 ms", 0.2),
        ("6 <= latency <= 100", 1 / 3),
        ("latency < lut", 1 - 8 / 20),
        ("latency == 8", None),
        ("latency < 10 ms or lut < 1", None),
        ("power < 1 W", None),
    ],
)
def test_slack(text: str, slack: float | None) -> None:
    found = parse(text).slack({"latency": 8.0, "energy": 1000.0, "lut": 20.0})
    assert found is None if slack is None else found == pytest.approx(slack)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("net.latncy < 1", '`net.latncy < 1`: "net.latncy" must be a metric of a network; did you mean "latency"?'),
        ("nett.latency < 1", '`nett.latency < 1`: "nett" must be a network; did you mean "net"?'),
        (
            "net.a.b < 1",
            "`net.a.b < 1`: a point stands between a network and a metric, as in resnet8.latency, not",
        ),
        ("net.lut < 1", '`net.lut < 1`: "net.lut" must be a metric of a network'),
    ],
)
def test_what_networks_do_not_have(text: str, message: str) -> None:
    with pytest.raises(ExpressionError, match="^" + re.escape(message)):
        parse(text, Scope(("net",)))


def test_numbers() -> None:
    scope = Scope(("net",), (("a", "pe * 2"), ("b", "a + net.latency")))
    assert parse_number("b / 2", scope).names == {"pe", "net.latency"}
    assert parse_number("b / 2", scope).value({"pe": 3, "net.latency": 4.0}) == 5
    assert parse_number("pe / (pe - 3)").value({"pe": 3}) is None
    with pytest.raises(ExpressionError, match=r'^`pe < 3` must be a number such as "energy \* latency", not a truth'):
        parse_number("pe < 3")


FILE = """
[[network]]
source = "zoo:autoencoder"
name = "ae"
[axes]
lanes = [[8, 8], [8, 8, 8]]
clock = ["50 MHz", "100 MHz"]
[metrics]
score = "max ae.fps / lut"
[goals]
objectives = ["ae.latency", "score"]
constraints = ["ae.latency < 20 ms"]
part = "ecp5-85f"
[base]
depthwise = "none"
sram = "64 KiB"
banks = 4
vector_lanes = 2
"""


@pytest.mark.parametrize(
    ("before", "after", "message"),
    [
        ('"ecp5-85f"', '"ecp6"', 's.toml:13: part must be one of ecp5-25f, ecp5-45f, ecp5-85f, not "ecp6"'),
        ("ae.fps / lut", "ae.fp / lut", "s.toml:9: metric score: `ae.fp / lut`"),
        ("score =", "lut =", "s.toml:9: metric lut: metrics must have names of their own"),
        ('"score"', '"scor"', 's.toml:11: objective "scor" must be a metric; did you mean "score"?'),
        ('"score"', '"score +"', "s.toml:11: objective `score +` must be an expression"),
        ('"100 MHz"', '"1 THz"', "s.toml:7: clock must be a frequency such as"),
        ('name = "ae"', 'name = "a e"', "s.toml:4: name must be a word of letters, digits and _, not 'a e'"),
        ("part =", 'clock = "1 MHz"\npart =', "s.toml:13: clock must be an axis or a goal, not both; leave one out"),
        ("part =", 'scenario = "best"\npart =', "s.toml:13: scenario must be one of worst, mean, each, not"),
        ("part =", "scenario = { bus = 32 }\npart =", "s.toml:13: scenario must be of axes of the memory's timing"),
    ],
)
def test_errors_of_a_file(before: str, after: str, message: str, tmp_path: Path) -> None:
    assert FILE.count(before) == 1
    with pytest.raises(SpaceError, match="^" + re.escape(message)):
        read(FILE.replace(before, after), "s.toml", tmp_path)


def test_flags_override_a_file_and_price_nothing_anew(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    def run(*argv: str) -> Any:
        main(["sweep", *argv, "--output", str(tmp_path), "--jobs", "1", "--json"])
        return json.loads(capsys.readouterr().out)

    (tmp_path / "s.toml").write_text(FILE)
    none = ("--part", "none", "--constraint", "none")
    first = run(str(tmp_path / "s.toml"), *none)
    assert (first["points"], first["reused"], first["constraints"]) == (4, 2, [])  # of one configuration by two clocks
    unsure = [record["area_error"] for record in first["records"]]
    error = area_of(Config()).error
    assert unsure == [error, error, "unknown", "unknown"]
    assert {record["part"] for record in first["records"]} == {"ECP5-85F", "none"}
    table = list(csv.DictReader((tmp_path / "results.csv").open()))
    assert {row["energy_error"] for row in table} == {"unknown"}
    assert [row["area_error"] for row in table] == [str(error), str(error), "unknown", "unknown"]
    assert "pixel_lanes 8: measured were 1..4" in table[2]["area_outside"]
    second = run(str(tmp_path / "s.toml"))
    assert (second["points"], second["reused"], second["nearest_miss"]) == (2, 2, None)
    assert [fate["before"] for fate in second["constraints"]] == [None, 2]
    third = run("--resume", *none, "--constraint", "latency < 1 us", "--objectives", "energy,min(lut, ff)")
    assert (third["points"], third["reused"], third["objectives"]) == (4, 4, ["energy", "min(lut, ff)"])
    assert third["nearest_miss"]["number"] == 3


def test_the_table_opens_with_the_front_and_marks_what_is_unsure() -> None:
    space = replace(SPACE, constraints=(), objectives=("latency", "lut"))
    table = table_of(results(space))
    marks = dict(zip((str(column.header) for column in table.columns), table.columns, strict=True))
    assert [str(cell).endswith("?") for cell in marks["LUTs"].cells] == [False, False, True, True]
    assert next(iter(marks["front"].cells)) == "yes" and set(marks["front"].cells) == {"yes", "", "!"}
    assert "? of 2: outside of what was measured, error not known" in str(table.caption)
