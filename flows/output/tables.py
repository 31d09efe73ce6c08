"""Tables for people: a title, columns and lines."""

from collections.abc import Iterable, Sequence
from typing import Any

from rich.table import Table
from rich.text import Text

RIGHT = ">"
"""Before the name of a column of figures, which stand to the right."""


def new_table(title: str, columns: Sequence[str], rows: Iterable[Sequence[str | Text]] = (), **style: Any) -> Table:
    """A table; columns whose names begin with :data:`RIGHT` are of figures. ``style``: of `rich.table.Table`."""
    table = Table(title=title, **style)
    for name in columns:
        table.add_column(name.removeprefix(RIGHT), justify="right" if name.startswith(RIGHT) else "left")
    for row in rows:
        table.add_row(*row)
    return table
