"""The site's reading of docstrings."""

import importlib.util
from pathlib import Path

import pytest

FILE = Path(__file__).resolve().parents[2] / "docs/site/docstrings.py"

BEFORE = """Do it, as :class:`dovetail.isa.config.resolved.Config` says::

    do()

Parameters
----------
a: the first,
    in two lines.
b, c
    Both.

What else there is.

Raises
------
ValueError: never.
"""
AFTER = """Do it, as `Config` says:

    do()

Parameters
----------
a
    the first,
    in two lines.
b
    Both.
c
    Both.

Notes
-----
What else there is.

Raises
------
ValueError
    never.
"""


def test_sections_and_roles() -> None:
    pytest.importorskip("griffe")
    spec = importlib.util.spec_from_file_location("docstrings", FILE)
    assert spec and spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    assert module.rewritten(BEFORE) == AFTER
