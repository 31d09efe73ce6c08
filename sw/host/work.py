"""What the host takes in one inference: an estimate beside the accelerator's exact cycles."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from dovetail.sw.compiler.partition.host_cost import FEW, PORTS, HostCost
from dovetail.sw.compiler.partition.segments import HOST, Step
from dovetail.sw.network import ir


@dataclass(frozen=True)
class HostWork:
    """The host's share of one inference, by a `HostCost`.

    Parameters
    ----------
    nodes: cycles by the name of the node that the host runs, in the order of the network; ``input NAME`` and
        ``output NAME`` where these are converted and the costs have rates for it.
    steps: runs of nodes on the host, between the accelerator's programs.
    starts: how often the host starts the accelerator; each costs a round trip.
    cost: what the estimate rests on.
    unused: kinds that the costs have rates of their own for, and of which the host runs no node.
    guessed: kinds that the host runs, and that the costs, which have rates by kind, have none for.
    """

    nodes: Mapping[str, int]
    steps: int
    starts: int
    cost: HostCost
    unused: tuple[str, ...] = ()
    guessed: tuple[str, ...] = ()

    @property
    def cycles(self) -> int:
        """Of all nodes and starts."""
        return sum(self.nodes.values()) + self.starts * self.cost.round_trip

    def at(self, clock: float | None) -> int:
        """`cycles` as those of an accelerator with this clock in Hz."""
        return round(self.cost.at(self.cycles, clock))

    @property
    def basis(self) -> str:
        """What the estimate rests on, and its error. A table of many kinds is one for many networks, and not all of
        its kinds are in each."""
        text = self.cost.basis
        if self.guessed:
            text += f"; without rates of their own, so of unknown error: {', '.join(self.guessed)}"
        if 0 < len(self.unused) <= FEW:
            text += f"; no layer of kind {', '.join(self.unused)} is on the host"
        return text

    def to_dict(self) -> dict[str, Any]:
        """What JSON can express."""
        return {
            "cycles": self.cycles,
            "steps": self.steps,
            "starts": self.starts,
            "nodes": dict(self.nodes),
            "clock": self.cost.clock,
            "basis": self.basis,
            "error": self.cost.error,
        }


def host_work(graph: ir.Graph, steps: Sequence[Step], cost: HostCost, where: Collection[str]) -> HostWork:
    """What the host takes for the steps that a graph is partitioned into. ``where``: the tensors that lie in memory
    that the accelerator sees."""
    own = [step for step in steps if step.device == HOST]
    work = [node for step in own for node in step.nodes if not isinstance(node, ir.FREE)]
    starts = sum(step.is_program for step in steps)
    kinds = {*PORTS, *(node.op for node in work), *(cost.kind(graph, node) for node in work)}
    unused = {each.operator: None for each in cost.operators if each.operator not in kinds}
    guessed = {cost.kind(graph, node): None for node in work if cost.operators and not cost.own(graph, node)}
    nodes = {node.name: cost.cycles(graph, node) for node in work}
    converted: dict[str, dict[str, int]] = {"input": {}, "output": {}}
    for way, ports in (("input", graph.inputs), ("output", graph.outputs)):
        for port in ports:
            if port.offset or not port.layout.is_plain or port.tensor in where:
                cycles = cost.port(graph, port)
                converted[way] |= {} if cycles is None else {f"{way} {port.name}": cycles}
    takes = {**converted["input"], **nodes, **converted["output"]}
    return HostWork(takes, len(own), starts, cost, tuple(unused), tuple(guessed))
