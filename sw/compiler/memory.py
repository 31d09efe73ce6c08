"""Plans system memory: constants first, then tensors by liveness in one block, then the instruction stream."""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate
from types import MappingProxyType

from dovetail.isa.common.sizes import round_up
from dovetail.sw.compiler.partition.segments import HOST, Step
from dovetail.sw.network import ir

ALIGN = 4096
"""Every buffer starts on a 4 KiB boundary, so that bursts are cut in the same way wherever it lies."""

_SEARCHED = 256
"""Buffers up to which better orders are searched for; more are placed in the best of a few fixed orders."""
_TRIALS = 32
"""Orders that a search looks at."""


def align(size: int) -> int:
    """``size`` rounded up to the alignment."""
    return round_up(size, ALIGN)


@dataclass(frozen=True)
class Buffer:
    """Bytes that must keep their contents from step ``first`` to step ``last``."""

    size: int
    first: int
    last: int


@dataclass(frozen=True)
class Plan:
    """Where tensors lie.

    ``where``: address of each tensor that has a place of its own, or takes another's; ``start``, ``end``: the block of
    all of them; ``least``: bytes that no placement can do without, the largest sum of what is needed at one time.
    """

    where: dict[str, int]
    start: int
    end: int
    least: int


def plan(
    graph: ir.Graph,
    steps: Sequence[Step],
    roots: Mapping[str, str],
    stored: Collection[str],
    base: int,
    *,
    keep: bool,
    follows: Mapping[str, ir.Node] = MappingProxyType({}),
) -> Plan:
    """Place tensors.

    Parameters
    ----------
    roots
        For each tensor the one whose bytes it shares, perhaps itself; only these are placed.
    stored
        Those that need a place.
    base
        First free address.
    keep
        Every tensor must be readable at the end, so no memory is used twice.
    follows
        By name the nodes that run tile by tile with an earlier one, so that their results begin when that one does.
    """
    merged, taken = buffers_of(graph, steps, roots, stored, keep=keep, follows=follows)
    where, end = allocate(merged, base)
    for result, operand in taken.items():
        where[result] = where[operand]
    return Plan(where, base, end, least(merged.values()))


def buffers_of(
    graph: ir.Graph,
    steps: Sequence[Step],
    roots: Mapping[str, str],
    stored: Collection[str],
    *,
    keep: bool,
    follows: Mapping[str, ir.Node] = MappingProxyType({}),
) -> tuple[dict[str, Buffer], dict[str, str]]:
    """What is to be placed, and what takes the place of another one; see :func:`plan`."""
    buffers = lifetimes(graph, steps, roots, stored, keep=keep, follows=follows)
    taken: dict[str, str] = {}
    if not keep:
        _merge(buffers, taken, successors(graph, steps, roots, buffers, follows=follows))
        _merge(buffers, taken, next_values(graph, roots, buffers))
    return buffers, taken


def _merge(buffers: dict[str, Buffer], taken: dict[str, str], more: Mapping[str, str]) -> None:
    """Results take the place of what comes before them."""
    for result, before in more.items():
        buffers[before] = Buffer(buffers[before].size, buffers[before].first, buffers.pop(result).last)
    taken.update(more)


def lifetimes(
    graph: ir.Graph,
    steps: Sequence[Step],
    roots: Mapping[str, str],
    stored: Collection[str],
    *,
    keep: bool,
    follows: Mapping[str, ir.Node] = MappingProxyType({}),
) -> dict[str, Buffer]:
    """The buffers of tensors in system memory; steps are numbered node by node, -1 is the start.

    Network inputs and states are there from the start, network outputs and new states (with ``keep``: all) until the
    end; constants have a place already.
    """
    first: dict[str, int] = {roots[name]: -1 for name in graph.given}
    last: dict[str, int] = {}
    begins: dict[str, int] = {}
    number = 0
    for step in steps:
        for node in step.nodes:
            begins[node.name] = begins[follows[node.name].name] if node.name in follows else number
            for name in node.inputs:
                last[roots[name]] = number
            for name in node.outputs:
                first[roots[name]] = min(first.get(roots[name], number), begins[node.name])
                last[roots[name]] = max(last.get(roots[name], number), number)
            number += 1
    for name in graph.wanted:
        last[roots[name]] = number
    constants = {name for node in graph.nodes if isinstance(node, ir.Constant | ir.Pick) for name in node.outputs}
    return {
        name: Buffer(graph.tensors[name].bytes, first[name], number if keep else last[name])
        for name in sorted(set(stored) - constants, key=lambda name: (first[name], name))
    }


