"""What a network costs on a system: exact counts of a plan of it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Mapping

from dovetail.flows.explore.pricing.cost import Cost, SystemCost
from dovetail.flows.explore.space.deployment import Deployment
from dovetail.isa.common.sizes import ceil_div
from dovetail.isa.config.given import MemoryTiming
from dovetail.isa.instructions.table import WORD_BYTES
from dovetail.isa.timing.jobs import STARTED
from dovetail.sw.analysis.cost.activity import EVENTS, events_of
from dovetail.sw.compiler.partition.host_cost import HostCost
from dovetail.sw.network.ir import Graph
from dovetail.sw.runtime.system_network import SystemNetwork, plan_network

BUSY = ("all busy", "some busy", "all idle")
"""What the cycles of a plan are told apart by: how many accelerators run something."""


def price_on_system(graph: Graph, deployment: Deployment, effort: int = 0, host: HostCost | None = None) -> Cost:
    """The cost of an inference of a plan. Raises CompileError where there is none."""
    system, inferences = deployment.system, deployment.inferences
    network = plan_network(graph, system, mode=deployment.mode, inferences=inferences, effort=effort, host=host)
    events = _events(network)
    cycles, macs = network.times.cycles, sum(map(graph.macs, graph.nodes))
    read, written = (sum(of[f"dram_{way}_bytes"] for of in events.values()) for way in ("read", "write"))
    nodes = {node.name: node for node in graph.nodes}
    on_host = dict.fromkeys(name for done in network.done if done.line is None for name in done.task.nodes)
    alone = [of for of in network.alone.values() if of]
    return Cost(
        cycles=_longest(network),
        macs=macs,
        bound_cycles=_bound(deployment, graph, macs),
        read_bytes=round(read / inferences),
        write_bytes=round(written / inferences),
        kinds=_busy(network),
        host=tuple((name, nodes[name].op, graph.macs(nodes[name])) for name in on_host),
        host_cycles=round(network.host_cycles / inferences),
        system=SystemCost(
            inferences=inferences,
            plan_cycles=cycles,
            interval=round(network.interval),
            alone=min(alone) if alone else None,
            lost=network.lost,
            worked=sum(done.cycles for done in network.done if done.line is not None),
            beats=_beats(deployment, events),
            activities=tuple(events.values()),
        ),
    )


def _events(network: SystemNetwork) -> dict[str, Mapping[str, int]]:
    """The events of each accelerator in the whole plan, by name. What one does again for another inference has the
    same."""
    known: dict[Hashable, Counter[str]] = {}
    found = {part.name: Counter(dict.fromkeys(EVENTS, 0)) for part in network.system.accelerators}
    for task, _, _, _, line in network.done:
        if line is None or task.accelerator is None:
            continue
        config = network.system[task.accelerator].config
        key = config, task.nodes, task.share
        if key not in known:
            known[key] = Counter(events_of(config, [line]))
        found[task.accelerator].update(known[key])
    return {name: dict(events) for name, events in found.items()}


def _longest(network: SystemNetwork) -> int:
    """Cycles of the inference that takes the most, from the host's turn to its first job to its last one's end."""
    spans: dict[int, tuple[int, int]] = {}
    for task, begin, end, _, line in network.done:
        turn = begin - (network.system.reaction + STARTED if line is not None else 0)
        first, last = spans.get(task.inference, (turn, end))
        spans[task.inference] = min(first, turn), max(last, end)
    return max(end - begin for begin, end in spans.values())


def _busy(network: SystemNetwork) -> dict[str, int]:
    """Cycles of a plan per inference by how many accelerators are busy in them."""
    total, count = len(network.system.accelerators), network.inferences
    steps: Counter[int] = Counter()
    for _, begin, end, _, line in network.done:
        if line is not None:
            steps[begin] += 1
            steps[end] -= 1
    spent, now, before = dict.fromkeys(BUSY, 0), 0, 0
    for cycle in sorted(steps):
        spent[BUSY[0] if now == total else BUSY[1] if now else BUSY[2]] += cycle - before
        now, before = now + steps[cycle], cycle
    spent[BUSY[2]] += network.times.cycles - before
    most, some = spent[BUSY[0]] // count, spent[BUSY[1]] // count
    return dict(zip(BUSY, (most, some, network.times.cycles // count - most - some), strict=True))


def _bound(deployment: Deployment, graph: Graph, macs: int) -> int:
    """Cycles that an inference takes at least: those of all arrays, or of the bus for weights, inputs and outputs."""
    system = deployment.system
    beat = system.memory.beat_cycles if isinstance(system.memory, MemoryTiming) else 1
    loads = sum(node.weight_bytes for node in graph.nodes) + sum(graph.tensors[name].bytes for name in graph.given)
    stores = sum(graph.tensors[name].bytes for name in graph.wanted)
    bus = beat * ceil_div(max(loads, stores), system.memory_bus // 8)
    return max(ceil_div(macs, deployment.macs_per_cycle), bus)


def _beats(deployment: Deployment, events: Mapping[str, Mapping[str, int]]) -> int:
    """Cycles that beats take of the bus's busier direction, instructions included."""
    read = written = 0
    for part in deployment.system.accelerators:
        of = events[part.name]
        read += of["dram_read_beats"] + ceil_div(of["fetched_words"] * WORD_BYTES, part.config.bus_bytes)
        written += of["dram_write_beats"]
    beat = deployment.memory.beat_cycles if isinstance(deployment.memory, MemoryTiming) else 1
    return beat * max(read, written)
