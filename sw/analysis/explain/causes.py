"""What a cycle of a run can be spent on: the names of the shares of an explanation."""

from __future__ import annotations

from dataclasses import dataclass

BOUNDS = ("array", "weights", "requantise", "vector", "load", "store", "latency", "frontend")
"""What can limit a run; every cause belongs to one of them."""


@dataclass(frozen=True)
class Cause:
    """Something that cycles are spent on.

    ``bound``: which of `BOUNDS` it counts for; ``parameter``: of the configuration, what says how fast it is, if any.
    """

    name: str
    title: str
    bound: str
    doc: str
    parameter: str = ""


CAUSES: dict[str, Cause] = {
    cause.name: cause
    for cause in (
        Cause("multiply", "multiplying", "array", "MACs of the network, at the rate of all multipliers"),
        Cause("depthwise", "depthwise rate", "array", "depthwise MACs, as only depthwise_lanes multipliers work",
              "depthwise_lanes"),
        Cause("input_lanes", "idle input lanes", "array", "steps in which input lanes have no channel", "ic_lanes"),
        Cause("output_lanes", "idle output lanes", "array", "steps in which output lanes have no channel", "oc_lanes"),
        Cause("depthwise_lanes", "idle depthwise lanes", "array", "depthwise steps in which lanes have no channel",
              "depthwise_lanes"),
        Cause("turnaround", "short stripes", "array", "windows stretched to the least accumulation distance"),
        Cause("partial_sums", "partial sums", "array", "reading int32 sums of an earlier pass back"),
        Cause("weights", "weight reads", "weights", "the array waits for weights, or a block's records, from SRAM"),
        Cause("requantise", "requantiser", "requantise", "the array waits for results to leave through it",
              "requant_lanes"),
        Cause("vector", "vector reads", "vector", "reads of the vector unit, with all lanes in use", "vector_lanes"),
        Cause("vector_lanes", "idle vector lanes", "vector", "reads of the vector unit whose lanes have no channel",
              "vector_lanes"),
        Cause("load", "loads", "load", "beats of loads, as if all were full", "bus"),
        Cause("load_partial", "partial beats of loads", "load", "further beats, as rows begin or end within one",
              "bus"),
        Cause("store", "stores", "store", "beats of stores, as if all were full", "bus"),
        Cause("store_partial", "partial beats of stores", "store", "further beats, as rows begin or end within one",
              "bus"),
        Cause("array_latency", "array pipeline", "latency", "checks, and from the first read to the last write"),
        Cause("vector_latency", "vector pipeline", "latency", "the same of the vector unit"),
        Cause("load_latency", "load latency", "latency", "checks, memory's answer to a read, gaps between bursts",
              "read_latency"),
        Cause("store_latency", "store latency", "latency", "checks, memory's answer to a write, gaps between bursts",
              "write_latency"),
        Cause("fetch", "instruction fetch", "frontend", "pages of instructions on their way", "read_latency"),
        Cause("control", "words and hand-over", "frontend", "dispatch, register writes, waits, start and end"),
    )
}  # fmt: skip
"""Every cause, in the order of tables and stacked bars."""
