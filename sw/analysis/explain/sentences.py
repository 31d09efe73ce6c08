"""Explanations and comparisons in sentences."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from fractions import Fraction
from typing import Any

from dovetail.isa.common.sizes import format_bytes
from dovetail.isa.config.given import ARRAY_LANES
from dovetail.sw.analysis.explain.causes import BOUNDS, CAUSES, RESOURCES
from dovetail.sw.analysis.explain.comparison import Comparison
from dovetail.sw.analysis.explain.explanation import Explanation
from dovetail.sw.runtime.clock import clock_text, frequency_text, time_text

MOST = 5
"""Causes that are named, at most."""
LEAST = 0.01
"""What part of the cycles a cause must have to be named."""
HOST = "cycles of the host, an estimate"
LAYERS = 3
"""Layers that are named of each cause."""
NAME = 32
"""Characters of a layer's name, at most."""
_OWN = {"PEs": ARRAY_LANES, "bytes per cycle on the bus": ("bus", "beat_cycles")}
"""Parameters that an amount stands for."""
_THINGS = ("array", "requantise", "vector", "frontend", "bus")
"""Resources that a sentence puts an article before."""


def summary(explanation: Explanation, clock: float | None = None) -> list[str]:
    """What the cycles of a network go to, what its layers are bound by, and what would be next; with the times of an
    inference at a clock in Hz."""
    host = [*_host_of(explanation, clock), *_times(explanation, clock)]
    if not explanation.cycles:
        return [f"{explanation.network}: no layer runs on the accelerator", *host]
    return [_roofline(explanation), *host, _spent(explanation), _layers(explanation), *_next(explanation)]


def _host_of(explanation: Explanation, clock: float | None) -> list[str]:
    """What the host takes, where a layer runs there."""
    host = explanation.host
    if not host.nodes:
        return []
    cycles = host.at(clock)
    share = cycles / (explanation.cycles + cycles)
    macs = f" for {explanation.host_macs:,} MACs" if explanation.host_macs else ""
    return [f"beside these {cycles:,} {HOST}{macs}: {share:.1%} of all ({host.basis})"]


def _times(explanation: Explanation, clock: float | None) -> list[str]:
    if clock is None:
        return []
    host = explanation.host.at(clock)
    total = explanation.cycles + host
    return [
        f"at {clock_text(clock)}: {time_text(explanation.cycles, clock)} on the accelerator, about"
        f" {time_text(host, clock)} on the host, {time_text(total, clock)} in all, {frequency_text(total, clock)}"
    ]


def _roofline(explanation: Explanation) -> str:
    bound = max(explanation.bound_compute, explanation.bound_memory)
    above = f", {explanation.cycles / bound - 1:.1%} above its roofline" if bound else ""
    return (
        f"{explanation.network}: {explanation.cycles:,} cycles{above}: {explanation.bound_compute:,} for MACs,"
        f" {explanation.bound_memory:,} for what is moved"
    )


def _spent(explanation: Explanation) -> str:
    most = sorted(explanation.bounds.items(), key=lambda item: -item[1])
    parts = [
        f"{_the(bound)} {cycles / explanation.cycles:.1%}"
        for bound, cycles in most
        if cycles >= LEAST * explanation.cycles
    ]
    return "cycles go to: " + ", ".join(parts)


def _layers(explanation: Explanation) -> str:
    layers = sorted(explanation.layers, key=lambda layer: -layer.cycles)
    names = {bound: [layer.name for layer in layers if layer.bound == bound] for bound in BOUNDS}
    parts = [
        f"{len(own)} by {_the(bound)}" + (f" ({_some(own)})" if bound != explanation.bound else "")
        for bound, own in sorted(names.items(), key=lambda item: -len(item[1]))
        if own
    ]
    return "layers are bound: " + ", ".join(parts)


def _next(explanation: Explanation) -> list[str]:
    lines = []
    for number, rung in enumerate(explanation.ladder, 1):
        free = _all([_the(own.resource) for own in explanation.ladder[:number]])
        change = rung.cycles / explanation.cycles - 1
        lines.append(f"with {free} free: {rung.cycles:,} cycles ({change:+.1%}), bound by {_the(rung.bound)}")
    gain = {what.resource: 1 - what.cycles / explanation.cycles for what in explanation.next}
    others = [name for name in gain if name != explanation.bound and gain[name] >= LEAST][:LAYERS]
    if others:
        gains = ", ".join(f"{_the(name)} {-gain[name]:+.1%}" for name in others)
        lines.append(f"with one of these free instead: {gains}")
    return lines


# --- comparison ---------------------------------------------------------------------------------------------------


