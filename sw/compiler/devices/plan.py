"""A plan: programs for the accelerators of a system, which waits for which, and where everything lies in memory."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from dovetail.isa.common.sizes import format_bytes
from dovetail.isa.config.system import System
from dovetail.isa.instructions.table import CFG_REG, CFG_VALUE, REGISTERS, Op, Unit
from dovetail.isa.timing.jobs import Job
from dovetail.sw.compiler import memory
from dovetail.sw.compiler.compile import Code
from dovetail.sw.compiler.devices.pieces import compiled, configs_of
from dovetail.sw.compiler.devices.shares import Region, Share
from dovetail.sw.compiler.devices.stages import Stage
from dovetail.sw.compiler.options import Options
from dovetail.sw.errors import CompileError
from dovetail.sw.network import ir

Words = NDArray[np.uint64]


@dataclass(frozen=True)
class Task:
    """A job of a plan, for people: the names of its nodes, and what share of them it computes."""

    job: Job
    nodes: tuple[str, ...]
    share: str


@dataclass(frozen=True)
class Plan:
    """Programs for a system.

    ``tasks`` in the order of their numbers; ``where``: addresses of the tensors that accelerators share;
    ``memory_bytes`` that it needs; ``contents``: bytes by address that are in memory before anything runs.
    """

    system: System
    graph: ir.Graph
    tasks: tuple[Task, ...]
    where: dict[str, int]
    memory_bytes: int
    contents: tuple[tuple[int, NDArray[np.uint8]], ...]

    @property
    def jobs(self) -> list[Job]:
        """What the host starts."""
        return [task.job for task in self.tasks]

    def image(self) -> NDArray[np.uint8]:
        """System memory before anything runs."""
        image = np.zeros(self.memory_bytes, np.uint8)
        for address, content in self.contents:
            image[address : address + len(content)] = content
        return image


class Layout:
    """System memory of a plan: tensors that accelerators share, then what programs have of their own."""

    def __init__(self, graph: ir.Graph, shares: Iterable[Share]) -> None:
        self.roots = {name: name for name in graph.tensors}
        for node in graph.nodes:
            if isinstance(node, ir.Reshape):
                self.roots[node.outputs[0]] = self.roots[node.inputs[0]]
        regions = [region for share in shares for region in (*share.reads.values(), *share.writes.values())]
        names = dict.fromkeys([*graph.given, *graph.wanted, *(region.tensor.name for region in regions)])
        self.where: dict[str, int] = {}
        self.end = 0
        for root in dict.fromkeys(self.roots[name] for name in names):
            self.where[root] = self.end
            self.end += memory.align(graph.tensors[root].bytes)
        self.where |= {name: self.where[self.roots[name]] for name in names}
        self.start = self.end
        """Where each program is compiled to have its own memory; it is moved from there."""
        self.contents: list[tuple[int, NDArray[np.uint8]]] = []
        self._known: dict[bytes, int] = {}

    def put(self, content: NDArray[np.uint8], *, once: bool = False) -> int:
        """Place bytes; with ``once`` those that are there already are not placed again. Returns their address."""
        key = content.tobytes() if once else b""
        if once and key in self._known:
            return self._known[key]
        address = self.take(len(content))
        self.contents.append((address, content))
        if once:
            self._known[key] = address
        return address

    def take(self, size: int) -> int:
        """Place something without contents."""
        address = self.end
        self.end += memory.align(size)
        return address


def build(system: System, graph: ir.Graph, stages: Sequence[tuple[Stage, Sequence[ir.Node]]], options: Options) -> Plan:
    """The plan of stages, each with the nodes that it counts.

    Raises
    ------
    CompileError: the system's memory is too small.
    """
    layout = Layout(graph, (share for stage, _ in stages for share in stage.shares if share))
    configs = configs_of(system)
    tasks, writes = list[Task](), list[list[tuple[str, Region]]]()
    for stage, nodes in stages:
        names = tuple(node.name for node in nodes[stage.first : stage.last])
        for part, config, share in zip(system.accelerators, configs, stage.shares, strict=True):
            if share is None:
                continue
            code = compiled(config, share, options, share.given(layout.where, layout.start))
            assert code, "it had a price"
            words, address = _placed(code, layout)
            reads = [(layout.roots[region.tensor.name], region) for region in share.reads.values()]
            after = [
                number
                for number, made in enumerate(writes)
                if any(_meets(one, other) for one in made for other in reads)
            ]
            job = Job(part.name, words, address, 0, _nearest(after, [task.job for task in tasks]))
            span = next(iter(share.writes.values()))
            told = "" if span.is_whole else f"{stage.kind} {span.span[0]}..{sum(span.span) - 1}"
            tasks.append(Task(job, names, told))
            writes.append([(layout.roots[region.tensor.name], region) for region in share.writes.values()])
    size = memory.align(layout.end)
    if size > system.memory_bytes:
        raise CompileError(
            f"memory: size of the system must be at least {format_bytes(size)} for this plan,"
            f" not {format_bytes(system.memory_bytes)}"
        )
    return Plan(system, graph, tuple(tasks), layout.where, size, tuple(layout.contents))


def _meets(one: tuple[str, Region], other: tuple[str, Region]) -> bool:
    """Whether regions, each with the root of its tensor, have bytes in common."""
    if one[0] != other[0]:
        return False
    return one[1].tensor.name != other[1].tensor.name or one[1].meets(other[1])


def _nearest(after: Sequence[int], jobs: Sequence[Job]) -> tuple[int, ...]:
    """The last job of each accelerator: it waits for those before it."""
    return tuple(sorted({jobs[number].accelerator: number for number in sorted(after)}.values()))


def _placed(code: Code, layout: Layout) -> tuple[Words, int]:
    """A program's words for where its constants, its tensors and itself come to lie, and its address."""
    (segment,) = code.segments
    constants = np.zeros(code.constants_bytes - layout.start, np.uint8)
    for address, packer in code.packers:
        packed = packer()
        constants[address - layout.start : address - layout.start + len(packed)] = packed
    moves = [(layout.start, code.constants_bytes, layout.put(constants, once=True))]
    moves.append((code.constants_bytes, code.stream_offset, layout.take(code.stream_offset - code.constants_bytes)))
    words = np.array(segment.words, np.uint64)
    fields = words.astype(np.int64)
    places = {REGISTERS[unit]["MEM_ADDR"].number for unit in (Unit.LOAD, Unit.STORE)}
    numbers = fields >> CFG_REG.low & (1 << CFG_REG.width) - 1
    values = (words >> np.uint64(CFG_VALUE.low)).astype(np.int64) & 0xFFFF_FFFF
    addresses = (words & np.uint64(0xFF) == int(Op.CFG)) & np.isin(numbers, list(places))
    moved = words.copy()
    for begin, end, to in moves:
        own = addresses & (begin <= values) & (values < end)
        moved[own] += np.uint64((to - begin) % (1 << 32) << CFG_VALUE.low)
    return moved, layout.put(moved.view(np.uint8))
