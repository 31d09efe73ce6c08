"""Explains where the cycles of a compiled network go."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from fractions import Fraction
from typing import TYPE_CHECKING

from dovetail.isa.instructions.table import Unit
from dovetail.sw.analysis.explain.causes import NOTHING_FREE, RESOURCES, Resource
from dovetail.sw.analysis.explain.explanation import Explanation, LayerExplanation, WhatIf, bound_of, total_of
from dovetail.sw.analysis.explain.program import ExplainedProgram, Spent
from dovetail.sw.errors import DovetailError

if TYPE_CHECKING:
    from dovetail.sw.runtime.compiled_network import CompiledNetwork

RUNGS = 4
"""Of the ladder, at most."""


def explain(compiled: CompiledNetwork) -> Explanation:
    """Where the cycles of an inference go, layer by layer, and what each free resource would gain.

    Raises RunError, which is a bug of the compiler, and `DovetailError` for the microcoded accelerator: nothing waits
    there.
    """
    config = compiled.config
    if config.serial:
        raise DovetailError("explain is for serial = false; with serial = true see the table of dovetail run --layers")
    programs = list(_programs(compiled))
    actual = _spent(programs, NOTHING_FREE)
    freed = {name: _spent(programs, resource) for name, resource in RESOURCES.items()}
    shares = total_of(layer.shares for layer in actual)
    peak, bandwidth = config.macs_per_cycle, Fraction(config.bus_bytes, config.like_fixed.beat_cycles)
    layers = tuple(
        LayerExplanation(
            name=layer.name,
            kind=layer.kind,
            macs=layer.macs,
            cycles=own.cycles,
            read_bytes=read,
            write_bytes=written,
            peak=peak,
            bandwidth=bandwidth,
            shares=own.shares,
            ahead=own.ahead,
            next=_what_if(bound, [freed[bound][index]]) if (bound := bound_of(own.shares)) else None,
        )
        for index, (layer, own, read, written) in enumerate(
            zip(compiled.code.layers, actual, _moved(programs, Unit.LOAD), _moved(programs, Unit.STORE), strict=True)
        )
    )
    return Explanation(
        network=compiled.graph.name,
        config=config.to_dict(),
        macs=sum(layer.macs for layer in layers),
        host_macs=compiled.report().host_macs,
        host=compiled.report().host_work,
        cycles=sum(layer.cycles for layer in layers),
        read_bytes=sum(layer.read_bytes for layer in layers),
        write_bytes=sum(layer.write_bytes for layer in layers),
        peak=peak,
        bandwidth=bandwidth,
        shares=shares,
        layers=layers,
        next=tuple(sorted((_what_if(name, spent) for name, spent in freed.items()), key=lambda what: what.cycles)),
        ladder=tuple(_ladder(programs, bound_of(shares))),
    )


def _programs(compiled: CompiledNetwork) -> Iterator[ExplainedProgram]:
    """The segments, each with its layers counted from 0."""
    code, first = compiled.code, 0
    for number, (segment, timeline) in enumerate(zip(code.segments, compiled.report().timeline, strict=True)):
        macs = [layer.macs for layer in code.layers if layer.segment == number]
        layers = {pc: layer - first for pc, layer in segment.layers.items()}
        yield ExplainedProgram(code.config, segment.body, timeline, layers, macs)
        first += len(macs)


def _spent(programs: Sequence[ExplainedProgram], resource: Resource) -> list[Spent]:
    return [layer for program in programs for layer in program.spent(resource)]


def _moved(programs: Sequence[ExplainedProgram], unit: Unit) -> list[int]:
    return [size for program in programs for size in program.moved(unit)]


def _what_if(name: str, layers: Sequence[Spent]) -> WhatIf:
    shares = total_of(layer.shares for layer in layers)
    return WhatIf(name, sum(shares.values()), bound_of(shares))


def _ladder(programs: Sequence[ExplainedProgram], bound: str) -> Iterator[WhatIf]:
    """The run with its bottleneck free, then with the next bottleneck free as well, and so on."""
    resource, freed = NOTHING_FREE, set[str]()
    while bound and bound not in freed and len(freed) < RUNGS:
        freed.add(bound)
        resource = resource.and_also(RESOURCES[bound])
        rung = _what_if(bound, _spent(programs, resource))
        yield rung
        bound = rung.bound
