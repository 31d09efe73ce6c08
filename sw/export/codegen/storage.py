"""Where the tensors that the host touches lie: in shared memory, in the caller's arrays, or in scratch memory."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from dovetail.isa.common.sizes import round_up
from dovetail.isa.program import ITEM_BYTES
from dovetail.sw.network import ir

ALIGN = 8
"""Of everything in scratch memory."""


@dataclass(frozen=True)
class Pointer:
    """An address in the generated code.

    ``text``: the expression; None for scratch memory, whose layout comes last. ``slot``: the piece of that, by the name
    of the tensor or by a number.
    """

    text: str | None
    slot: str | int = ""


@dataclass(eq=False)
class _Slot:
    """A piece of scratch memory, needed from step ``first`` to step ``last``."""

    size: int
    first: int
    last: int
    offset: int = 0


class Storage:
    """Gives addresses to tensors while calls are written, then lays scratch memory out.

    Parameters
    ----------
    graph: the network.
    where: offset in shared memory of the tensors that lie there.
    """

    def __init__(self, graph: ir.Graph, where: Mapping[str, int]) -> None:
        self._graph = graph
        self._where = where
        self._arrays: dict[str, str] = {}
        self._roots: dict[str, str] = {}
        for node in graph.nodes:
            if isinstance(node, ir.Reshape):
                self._roots[node.outputs[0]] = self.root(node.inputs[0])
        self._slots: dict[str | int, _Slot] = {}
        self._pairs: list[tuple[Pointer, Pointer]] = []
        self._temporaries = 0
        self._step = 0

    def root(self, tensor: str) -> str:
        """The tensor whose bytes a tensor has: reshapes do nothing."""
        return self._roots.get(tensor, tensor)

    def claim(self, tensor: str, array: str) -> bool:
        """Whether a tensor now has its place in an array of the caller's: the first one that asks gets it."""
        return self._arrays.setdefault(self.root(tensor), array) == array

    def next_step(self) -> None:
        """What follows is written after all that was."""
        self._step += 1

    def pointer(self, tensor: str) -> Pointer:
        """The address of a tensor."""
        if tensor in self._where:
            return Pointer(f"MEMORY({self._where[tensor]:#x})")
        root = self.root(tensor)
        if root in self._arrays:
            return Pointer(self._arrays[root])
        return self._scratch(root, self.bytes_of(root))

    def temporary(self, size: int) -> Pointer:
        """Bytes that are needed in this step only."""
        self._temporaries += 1
        return self._scratch(self._temporaries, size)

    def may_replace(self, result: Pointer, operand: Pointer) -> None:
        """A result in scratch memory may take the place of an operand, if that ends with this step."""
        if result.text is operand.text is None:
            self._pairs.append((result, operand))

    def bytes_of(self, tensor: str) -> int:
        """Bytes of a tensor."""
        info = self._graph.tensors[tensor]
        return info.size * ITEM_BYTES[info.dtype]

    def _scratch(self, key: str | int, size: int) -> Pointer:
        slot = self._slots.setdefault(key, _Slot(size, self._step, self._step))
        slot.last = self._step
        return Pointer(None, key)

    def lay_out(self) -> int:
        """Place all scratch memory, the largest pieces first; the bytes that it needs."""
        for result, operand in self._pairs:
            old, new = self._slots[operand.slot], self._slots[result.slot]
            if old.last == new.first and old.size == new.size and old is not new:
                old.last = new.last
                self._slots[result.slot] = old
        placed: list[_Slot] = []
        for slot in sorted(dict.fromkeys(self._slots.values()), key=lambda slot: (-slot.size, slot.first)):
            for other in sorted(placed, key=lambda other: other.offset):
                meets = slot.first <= other.last and other.first <= slot.last
                if meets and slot.offset < other.offset + other.size and other.offset < slot.offset + slot.size:
                    slot.offset = round_up(other.offset + other.size, ALIGN)
            placed.append(slot)
        return round_up(max((slot.offset + slot.size for slot in placed), default=0), ALIGN)

    def text(self, pointer: Pointer) -> str:
        """The expression, after `lay_out`."""
        return pointer.text if pointer.text is not None else f"SCRATCH({self._slots[pointer.slot].offset:#x})"
