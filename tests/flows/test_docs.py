"""The documentation as an installed user finds it, and that messages name pages which are there."""

import ast
import json
import re
from pathlib import Path

import pytest

import dovetail
from dovetail.flows import docs
from dovetail.flows.cli import main

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
            if path.name not in ("operators.py", "manual.py"):  # the texts of pages, which stand beside each other
                assert not re.search(r"\bdocs/\w", text), f"{path}: {text}"
    assert named and named <= set(known)


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
