"""What a cycle of a run can be spent on, and what can be made free to see what would be next."""

from __future__ import annotations

from dataclasses import dataclass

from dovetail.isa.config.given import MemoryTiming
from dovetail.isa.config.resolved import Config
from dovetail.isa.instructions.table import Unit
from dovetail.isa.timing.array import NOTHING, Free

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
        Cause("input_lanes", "idle input lanes", "array",
              "steps in which input lanes have no channel, of a depthwise layer no tap", "ic_lanes"),
        Cause("output_lanes", "idle output lanes", "array", "steps in which output lanes have no channel", "oc_lanes"),
        Cause("pixel_lanes", "idle pixel lanes", "array",
              "steps in which pixel lanes have no pixel, of a depthwise layer no channels", "pixel_lanes"),
        Cause("input_reads", "input reads", "array",
              "the array waits for its input, of which one word comes per cycle; and while the row buffer fills",
              "pixel_lanes"),
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


@dataclass(frozen=True)
class Resource:
    """Something that a run would be faster without.

    Parameters
    ----------
    name, title, doc: for tables and documents.
    free: what takes the array no time; its timing rule says what an operation takes then.
    memory: transfers and fetches take what they take with the fastest memory (`fastest`).
    causes: whose cycles every operation and fetch is then shorter by.
    queues: queues hold any number of words.
    """

    name: str
    title: str
    doc: str
    free: Free = NOTHING
    memory: bool = False
    causes: frozenset[str] = frozenset()
    queues: bool = False

    def retimes(self, unit: Unit) -> bool:
        """Whether the operations of a unit, or fetches, must be timed anew."""
        if unit in (Unit.LOAD, Unit.STORE):
            return self.memory
        return unit == Unit.ARRAY and self.free != NOTHING

    def and_also(self, other: Resource) -> Resource:
        """Both of them."""
        return Resource(
            f"{self.name}+{other.name}",
            f"{self.title}, {other.title}",
            f"{self.doc}; {other.doc}",
            free=Free(*(a or b for a, b in zip(self.free, other.free, strict=True))),
            memory=self.memory or other.memory,
            causes=self.causes | other.causes,
            queues=self.queues or other.queues,
        )


NOTHING_FREE = Resource("", "", "everything as it is")


def _named(*words: str) -> frozenset[str]:
    """The causes that have one of the words in their names."""
    return frozenset(name for name in CAUSES if not set(words).isdisjoint(name.split("_")))


RESOURCES: dict[str, Resource] = {
    resource.name: resource
    for resource in (
        Resource("array", "array", "its steps take no time: any number of multipliers", free=Free(steps=True)),
        Resource("weights", "weight reads", "weights come from SRAM in no time", free=Free(weights=True)),
        Resource("requantise", "requantiser", "results leave the array at once", free=Free(results=True)),
        Resource("vector", "vector unit", "its reads take no time", causes=frozenset({"vector", "vector_lanes"})),
        Resource("load", "loads", "loads take no time", causes=_named("load")),
        Resource("store", "stores", "stores take no time", causes=_named("store")),
        Resource("latency", "latency", "checks, pipelines and memory take no time", causes=_named("latency")),
        Resource(
            "frontend",
            "front end",
            "pages come in no time, and queues hold any number of words",
            causes=frozenset({"fetch"}),
            queues=True,
        ),
        Resource("bus", "bus", "loads and stores take no time", causes=_named("load", "store")),
        Resource("memory", "memory latency", "memory answers in the next cycle", memory=True),
        Resource(
            "lanes",
            "idle lanes",
            "steps are shorter by the cycles that their idle lanes add up to",
            causes=frozenset({"input_lanes", "output_lanes", "pixel_lanes"}),
        ),
    )
}
"""Every resource; the first ones are what a run can be bound by."""


def fastest(config: Config) -> Config:
    """A configuration whose memory answers in the next cycle, or as early as the timing of its beats allows."""
    beat_cycles = config.like_fixed.beat_cycles
    latency = max(1, beat_cycles - 10)
    memory = MemoryTiming(read_latency=latency, write_latency=latency, beat_cycles=beat_cycles)
    return config.replace(memory=memory)
