"""What can be made free to see what would be next, and what exactly that means."""

from __future__ import annotations

from dataclasses import dataclass

from dovetail.isa.config.given import MemoryTiming
from dovetail.isa.config.resolved import Config
from dovetail.isa.instructions.table import Unit
from dovetail.isa.timing.array import NOTHING, Free


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


_LOADS = ("load", "load_partial", "load_latency")
_STORES = ("store", "store_partial", "store_latency")
_LATENCIES = ("array_latency", "vector_latency", "load_latency", "store_latency")

RESOURCES: dict[str, Resource] = {
    resource.name: resource
    for resource in (
        Resource("array", "array", "its steps take no time: any number of multipliers", free=Free(steps=True)),
        Resource("weights", "weight reads", "weights come from SRAM in no time", free=Free(weights=True)),
        Resource("requantise", "requantiser", "results leave the array at once", free=Free(results=True)),
        Resource("vector", "vector unit", "its reads take no time", causes=frozenset({"vector", "vector_lanes"})),
        Resource("load", "loads", "loads take no time", causes=frozenset(_LOADS)),
        Resource("store", "stores", "stores take no time", causes=frozenset(_STORES)),
        Resource("latency", "latency", "checks, pipelines and memory take no time", causes=frozenset(_LATENCIES)),
        Resource(
            "frontend",
            "front end",
            "pages come in no time, and queues hold any number of words",
            causes=frozenset({"fetch"}),
            queues=True,
        ),
        Resource("bus", "bus", "loads and stores take no time", causes=frozenset({*_LOADS, *_STORES})),
        Resource("memory", "memory latency", "memory answers in the next cycle", memory=True),
        Resource(
            "lanes",
            "idle lanes",
            "steps are shorter by the cycles that their idle lanes add up to",
            causes=frozenset({"input_lanes", "output_lanes", "depthwise_lanes"}),
        ),
    )
}
"""Every resource; the first ones are what a run can be bound by."""


def fastest(config: Config) -> Config:
    """A configuration whose memory answers in the next cycle, or as early as the timing of its beats allows."""
    beat_cycles = config.memory.beat_cycles
    latency = max(1, beat_cycles - 10)
    memory = MemoryTiming(read_latency=latency, write_latency=latency, beat_cycles=beat_cycles)
    return config.replace(memory=memory)
