"""The rules of `dovetail docs rooms` about names of files and imports."""

import ast
from graphlib import TopologicalSorter
from pathlib import Path

ROOT = Path(__file__).parents[2]
LAYERS = ("isa", "hw", "sw", "cosim", "flows")
FILES = [path.relative_to(ROOT) for layer in LAYERS for path in sorted((ROOT / layer).rglob("*.py"))]


def test_every_room_is_on_the_map() -> None:
    text = (ROOT / "docs/rooms.md").read_text(encoding="utf-8")
    rooms = {"/".join(path.parts[:2]) for path in FILES if len(path.parts) > 2}
    assert len(rooms) > 30
    assert [room for room in sorted(rooms) if f"`{room}`" not in text] == []


def test_no_file_is_named_like_its_room() -> None:
    assert [str(path) for path in FILES if path.stem == path.parent.name] == []


def test_rooms_pass_no_names_on() -> None:
    """What an ``__init__`` imports it uses itself: linting sees to that where there is no ``__all__``."""
    rooms = [path for path in FILES if path.name == "__init__.py"]
    assert [str(path) for path in rooms if "__all__" in (ROOT / path).read_text(encoding="utf-8")] == []


def test_imported_modules_keep_their_names() -> None:
    renamed = [
        f"{path}: {alias.name} as {alias.asname}"
        for path in FILES
        for node in ast.walk(ast.parse((ROOT / path).read_text(encoding="utf-8")))
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("dovetail.")
        for alias in node.names
        if alias.asname and _is_module(f"{node.module}.{alias.name}")
    ]
    assert renamed == []


def test_no_private_module_of_a_library_is_imported() -> None:
    """What a library names with an underscore may change with its next release."""
    private = [
        f"{path}: {node.module}"
        for path in FILES
        for node in ast.walk(ast.parse((ROOT / path).read_text(encoding="utf-8")))
        if isinstance(node, ast.ImportFrom)
        for name in (*(node.module or "").split("."), *(alias.name for alias in node.names))
        if name.startswith("_") and not name.startswith("__")
    ]
    assert private == []


def test_imports_run_in_no_circle() -> None:
    """Neither at the top of files, nor late in functions, nor for types alone."""
    needs: dict[str, set[str]] = {}
    for path in FILES:
        module = ".".join(["dovetail", *path.with_suffix("").parts]).removesuffix(".__init__")
        needs[module] = {
            name if _is_module(name) else str(node.module)
            for node in ast.walk(ast.parse((ROOT / path).read_text(encoding="utf-8")))
            if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("dovetail.")
            for name in (f"{node.module}.{alias.name}" for alias in node.names)
        } - {module}
    TopologicalSorter(needs).prepare()  # raises CycleError, which names the modules


def _is_module(name: str) -> bool:
    path = ROOT.joinpath(*name.split(".")[1:])
    return path.is_dir() or path.with_suffix(".py").is_file()
