"""Names and messages made safe to show: text from files appears as visible characters only."""

import unicodedata
from collections.abc import Iterable


class Block(str):
    """Text of several lines. Any other text is one line, whatever the names in it hold."""

    __slots__ = ()


def block(lines: Iterable[str]) -> Block:
    """Lines as one block; a line break within a line becomes visible."""
    return Block("\n".join(line if isinstance(line, Block) else printable(line) for line in lines))


def printable(text: str, keep: str = "") -> str:
    r"""The text with everything that cannot be seen written as an escape: ``"\x1b[2J"`` becomes ``"\\x1b[2J"``.

    That is control characters, line breaks, marks that turn the direction of writing, parts of characters (surrogates)
    and unassigned code points. ``keep``: those to leave as they are.
    """
    if text.isprintable():
        return text
    return "".join(char if _is_visible(char) or char in keep else _escape(char) for char in text)


def _is_visible(char: str) -> bool:
    return char.isprintable() or unicodedata.category(char) == "Zs"  # spaces of all widths


def _escape(char: str) -> str:
    return char.encode("unicode_escape").decode("ascii")
