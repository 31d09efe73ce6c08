"""Extensions: packages from outside that add operations to the vector unit."""

from typing import Any


def shares(group: str) -> dict[str, Any]:
    """What each extension that is loaded gives under a group of entry points, by the extension's name."""
    return {}
