"""The pages hold together: links lead somewhere, each page has its place, the reference names the whole library."""

import argparse
import ast
import re
import subprocess
import sys
from functools import cache
from pathlib import Path

import pytest

import dovetail
from dovetail.flows import cli

ROOT = Path(__file__).resolve().parents[2]
DOCS = ROOT / "docs"
PAGES = [ROOT / "README.md", *sorted(DOCS.rglob("*.md"))]
SOURCES = [DOCS / "tutorials/notebook.ipynb", *sorted(DOCS.rglob("*.py"))]
SOURCES += [file for layer in ("isa", "hw", "sw", "cosim", "flows") for file in sorted((ROOT / layer).rglob("*.py"))]
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


@cache
def defined(file: Path) -> set[str]:
    """The names at the top level of a file of Python."""
    tree = ast.parse(file.read_text(encoding="utf-8")) if file.is_file() else ast.Module([], [])
    named = {node.name for node in tree.body if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef)}
    imported = [alias for node in tree.body if isinstance(node, ast.Import | ast.ImportFrom) for alias in node.names]
    stored = {node.id for node in ast.walk(tree) if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)}
    return named | {alias.asname or alias.name for alias in imported} | stored


def exists(name: str) -> bool:
    """Whether there is a module of this dotted name, or a name in one."""
    path = ROOT
    for number, part in enumerate(parts := name.split(".")[1:], 1):
        if (path / part).is_dir():
            path /= part
        elif (path / f"{part}.py").is_file():
            return len(parts) == number or parts[number] in defined(path / f"{part}.py")
        else:
            return part in defined(path / "__init__.py") or name == "dovetail.cosim.Handle"
    return True


def test_named_modules_are_there() -> None:
    """In pages, and in what is written in source files."""
    missing = []
    for file in [*PAGES, *SOURCES]:
        text = file.read_text(encoding="utf-8")
        named = set(re.findall(r"\bdovetail\.(?:isa|hw|sw|cosim|flows)(?:\.\w+)+", text))
        named |= {f"dovetail.{name}" for name in re.findall(r"`((?:isa|hw|sw|cosim|flows)(?:\.\w+)+)(?<!\.md)`", text)}
        for module, names in re.findall(r"from (dovetail\.[\w.]+) import ([\w, ]+)", text):
            named |= {f"{module}.{name.split(' as ')[0].strip()}" for name in names.split(",") if name.strip()}
        missing += [f"{file.relative_to(ROOT)}: {name}" for name in sorted(named) if not exists(name)]
    assert missing == []


def test_a_module_that_is_not_there_is_seen() -> None:
    names = ["isa.config.resolved.Config", "isa.config.resolved.Confit", "isa.confit", "cosim.Handle", "hw.array"]
    assert [name for name in names if not exists(f"dovetail.{name}")] == names[1:3]


def absent_names(text: str) -> list[str]:
    """Names of code that no file holds which its paragraph, or item of a list, names."""
    found = []
    for part in re.split(r"\n(?=\d\. |- |\| )|\n\n", text):
        files = [ROOT / path for path in re.findall(r"`([\w/.]+\.(?:py|js|h|c|toml|json|md))`", part)]
        names = [name for name in re.findall(r"`([A-Za-z_]\w+)`", part) if re.search(r"[A-Z_]", name)]
        code = "".join(file.read_text(encoding="utf-8") for file in files if file.is_file())
        found += [name for name in names if code and not re.search(rf"\b{name}\b", code)]
    return found


def test_what_one_touches_to_extend_is_there() -> None:
    assert absent_names((DOCS / "extending.md").read_text(encoding="utf-8")) == []
    assert absent_names("`README.md`: `Dovetail` and `_not_there`\n\n`NOR_THIS`") == ["_not_there"]


def unknown_options(text: str) -> list[str]:
    """Options in command lines of a page that their command does not have."""
    found = []
    for line in re.findall(r"(?:^|[`$ ])dovetail (\w[^`#\n]*)", text, re.MULTILINE):
        if (command := re.split(r"\W", line)[0]) in cli.COMMANDS:
            found += [
                f"{command} {word}" for word in re.findall(r"(?<!\S)--[\w-]+", line) if word not in options(command)
            ]
    return found


@cache
def options(command: str) -> set[str]:
    """What a command accepts."""
    top = cli.parser([command])
    (commands,) = (action for action in top._actions if isinstance(action, argparse._SubParsersAction))
    return {name for action in commands.choices[command]._actions for name in action.option_strings}


def test_options_in_command_lines_exist() -> None:
    found = {str(page.relative_to(ROOT)): unknown_options(page.read_text(encoding="utf-8")) for page in PAGES}
    assert {page: names for page, names in found.items() if names} == {}


def test_an_option_that_does_not_exist_is_seen() -> None:
    text = "    dovetail run x.onnx --engine rtl --fast   # --slow\n`dovetail docs --fast`, dovetail runs --fast"
    assert unknown_options(text) == ["run --fast", "docs --fast"]


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
