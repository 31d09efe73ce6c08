"""What a share costs on an accelerator: an estimate that no program is below, and the exact cycles of its program."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass, fields, replace
from functools import lru_cache

import numpy as np

from dovetail.isa.common.sizes import ceil_div
from dovetail.isa.config.given import MemoryTiming
from dovetail.isa.config.resolved import Config
from dovetail.isa.config.system import System
from dovetail.isa.numerics.norm import NormRecords
from dovetail.isa.timing.interconnect import READ_ADDED, WRITE_ADDED
from dovetail.sw.compiler import memory
from dovetail.sw.compiler.compile import Code, emit
from dovetail.sw.compiler.devices.shares import Share
from dovetail.sw.compiler.draft import Draft
from dovetail.sw.compiler.emit import array_layer
from dovetail.sw.compiler.options import Options
from dovetail.sw.compiler.partition.outline import partition
from dovetail.sw.compiler.place import Given
from dovetail.sw.compiler.plan.residency import layer_cycles
from dovetail.sw.compiler.search import plan
from dovetail.sw.errors import CompileError
from dovetail.sw.network import ir


@dataclass(frozen=True)
class Price:
    """Cycles of a program alone on the system's memory, and the bytes that it loads and stores: estimates where there
    are no ``words``."""

    cycles: int
    loads: int
    stores: int
    words: Sequence[int] = ()


@lru_cache(maxsize=64)
def targets_of(system: System, rivals: int = 1) -> tuple[Config, ...]:
    """What programs are compiled for: the accelerators, each with about the system's memory as it sees it through the
    interconnect, or with every ``rivals``-th beat of it."""
    found = []
    for part in system.accelerators:
        near = replace(part.config, memory=system.memory).like_fixed
        timing = MemoryTiming(
            read_latency=near.read_latency + READ_ADDED,
            write_latency=near.write_latency + WRITE_ADDED,
            beat_cycles=near.beat_cycles * rivals,
        )
        found.append(replace(part.config, memory=timing))
    return tuple(found)


def compiled(config: Config, share: Share, options: Options, given: Given) -> Code | None:
    """The program of a share; None if the accelerator cannot compute all of it in one."""
    draft = _draft(config, share, options, given)
    return None if draft is None else emit(draft)


def _draft(config: Config, share: Share, options: Options, given: Given) -> Draft | None:
    divided = partition(share.graph, config, options, given)
    if divided.reasons or sum(step.is_program for step in divided.steps) != 1:
        return None
    try:
        return plan(divided)
    except CompileError:
        return None


class Prices:
    """Prices of shares; those that differ in their data only cost the same."""

    def __init__(self) -> None:
        self.programs = 0
        """How many were compiled for a price."""
        self._exact: dict[Hashable, Price | None] = {}

    def estimate(self, config: Config, share: Share) -> Price:
        """The array's cycles, or the bus's, whichever are more."""
        graph, array = share.graph, 0
        for node in graph.nodes:
            if isinstance(node, ir.Conv | ir.Depthwise | ir.MatMul):
                array += layer_cycles(config, array_layer.layer_of(config, graph, node))
        loads = sum(graph.tensors[name].bytes for name in share.reads) + sum(node.weight_bytes for node in graph.nodes)
        stores = sum(graph.tensors[name].bytes for name in share.writes)
        bus = max(ceil_div(size, config.bus_bytes) for size in (loads, stores)) * config.like_fixed.beat_cycles
        return Price(max(array, bus) + config.like_fixed.read_latency, loads, stores)

    def exact(self, config: Config, share: Share, options: Options) -> Price | None:
        """Of its program; None if the accelerator cannot compute all of it in one."""
        key = config, options, form_of(share.graph)
        if key not in self._exact:
            self._exact[key] = self._compile(config, share, options)
        return self._exact[key]

    def _compile(self, config: Config, share: Share, options: Options) -> Price | None:
        where, start = dict[str, int](), 0
        for region in (*share.reads.values(), *share.writes.values()):
            where[region.tensor.name] = start
            start += memory.align(region.tensor.bytes)
        self.programs += 1
        draft = _draft(config, share, options, share.given(where, start))
        if draft is None:
            return None
        cycles, emitter = draft.cycles({}, None), draft.emitted(0)
        assert cycles is not None and emitter
        stores = sum(share.graph.tensors[name].bytes for name in share.writes)
        return Price(cycles, sum(emitter.moved.values()) - stores, stores, emitter.words)


def form_of(graph: ir.Graph) -> Hashable:
    """All of a graph that cycles depend on."""
    numbers = {name: n for n, name in enumerate(graph.tensors)}
    return (
        tuple((tensor.shape, tensor.dtype) for tensor in graph.tensors.values()),
        tuple(numbers[name] for name in (*graph.given, *graph.wanted)),
        tuple(
            (
                type(node).__name__,
                tuple(numbers[name] for name in (*node.inputs, *node.outputs)),
                tuple(_plain(getattr(node, field.name)) for field in fields(node) if field.name not in _NAMES),
            )
            for node in graph.nodes
        ),
    )


_NAMES = ("name", "inputs", "outputs")


def _plain(value: object) -> Hashable:
    if isinstance(value, np.ndarray):
        return tuple(value.shape)
    if isinstance(value, ir.Requant):
        return len(value.mult), value.rounding, value.zero_in
    if isinstance(value, NormRecords):
        return value.mult.size
    assert isinstance(value, Hashable)
    return value
