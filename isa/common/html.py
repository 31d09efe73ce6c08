"""Small tables for notebooks."""

from collections.abc import Iterable, Sequence
from html import escape
from typing import Any

MOST = 40
"""Lines of a table, at most."""


def html_table(title: str, head: Sequence[str], align: str, rows: Iterable[Sequence[Any]], note: str = "") -> str:
    """A table as HTML, without colours of its own: it takes those of the page. Every text is escaped.

    Parameters
    ----------
    title: stands above.
    head: the heading of each column, or nothing.
    align: a letter for each column, ``l`` left or ``r`` right.
    rows: a cell for each column; integers are written with separators. Beyond :data:`MOST` they are counted only.
    note: lines that stand below.
    """
    rows = list(rows)
    lines = [_line("th", head, align)] if head else []
    lines += [_line("td", row, align) for row in rows[:MOST]]
    notes = [f"{len(rows) - MOST:,} more lines"] if len(rows) > MOST else []
    below = "".join(f"<div><small>{escape(text)}</small></div>" for text in [*notes, *note.splitlines()])
    return f"<div><div><b>{escape(title)}</b></div><table>{''.join(lines)}</table>{below}</div>"


def _line(tag: str, cells: Sequence[Any], align: str) -> str:
    sides = {"l": "left", "r": "right"}
    texts = (f"{cell:,}" if type(cell) is int else str(cell) for cell in cells)
    line = "".join(
        f'<{tag} style="text-align: {sides[side]}; padding: 0.1em 0.6em">{escape(text)}</{tag}>'
        for side, text in zip(align, texts, strict=True)
    )
    return f"<tr>{line}</tr>"
