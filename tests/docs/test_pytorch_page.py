"""What the page of PyTorch shows is what its Python prints."""

from pathlib import Path

import pytest

from tests.docs.test_tutorials import check

PAGE = Path(__file__).resolve().parents[2] / "docs/pytorch.md"


def test_what_the_page_shows(tmp_path: Path) -> None:
    pytest.importorskip("torch", reason="PyTorch is not installed (extra: torch)")
    pytest.importorskip("torchao", reason="torchao is not installed (extra: torch)")
    check(PAGE, tmp_path, slow=False)
