"""Layers that the host computes: which they are, when they have their turn, and what they do to memory."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from dovetail.isa.config.system import System
from dovetail.sw.compiler.devices.pieces import targets_of
from dovetail.sw.compiler.options import Options
from dovetail.sw.compiler.partition.segments import ACCELERATOR, HOST, Step, border_of, broken_rule, steps_of, why_host
from dovetail.sw.errors import CompileError
from dovetail.sw.host.step import HostUnit, units_of
from dovetail.sw.network import ir
from dovetail.sw.network.layout import Array

ALL = 1 << 30
"""Behind every layer of the host."""


def host_reasons(system: System, graph: ir.Graph, options: Options) -> dict[str, str]:
    """Name -> reason of every node that no accelerator of the system can compute.

    Raises CompileError for a microcoded accelerator.
    """
    for part in system.accelerators:
        if part.config.serial:
            raise CompileError(f"accelerators.{part.name}: must not be microcoded for a plan")
    reasons, configs = {}, dict.fromkeys(targets_of(system))
    for node in graph.nodes:
        if isinstance(node, ir.Host):
            reasons[node.name] = why_host(graph, node)
            continue
        broken = [broken_rule(config, options, graph, node) for config in configs]
        if all(broken) and broken[0]:
            reasons[node.name] = broken[0][1]
    return reasons


def orders(graph: ir.Graph, host: Collection[str]) -> list[list[Step]]:
    """The orders of execution in which a graph's nodes are planned, as steps of neighbouring nodes of one kind of
    device; constants are in none. ``host``: names of the nodes that the host computes.

    In the first order there are few steps. In the second, if it differs, what the host's layers need comes early, and
    what does not need them is a step of its own, so that accelerators are at it meanwhile.
    """
    first = list[Step]()
    for step in steps_of(graph, host):
        nodes = tuple(node for node in step.nodes if not isinstance(node, ir.Constant))
        groups = [nodes] if step.device == ACCELERATOR else _apart(nodes)
        for group in groups:
            if all(isinstance(node, ir.FREE) for node in group):
                continue  # it makes no bytes
            first.append(Step(step.device, group))
    second = _beside(first)
    return [first] if second == first else [first, second]


def _apart(nodes: Sequence[ir.Node]) -> list[tuple[ir.Node, ...]]:
    """Nodes in groups that have nothing to do with one another."""
    groups = list[list[ir.Node]]()
    for node in nodes:
        mine = [group for group in groups if any(not {*other.outputs}.isdisjoint(node.inputs) for other in group)]
        groups = [group for group in groups if all(group is not other for other in mine)]
        groups.append([*(other for group in mine for other in group), node])
    places = {node.name: place for place, node in enumerate(nodes)}
    ordered = (sorted(group, key=lambda node: places[node.name]) for group in groups)
    return sorted(map(tuple, ordered), key=lambda group: places[group[0].name])


def _beside(steps: Sequence[Step]) -> list[Step]:
    """The second order: accelerators' nodes by the last step of the host that they follow from, and the first one that
    follows from them."""
    layers = [step for step in steps if step.device == HOST]
    number = {node.name: n for n, step in enumerate(layers) for node in step.nodes}
    nodes = [node for step in steps for node in step.nodes]
    makers = {name: node for node in nodes for name in node.outputs}
    behind, ahead = dict[str, int](), dict.fromkeys((node.name for node in nodes), ALL)
    for node in nodes:
        found = [behind[makers[name].name] for name in node.inputs if name in makers]
        behind[node.name] = number.get(node.name, max(found, default=-1))
    for node in reversed(nodes):
        for name in node.inputs:
            if name in makers:
                maker = makers[name].name
                ahead[maker] = min(ahead[maker], number.get(node.name, ahead[node.name]))
    groups = dict[tuple[int, int, int], list[ir.Node]]()
    for node in nodes:
        n = number.get(node.name)
        key = (behind[node.name], ahead[node.name], 0) if n is None else (n - 1, n, 1)
        groups.setdefault(key, []).append(node)
    return [
        Step(HOST if key[2] else ACCELERATOR, tuple(groups[key]))
        for key in sorted(groups)
        if not all(isinstance(node, ir.FREE) for node in groups[key])
    ]


def host_cycles(options: Options, graph: ir.Graph, nodes: Sequence[ir.Node], clock: float | None) -> int:
    """About the cycles that the host takes for nodes, in those of accelerators with a clock of so many Hz."""
    work = sum(options.host.cycles(graph, node) for node in nodes if not isinstance(node, ir.FREE))
    return max(round(options.host.at(work, clock)), 1)


@dataclass(frozen=True)
class HostLayers:
    """What the host does to system memory in a job: the ``nodes`` of a graph, in order; ``where`` tensors lie."""

    graph: ir.Graph
    nodes: tuple[ir.Node, ...]
    where: Mapping[str, int]

    @cached_property
    def reads(self) -> tuple[str, ...]:
        """Tensors that lie in memory."""
        constant = {name for node in self.graph.nodes if isinstance(node, ir.Constant) for name in node.outputs}
        return tuple(name for name in border_of(self.graph, self.nodes)[0] if name not in constant)

    @cached_property
    def writes(self) -> tuple[str, ...]:
        """Tensors that others read; what is only another shape of a tensor from before lies there already."""
        seen = set(border_of(self.graph, self.nodes)[0])
        for node in self.nodes:
            if isinstance(node, ir.Reshape) and node.inputs[0] in seen:
                seen |= {*node.outputs}
        return tuple(name for name in border_of(self.graph, self.nodes)[1] if name not in seen)

    @cached_property
    def _units(self) -> list[HostUnit]:
        return units_of(self.nodes)

    def __call__(self, memory: NDArray[np.uint8]) -> None:
        """Compute them. Raises NetworkError where the reference runtime fails."""
        values = dict[str, Array]()
        for node in self.graph.nodes:
            if isinstance(node, ir.Constant):
                values[node.outputs[0]] = node.value
        for name in self.reads:
            tensor, address = self.graph.tensors[name], self.where[name]
            values[name] = memory[address : address + tensor.bytes].view(tensor.dtype).reshape(tensor.shape).copy()
        for unit in self._units:
            values |= unit.run(self.graph, values)
        for name in self.writes:
            data = np.ascontiguousarray(values[name]).view(np.uint8).ravel()
            memory[self.where[name] : self.where[name] + data.size] = data
