"""The pages hold together: links lead somewhere, each page has its place, the reference names the whole library."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

import dovetail

ROOT = Path(__file__).resolve().parents[2]
DOCS = ROOT / "docs"
PAGES = [ROOT / "README.md", *sorted(DOCS.rglob("*.md"))]
FENCE = re.compile(r"^```.*?^```", re.DOTALL | re.MULTILINE)
LINK = re.compile(r"\]\(([^)\s]+)\)")


def text_of(page: Path) -> str:
    """A page without blocks of code and code in lines."""
    text = FENCE.sub("", page.read_text(encoding="utf-8"))
    prose = "\n".join(line for line in text.split("\n") if not line.startswith("    "))
    return re.sub(r"`[^`\n]*`", "", prose)


def anchors(page: Path) -> set[str]:
    """What can stand behind `#` in a link to a page: its headings, as Markdown readers name them."""
    headings = re.findall(r"^#+ (.*)$", FENCE.sub("", page.read_text(encoding="utf-8")), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).strip().replace(" ", "-") for heading in headings}


def broken(page: Path) -> list[str]:
    """The links of a page that lead nowhere."""
    found = []
    for link in LINK.findall(text_of(page)):
        if re.match(r"[a-z]+:", link):
            continue
        path, _, anchor = link.partition("#")
        target = (page.parent / path).resolve() if path else page
        if not target.exists() or (anchor and anchor not in anchors(target)):
            found.append(link)
    return found


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_lead_somewhere(page: Path) -> None:
    assert broken(page) == []


def test_a_broken_link_is_seen(tmp_path: Path) -> None:
    page = tmp_path / "a.md"
    page.write_text(
        "# One, two\n[x](#one-two) [x](a.md#one-two) [y](#three) [z](b.md) `[v](c.md)` [w](https://w.org)\n"
    )
    assert broken(page) == ["#three", "b.md"]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_named_files_are_there(page: Path) -> None:
    below = "tests" if page.name == "mutations.md" else ""  # its column of tests
    named = re.findall(r"`((?:tests|benchmarks|hw|sw|cosim|isa|flows)/[^`\s:]*)", page.read_text(encoding="utf-8"))
    assert [path for path in named if not any([*ROOT.glob(path), *(ROOT / below).glob(path)])] == []


def test_every_page_has_its_place_in_the_navigation() -> None:
    text = (DOCS / "site/mkdocs.yml").read_text()
    named = re.findall(r"^ +- (?:[\w ]+: )?([\w/-]+\.md)$", text.partition("\nnav:\n")[2], re.MULTILINE)
    pages = [*PAGES[1:], *(page.with_suffix(".md") for page in DOCS.rglob("*.ipynb"))]  # the site shows these as pages
    assert sorted(named) == sorted(str(page.relative_to(DOCS)) for page in pages)


def test_the_front_page_leads_to_every_page() -> None:
    linked = set(LINK.findall(text_of(DOCS / "README.md")))
    pages = {page.name for page in DOCS.glob("*.md")} | {f"tutorials/{p.name}" for p in DOCS.glob("tutorials/*.*")}
    assert pages - linked == {"README.md"}


def test_the_reference_names_the_whole_library() -> None:
    text = "".join((DOCS / f"api/{name}.md").read_text() for name in ("library", "configuration"))
    named = set(re.findall(r"^::: dovetail\.(\w+)$", text, re.MULTILINE))
    assert named == {name for name in dir(dovetail) if not name.startswith("_")}


def test_diagrams_are_those_of_their_script(tmp_path: Path) -> None:
    subprocess.run([sys.executable, DOCS / "site/diagrams.py", tmp_path], check=True)
    drawn = sorted(tmp_path.glob("*.svg"))
    assert {path.stem for path in drawn} == {"overview", "accelerator", "unit", "compiler", "board", "systemc"}
    for path in drawn:
        assert path.read_text() == (DOCS / "images" / path.name).read_text()
