"""Names that nobody has yet."""

from collections.abc import Container


def unused(wanted: str, taken: Container[str]) -> str:
    """`wanted`, with a number behind it if it is taken."""
    name, count = wanted, 1
    while name in taken:
        count += 1
        name = f"{wanted}_{count}"
    return name
