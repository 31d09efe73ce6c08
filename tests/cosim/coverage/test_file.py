"""Coverage files: what was saved is read, several add up, wrong ones are refused; the command; a cocotb run."""

import base64
import json
import random
import zlib
from collections import Counter
from pathlib import Path

import pytest

from dovetail.cosim.coverage.bins import all_bins, as_json
from dovetail.cosim.coverage.file import Coverage, DesignCoverage, load, merged
from dovetail.cosim.coverage.rtl import Point
from dovetail.flows.cli import main
from dovetail.hw.sequencer.queue import Queue

VERILOG = {"top.v": "module top;\nassign a = 1;\nassign b = 2;\nendmodule\n"}


def saved(path: Path, seed: int, *, verilog: dict[str, str] = VERILOG, line_2: int = 0, line_3: int = 0) -> Coverage:
    bins = random.Random(seed).sample(all_bins(), 40)
    coverage = Coverage(Counter({found: n + 1 for n, found in enumerate(bins)}))
    design = DesignCoverage("8x8", verilog)
    design.add([Point("line", "top.v", (2,), "top", line_2, "a"), Point("line", "top.v", (3,), "top", line_3, "b")])
    coverage.add(design)
    path.write_text(json.dumps(coverage.to_json()))
    return coverage


def test_files_add_up(tmp_path: Path) -> None:
    """Over seeds of one design, and over designs."""
    other = {"top.v": VERILOG["top.v"].replace("2", "7")}
    paths = [tmp_path / f"{name}.json" for name in "abc"]
    parts = [
        saved(paths[0], 1, line_2=3),
        saved(paths[1], 2, line_3=4),
        saved(paths[2], 3, verilog=other, line_2=5),
    ]
    assert load(paths[0]) == parts[0]
    total = merged(paths)
    assert total.functional == sum((part.functional for part in parts), Counter())
    first, second = (total.designs[part.designs.copy().popitem()[0]] for part in (parts[0], parts[2]))
    assert sorted(first.points.values()) == [3, 4]
    assert (first.analysed().total.share("line"), first.analysed().holes) == (1.0, ())
    (hole,) = second.analysed().holes
    assert (hole.line, hole.text) == (3, "assign a = 1; assign b = 7;")
    assert merged([paths[1], paths[0]]) == merged(paths[:2])


def test_files_of_fuzz(tmp_path: Path) -> None:
    counts = Counter(dict.fromkeys(all_bins()[:9], 2))
    (tmp_path / "fuzz.json").write_text(json.dumps(as_json(counts)))
    assert load(tmp_path / "fuzz.json").functional == counts
    assert merged([tmp_path / "fuzz.json"] * 3).functional[all_bins()[0]] == 6


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("", "Expecting value"),
        ("[]", "'list' object"),
        ("{}", "'tables'"),
        ('{"tables": {"flags": {"CONV": {"none": 1}}}}', "flags, CONV, none is no bin of this version"),
        ('{"tables": {"stalls": {"LOAD": {"BUSY": -1}}}}', "a count must be a natural number, not -1"),
        ('{"tables": {}, "designs": {"x": {"label": "", "verilog": "AAAA", "points": []}}}', "decompress"),
    ],
)
def test_other_files_are_refused(tmp_path: Path, text: str, why: str, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "x.json"
    path.write_text(text)
    assert main(["coverage", "--merge", str(path)]) == 2
    error = capsys.readouterr().err
    assert error.startswith(f"dovetail: error: {path}: must be coverage as JSON, from fuzz, coverage or a bench: ")
    assert why in error


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ({"points": [["line", "other.v", [2], "top", "a", 1]]}, "'other.v'"),
        ({"points": [["line", "top.v", [9], "top", "a", 1]]}, "lines of a point must be those of 'top.v', not [9]"),
        ({"points": [["line", "top.v", [2.0], "top", "a", 1]]}, "lines of a point must be those of 'top.v', not [2.0]"),
        (
            {"points": [["x", "top.v", [2], "top", "a", 1]]},
            "a point must be a line, branch, toggle of a module, not 'x'",
        ),
        ({"points": [["line", "top.v", [2], 5, "a", 1]]}, "a point must be a line, branch, toggle of a module"),
        ({"points": [["line", "top.v", [2], "top", "a", True]]}, "a count must be a natural number, not True"),
        ({"verilog": base64.b64encode(zlib.compress(b'{"top.v": 1}')).decode()}, "Verilog must be text by the name"),
        ({"verilog": base64.b64encode(zlib.compress(b"[]")).decode()}, "Verilog must be text by the name"),
    ],
)
def test_designs_are_checked(tmp_path: Path, change: dict[str, object], why: str) -> None:
    saved(tmp_path / "x.json", 1)
    data = json.loads((tmp_path / "x.json").read_text())
    for design in data["designs"].values():
        design.update(change)
    (tmp_path / "x.json").write_text(json.dumps(data))
    with pytest.raises(ValueError, match="must be coverage as JSON") as raised:
        load(tmp_path / "x.json")
    assert why in str(raised.value)


def test_command(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    paths = [tmp_path / "a.json", tmp_path / "b.json"]
    parts = [saved(paths[0], 1, line_2=1), saved(paths[1], 2, line_3=1)]
    hit = len(parts[0].functional | parts[1].functional)
    assert main(["coverage", "--merge", str(paths[0])]) == 1
    assert "50.0% of lines" in capsys.readouterr().out
    both = tmp_path / "both.json"
    assert main(["coverage", "--merge", *map(str, paths), "--output", str(both)]) == 0
    out = capsys.readouterr().out
    assert f"functional   {hit} of {len(all_bins())} bins" in out
    assert "100.0% of lines" in out and "0 holes" in out and "verdict      ENOUGH" in out
    assert load(both) == merged(paths)
    page = tmp_path / "both.md"
    assert main(["coverage", "--merge", str(both), "--output", str(page), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["functional"]["hit"] == hit
    assert page.read_text().startswith("# Merged coverage\n")
    assert main(["coverage", "--merge", str(tmp_path / "none.json")]) == 2
    assert "No such file" in capsys.readouterr().err


@pytest.mark.slow
def test_a_cocotb_run(build_cache: Path, tmp_path: Path) -> None:
    pytest.importorskip("cocotb")
    from dovetail.cosim.benches.runner import run

    for seed in (1, 2):
        path = tmp_path / f"{seed}.json"
        suite = "dovetail.cosim.benches.suite.fifo"
        assert run(Queue(depth=4), suite, options={"depth": 4}, seed=seed, coverage=path, cache=build_cache)
    total = merged([tmp_path / "1.json", tmp_path / "2.json"])
    (design,) = total.designs.values()
    assert design.analysed().total.share("line") == 1.0
    assert sum(design.points.values()) > sum(load(tmp_path / "1.json").designs[design.digest].points.values())
