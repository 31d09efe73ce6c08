"""Show the documentation that comes with Dovetail: its pages, or one of them."""

import argparse
import sys
from importlib.resources import files
from importlib.resources.abc import Traversable

from rich.markdown import Markdown

from dovetail.flows.output.printable import Block
from dovetail.flows.output.reply import Report
from dovetail.isa.common.suggestion import nearest
from dovetail.sw.errors import DovetailError


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("page", metavar="PAGE", nargs="?", help="such as spaces; without: the pages there are")


def run(args: argparse.Namespace) -> Report:
    """Run the command. Raises DovetailError."""
    found = pages()
    if args.page is None:
        titles = {
            name: page.read_text(encoding="utf-8").partition("\n")[0].lstrip("# ") for name, page in found.items()
        }
        lines = [f"{name:<24}{title}" for name, title in titles.items()]
        return Report({"folder": str(folder()), "pages": titles}, [*lines, f"in {folder()}"])
    name = args.page.removeprefix("docs/").removesuffix(".md")
    if name not in found:
        raise DovetailError(f'"{args.page}" must be a page{nearest(name, found)}')
    text = found[name].read_text(encoding="utf-8")
    return Report({"page": name, "text": text}, [Markdown(text) if sys.stdout.isatty() else Block(text)])


def folder() -> Traversable:
    """Where the pages are, in a checkout and in an installed package alike."""
    return files("dovetail") / "docs"


def pages() -> dict[str, Traversable]:
    """The pages by name."""
    tutorials = folder() / "tutorials"
    found = [("", page) for page in folder().iterdir()] + [("tutorials/", page) for page in tutorials.iterdir()]
    named = {f"{where}{page.name.removesuffix('.md')}": page for where, page in found if page.name.endswith(".md")}
    return {name: named[name] for name in sorted(named) if name != "README"}  # it says what this list does
