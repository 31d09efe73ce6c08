"""What writers of calls share: the network, where its tensors lie, and the calls so far.

The tensors that the host touches lie in shared memory, in the caller's arrays, or in scratch memory.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from operator import itemgetter
from textwrap import wrap

import numpy as np

from dovetail.isa.common.sizes import round_up
from dovetail.isa.numerics.rounding import Rounding
from dovetail.sw.errors import NetworkError
from dovetail.sw.export.codegen.c_text import WIDTH, Constants, Fields, int8, number
from dovetail.sw.network import ir
from dovetail.sw.network.layout import Shape

ROUNDINGS = {Rounding.TFLITE: "DOVETAIL_ROUND_TFLITE", Rounding.ONNX: "DOVETAIL_ROUND_ONNX"}
AXES = 8
"""The most axes of the kernels' loops, DOVETAIL_AXES."""
LONG = 8
"""Elements of an axis that may be the innermost one of a copy, if any is so long."""
_ALWAYS = 1 << 30
"""A step behind all others."""


class Writer:
    """Collects the statements of one inference."""

    def __init__(self, graph: ir.Graph, storage: Storage, constants: Constants) -> None:
        self.graph = graph
        self.storage = storage
        self.constants = constants
        self.functions: set[str] = set()
        """Kernels that are called."""
        self._statements: list[tuple[str | Pointer, ...]] = []
        self.inexact: list[str] = []
        """Nodes in float whose result another library may round in another way."""

    def call(self, function: str, *arguments: str | int | float | np.floating | Pointer) -> None:
        """Append a call of a kernel."""
        self.functions.add(function)
        texts = [value if isinstance(value, str | Pointer) else number(value) for value in arguments]
        separated = [part for text in texts for part in (text, ", ")][:-1]
        self._statements.append((f"{function}(", *separated, ");"))

    def checked_call(self, function: str, *arguments: str | int | Pointer) -> None:
        """Append a call of a kernel that is 0 where a number that a run is given is outside its range."""
        self.call(function, *arguments)
        *start, _ = self._statements.pop()
        self._statements.append(("if (!", *start, "))"))
        self.write("    return DOVETAIL_ERROR_RANGE;")

    def write(self, *lines: str) -> None:
        """Append lines of C."""
        self._statements += [(line,) for line in lines]

    def statement(self, *parts: str | Pointer) -> None:
        """Append a line of C with addresses in it."""
        self._statements.append(parts)

    def lines(self) -> list[str]:
        """The C text of all statements, when scratch memory is laid out."""
        found: list[str] = []
        for parts in self._statements:
            text = "".join(self.storage.text(part) if isinstance(part, Pointer) else part for part in parts)
            found += wrap(text, WIDTH, subsequent_indent="    ", break_long_words=False) if len(parts) > 1 else [text]
        return found

    def ends(self, node: ir.Node, *, in_place: bool = False) -> tuple[Pointer, Pointer]:
        """First operand and result; ``in_place``: the kernel may put the latter where the former is."""
        source, result = self.storage.pointer(node.inputs[0]), self.storage.pointer(node.outputs[0])
        if in_place:
            self.storage.may_replace(result, source)
        return source, result

    def size(self, tensor: str) -> int:
        """Elements of a tensor."""
        return self.graph.tensors[tensor].size

    def requant(self, requant: ir.Requant, name: str) -> Fields:
        """A struct dovetail_requant."""
        mult, shift = np.broadcast_arrays(np.atleast_1d(requant.mult), np.atleast_1d(requant.shift))
        return {
            "mult": self.constants.array(mult.astype(np.int32), f"{name}_mult"),
            "shift": self.constants.array(int8(shift), f"{name}_shift"),
            "step": int(mult.size > 1),
            "rounding": ROUNDINGS[requant.rounding],
            "zero_in": requant.zero_in,
            "zero_out": requant.zero_out,
            "lo": requant.lo,
            "hi": requant.hi,
        }

    def move(self, source: str | Pointer, result: str | Pointer, copy: ir.Copy, item_bytes: int, name: str) -> None:
        """Append a strided copy of elements."""
        fields = copy_fields(copy, item_bytes, name)
        if not any((fields["axes"], copy.source, copy.target)):
            self.call("memcpy", result, source, int(fields["run"]))
            return
        self.call("dovetail_move", self.constants.struct("dovetail_copy", fields, f"{name}_copy"), source, result)


