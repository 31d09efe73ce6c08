"""What the tutorials show is what their commands and their Python print."""

from pathlib import Path

import pytest

from tests.docs.tutorial import blocks_of, merged, written

PAGES = sorted((Path(__file__).resolve().parents[2] / "docs/tutorials").glob("*.md"))


def check(page: Path, folder: Path, slow: bool) -> None:
    text = page.read_text()
    for then, now in zip(blocks_of(text), blocks_of(written(text, folder, slow=slow)), strict=True):
        assert now.text == then.text


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_what_is_quick(page: Path, tmp_path: Path) -> None:
    check(page, tmp_path, slow=False)


@pytest.mark.slow
@pytest.mark.parametrize("page", [p for p in PAGES if "<!-- slow -->" in p.read_text()], ids=lambda page: page.stem)
def test_all_of_it(page: Path, tmp_path: Path, build_cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(build_cache))
    check(page, tmp_path, slow=True)


def test_a_page_that_is_not_true_is_noticed(tmp_path: Path) -> None:
    page = "```python\nprint(2 + 2)\n```\n\n```text\n5\n```\n"
    assert written(page, tmp_path, slow=True) == page.replace("5", "4")


def test_dots_stand_for_any_lines() -> None:
    assert merged("a\n...\nd\n", "a\nb\nc\nd\n") == "a\n...\nd\n"
    assert merged("a\n...\nx\n", "a\nb\nc\nd\n") == "a\nb\nc\nd\n"
    assert merged("equal; ...\n", "equal; in 3 s\n") == "equal; ...\n"
    assert merged("equal; ...\n", "wrong; in 3 s\n") == "wrong; in 3 s\n"
