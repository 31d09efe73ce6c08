"""Checks where a saved program says that its tensors lie, against the network, the memory plan and the stream."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence, Set
from dataclasses import dataclass

from dovetail.isa.instructions.checks import View
from dovetail.isa.instructions.table import INSTRUCTIONS, Unit, unit_of
from dovetail.isa.timing.dma import Shape
from dovetail.isa.timing.operations import Operations
from dovetail.sw.compiler import memory
from dovetail.sw.compiler.partition.outline import Partition
from dovetail.sw.compiler.partition.segments import ACCELERATOR
from dovetail.sw.network import ir


class Unfit(ValueError):
    """Something that the header says does not follow from the rest; the text names it."""


@dataclass(frozen=True)
class Transfer:
    """A transfer between system memory and SRAM: the place of its word, its layer, its bytes, and from where to where
    in system memory."""

    pc: int
    unit: Unit
    layer: int
    size: int
    first: int
    last: int


def transfers(operations: Operations, layers: Mapping[int, int]) -> Iterator[Transfer]:
    """Those among a segment's operations; ``layers``: by the place of an operation's word."""
    rows = zip(operations.pcs.tolist(), operations.ops.tolist(), operations.registers(), strict=True)
    for pc, op, registers in rows:
        if INSTRUCTIONS[op].moves:
            view = View(unit_of(op), registers)
            size = view.moved
            yield Transfer(pc, view.unit, layers[pc], size, view["MEM_ADDR"], Shape.of(view).end)


@dataclass(frozen=True)
class Places:
    """``where``: addresses by tensor as the file has them; constants end at ``constants``, tensors at ``end``. Layers
    that are ``banded`` may have bands of tensors anywhere between."""

    partition: Partition
    where: Mapping[str, int]
    constants: int
    end: int
    banded: Set[str] = frozenset()

    def check(self, nodes: Sequence[ir.Node], moved: Sequence[Transfer]) -> None:
        """Raises Unfit unless all of it is true; ``nodes``: of the layers, by number; ``moved``: by the stream."""
        self._check_needed()
        self._check_each()
        self._check_stream(nodes, moved)

    def _check_each(self) -> None:
        """Tensors begin where their kind must, and end where the stream begins."""
        constant = self._constants()
        end = self.constants
        for name, address in self.where.items():
            if name not in self._tensors or type(address) is not int:
                raise Unfit(f"address {address!s:.60} of {name!r}")
            root, part = self.partition.roots[name], self.partition.parts.get(name)
            whole = address - (part.offset if part else 0)
            if self.where.get(root) != whole:
                raise Unfit(f"address {address:#x} of {name!r}, which is a part of {root!r}")
            if root in constant:
                fits = whole == constant[root]
            else:
                fits = whole % memory.ALIGN == 0 and self.constants <= whole
                end = max(end, whole + memory.align(self._tensors[root].bytes))
            if not fits or end > self.end:
                raise Unfit(f"address {address:#x} of {name!r}")
        if memory.align(end) != self.end and not self.banded:
            raise Unfit(f"stream_offset {self.end:#x} instead of {memory.align(end):#x}")

    def _constants(self) -> dict[str, int]:
        """Addresses of the graph's constants, which are in front, and of the rows that runs pick, behind them."""
        found, end = {}, 0
        for step in self.partition.steps:
            for node in step.nodes:
                if isinstance(node, ir.Constant) and step.device == ACCELERATOR:
                    found[node.outputs[0]] = end
                    end += memory.align(node.value.nbytes)
        for records in self.partition.records:
            found |= {name: end + offset for name, offset in records.offsets.items()}
            end += memory.align(records.bytes)
        return found

    def _check_needed(self) -> None:
        """Every tensor that passes between the accelerator and others has a place."""
        for step, wanted in zip(self.partition.steps, self.partition.outside(), strict=True):
            if not step.is_program:
                continue
            made = {name for node in step.nodes for name in node.outputs}
            read = {name for node in step.nodes for name in node.inputs if self._tensors[name].dtype == "int8"} - made
            missing = [
                name for name in (*read, *made) if self.partition.roots[name] in wanted and name not in self.where
            ]
            if missing:
                raise Unfit(f"no address of {min(missing)!r}")

    def _check_stream(self, nodes: Sequence[ir.Node], moved: Sequence[Transfer]) -> None:
        """A layer loads constants and its operands, and stores its results, all of them."""
        stored: dict[str, int] = {}
        for transfer in moved:
            node = nodes[transfer.layer]
            if transfer.unit == Unit.LOAD and transfer.last <= self.constants:
                continue
            names = node.inputs if transfer.unit == Unit.LOAD else node.outputs
            for root in {self.partition.roots[name] for name in names} & self.where.keys():
                if self.where[root] <= transfer.first <= transfer.last <= self.where[root] + self._size(root):
                    stored[root] = stored.get(root, 0) + (transfer.size if transfer.unit == Unit.STORE else 0)
                    break
            else:
                if node.name in self.banded and self.constants <= transfer.first <= transfer.last <= self.end:
                    continue
                what = "loads" if transfer.unit == Unit.LOAD else "stores"
                raise Unfit(f"addresses: {node.name!r} {what} {transfer.first:#x}..{transfer.last:#x}")
        updates = [one.node for one in self.partition.updates.values()]
        rows = {self.partition.roots[node.outputs[0]]: node.inputs[1] for node in updates}
        for root, size in stored.items():
            whole = self._size(rows.get(root, root))
            if 0 < size < whole:
                raise Unfit(f"addresses: of {root!r} {size} bytes are stored instead of {whole}")

    @property
    def _tensors(self) -> Mapping[str, ir.Tensor]:
        return self.partition.graph.tensors

    def _size(self, root: str) -> int:
        return self._tensors[root].bytes

    def least(self, nodes: Sequence[ir.Node], *, keep: bool) -> tuple[int, int]:
        """Bounds of the bytes that any placement needs. They depend on which nodes follow another one tile by tile:
        none at least, at most all that might. ``keep``: every tensor must be readable at the end."""
        roots = self.partition.roots
        number = {node.outputs[0]: index for index, node in enumerate(nodes)}
        follows = {}
        for node in nodes:
            read = {*node.inputs, *(roots[name] for name in node.inputs)}  # also through a view
            heads = [number[name] for name in read if name in number]
            heads = [index for index in heads if isinstance(nodes[index], ir.Conv | ir.Depthwise)]
            if heads and isinstance(node, ir.Pointwise):
                follows[node.name] = nodes[min(heads)]
        stored, graph, steps = {roots[name] for name in self.where}, self.partition.graph, self.partition.steps
        found = (
            memory.buffers_of(graph, steps, roots, stored, keep=keep, follows=chosen)[0] for chosen in ({}, follows)
        )
        least, most = (memory.least(buffers.values()) for buffers in found)
        return least, most
