"""The notebook of the docs runs, and what the library returns shows itself there."""

import importlib.util
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any
from xml.etree import ElementTree

import numpy as np
import pytest

import dovetail
from dovetail.cosim.compare.lockstep import Comparison
from dovetail.sw.errors import DovetailError

SITE = Path(__file__).resolve().parents[2] / "docs/site"
NOTEBOOK = SITE.parent / "tutorials/notebook.ipynb"


@pytest.fixture
def notebooks() -> Iterator[ModuleType]:
    """The site's part that runs notebooks."""
    pytest.importorskip("ipykernel")
    pytest.importorskip("nbclient")
    spec = importlib.util.spec_from_file_location("notebooks", SITE / "notebooks.py")
    assert spec and spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    yield module
    sys.modules.pop("notebooks", None)


def shown(notebook: Any) -> list[set[str]]:
    """What each cell of code shows, as types of content."""
    return [
        {kind for output in cell.outputs for kind in output.get("data", {"stream": 0})}
        for cell in notebook.cells
        if cell.cell_type == "code"
    ]


def test_it_runs(notebooks: ModuleType, tmp_path: Path) -> None:
    """All cells but those that take minutes; each shows a table, a picture or a list."""
    kinds = shown(notebooks.executed(NOTEBOOK, tmp_path, slow=False))
    assert kinds.pop() == set()
    assert all(kinds)
    assert sum("text/html" in kind for kind in kinds) == 5
    assert sum("image/png" in kind for kind in kinds) == 4
    assert list(tmp_path.iterdir()) == []


@pytest.mark.slow
def test_all_of_it_runs(
    notebooks: ModuleType, tmp_path: Path, build_cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With the RTL, which the last cell finds equal."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(build_cache))
    assert shown(notebooks.executed(NOTEBOOK, tmp_path, slow=True))[-1] == {"text/plain", "text/html"}


def test_a_cell_that_fails_is_an_error(notebooks: ModuleType, tmp_path: Path) -> None:
    path = tmp_path / "a.ipynb"
    path.write_text(NOTEBOOK.read_text().replace("zoo:dscnn", "zoo:dscn"))
    with pytest.raises(Exception, match="zoo:dscn"):
        notebooks.executed(path, tmp_path, slow=False)


def test_no_output_is_kept() -> None:
    """It would be large, and nobody would see that it is old."""
    nbformat = pytest.importorskip("nbformat")
    code = [cell for cell in nbformat.read(NOTEBOOK, as_version=4).cells if cell.cell_type == "code"]
    assert [cell for cell in code if cell.outputs or cell.execution_count] == []


def text_of(thing: Any) -> str:
    """The words of a table in a notebook; that it is well-formed is checked with that."""
    return " ".join(ElementTree.fromstring(f"<all>{thing._repr_html_()}</all>").itertext())


def test_what_the_library_returns_is_shown_as_a_table(tmp_path: Path) -> None:
    config = dovetail.Config(sram="64 KiB", elementwise=False)
    assert "64 KiB" in text_of(config) and "elementwise" in text_of(config).partition("lacks")[2]
    network = dovetail.compile("zoo:autoencoder", config, effort=0)
    cycles = f"{network.report().cycles:,} cycles"
    assert "zoo:autoencoder" in text_of(network)
    assert cycles in text_of(network.report()) and "dense9" in text_of(network.report())
    assert cycles in text_of(network.run(np.zeros((1, 640), np.int8)))
    assert cycles in text_of(dovetail.explain(network)) and "loads" in text_of(dovetail.explain(network))
    assert "error not known" in text_of(dovetail.energy(network))
    space = dovetail.Space((dovetail.Workload("zoo:autoencoder"),), config, {"bus": [32, 64], "stripe": [8, 99]})
    results = dovetail.explore(space, jobs=1)
    assert text_of(results).count("fails") == 2
    assert "dense9" in text_of(results.layers(1))
    assert "0 records" in text_of(results.layers(0))
    for picture in (results.pareto("lut", "cycles", "bus"), results.bars(), dovetail.pictures.occupancy(network)):
        assert picture.axes
    with pytest.raises(DovetailError, match=r'^pareto must be given a metric, not "cycle"; did you mean'):
        results.pareto("cycle")
    with pytest.raises(DovetailError, match=r"^window must begin before the run's end, cycle"):
        dovetail.pictures.timeline(network, (10**9, 10**9 + 1))


def test_a_verdict_says_what_differs() -> None:
    equal = Comparison(True, 12345, 12345, True, True, True)
    assert text_of(dovetail.Verdict((equal,))).startswith("Model and RTL: equal")
    other = Comparison(True, 12345, 12346, False, True, True, "timeline: <entry 3>")
    assert "12,346 equal DIFFERENT equal" in " ".join(text_of(dovetail.Verdict((equal, other))).split())
    assert "segment 1: timeline: <entry 3>" in text_of(dovetail.Verdict((equal, other)))
