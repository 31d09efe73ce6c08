"""The compiler's page and picture: the stages are functions, and each takes what the one before gives."""

import itertools
import re
from functools import cached_property
from importlib import import_module
from pathlib import Path
from typing import Any, get_type_hints

DOCS = Path(__file__).parents[2] / "docs"
NO_TYPES = {"bytes", "words"}
"""What an arrow may carry that is no class of its own."""


def rows() -> list[list[str]]:
    """Stage, function, what it takes and what it gives."""
    lines = (DOCS / "compiler.md").read_text(encoding="utf-8").splitlines()
    begin = lines.index("| stage | function | takes | gives | does |") + 2
    table = lines[begin : lines.index("", begin)]
    return [[cell.strip().strip("`") for cell in line.strip("|").split("|")[:4]] for line in table]


def found(path: str) -> Any:
    """A function, or what is behind a property."""
    *modules, name = path.split(".")
    try:
        value = getattr(import_module(".".join(["dovetail", *modules])), name)
    except ModuleNotFoundError:
        value = getattr(getattr(import_module(".".join(["dovetail", *modules[:-1]])), modules[-1]), name)
    return value.func if isinstance(value, cached_property) else value


def test_every_stage_is_a_function_of_the_types_that_the_page_names() -> None:
    for _, path, takes, gives in rows():
        function = found(path)
        hints = {name: getattr(kind, "__name__", str(kind)) for name, kind in get_type_hints(function).items()}
        assert hints.pop("return") == gives, path
        owner = path.split(".")[-2]
        first = next(iter(hints.values()), owner)
        assert takes in (first, "a path"), path


def test_each_stage_takes_what_the_one_before_gives() -> None:
    stages = rows()
    for (_, _, _, gives), (name, _, takes, _) in itertools.pairwise(stages):
        assert takes == gives or (name, takes, gives) == ("report", "CompiledNetwork", "Code")


def test_the_picture_names_stages_and_types_that_exist() -> None:
    text = (DOCS / "images/compiler.svg").read_text(encoding="utf-8")
    boxes, types = ({*re.findall(rf"<text{kind} [^>]*>([^<]*)<", text)} for kind in ("", ' class="type"'))
    stages = rows()
    assert {name for name, *_ in stages} - {"report"} <= boxes
    assert {gives for *_, gives in stages} <= types | boxes
    source = "".join(
        path.read_text(encoding="utf-8") for room in ("sw", "isa") for path in (DOCS.parent / room).rglob("*.py")
    )
    named = types | (boxes & {"Report", "Result"})
    assert {name for name in named - NO_TYPES if f"\nclass {name}" not in source} == set()
