"""Pages whose blocks are programs: they are executed in order, and what they print stands in the page.

- A `console` block has commands (``$ dovetail ...``), each followed by what it prints; ``# exits with 1`` stands behind
  one that gives that code.
- A `python` block runs in one namespace per page; a `text` block right after it is what it prints.
- A block with a title is a file, written before what follows.
- ``<!-- slow -->`` before a block: it takes longer (a build of the RTL). ``<!-- not run -->``: it is only shown.
- A line ``...`` in what is printed stands for any lines, ``...`` in a line for the rest of it.

``python tests/docs/tutorial.py docs/tutorials/*.md`` writes what is printed now into the pages.
"""

import contextlib
import io
import os
import re
import shlex
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from dovetail.flows.cli import main

BLOCK = re.compile(r"(?:<!-- (slow|not run) -->\n+)?```(\w+)(?: title=\"([^\"]+)\")?\n(.*?)```\n", re.DOTALL)
WIDTH = "100"
"""Columns of the terminal that the pages are made for."""


@dataclass(frozen=True)
class Block:
    """A block of a page; ``start``, ``end``: of its text within the page."""

    mark: str
    language: str
    title: str
    text: str
    start: int
    end: int


def blocks_of(text: str) -> list[Block]:
    """The blocks of a page."""
    return [Block(m[1] or "", m[2], m[3] or "", m[4], m.start(4), m.end(4)) for m in BLOCK.finditer(text)]


def written(text: str, folder: Path, *, slow: bool) -> str:
    """The page with what its blocks print now, run in `folder`; slow ones only if `slow`. Raises RuntimeError."""
    names: dict[str, object] = {"__name__": "tutorial"}
    new, done, printed = [], 0, ""
    for block in blocks_of(text):
        shown, left = block.text, block.mark == "not run" or (block.mark == "slow" and not slow)
        if block.title:
            (folder / block.title).write_text(block.text)
        elif left:
            printed = ""
        elif block.language == "console":
            shown = "".join(f"$ {line}\n{merged(said, _run(line, folder))}" for line, said in commands(block.text))
        elif block.language == "python":
            printed = _execute(block.text, names, folder)
        elif block.language == "text" and printed:
            shown, printed = merged(block.text, printed), ""
        new += [text[done : block.start], shown]
        done = block.end
    return "".join([*new, text[done:]])


def commands(text: str) -> list[tuple[str, str]]:
    """(command, what it prints) of a console block."""
    parts = re.split(r"^\$ (.*)\n", text, flags=re.MULTILINE)[1:]
    return list(zip(parts[::2], parts[1::2], strict=True))


def merged(shown: str, printed: str) -> str:
    """What a page shows if that is true of what was printed, otherwise what was printed."""
    printed = "".join(f"{line.rstrip()}\n" for line in printed.splitlines())
    dots = re.escape("...")
    pattern = "".join(
        "(?:.*\n)*?" if line == "..." else re.escape(line).replace(dots, ".*") + "\n" for line in shown.splitlines()
    )
    return shown if re.fullmatch(pattern, printed) else printed


def _run(command: str, folder: Path) -> str:
    """What a command of Dovetail prints. Raises RuntimeError."""
    program, *args = shlex.split(command, comments=True)
    assert program == "dovetail", command
    wanted = re.search(r"# exits with (\d+)", command)
    output = io.StringIO()
    with contextlib.chdir(folder), _columns(), contextlib.redirect_stdout(output):
        code = main(args)
    if code != int(wanted[1] if wanted else 0):
        raise RuntimeError(f"{command} gave {code}: {output.getvalue()}")
    return output.getvalue()


@contextlib.contextmanager
def _columns() -> Iterator[None]:
    before = os.environ.get("COLUMNS")
    os.environ["COLUMNS"] = WIDTH
    try:
        yield
    finally:
        os.environ.pop("COLUMNS")
        if before is not None:
            os.environ["COLUMNS"] = before


def _execute(code: str, names: dict[str, object], folder: Path) -> str:
    output = io.StringIO()
    with contextlib.chdir(folder), _importable(folder), contextlib.redirect_stdout(output):
        exec(compile(code, "tutorial", "exec"), names)
    return output.getvalue()


@contextlib.contextmanager
def _importable(folder: Path) -> Iterator[None]:
    sys.path.insert(0, str(folder))
    try:
        yield
    finally:
        sys.path.remove(str(folder))


if __name__ == "__main__":
    for name in sys.argv[1:]:
        with tempfile.TemporaryDirectory() as made:
            Path(name).write_text(written(Path(name).read_text(), Path(made), slow=True))
