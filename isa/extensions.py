"""Extensions: packages from outside that add operations to the vector unit, found by their entry points.

A package gives one object per layer, each under its extension's name, so that no layer imports a higher one:
``dovetail.instructions`` rows of the instruction table, ``dovetail.stages`` their hardware, by name of the stage
(``hw.vector.unit``), and ``dovetail.onnx`` what networks use them for (``sw.frontend.onnx``).
"""

import copyreg
import hashlib
from collections.abc import Callable, Iterable
from dataclasses import replace
from functools import cache
from importlib.metadata import EntryPoint, entry_points
from importlib.util import find_spec
from pathlib import Path
from traceback import extract_tb
from typing import Any

from dovetail.isa.common.suggestion import nearest
from dovetail.isa.config.given import FEATURES, ConfigError
from dovetail.isa.instructions.table import (
    DIRECT,
    EXTENSIONS,
    INSTRUCTIONS,
    MAX_PASSES,
    MAX_WAITS,
    NO_STAGE,
    SCALING,
    TABLE_BYTES,
    Instruction,
    Op,
    Unit,
)
from dovetail.isa.numerics.semantics import undefined

GROUP = "dovetail.instructions"
_loaded: dict[str, EntryPoint] = {}


def load(name: str) -> None:
    """Add an extension's operations to the instruction table, unless they are there.

    Raises :class:`ConfigError` when there is no such extension, or one that breaks a rule.
    """
    if name in _loaded:
        return
    installed = {entry.name: entry for entry in entry_points(group=GROUP)}
    if name not in installed:
        others = nearest(name, installed) if installed else "; none is installed"
        raise ConfigError(f"extension {name!r} must be an installed package with an entry point {GROUP}{others}")
    rows = _given(installed[name])
    if not isinstance(rows, tuple | list) or not rows:
        raise ConfigError(f"extension {name}: {GROUP} must be a list of instructions, not {rows!r}")
    taken = dict(INSTRUCTIONS)
    for row in rows:
        if not isinstance(row, Instruction):
            raise ConfigError(f"extension {name}: {GROUP} must be a list of instructions, not {row!r}")
        if rule := _broken(row, taken.values()):
            raise ConfigError(f"extension {name}: {row.op.name} {rule}")
        taken[row.op] = replace(row, extension=name)
    for row in rows:
        row.op.join()
    INSTRUCTIONS.update(taken)
    _loaded[name] = installed[name]


def _broken(row: Instruction, others: Iterable[Instruction]) -> str:
    """The rule of rows that one breaks, or nothing."""
    op, stage = row.op, row.stage
    if op not in EXTENSIONS:
        return f"must have an opcode of 0x{EXTENSIONS[0]:02x} to 0x{EXTENSIONS[-1]:02x}, not 0x{op:02x}"
    if not op.name.isidentifier() or not op.name.isupper():
        return "must have a name of upper-case letters, digits and underscores"
    for other in others:
        if op in (other.op, other.op.name) or op.name == other.op.name:
            whose = f"extension {other.extension}" if other.extension else "Dovetail"
            return f"must have an opcode and a name of its own: {other.op.name}, 0x{other.op:02x}, is of {whose}"
        if stage.name == other.stage.name and (stage != other.stage or not other.extension):
            return f"must have a stage of its own: {stage.name} is the stage of {other.op.name}"
    if row.unit != Unit.VECTOR or row.fields or row.scaling is not None:
        return "must be an operation of the vector unit, without fields and scaling"
    if row.compute is undefined or stage in (NO_STAGE, SCALING, DIRECT) or stage.latency < 1:
        return "must have its semantics (compute), and a stage of its own with a latency of at least 1"
    if row.feature not in (None, *FEATURES):
        return f"must need one of {', '.join(FEATURES)}, or nothing, not {row.feature!r}"
    if (row.int32_input or row.int32_output) and row.feature != "elementwise":
        return "must need elementwise, as it is of int32"
    if row.looks_up and row.feature != "activation":
        return "must need activation, as it looks up"
    if (row.table_bytes != TABLE_BYTES and not row.passes) or row.table_bytes % TABLE_BYTES:
        return f"must have a table of {TABLE_BYTES} bytes, or of a multiple of it if it has passes"
    passes = [*row.passes, *([row.drain] if row.drain else [])]
    if len(passes) > MAX_PASSES or any(wait not in MAX_WAITS for each in passes for wait in each.wait):
        return f"must have at most {MAX_PASSES} passes, each with a wait of {MAX_WAITS[0]} to {MAX_WAITS[-1]} cycles"
    return "" if row.doc else "must have a sentence that says what it does"


def _given(entry: EntryPoint) -> Any:
    """What an extension gives. Its code may fail in any way: the error names the place."""
    try:
        return entry.load()
    except Exception as error:
        places = [f"{Path(frame.filename).name}:{frame.lineno}: " for frame in extract_tb(error.__traceback__)]
        told = f"{places[-1]}{type(error).__name__}: {error}"
        raise ConfigError(f"extension {entry.name}: {entry.value} cannot be imported: {told}") from error


def _operation(extension: str, code: int) -> Op:
    load(extension)
    return Op(code)


def _reduced(op: Op) -> tuple[Callable[..., Op], tuple[Any, ...]]:
    extension = INSTRUCTIONS[op].extension
    return (_operation, (extension, int(op))) if extension else (Op, (int(op),))


copyreg.pickle(Op, _reduced)
"""An operation that is sent to another process, as in a network's graph, brings its extension."""


def shares(group: str) -> dict[str, Any]:
    """What each extension that is loaded gives under a group of entry points, by the extension's name.

    Raises :class:`ConfigError`.
    """
    return {entry.name: _given(entry) for entry in entry_points(group=group) if entry.name in _loaded}


@cache
def digest(name: str) -> str:
    """Of the source of an extension that is loaded: what was computed with another source is computed anew."""
    spec = find_spec(_loaded[name].module.partition(".")[0])
    assert spec is not None and spec.origin is not None
    folder = Path(spec.origin).parent
    files = sorted(folder.rglob("*.py")) if spec.submodule_search_locations else [Path(spec.origin)]
    parts = (path.relative_to(folder).as_posix().encode() + b"\0" + path.read_bytes() for path in files)
    return hashlib.sha256(b"\0".join(parts)).hexdigest()[:16]
