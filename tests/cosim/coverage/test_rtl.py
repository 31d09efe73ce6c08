"""Coverage of the RTL: reading what Verilator wrote, holes and their reasons, the command's verdict."""

import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from dovetail.cosim.compare.campaign import Tally
from dovetail.cosim.coverage import rtl as rtl_coverage
from dovetail.cosim.coverage.bins import all_bins
from dovetail.cosim.coverage.rtl import (
    Hole,
    RtlCoverage,
    Totals,
    analyse,
    cover_rtl,
    host_accesses,
    read_points,
    reason,
)
from dovetail.cosim.rtl.rtl_engine import RtlEngine
from dovetail.flows.cli import main
from dovetail.flows.commands import coverage as coverage_command
from dovetail.isa.config.resolved import Config
from dovetail.sw.random.programs.configurations import WHOLE

CONFIG = Config(ic_lanes=8, oc_lanes=8, sram="64 KiB")


def point(kind: str, lines: str, count: int, *, module: str = "top.a", column: int = 3, name: str = "block") -> str:
    keys = {"f": "top.v", "l": lines.split("-")[0], "n": column, "page": f"v_{kind}/{module}", "o": name}
    keys |= {"S": lines} if kind != "toggle" else {}
    return "C '" + "".join(f"\x01{key}\x02{value}" for key, value in keys.items()) + f"' {count}\n"


TEXT = (
    "# SystemC::Coverage-3\n"
    + point("line", "1-2", 7)
    + point("branch", "3", 0, name="if")
    + point("branch", "4-5,8", 2, name="else")
    + point("line", "6-7", 0)
    + point("toggle", "6", 0, name="signal[0]:0->1")
    + point("toggle", "6", 4, name="signal[1]:0->1")
    + point("line", "9", 0, module="top.b")
)
VERILOG = {"top.v": "\n".join(f"text of {n}" for n in range(1, 10))}


def test_points_of_several_runs_add_up() -> None:
    points = read_points([TEXT, TEXT])
    assert len(points) == 7
    assert [(p.kind, p.lines, p.count) for p in points[:3]] == [
        ("line", (1, 2), 14),
        ("branch", (3,), 0),
        ("branch", (4, 5, 8), 4),
    ]
    assert {p.module for p in points} == {"top.a", "top.b"}


def test_totals_and_holes() -> None:
    coverage = analyse(read_points([TEXT]), VERILOG)
    assert coverage.total.covered == {"line": 5, "branch": 1, "toggle": 1}
    assert coverage.total.all == {"line": 9, "branch": 2, "toggle": 2}
    assert coverage.modules["top.b"].all["line"] == 1
    assert coverage.total.share("line") == 5 / 9
    assert [(h.module, h.line, h.lines) for h in coverage.holes] == [("top.a", 3, 1), ("top.a", 6, 2), ("top.b", 9, 1)]
    assert coverage.holes[1].text == "text of 5 text of 6 text of 7", "the line before tells where it is"
    assert len(coverage.unexplained) == 3


def test_a_line_that_one_run_reached_is_no_hole() -> None:
    other = point("branch", "3", 1, name="if")
    assert [h.line for h in analyse(read_points([TEXT, other]), VERILOG).holes] == [6, 9]


def test_reasons() -> None:
    text = "end else if (\\$24 ) begin fault[3:0] = \\$28 ;"
    assert reason("core.sequencer.array_control", text).startswith("one control for all")
    assert reason("core.sequencer.load_control", text) == ""
    assert reason("core.sequencer.array_control", "done = 1;") == ""


def test_an_engine_without_coverage(build_cache: Path) -> None:
    with pytest.raises(ValueError, match="covered needs an engine with coverage"):
        RtlEngine(CONFIG, cache=build_cache).covered()


def test_host_accesses(build_cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    engine = RtlEngine(CONFIG, cache=build_cache)
    assert list(host_accesses(engine)) == []
    monkeypatch.setattr(rtl_coverage, "ID", 5)
    assert next(iter(host_accesses(engine))) == "ID must be 0x5, not 0x6c746f64"


@pytest.fixture
def covered(monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """What the command is told instead of running for minutes."""
    total = Totals({"line": 97, "branch": 8, "toggle": 0}, {"line": 100, "branch": 10, "toggle": 0})
    hole = Hole("top.a", 12, 2, "a line | and another", "nobody goes there")
    told = {"wrong": [], "rtl": RtlCoverage({"top.a": total}, total, (hole,))}
    tally = Tally(programs=3, operations=40, coverage=Counter(all_bins()))
    monkeypatch.setattr(coverage_command, "cover_rtl", lambda *a, **k: (tally, told["wrong"], told["rtl"]))
    return told


def test_command(covered: dict[str, Any], capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    path = tmp_path / "report.md"
    assert main(["coverage", "--output", str(path)]) == 0
    out = capsys.readouterr().out
    assert "97.0% of lines, 80.0% of branches; 1 holes, 0 without a reason" in out
    assert "verdict      ENOUGH, EQUAL" in out and "nobody goes there" in out
    text = path.read_text()
    assert "| top.a | 97 / 100 | 97.0% | 8 / 10 | 80.0% |" in text
    assert "| top.a | 12 | `a line \\| and another` | nobody goes there |" in text
    assert "# Functional coverage" in text
    assert main(["coverage", "--json", "--output", str(tmp_path / "report.json")]) == 0
    data = json.loads(capsys.readouterr().out)
    assert data["rtl"]["total"] == {"line": {"covered": 97, "all": 100}, "branch": {"covered": 8, "all": 10}}
    assert json.loads((tmp_path / "report.json").read_text()) == data


def test_command_demands(covered: dict[str, Any], capsys: pytest.CaptureFixture[str]) -> None:
    covered["wrong"] = ["seed 3: SRAM: 1 bytes differ"]
    assert main(["coverage"]) == 1
    assert "DIFFERENT\nseed 3: SRAM: 1 bytes differ\n" in capsys.readouterr().out
    covered["wrong"] = []
    good = covered["rtl"]
    covered["rtl"] = RtlCoverage(good.modules, good.total, (Hole("top.a", 1, 1, "x", ""),))
    assert main(["coverage"]) == 1
    assert "1 without a reason" in capsys.readouterr().out
    low = Totals({"line": 94, "branch": 8, "toggle": 0}, {"line": 100, "branch": 10, "toggle": 0})
    covered["rtl"] = RtlCoverage(good.modules, low, good.holes)
    assert main(["coverage"]) == 1
    assert "TOO LITTLE" in capsys.readouterr().out
    assert main(["coverage", "--output", "x.txt"]) == 2
    assert main(["coverage", "--programs", "0"]) == 2


@pytest.mark.slow
def test_programs_and_faults_cover_the_rtl(build_cache: Path) -> None:
    tally, wrong, rtl = cover_rtl(WHOLE, seed=0, programs=300, faults=8, count=25, toggle=False, cache=build_cache)
    assert wrong == []
    assert rtl.unexplained == []
    assert rtl.total.share("line") > 0.98
    assert tally.programs == 300
