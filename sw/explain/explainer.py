"""Explains where the cycles of a compiled network go."""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction

from dovetail.isa.instructions import Unit
from dovetail.sw.compiler import Layer
from dovetail.sw.explain.explanation import Explanation, LayerExplanation, WhatIf, bound_of, total_of
from dovetail.sw.explain.program import ExplainedProgram, Spent
from dovetail.sw.explain.resources import NOTHING_FREE, RESOURCES, Resource
from dovetail.sw.network import CompiledNetwork


def explain(compiled: CompiledNetwork) -> Explanation:
    """Where the cycles of an inference go, layer by layer, and what would be if something were free.

    Raises RunError, which is a bug of the compiler.
    """
    config, layers = compiled.config, compiled.code.layers
    report = compiled.report()
    programs = []
    for number, (segment, timeline) in enumerate(zip(compiled.code.segments, report.timeline, strict=True)):
        first = _first(layers, number)
        numbers = {pc: layer - first for pc, layer in segment.layers.items()}
        macs = [layer.macs for layer in layers if layer.segment == number]
        programs.append(ExplainedProgram(config, segment.words, timeline, numbers, macs))

    def spent(resource: Resource) -> list[Spent]:
        return [layer for program in programs for layer in program.spent(resource)]

    actual = spent(NOTHING_FREE)
    freed = {name: spent(resource) for name, resource in RESOURCES.items()}
    read, written = ([size for p in programs for size in p.moved(unit)] for unit in (Unit.LOAD, Unit.STORE))
    peak, bandwidth = config.macs_per_cycle, Fraction(config.bus_bytes, config.memory.beat_cycles)
    explained = []
    for index, (layer, own) in enumerate(zip(layers, actual, strict=True)):
        bound = bound_of(own.shares)
        explained.append(
            LayerExplanation(
                name=layer.name,
                kind=layer.kind,
                macs=layer.macs,
                cycles=own.cycles,
                read_bytes=read[index],
                write_bytes=written[index],
                peak=peak,
                bandwidth=bandwidth,
                shares=own.shares,
                ahead=own.ahead,
                next=_what_if(bound, [freed[bound][index]]) if bound else None,
            )
        )
    what_ifs = [_what_if(name, layers) for name, layers in freed.items()]
    return Explanation(
        network=compiled.graph.name,
        config=config.to_dict(),
        macs=sum(layer.macs for layer in layers),
        host_macs=report.host_macs,
        cycles=sum(own.cycles for own in actual),
        read_bytes=sum(read),
        write_bytes=sum(written),
        peak=peak,
        bandwidth=bandwidth,
        shares=total_of([own.shares for own in actual]),
        layers=tuple(explained),
        next=tuple(sorted(what_ifs, key=lambda what: what.cycles)),
    )


def _first(layers: Sequence[Layer], segment: int) -> int:
    return next(index for index, layer in enumerate(layers) if layer.segment == segment)


def _what_if(name: str, layers: Sequence[Spent]) -> WhatIf:
    shares = total_of([layer.shares for layer in layers])
    return WhatIf(name, sum(shares.values()), bound_of(shares))
