"""A table that a benchmark prints row by row as they come, and then puts into a page."""

from collections.abc import Iterable, Sequence
from pathlib import Path

from dovetail.isa.common.files import write_atomically


def make_table(columns: Sequence[str], rule: str, rows: Iterable[str], page: Path | None, begin: str, end: str) -> None:
    """Print the rows; with a ``page``, write all of the table there between two marks that are in it.

    ``columns``: their heads; ``rule``: the line below these.
    """
    lines = [f"| {' | '.join(columns)} |", rule]
    for row in rows:
        print(row, flush=True)
        lines.append(row)
    if page:
        before, _, rest = page.read_text().partition(begin)
        _, _, after = rest.partition(end)
        write_atomically(page, "\n".join([before + begin, *lines, end]) + after)
