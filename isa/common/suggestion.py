"""The name that a user may have meant, as the end of an error text about one that does not exist."""

from collections.abc import Iterable
from difflib import get_close_matches


def nearest(name: str, known: Iterable[str]) -> str:
    """``; did you mean "x"?`` with the most similar name, or all that is known where none is similar."""
    names = list(known)
    close = get_close_matches(name, names, 1)
    return f'; did you mean "{close[0]}"?' if close else f"; known: {', '.join(names)}"