def answer(comparison: Comparison, clock: float | None = None) -> list[str]:
    """Why the second configuration is as fast as it is; with both times at a clock in Hz."""
    times = [f"at {clock_text(clock)}: {' -> '.join(time_text(c, clock) for c in comparison.cycles)}"] if clock else []
    return [_speed(comparison), *times, *_host(comparison), *_losses(comparison), *_others(comparison)]


def _speed(comparison: Comparison) -> str:
    first, second = comparison.cycles
    if first == second and not comparison.changes:
        return f"the configurations are equal: {first:,} cycles"
    cycles = f"{second:,} cycles instead of {first:,}"
    if not first or not second:
        return f"{cycles}: without a layer on the accelerator there is nothing to compare"
    speedup = f"{comparison.speedup:.2f}x as fast"
    if not comparison.resource:
        return f"{speedup}: {cycles}"
    before, after = comparison.amounts
    amounts = f"{_amount(after)} instead of {_amount(before)} {comparison.resource}"
    lost = round(comparison.lost)
    if not lost:
        return f"{amounts}: {speedup}, as it should be: {cycles}"
    ratio = _amount(comparison.ratio)
    difference = f"{abs(lost):,} {'above' if lost > 0 else 'below'} {first:,} / {ratio}"
    return f"{amounts}: {speedup}, not {ratio}x: {cycles}, {difference}"


def _host(comparison: Comparison) -> list[str]:
    first, second = comparison.host_cycles
    if first == second:
        return []
    return [f"beside these {second:,} instead of {first:,} {HOST}"]


def _losses(comparison: Comparison) -> list[str]:
    lost = {name: cycles for name, cycles in comparison.losses.items() if cycles > 0}
    won = {name: -cycles for name, cycles in comparison.losses.items() if cycles < 0}
    lines = []
    for verb, sign, part in (("lost", 1, lost), ("won", -1, won)):
        total = sum(part.values(), Fraction())
        if round(total):
            lines.append(f"{verb}: {round(total):,} cycles")
            lines += _named(comparison, part, total, sign)
    return lines


def _named(comparison: Comparison, part: Mapping[str, Fraction], total: Fraction, sign: int) -> list[str]:
    """A line per cause, the most first, and one for all that is small."""
    names = sorted(part, key=part.__getitem__, reverse=True)
    kept = [name for name in names[:MOST] if part[name] >= LEAST * total and round(part[name])]
    lines = []
    for name in kept:
        parts = {layer.name: sign * layer.losses.get(name, Fraction()) for layer in comparison.layers}
        where = _some([layer for layer in sorted(parts, key=lambda layer: -parts[layer]) if parts[layer] > 0])
        lines.append(f"{_part(part[name], total)}  {CAUSES[name].title}{_parameter(comparison, name)}: {where}")
    rest = total - sum((part[name] for name in kept), Fraction())
    return [*lines, f"{_part(rest, total)}  other causes"] if round(rest) else lines


def _parameter(comparison: Comparison, cause: str) -> str:
    """What the parameter that says how fast it is was, and is."""
    name = CAUSES[cause].parameter
    if not name:
        return ""
    first, second = (config.get(name, 0) for config in comparison.configs)
    return f" ({name} {first} on both)" if first == second else f" ({name} {first} -> {second})"


def _part(cycles: Fraction, total: Fraction) -> str:
    return f"  {round(cycles):>12,} {float(cycles / total):4.0%}"


def _others(comparison: Comparison) -> list[str]:
    own = _OWN.get(comparison.resource, ())
    changes = [
        f"{name} {_value(name, first)} -> {_value(name, second)}"
        for name, (first, second) in comparison.changes.items()
        if name not in own
    ]
    return [f"different{' as well' if comparison.resource else ''}: {', '.join(changes)}"] if changes else []


def title_of(name: str) -> str:
    """What a resource, or what a run is bound by, is called in a sentence."""
    return RESOURCES[name].title if name else ""


def _the(name: str) -> str:
    return f"the {title_of(name)}" if name in _THINGS else title_of(name)


def _amount(value: Fraction) -> str:
    return f"{float(value):g}"


def _value(name: str, value: Any) -> str:
    return format_bytes(value) if name == "sram" else str(value)


def _all(names: Sequence[str]) -> str:
    return " and ".join(filter(None, (", ".join(names[:-1]), names[-1])))


def _some(names: Sequence[str]) -> str:
    """The first names, and how many more there are."""
    rest = len(names) - LAYERS
    return ", ".join(short(name) for name in names[:LAYERS]) + (f" and {rest} more" if rest > 0 else "")


def short(name: str, length: int = NAME) -> str:
    """A layer's name; of one that a converter has put together of many its first, and of a long one the end."""
    first = name.split(";")[0]
    return first if len(first) <= length else "..." + first[3 - length :]
