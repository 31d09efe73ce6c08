"""`dovetail report`: the file of a real small sweep, explanations and all."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from dovetail.flows import cli
from dovetail.flows.explore.pricing.evaluation import price
from dovetail.flows.explore.space.design_space import Space, Workload
from dovetail.isa.config.resolved import Config
from dovetail.sw import frontend
from tests.flows.report.page.growing import Growing
from tests.flows.report.page.test_page_text import data_in

NETWORK = "zoo:mobilenet_v2_block"


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A finished sweep of four points."""
    path = tmp_path_factory.mktemp("store") / "results.sqlite"
    space = Space((Workload(NETWORK),), Config(), {"pe": (32, 64), "bus": (32, 64)}, objectives=("cycles", "pe"))
    graph = frontend.load(NETWORK)
    with Growing(path, space, lambda config: price(graph, config)) as growing:
        growing.put(range(4))
        growing.finish()
    return path


def test_the_best_points_are_explained_exactly(
    store: Path, tmp_path: Path, open_page: Callable[[str], Any], capsys: pytest.CaptureFixture[str]
) -> None:
    output = tmp_path / "out.html"
    assert cli.main(["report", str(store), "--output", str(output), "--top", "3", "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert (told["points"], told["failed"], len(told["explained"])) == (4, 0, 3)
    html = output.read_text("utf-8")
    data = data_in(html)
    cycles = {row[0]: row[5][0][0] for row in data["rows"]}
    for number, (explanation,) in data["explanations"]:
        assert explanation["cycles"] == cycles[number] == sum(explanation["shares"].values())
    page = open_page(html)
    assert [text.split("#")[1].split()[0] for text in page.texts("#selected thead th")] == list(
        map(str, told["explained"][:2])
    )
    assert page.texts("#cause-bars .barline > .number") == [f"{cycles[n]:,}" for n in told["explained"][:2]]
    energies = [explanation["energy"] for _, (explanation,) in data["explanations"]]
    assert page.texts("#energy-bars .barline > .number") == [f"{energy['total']:.4g} µJ" for energy in energies[:2]]
    assert energies[0]["error"] in page.text("#energy-bars p")
    assert [cells[5] for cells in page.cells("#layer-table tbody tr")] == [
        f"{layer['total']:.3g}" for layer in energies[0]["layers"]
    ]
    assert page.requests() == []


def test_without_explanations(store: Path, tmp_path: Path) -> None:
    output = tmp_path / "out.html"
    assert cli.main(["report", str(store), "--output", str(output), "--top", "0"]) == 0
    assert data_in(output.read_text("utf-8"))["explanations"] == []


def test_a_network_that_has_gone_still_gives_a_page(
    store: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def gone(*_: Any) -> Any:
        raise FileNotFoundError(2, "No such file", "net.onnx")

    monkeypatch.setattr("dovetail.flows.explore.results.layers.explain_point", gone)
    output = tmp_path / "out.html"
    assert cli.main(["report", str(store), "--output", str(output)]) == 0
    assert "are not explained" in capsys.readouterr().out
    assert len(data_in(output.read_text("utf-8"))["rows"]) == 4


@pytest.mark.parametrize(
    ("words", "error"),
    [
        (["--top", "-1"], "top must be at least 0, not -1"),
        (["--sweep", "9"], "store must have a sweep 9"),
        (["--output", "nowhere/x.html"], "its folder must exist"),
    ],
)
def test_errors_are_one_line(store: Path, words: list[str], error: str, capsys: pytest.CaptureFixture[str]) -> None:
    top = [] if "--top" in words else ["--top", "0"]
    assert cli.main(["report", str(store), *top, *words]) == 2
    shown = capsys.readouterr().err
    assert error in shown
    assert shown.count("\n") == 1
