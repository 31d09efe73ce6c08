"""The regression table: what it calls worse, what it builds again, and that the committed one is consistent."""

import json
import os
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

from dovetail.flows.cli import main
from dovetail.flows.fpga import flow, regression
from dovetail.flows.fpga.design.boards import BOARDS, RESOURCES
from dovetail.flows.fpga.regression import Entry, Figures, change, load, save, worse
from dovetail.isa.config.resolved import Config
from tests.flows.fpga.fpga_designs import Wire, fakes

ROOT = Path(__file__).parents[3]
TABLE = ROOT / "benchmarks" / "builds.json"
USED = {"lut": 4000, "ff": 3000, "dsp": 68, "bram": 40}
OLD = Figures("0" * 16, "LFE5U-85F", "d" * 16, {"yosys": "9.9 (abc)"}, {"1": 100.0}, 1, USED, 100.0, True)


def planted(**changes: Any) -> Figures:
    used = USED | {name: value for name, value in changes.items() if name in RESOURCES}
    return replace(OLD, used=used, fmax=changes.get("fmax", OLD.fmax))


@pytest.mark.parametrize(
    ("new", "told"),
    [
        (planted(), []),
        (planted(fmax=95.1, lut=4199), []),
        (planted(fmax=94.0), ["Fmax fell by 6.0%, from 100.00 to 94.00 MHz"]),
        (planted(lut=4240), ["LUT grew by 6.0%, from 4,000 to 4,240"]),
        (planted(ff=3180, dsp=73), ["FF grew by 6.0%, from 3,000 to 3,180", "DSP grew by 7.4%, from 68 to 73"]),
        (planted(spram=1), ["SPRAM grew from 0 to 1"]),
        (planted(fmax=200.0, lut=1000), []),
    ],
)
def test_worse_by_more_than_five_percent(new: Figures, told: list[str]) -> None:
    assert worse(OLD, new) == told


def test_change_tells_all() -> None:
    new = replace(planted(fmax=101.5, lut=3990), tools={"yosys": "9.10"})
    assert change(OLD, new) == "Fmax 100.0 to 101.5, LUT 4,000 to 3,990, yosys 9.9 (abc) to 9.10"
    assert change(OLD, OLD) == "the same figures"


@pytest.mark.skipif(find_spec("amaranth_boards") is None, reason="needs the extra fpga")
def test_check_and_update(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any) -> None:
    monkeypatch.setattr(flow, "BoardDesign", Wire)
    monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}{os.pathsep}{os.environ['PATH']}")
    table = tmp_path / "builds.json"
    entry = Entry("a", "small", "ulx3s-85f", 80, "bram:64KiB", 2)
    save(table, [entry, replace(entry, name="b", seeds=1)])

    def call(what: str, *more: str, fmax: float = 90.0) -> tuple[int, Any]:
        options = [*fakes(tmp_path, fmax=fmax), "--output", str(tmp_path / "out"), *more]
        code = main(["build", f"--{what}", str(table), *options, "--json"])
        return code, json.loads(capsys.readouterr().out)

    code, data = call("update", "--only", "a")
    assert (code, data["entries"]["a"]["change"]) == (0, "new: 92.00 MHz")
    first, second = load(table)
    assert first.figures is not None and second.figures is None
    assert (first.figures.fmax, first.figures.seed, first.figures.used["dsp"]) == (92.0, 2, 68)
    runs = tmp_path / "out" / "a" / "ran-yosys"
    before = runs.read_text()
    code, data = call("check", "--only", "a", fmax=10.0)
    assert (code, data["entries"]["a"]["change"]) == (0, "same design, same tools: not built again")
    assert runs.read_text() == before
    save(table, [replace(first, figures=replace(first.figures, design="of another RTL", fmax=99.0))])
    code, data = call("check")
    assert (code, data["ok"]) == (1, False)
    assert data["entries"]["a"]["worse"] == ["Fmax fell by 7.1%, from 99.00 to 92.00 MHz"]
    assert load(table)[0].figures == replace(first.figures, design="of another RTL", fmax=99.0)
    assert call("update")[0] == 0
    assert load(table)[0].figures == first.figures
    assert main(["build", "--check", str(table), "--only", "c"]) == 2
    assert "--only must be one of a, not c" in capsys.readouterr().err


def test_what_is_no_table(tmp_path: Path, capsys: Any) -> None:
    for text in ("[]", "x", '{"a": {"board": "ulx3s-85f"}}'):
        (tmp_path / "t.json").write_text(text)
        assert main(["build", "--check", str(tmp_path / "t.json")]) == 2
        assert "t.json: must be a table of builds, see `dovetail docs build`" in capsys.readouterr().err


def test_a_table_with_memory_that_there_is_not(tmp_path: Path, capsys: Any) -> None:
    save(tmp_path / "t.json", [Entry("a", "small", "ulx3s-85f", 80, "tape:64KiB")])
    assert main(["build", "--check", str(tmp_path / "t.json")]) == 2
    assert "memory kind must be one of bram, spram, sdram, sdram32, not 'tape'" in capsys.readouterr().err


def test_the_committed_table_is_consistent() -> None:
    entries = load(TABLE)
    assert entries and len({entry.name for entry in entries}) == len(entries)
    for entry in entries:
        part = BOARDS[entry.board].part
        figures = entry.figures
        assert figures is not None and figures.part == part.name
        assert [*figures.seeds] == [str(seed) for seed in range(1, entry.seeds + 1)] and len(figures.design) == 16
        assert figures.fmax == figures.seeds[str(figures.seed)] == max(figures.seeds.values())
        assert all(0 <= figures.used[name] <= total for name, total in part.total.items())
        assert figures.met == (figures.fmax >= round(BOARDS[entry.board].clock(entry.request(1).frequency)[0] / 1e6, 2))
    text = (ROOT / "docs" / "build.md").read_text()
    assert "\n".join(regression.markdown(entries)) in text, "python benchmarks/builds.py prints the table"


def test_the_committed_table_is_of_these_configurations() -> None:
    for entry in load(TABLE):
        assert entry.figures is not None
        wanted = f"{Config.load(entry.config).hash:016x}"
        assert entry.figures.config_hash == wanted, f"{entry.name}: build it again"


def test_a_planted_drop_fails_the_committed_table() -> None:
    for entry in load(TABLE):
        old = entry.figures
        assert old is not None
        assert worse(old, old) == []
        assert len(worse(old, replace(old, fmax=old.fmax * 0.94))) == 1
        assert len(worse(old, replace(old, used={**old.used, "lut": int(old.used["lut"] * 1.06) + 1}))) == 1
