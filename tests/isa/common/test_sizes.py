"""Sizes and their text."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dovetail.isa.common.sizes import format_bytes, parse_bytes


@pytest.mark.parametrize(("text", "size"), [("512 KiB", 1 << 19), ("1MiB", 1 << 20), ("4096", 4096), ("7 b", 7)])
def test_sizes(text: str, size: int) -> None:
    assert parse_bytes(text) == size


@given(st.integers(1, 1 << 40))
def test_formatted_sizes_read_back(size: int) -> None:
    assert parse_bytes(format_bytes(size)) == size


@pytest.mark.parametrize("text", ["much", "1 MB", "-1", "1.5 KiB", ""])
def test_other_text_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="size must be a number with B, KiB, MiB or GiB"):
        parse_bytes(text)
