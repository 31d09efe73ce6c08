"""Nodes that have their turn together, at accelerators or at the host, as jobs of a plan."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import NamedTuple

from dovetail.isa.config.resolved import Config
from dovetail.isa.config.system import System
from dovetail.isa.timing.jobs import HostJob, Job
from dovetail.sw.compiler.compile import Code
from dovetail.sw.compiler.devices.host_layers import HostLayers, host_cycles
from dovetail.sw.compiler.devices.pieces import compiled, targets_of
from dovetail.sw.compiler.devices.plan import Layout, Plan, Task
from dovetail.sw.compiler.devices.shares import WHOLE, Region, Share, share_of
from dovetail.sw.compiler.devices.stages import Stage
from dovetail.sw.compiler.options import Options
from dovetail.sw.compiler.partition.segments import HOST, Step
from dovetail.sw.errors import CompileError
from dovetail.sw.network import ir

Bytes = tuple[str, Region]
"""Some of a tensor, with the name of the tensor whose bytes it shares."""


class Turn(NamedTuple):
    """Nodes that have their turn together: as a stage of accelerators, or, without one, at the host."""

    nodes: Sequence[ir.Node]
    stage: Stage | None


class Unable(CompileError):
    """An accelerator cannot compute its share in one program."""


class Turns:
    """Makes jobs of turns.

    Parameters
    ----------
    system, graph, options: what is planned.
    clock: of the accelerators in Hz, for the cycles of a host that has another one; None: the host has theirs.
    """

    def __init__(self, system: System, graph: ir.Graph, options: Options, clock: float | None) -> None:
        self.system, self.graph, self.options, self.clock = system, graph, options, clock
        self._codes: dict[tuple[Config, Options, Share, tuple[int, ...]], Code | None] = {}

    def alone(self, steps: Sequence[Step], name: str) -> list[Turn]:
        """Steps with one accelerator."""
        order = list[Turn]()
        for step in steps:
            share = None if step.device == HOST else share_of(self.graph, step.nodes, WHOLE, {})
            shares = tuple(share if part.name == name else None for part in self.system.accelerators)
            stage = Stage(0, len(step.nodes), WHOLE, (), shares, 0, exact=False, options=self.options)
            order.append(Turn(step.nodes, stage if share else None))
        return order

    def layout(self, turns: Iterable[Turn], slots: Sequence[int] = (0,)) -> Layout:
        """Memory of turns; ``slots`` as of :class:`Layout`."""
        turns = list(turns)
        shares = [share for _, stage in turns if stage for share in stage.shares if share]
        host = [HostLayers(self.graph, tuple(nodes), {}) for nodes, stage in turns if not stage]
        return Layout(self.graph, shares, slots, [name for layers in host for name in (*layers.reads, *layers.writes)])

    def plan(self, order: Sequence[Turn]) -> Plan:
        """One inference, turn after turn as far as they need one another. Raises :class:`Unable`, and CompileError if
        memory is too small."""
        layout = self.layout(order)
        return layout.plan(self.system, without_detours(self.tasks(order, layout)))

    def tasks(
        self, order: Sequence[Turn], layout: Layout, inference: int = 0, own: Mapping[str, int] | None = None
    ) -> list[Task]:
        """The tasks of an inference, each of which waits for all that make what it reads. ``own``: where programs of an
        accelerator have their own tensors; None: each elsewhere. Raises :class:`Unable`."""
        tasks, writes = list[Task](), list[list[Bytes]]()

        def whole(names: Sequence[str]) -> list[Bytes]:
            return [(layout.roots[name], Region(self.graph.tensors[name], WHOLE, (0, 1))) for name in names]

        def part(regions: Mapping[str, Region]) -> list[Bytes]:
            return [(layout.roots[region.tensor.name], region) for region in regions.values()]

        def wait(reads: Sequence[Bytes]) -> tuple[int, ...]:
            return tuple(
                n for n, made in enumerate(writes) if any(_meets(one, other) for one in made for other in reads)
            )

        for nodes, stage in order:
            names = tuple(node.name for node in nodes)
            if stage is None:
                layers = HostLayers(self.graph, tuple(nodes), layout.where[inference])
                cycles = host_cycles(self.options, self.graph, nodes, self.clock)
                tasks.append(Task(HostJob(cycles, wait(whole(layers.reads)), work=layers), names, "", inference))
                writes.append(whole(layers.writes))
                continue
            for number, share in enumerate(stage.shares):
                if share is None:
                    continue
                name = self.system.accelerators[number].name
                code = self.code(stage, number, layout)
                words, address = layout.program(code, inference=inference, own=own[name] if own else None)
                region = next(iter(share.writes.values()))
                told = "" if region.is_whole else f"{stage.kind} {region.span[0]}..{sum(region.span) - 1}"
                tasks.append(Task(Job(name, words, address, 0, wait(part(share.reads))), names, told, inference))
                writes.append(part(share.writes))
        return tasks

    def code(self, stage: Stage, number: int, layout: Layout) -> Code:
        """The program of an accelerator's share of a stage. Raises :class:`Unable`."""
        config, share = targets_of(self.system, stage.rivals)[number], stage.shares[number]
        assert share
        given = share.given(layout.where[0], layout.start)
        key = config, stage.options, share, (layout.start, *layout.where[0].values())
        if key not in self._codes:
            self._codes[key] = compiled(config, share, stage.options, given)
        code = self._codes[key]
        if code is None:
            raise Unable(f"layer {next(iter(share.graph.nodes)).name!r}: the accelerator cannot compute it")
        return code


def _meets(one: Bytes, other: Bytes) -> bool:
    """Whether the two have bytes in common."""
    if one[0] != other[0]:
        return False
    return one[1].tensor.name != other[1].tensor.name or one[1].meets(other[1])


def without_detours(tasks: Sequence[Task]) -> list[Task]:
    """Tasks that wait for the last program of each accelerator only, which waits for those before it, and for the
    host's layers."""
    return [replace(task, job=replace(task.job, after=_nearest(task.job.after, tasks))) for task in tasks]


def _nearest(after: Sequence[int], tasks: Sequence[Task]) -> tuple[int, ...]:
    last = dict[str, int]()
    layers = list[int]()
    for number in sorted(after):
        name = tasks[number].accelerator
        if name is None:
            layers.append(number)
        else:
            last[name] = number
    return tuple(sorted([*last.values(), *layers]))
