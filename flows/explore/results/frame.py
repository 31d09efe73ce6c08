"""Flat records as a table: CSV, or a pandas frame."""

from __future__ import annotations

import csv
from collections.abc import Iterator, Sequence
from io import StringIO
from pathlib import Path
from typing import Any, overload

from dovetail.isa.common.files import write_atomically
from dovetail.isa.common.html import html_table
from dovetail.sw.errors import DovetailError

Record = dict[str, Any]


class Frame(Sequence[Record]):
    """Records with the same keys, in the order of the columns.

    ``records``: their columns are all keys that appear, in the order of their first appearance; what one has not is
    empty.
    """

    def __init__(self, records: Sequence[Record]) -> None:
        self.columns = tuple(dict.fromkeys(name for record in records for name in record))
        self._records = tuple({name: record.get(name, "") for name in self.columns} for record in records)

    @overload
    def __getitem__(self, index: int) -> Record: ...
    @overload
    def __getitem__(self, index: slice) -> Frame: ...
    def __getitem__(self, index: int | slice) -> Record | Frame:
        return Frame(self._records[index]) if isinstance(index, slice) else self._records[index]

    def __len__(self) -> int:
        return len(self._records)

    def __iter__(self) -> Iterator[Record]:
        return iter(self._records)

    def __repr__(self) -> str:
        rest = ", ..." if len(self.columns) > 4 else ""
        return f"<Frame {len(self):,} rows x {len(self.columns)} columns: {', '.join(self.columns[:4])}{rest}>"

    def _repr_html_(self) -> str:
        align = "".join("r" if isinstance(value, int | float) else "l" for value in next(iter(self), {}).values())
        rows = [[f"{v:,.6g}" if isinstance(v, float) else v for v in record.values()] for record in self]
        return html_table(f"{len(self):,} records", self.columns, align or "l" * len(self.columns), rows)

    def to_csv(self, path: str | Path | None = None) -> str:
        """The text of a CSV file with a header; it is written to ``path``, whole or not at all. Raises OSError."""
        text = StringIO()
        writer = csv.DictWriter(text, self.columns, lineterminator="\n")
        writer.writeheader()
        writer.writerows(self)
        if path is not None:
            write_atomically(Path(path), text.getvalue())
        return text.getvalue()

    def to_pandas(self) -> Any:
        """A `pandas.DataFrame`; what is empty is a missing value. Raises DovetailError without pandas."""
        try:
            import pandas
        except ImportError:
            raise DovetailError("to_pandas must have pandas; pip install 'dovetail[pandas]', or use to_csv") from None
        rows = [[None if value == "" else value for value in record.values()] for record in self]
        return pandas.DataFrame(rows, columns=list(self.columns))
