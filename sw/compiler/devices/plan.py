"""A plan: programs for the accelerators of a system, which waits for which, and where everything lies in memory."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from dovetail.isa.common.sizes import format_bytes
from dovetail.isa.config.system import System
from dovetail.isa.instructions.table import CFG_REG, CFG_VALUE, REGISTERS, Op, Unit
from dovetail.isa.timing.jobs import AnyJob, HostJob
from dovetail.isa.timing.system import JobTimes, time_jobs
from dovetail.isa.timing.timeline import Timeline
from dovetail.sw.compiler import memory
from dovetail.sw.compiler.compile import Code
from dovetail.sw.compiler.devices.shares import Share
from dovetail.sw.errors import CompileError
from dovetail.sw.network import ir

Words = NDArray[np.uint64]


@dataclass(frozen=True)
class Task:
    """A job of a plan, for people: the names of its nodes, what share of them it computes, and of which inference."""

    job: AnyJob
    nodes: tuple[str, ...]
    share: str = ""
    inference: int = 0

    @property
    def accelerator(self) -> str | None:
        """Its name; None of what the host computes."""
        return None if isinstance(self.job, HostJob) else self.job.accelerator


class Done(NamedTuple):
    """When a task of a plan is done: its first cycle and the one behind its last; in how many ``cycles`` of these an
    accelerator or the host works on it; and the timeline of its program, None of what the host computes."""

    task: Task
    begin: int
    end: int
    cycles: int
    line: Timeline | None


@dataclass(frozen=True)
class Plan:
    """Programs for a system.

    ``tasks`` in the order of their numbers; ``where``: for each inference where the network's inputs, outputs and
    variables, and of all tensors between programs; ``memory_bytes`` that it needs; ``contents``: bytes by address
    that are in memory before anything runs.
    """

    system: System
    graph: ir.Graph
    tasks: tuple[Task, ...]
    where: tuple[dict[str, int], ...]
    memory_bytes: int
    contents: tuple[tuple[int, NDArray[np.uint8]], ...]

    @property
    def jobs(self) -> list[AnyJob]:
        """What the host starts or computes."""
        return [task.job for task in self.tasks]

    @cached_property
    def times(self) -> JobTimes:
        """When all of it happens."""
        return time_jobs(self.system, self.jobs, memory_bytes=self.memory_bytes)

    @cached_property
    def done(self) -> list[Done]:
        """When each task is done, in their order; all are, as no program of a plan faults."""
        found = []
        times = self.times
        for task, begin, end, line in zip(self.tasks, times.origins, times.ends, times.timelines, strict=True):
            assert begin is not None and end is not None
            cycles = task.job.cycles if isinstance(task.job, HostJob) else end - begin
            found.append(Done(task, begin, end, cycles, line))
        return found

    def image(self) -> NDArray[np.uint8]:
        """System memory before anything runs."""
        image = np.zeros(self.memory_bytes, np.uint8)
        for address, content in self.contents:
            image[address : address + len(content)] = content
        return image


class Layout:
    """System memory of a plan: tensors that programs share, then what programs have of their own.

    ``slots``: for each inference the number of the place of its tensors between programs; those of a place are in
    memory once. The network's inputs, outputs and variables are there for every inference.

    Programs are compiled as if tensors lay where those of the first inference lie, and what is their own from ``start``
    on; then they are moved to their places. ``more``: tensors that the host's layers share with them.
    """

    def __init__(
        self, graph: ir.Graph, shares: Iterable[Share], slots: Sequence[int] = (0,), more: Iterable[str] = ()
    ) -> None:
        self.graph = graph
        self.roots = {name: name for name in graph.tensors}
        for node in graph.nodes:
            if isinstance(node, ir.Reshape):
                self.roots[node.outputs[0]] = self.roots[node.inputs[0]]
        regions = [region for share in shares for region in (*share.reads.values(), *share.writes.values())]
        names = dict.fromkeys([*graph.given, *graph.wanted, *(region.tensor.name for region in regions), *more])
        ports = dict.fromkeys(self.roots[name] for name in (*graph.given, *graph.wanted))
        between = [root for root in dict.fromkeys(self.roots[name] for name in names) if root not in ports]
        # Nothing is at address 0: a program need not write that to registers that begin as 0, so it could not be moved.
        self.end = memory.ALIGN
        shared = [self._places(between) for _ in range(max(slots) + 1)]
        self.where: tuple[dict[str, int], ...] = ()
        for slot in slots:
            places = shared[slot] | self._places(ports)
            self.where = (*self.where, places | {name: places[self.roots[name]] for name in names})
        self.start = self.end
        self.contents: list[tuple[int, NDArray[np.uint8]]] = []
        self._known: dict[bytes, int] = {}

    def _places(self, roots: Iterable[str]) -> dict[str, int]:
        return {root: self.take(self.graph.tensors[root].bytes) for root in roots}

    def put(self, content: NDArray[np.uint8], *, once: bool = False) -> int:
        """Place bytes; with ``once`` those that are there already are not placed again. Returns their address."""
        key = content.tobytes() if once else b""
        if once and key in self._known:
            return self._known[key]
        address = self.take(len(content))
        if len(content):
            self.contents.append((address, content))
        if once:
            self._known[key] = address
        return address

    def take(self, size: int) -> int:
        """Place something without contents."""
        address = self.end
        self.end += memory.align(size)
        return address

    def program(self, code: Code, *, inference: int = 0, own: int | None = None) -> tuple[Words, int]:
        """Place a program, its constants and its own tensors; these at ``own``, where another program has placed its
        own, if given. Returns its words for that, and its address."""
        (segment,) = code.segments
        constants = np.zeros(code.constants_bytes - self.start, np.uint8)
        for address, packer in code.packers:
            packed = packer()
            constants[address - self.start : address - self.start + len(packed)] = packed
        moves = [(self.start, code.constants_bytes, self.put(constants, once=True))]
        tensors = self.take(self.own_bytes(code)) if own is None else own
        moves.append((code.constants_bytes, code.stream_offset, tensors))
        for name in set(self.roots.values()) & self.where[0].keys() if inference else ():
            first = self.where[0][name]
            moves.append((first, first + memory.align(self.graph.tensors[name].bytes), self.where[inference][name]))
        words = moved(np.array(segment.words, np.uint64), moves)
        return words, self.put(words.view(np.uint8), once=True)

    @staticmethod
    def own_bytes(code: Code) -> int:
        """Of the tensors that only a program itself sees."""
        return code.stream_offset - code.constants_bytes

    def plan(self, system: System, tasks: Sequence[Task]) -> Plan:
        """The plan. Raises CompileError if the system's memory is too small."""
        size = memory.align(self.end)
        if size > system.memory_bytes:
            raise CompileError(
                f"memory: size of the system must be at least {format_bytes(size)} for this plan,"
                f" not {format_bytes(system.memory_bytes)}"
            )
        return Plan(system, self.graph, tuple(tasks), self.where, size, tuple(self.contents))


def moved(words: Words, moves: Iterable[tuple[int, int, int]]) -> Words:
    """A program whose transfers go elsewhere; ``moves``: of addresses (first, the one behind the last, new first)."""
    places = [REGISTERS[unit]["MEM_ADDR"].number for unit in (Unit.LOAD, Unit.STORE)]
    fields = words.astype(np.int64)
    numbers = fields >> CFG_REG.low & (1 << CFG_REG.width) - 1
    values = (words >> np.uint64(CFG_VALUE.low)).astype(np.int64)
    addresses = (fields & 0xFF == int(Op.CFG)) & np.isin(numbers, places)
    found = words.copy()
    for begin, end, to in moves:
        own = addresses & (begin <= values) & (values < end)
        found[own] += np.uint64((to - begin) % (1 << 32) << CFG_VALUE.low)
    return found
