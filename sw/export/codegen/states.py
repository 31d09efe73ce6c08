"""A network's variables between runs: where they lie, and what puts their initial values there."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

import numpy as np

from dovetail.sw.compiler.compile import Code
from dovetail.sw.export.codegen.c_text import Constants, comment
from dovetail.sw.export.codegen.writer import Pointer, Storage
from dovetail.sw.network import ir


@dataclass(frozen=True)
class Kept:
    """Where a variable is between two runs.

    ``place``: in shared memory, where the program reads it, if it also leaves the next value there, ``in_place``; else
    in scratch memory, from where it goes to ``target`` before a run, unless that is None: the host alone reads it.
    """

    state: ir.State
    place: Pointer
    in_place: bool
    target: Pointer | None


def kept_states(code: Code, storage: Storage) -> tuple[Kept, ...]:
    """Give every variable of a network a place."""
    found: list[Kept] = []
    for state in code.graph.states:
        if code.in_place(state):
            found.append(Kept(state, storage.pointer(state.read), True, None))
        else:
            target = storage.pointer(state.read) if state.read in code.where else None
            found.append(Kept(state, storage.keep(state.read, storage.bytes_of(state.read)), False, target))
    return tuple(found)


def reset_lines(kept: Iterable[Kept], storage: Storage, constants: Constants, where: Mapping[str, int]) -> list[str]:
    """C statements that give variables their initial values, when scratch memory is laid out."""
    lines: list[str] = []
    for one in kept:
        name, size = one.state.read, storage.bytes_of(one.state.read)
        values = np.ascontiguousarray(one.state.initial).view(np.uint8).ravel()
        place = storage.text(one.place)
        lines.append(comment(f"state {one.state.name}"))
        if (values == values[0]).all():
            lines.append(f"memset({place}, {int(values[0])}, {size});")
        else:
            lines.append(f"memcpy({place}, {constants.array(values, f'{name}_initial')}, {size});")
        if one.in_place:
            lines += [
                "if (!status)",
                f"    status = dovetail_flush(&inference->device, &inference->memory, {where[name]:#x}, {size});",
            ]
    return lines


def handed_on(kept: Iterable[Kept], storage: Storage) -> Iterator[tuple[str, Pointer, Pointer, int]]:
    """(name, source, target, bytes) of the copies behind a run, in an order in which none is of what another one has
    overwritten."""
    copies = [
        (one.state.name, storage.pointer(one.state.written), one.place, storage.bytes_of(one.state.read))
        for one in kept
        if not one.in_place
    ]
    copies = [copy for copy in copies if copy[1] != copy[2]]
    places = {target for _, _, target, _ in copies}
    late = list[tuple[str, Pointer, Pointer, int]]()
    for name, source, target, size in copies:
        if source in places:  # the value of another variable before this run
            aside = storage.temporary(size)
            yield name, source, aside, size
            late.append((name, aside, target, size))
        else:
            late.append((name, source, target, size))
    yield from late