def successors(
    graph: ir.Graph,
    steps: Sequence[Step],
    roots: Mapping[str, str],
    buffers: Mapping[str, Buffer],
    *,
    follows: Collection[str] = (),
) -> dict[str, str]:
    """Result -> the buffer whose place it takes, itself perhaps the result of another node.

    An element-wise node loads each piece of an operand of the result's shape before it stores that piece of the result,
    and never again, so the result can lie where such an operand ends with this node; but one that follows another tile
    by tile goes along slabs, whose transfers would wait for one another, and the other may read the operand still.
    """
    found: dict[str, str] = {}
    last = {name: buffer.last for name, buffer in buffers.items()}
    number = -1
    for step in steps:
        for node in step.nodes:
            number += 1
            if step.device == HOST or node.name in follows or not isinstance(node, ir.Pointwise):
                continue
            (result,) = node.outputs
            shape = graph.tensors[result].shape
            alike = [roots[name] for name in node.inputs if graph.tensors[name].shape == shape]
            for operand in alike if result in buffers else ():
                place = found.get(operand, operand)
                if last.get(place) == number and buffers[operand].size == buffers[result].size:
                    found[result] = place
                    last[place] = buffers[result].last
                    break
    return found


def next_values(graph: ir.Graph, roots: Mapping[str, str], buffers: Mapping[str, Buffer]) -> dict[str, str]:
    """Next value of a variable -> the value that a run finds, in whose place it is left.

    So the next run finds it there, and nobody copies it. The first byte of the one must be stored when no node reads
    the other any more.
    """
    found: dict[str, str] = {}
    for state in graph.states:
        written, read = roots[state.written], roots[state.read]
        if written in found or read in found.values() or not {written, read} <= buffers.keys():
            continue
        sizes = {graph.tensors[state.read].bytes, buffers[written].size, buffers[read].size}
        if len(sizes) == 1 and buffers[read].last < buffers[written].first:
            found[written] = read
    return found


def least(buffers: Iterable[Buffer]) -> int:
    """The largest sum of the sizes, aligned, of buffers that are needed at one time."""
    changes: dict[int, int] = {}
    for buffer in buffers:
        for step, size in ((buffer.first, align(buffer.size)), (buffer.last + 1, -align(buffer.size))):
            changes[step] = changes.get(step, 0) + size
    return max(accumulate(changes[step] for step in sorted(changes)), default=0)


def allocate(buffers: Mapping[str, Buffer], base: int) -> tuple[dict[str, int], int]:
    """Place buffers from ``base`` on, none on another one that is needed at the same time.

    First fit in several orders, and where these leave a gap to what is least, in orders in which those on top come
    earlier; the lowest end wins.

    Returns
    -------
    Address of each buffer, and the end of the area.
    """
    orders = [
        sorted(buffers, key=lambda name: (-buffers[name].size, buffers[name].first)),
        sorted(buffers, key=lambda name: (buffers[name].first, -buffers[name].size)),
        sorted(buffers, key=lambda name: -buffers[name].size * (1 + buffers[name].last - buffers[name].first)),
    ]
    sizes = {name: align(buffer.size) for name, buffer in buffers.items()}
    near = _neighbours(buffers)
    bound = base + least(buffers.values())
    placed = [_first_fit(sizes, near, order, base) for order in orders]
    where, end = best = min(placed, key=lambda found: found[1])
    order = orders[placed.index(best)]
    for _ in range(_TRIALS if len(buffers) <= _SEARCHED else 0):
        if best[1] == bound:
            break
        top = [name for name in order if where[name] + sizes[name] == end]
        order = [*top, *(name for name in order if name not in top)]
        where, end = _first_fit(sizes, near, order, base)
        best = min(best, (where, end), key=lambda found: found[1])
    return best


def _neighbours(buffers: Mapping[str, Buffer]) -> dict[str, list[str]]:
    """For each buffer those that are needed at the same time."""
    near: dict[str, list[str]] = {name: [] for name in buffers}
    active: list[str] = []
    for name in sorted(buffers, key=lambda name: buffers[name].first):
        active = [other for other in active if buffers[other].last >= buffers[name].first]
        for other in active:
            near[name].append(other)
            near[other].append(name)
        active.append(name)
    return near


def _first_fit(
    sizes: Mapping[str, int], near: Mapping[str, Sequence[str]], order: Iterable[str], base: int
) -> tuple[dict[str, int], int]:
    where: dict[str, int] = {}
    for name in order:
        address = base
        for low, high in sorted((where[other], where[other] + sizes[other]) for other in near[name] if other in where):
            if address + sizes[name] <= low:
                break
            address = max(address, high)
        where[name] = address
    return where, max((where[name] + sizes[name] for name in where), default=base)
