"""What a run does: exact counts of events, from its timeline and registers; no tensor data is touched."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

from dovetail.isa.config.resolved import Config
from dovetail.isa.instructions.table import PAGE_WORDS, Op, Unit, unit_of
from dovetail.isa.timing.timeline import FETCH, Timeline
from dovetail.sw.analysis.cost.operation import KEYS, Counts, Registers, counts_of
from dovetail.sw.errors import DovetailError

if TYPE_CHECKING:
    from dovetail.sw.runtime.compiled_network import CompiledNetwork

EVENTS: Mapping[str, str] = {
    "cycles": "cycles of all segments",
    "busy_load": "cycles in which LOAD runs a transfer or a fetch",
    "busy_array": "cycles in which ARRAY runs an operation",
    "busy_vector": "cycles in which VECTOR runs an operation",
    "busy_store": "cycles in which STORE runs a transfer",
    "macs": "multiply-accumulates that the network asks for",
    "multiplies": "products that the array takes: steps times multipliers in use, padding and unused lanes included",
    "accumulates": "accumulators that are added to or set, unused lanes included",
    "accumulator_visits": "accumulators that are read and written for it: once for all input blocks of a step",
    "requantises": "values that pass the array's requantiser, int32 results and unused lanes included",
    "vector_taps": "bytes or int32 values that VECTOR takes in, table, padding and unused lanes included",
    "vector_results": "results that VECTOR computes, unused lanes included",
    "sram_read_input": "SRAM reads of ARRAY: activations and old int32 values",
    "sram_read_weights": "SRAM reads of ARRAY: weights, records, matrix",
    "sram_read_vector": "SRAM reads of VECTOR",
    "sram_read_store": "SRAM reads of STORE",
    "sram_write_load": "SRAM writes of LOAD",
    "sram_write_array": "SRAM writes of ARRAY",
    "sram_write_vector": "SRAM writes of VECTOR",
    "dram_read_bytes": "bytes that LOAD takes from system memory, instructions left out",
    "dram_read_beats": "beats of these on the bus",
    "dram_read_bursts": "bursts of these",
    "dram_write_bytes": "bytes that STORE writes to system memory",
    "dram_write_beats": "beats of these on the bus",
    "dram_write_bursts": "bursts of these",
    "fetched_words": "64-bit instruction words that are fetched, in whole pages",
}
"""Names of the events, and what they count. An SRAM access is one use of a port, a word wide or less."""

_MAX_KNOWN = 1 << 16
"""Counts that are remembered of a configuration."""
_MAX_CONFIGS = 8
"""Configurations of which counts are remembered: sweeps come back to none."""
_known: dict[Config, dict[tuple[int, Registers], Counts]] = {}
"""Per configuration, the counts of an opcode with the registers that decide them."""


def activity_of(compiled: CompiledNetwork) -> Mapping[str, int]:
    """The number of each of `EVENTS` in one inference; what the host does is not counted."""
    report = compiled.report()
    return events_of(compiled.config, report.timeline) | {"macs": report.macs}


def events_of(config: Config, timelines: Iterable[Timeline]) -> dict[str, int]:
    """The events of runs without faults; ``macs``, which only a network knows, is 0. Raises `DovetailError` for the
    microcoded accelerator, whose events are others."""
    _refuse_microcoded(config)
    events = dict.fromkeys(EVENTS, 0)
    seen: dict[tuple[int, Registers], int] = {}
    samples: dict[tuple[int, Registers], Registers] = {}
    for timeline in timelines:
        if timeline.fault:
            raise ValueError(f"events must be those of runs without faults, not {timeline.fault}")
        events["cycles"] += timeline.cycles
        for unit in Unit:
            events[f"busy_{unit.name.lower()}"] += timeline.counters[unit].busy
        for op, registers in zip(timeline.op.tolist(), timeline.registers, strict=True):
            if op == FETCH:
                events["fetched_words"] += PAGE_WORDS
                continue
            key = op, KEYS[unit_of(op)](registers)
            times = seen.get(key)
            if times is None:
                seen[key], samples[key] = 1, registers
            else:
                seen[key] = times + 1
    known = _counts_known(config)
    for key, times in seen.items():
        counts = known.get(key)
        if counts is None:
            counts = known[key] = counts_of(config, Op(key[0]), samples[key])
        for name, count in counts.items():
            events[name] += times * count
    return events


def layer_activity(compiled: CompiledNetwork) -> list[dict[str, int]]:
    """The events of each layer of the report, in its order, those of units' busy cycles left out.

    ``cycles`` are the layer's own, so those of the layers add up to the network's, as all events do but
    ``fetched_words``: a page of instructions belongs to no layer. Raises `DovetailError` as `events_of` does.
    """
    config, report = compiled.config, compiled.report()
    _refuse_microcoded(config)
    layers = [
        dict.fromkeys(EVENTS, 0) | {"cycles": layer.cycles, "macs": layer.macs} for layer in report.layers
    ]  # fmt: skip
    known = _counts_known(config)
    for segment, timeline in zip(compiled.code.segments, report.timeline, strict=True):
        rows = zip(timeline.op.tolist(), timeline.pc.tolist(), timeline.registers, strict=True)
        for op, pc, registers in rows:
            if op == FETCH:
                continue
            key = op, KEYS[unit_of(op)](registers)
            counts = known.get(key)
            if counts is None:
                counts = known[key] = counts_of(config, Op(op), registers)
            events = layers[segment.layers[pc]]
            for name, count in counts.items():
                events[name] += count
    return layers


def _refuse_microcoded(config: Config) -> None:
    if config.serial:
        raise DovetailError("energy is estimated for serial = false only")


def _counts_known(config: Config) -> dict[tuple[int, Registers], Counts]:
    known = _known.get(config)
    if known is None or len(known) > _MAX_KNOWN:
        if len(_known) >= _MAX_CONFIGS:
            _known.clear()
        known = _known[config] = {}
    return known
