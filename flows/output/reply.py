"""What a subcommand returns: data for ``--json`` and text for people; stdout gets one of them."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import IO, Any

from rich.console import Console, RenderableType
from rich.text import Text

from dovetail.flows.output.printable import Block, printable

PLAIN_WIDTH = 160
"""Columns of a table that does not go to a terminal."""


@dataclass(frozen=True)
class Report:
    """The outcome of a subcommand.

    Parameters
    ----------
    data: the JSON object.
    text: what a person sees: lines, blocks of lines, or tables.
    code: exit code: 0, or 1 for a check that did not pass.
    """

    data: Mapping[str, Any]
    text: Sequence[RenderableType] = field(default_factory=tuple)
    code: int = 0

    def write(self, out: IO[str], as_json: bool) -> None:
        """Write it to ``out``."""
        if as_json:
            out.write(to_json(self.data))
            return
        for part in self.text:
            if isinstance(part, str):
                text = _shown(part)
                out.write(text if text.endswith("\n") else text + "\n")
            else:
                _Console(file=out, width=None if out.isatty() else PLAIN_WIDTH).print(part)


class _Console(Console):
    """Shows text in tables as it is: a name such as ``layer[0]/conv[/]`` is no markup, and ``:x:`` no picture."""

    def render_str(self, text: str, **options: Any) -> Text:
        """Text of a cell or a title."""
        return super().render_str(_shown(text), **{**options, "markup": False, "emoji": False})


def _shown(text: str) -> str:
    return printable(text, keep="\n" if isinstance(text, Block) else "")


def to_json(data: Mapping[str, Any]) -> str:
    """One JSON object with a line end; NumPy values become plain ones."""
    return json.dumps(data, indent=2, allow_nan=False, default=_plain) + "\n"


def si(value: float) -> str:
    """A count in four characters or so: 950, 12.3k, 4.56M."""
    for unit, name in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        if value >= unit * 0.9995:
            scaled = value / unit
            digits = 0 if scaled >= 99.95 else 1 if scaled >= 9.995 else 2
            return f"{scaled:.{digits}f}{name}"
    return f"{value:.0f}"


def _plain(value: Any) -> Any:
    if hasattr(value, "tolist"):
        return value.tolist()
    raise TypeError(f"report must be JSON, not {type(value).__name__}")
