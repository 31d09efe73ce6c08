"""The page that shows results: one HTML text, for a file (`render`) or for a server (`render_live`).

Style and script stand in the text, so nothing is fetched from anywhere; the page's own policy forbids it as well, and
allows only the script and the style with the hashes of these files.
"""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Mapping, Sequence
from functools import cache
from hashlib import sha256
from html import escape
from pathlib import Path
from string import Template
from typing import Any

from dovetail.flows.explore.results.sweep_results import Results
from dovetail.flows.output.printable import printable
from dovetail.flows.report.page.payload import embedded, payload_of

FOLDER = Path(__file__).parent
NOBODY, OWN = "'none'", "'self'"
"""Where a page's script may ask for data, in the words of a Content-Security-Policy."""
SCRIPTS = (
    *("base", "format", "scale", "data", "filters", "state", "table", "chart", "axes", "scatter", "pointer"),
    *("summary", "bars", "points", "difference", "layers", "main"),
)
"""The script's parts, in order; together they are one function."""


def render(
    results: Results, explanations: Mapping[int, Sequence[Mapping[str, Any]]] | None = None, *, version: str = ""
) -> str:
    """The page with all results in it, which know their front (`Results.marked`).

    Parameters
    ----------
    explanations: by number of the row, what `dovetail.sw.analysis.explain` says of each network of the space, as JSON
    has it. version: of the compiler that priced the rows.
    """
    return _page(payload_of(results, explanations or {}, version), NOBODY)


def render_live(title: str) -> str:
    """The page of a server: it asks the server that it came from for rows and explanations."""
    return _page({"live": True, "title": title}, OWN)


def policy(connect: str) -> str:
    """The Content-Security-Policy; ``connect``: where the script may ask for data."""
    return (
        f"default-src 'none'; script-src '{_hash(script())}'; style-src '{_hash(style())}'; img-src data:; "
        f"connect-src {connect}; base-uri 'none'; form-action 'none'"
    )


@cache
def script() -> str:
    """The page's script."""
    parts = "\n".join((FOLDER / "script" / f"{name}.js").read_text("utf-8") for name in SCRIPTS)
    return f'(() => {{\n"use strict";\n{parts}\n}})();\n'


@cache
def style() -> str:
    """The page's style."""
    return (FOLDER / "page.css").read_text("utf-8")


def _page(data: Mapping[str, Any], connect: str) -> str:
    title = data["title"] if data["live"] else data["header"]["title"]
    return Template((FOLDER / "page.html").read_text("utf-8")).substitute(
        policy=policy(connect), title=escape(printable(title)), style=style(), script=script(), data=embedded(data)
    )


def _hash(text: str) -> str:
    return "sha256-" + b64encode(sha256(text.encode()).digest()).decode()