def copy_fields(copy: ir.Copy, item_bytes: int, name: str) -> dict[str, str | int]:
    """A struct dovetail_copy: neighbouring axes are one where they can be, and the last one a run of bytes."""
    axes = [(1, item_bytes, item_bytes)]
    run = item_bytes
    for size, source, target in reversed(tuple(zip(copy.sizes, copy.source_steps, copy.target_steps, strict=True))):
        if size == 1:
            continue
        source, target = source * item_bytes, target * item_bytes
        n, s, t = axes[-1]
        if len(axes) == 1 and source == target == run:
            run *= size
            axes[-1] = (1, run, run)
        elif len(axes) > 1 and source == n * s and target == n * t:
            axes[-1] = (n * size, s, t)
        else:
            axes.append((size, source, target))
    outer = axes[:0:-1]
    _check_axes(len(outer), name)
    if long := [axis for axis in outer if axis[0] >= LONG]:  # innermost, what is read in order of its addresses
        inner = min(long, key=itemgetter(1))
        outer.remove(inner)
        outer.append(inner)
    return {
        "run": run,
        "axes": len(outer),
        **_numbers("sizes", [n for n, _, _ in outer]),
        "source": copy.source * item_bytes,
        **_numbers("source_steps", [s for _, s, _ in outer]),
        "target": copy.target * item_bytes,
        **_numbers("target_steps", [t for _, _, t in outer]),
    }


def pairs_fields(a: Shape, b: Shape, name: str, result: Shape = ()) -> Fields:
    """A struct dovetail_pairs for two operands that are repeated where they have one element and the other, or the
    result, more."""
    shape = np.broadcast_shapes(a, b, result)
    steps = [_steps(operand, len(shape)) for operand in (a, b)]
    axes: list[tuple[int, int, int]] = []
    for axis in zip(shape[::-1], steps[0][::-1], steps[1][::-1], strict=True):
        size, left, right = axis
        if size == 1:
            continue
        if axes and left == axes[-1][0] * axes[-1][1] and right == axes[-1][0] * axes[-1][2]:
            axes[-1] = (axes[-1][0] * size, *axes[-1][1:])
        else:
            axes.append(axis)
    axes.reverse()
    _check_axes(len(axes), name)
    return {
        "axes": len(axes),
        **_numbers("sizes", [n for n, _, _ in axes]),
        **_numbers("steps_a", [s for _, s, _ in axes]),
        **_numbers("steps_b", [s for _, _, s in axes]),
    }


def _steps(shape: Shape, rank: int) -> list[int]:
    """Elements between neighbours along each axis of a dense tensor; 0 where it is repeated."""
    steps: list[int] = []
    step = 1
    for size in reversed((1,) * (rank - len(shape)) + shape):
        steps.append(step if size > 1 else 0)
        step *= size
    return steps[::-1]


def _numbers(name: str, values: list[int]) -> dict[str, str]:
    """A member that is an array; none where it is empty."""
    return {name: f"{{{', '.join(map(str, values))}}}"} if values else {}


def _check_axes(count: int, name: str) -> None:
    if count > AXES:
        raise NetworkError(
            f"node {name!r}: generated C moves data along at most {AXES} axes, not {count}; split the node in two"
        )


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
        root = self.root(tensor)
        return root not in self._slots and self._arrays.setdefault(root, array) == array

    def keep(self, key: str, size: int) -> Pointer:
        """Bytes that nothing else takes, from run to run; ``key``: a tensor whose place they are, or another text."""
        self._slots[key] = _Slot(size, -1, _ALWAYS)
        return Pointer(None, key)

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
        return self._graph.tensors[tensor].bytes

    def _scratch(self, key: str | int, size: int) -> Pointer:
        slot = self._slots.setdefault(key, _Slot(size, self._step, self._step))
        slot.last = max(slot.last, self._step)
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
