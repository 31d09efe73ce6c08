"""What a network costs on a configuration or a system: exact counts only (metrics are in
`dovetail.flows.explore.space.metrics`)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from dovetail.sw.analysis.cost.activity import EVENTS


@dataclass(frozen=True)
class SystemCost:
    """Counts of a plan for a system, of all of its inferences.

    ``interval``: cycles from one result to the next while all accelerators are busy, rounded; ``alone``: cycles of an
    inference on the fastest accelerator alone, None if none can compute all; ``lost``: cycles that jobs lose to one
    another, of ``worked`` (fewer than 0 where a refresh comes at a better moment); ``beats``: cycles that beats take of
    the bus's busier direction; ``activities``: the events of each accelerator.
    """

    inferences: int
    plan_cycles: int
    interval: int
    alone: int | None
    lost: int
    worked: int
    beats: int
    activities: tuple[Mapping[str, int], ...]

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> SystemCost:
        """From JSON."""
        cost = cls(**{**data, "activities": tuple(data["activities"])})
        counts = [cost.inferences, cost.plan_cycles, cost.interval, abs(cost.lost), cost.worked, cost.beats]
        counts += [] if cost.alone is None else [cost.alone]
        _check([*counts, *(count for events in cost.activities for count in events.values())])
        if not cost.inferences or any(not EVENTS.keys() <= events.keys() for events in cost.activities):
            raise ValueError("a system must have an inference, and every event")
        return cost


def _check(counts: Iterable[Any]) -> None:
    if any(type(count) is not int or not 0 <= count < 1 << 63 for count in counts):
        raise ValueError("counts must be whole numbers from 0 to 2**63 - 1")


@dataclass(frozen=True)
class Cost:
    """Counts of one inference; integers only, so that a stored cost equals a fresh one.

    ``cycles``: of the accelerator, exact; ``host_cycles``: what the host takes beside them by the space's host
    costs, an estimate, None in stores that were made before it was counted. ``kinds``: cycles per kind of layer, in
    the order of the network; they add up to ``cycles``. ``macs`` and ``bound_cycles`` (the roofline) count the
    accelerator's layers; ``read_bytes`` and ``write_bytes``: what layers move from and to system memory, without
    instructions; ``host`` are (name, kind, MACs) of the nodes that the host runs; ``activity``: events by name, for
    the energy (see `dovetail.sw.analysis.cost.activity`).

    Of a system, ``cycles`` are those of an inference from its start to its end, ``kinds`` tell how many accelerators
    are busy in the cycles of the plan per inference, ``host_cycles`` are among ``cycles``, and ``activity`` is in
    ``system``.
    """

    cycles: int
    macs: int
    bound_cycles: int
    read_bytes: int
    write_bytes: int
    kinds: Mapping[str, int]
    host: tuple[tuple[str, str, int], ...] = ()
    activity: Mapping[str, int] = field(default_factory=dict)
    host_cycles: int | None = None
    system: SystemCost | None = None

    @property
    def interval(self) -> int:
        """Cycles from one result to the next."""
        return self.system.interval if self.system else self.cycles

    @property
    def bar(self) -> int:
        """Cycles that the kinds add up to."""
        return sum(self.kinds.values()) if self.system else self.cycles

    @property
    def host_macs(self) -> int:
        """MACs on the host."""
        return sum(macs for _, _, macs in self.host)

    def to_dict(self) -> dict[str, Any]:
        """As JSON has it."""
        data = asdict(self)
        return data if self.system else {name: value for name, value in data.items() if name != "system"}

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Cost:
        """The inverse of :meth:`to_dict`, from JSON too."""
        counts = [data[name] for name in ("cycles", "macs", "bound_cycles", "read_bytes", "write_bytes")]
        counts += [*data["kinds"].values(), *data.get("activity", {}).values(), *(macs for _, _, macs in data["host"])]
        if (activity := data.get("activity")) and not EVENTS.keys() <= activity.keys():
            raise ValueError("activity must have every event")
        counts += [] if data.get("host_cycles") is None else [data["host_cycles"]]
        _check(counts)
        if any(type(word) is not str for name, kind, _ in data["host"] for word in (name, kind)):
            raise ValueError("names of the host's nodes must be text")
        host = tuple((name, kind, macs) for name, kind, macs in data["host"])
        system = SystemCost.from_dict(data["system"]) if data.get("system") else None
        return cls(**{**data, "host": host, "system": system})


@dataclass(frozen=True)
class Outcome:
    """The outcome for a network on a configuration: a cost, or the reason why there is none.

    ``lost``: the machine is the reason (a worker died, memory ran out), so another attempt may succeed.
    ``seconds``: CPU time of it.
    """

    cost: Cost | None
    error: str = ""
    lost: bool = False
    seconds: float = 0.0
