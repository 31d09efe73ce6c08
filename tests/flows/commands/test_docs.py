"""The documentation as an installed user finds it, and that messages name pages which are there."""

import ast
import json
import re
from pathlib import Path

import pytest

import dovetail
from dovetail.cosim.compare import fuzz
from dovetail.cosim.coverage import file
from dovetail.cosim.rtl import rtl_engine
from dovetail.flows.cli import main
from dovetail.flows.commands import docs
from dovetail.flows.explore.store import database
from dovetail.flows.options import parameters
from dovetail.flows.output import trouble
from dovetail.flows.report.page import live, server
from dovetail.isa import program
from dovetail.isa.common import build_cache, toml
from dovetail.isa.config import given
from dovetail.sw.compiler.partition.host_cost import MOST_TRIP
from dovetail.sw.compiler.plan import schedule_cache
from dovetail.sw.files import arrays, manifest
from dovetail.sw.frontend.onnx import limits
from dovetail.sw.frontend.tflite import flatbuffer

LAYERS = ("isa", "hw", "sw", "cosim", "flows")
SOURCES = [path for layer in LAYERS for path in sorted((Path(dovetail.__file__).parent / layer).rglob("*.py"))]


def shown_texts(path: Path) -> list[str]:
    """The texts of a module that are no docstrings."""
    tree = ast.parse(path.read_text())
    told = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
    return [
        n.value
        for n in ast.walk(tree)
        if isinstance(n, ast.Constant) and isinstance(n.value, str) and id(n) not in told
    ]


def test_messages_name_pages_that_an_installed_user_has() -> None:
    known, named = docs.pages(), set()
    assert len(SOURCES) > 300
    for path in SOURCES:
        for text in shown_texts(path):
            named |= set(re.findall(r"`dovetail docs ([\w/-]+)`", text))
            if path.name not in ("operator_list.py", "manual.py"):  # the texts of pages, which stand beside each other
                assert not re.search(r"\bdocs/\w", text), f"{path}: {text}"
    assert named and named <= set(known)


def test_limits_are_those_of_the_code() -> None:
    page = " ".join((docs.folder() / "limits.md").read_text().split())
    for number, unit in (
        (toml.MOST_BYTES, " characters"),
        (toml.DEEPEST, " deep"),
        (manifest.MOST_BYTES >> 20, " MiB, no aliases"),
        (arrays.MOST_BYTES >> 20, " MiB of arrays"),
        (program.MOST_MEMORY >> 30, " GiB of system memory"),
        (file.LIMIT >> 20, " MiB of Verilog"),
        (fuzz.MOST_MEMORY >> 20, " MiB of system memory"),
        (int(database.LIMIT), " s of processor time per query"),
        (int(schedule_cache.PATIENCE), " s per query; after that"),
        (limits.MOST_ELEMENTS, " |"),
        (limits.MOST_NODES, "; no function calls itself"),
        (flatbuffer.MOST_READ, " times the file"),
        (MOST_TRIP, " cycles"),
        (given.MAX_LANES, " lanes in a direction"),
        (given.MAX_PE, " multipliers"),
        (given.MAX_SRAM >> 20, f" MiB of SRAM in {given.MAX_BANKS} banks"),
        (trouble.LONGEST, " characters"),
        (parameters.LONGEST, " |"),
        (server.CONNECTIONS, f"; {server.DEADLINE:.0f} s for a request"),
        (live.WAITING, " |"),
        (build_cache.LIMIT >> 30, " GiB, the least recently used"),
        (rtl_engine.DEFAULT_LIMIT, " |"),
    ):
        assert f" {number:,}{unit}" in page, unit


def test_pages_are_listed_and_shown(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["docs"]) == 0
    assert f"\n{'spaces':<24}Space files\n" in capsys.readouterr().out
    assert main(["docs", "spaces"]) == 0
    assert capsys.readouterr().out == (docs.folder() / "spaces.md").read_text()
    assert main(["docs", "docs/spaces.md", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["text"].startswith("# Space files\n")


def test_an_unknown_page(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["docs", "space"]) == 2
    assert capsys.readouterr().err == 'dovetail: error: "space" must be a page; did you mean "spaces"?\n'
