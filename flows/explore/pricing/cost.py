"""What a network costs on a configuration: exact counts only (metrics are in
`dovetail.flows.explore.space.metrics`)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from dovetail.sw.analysis.cost.activity import EVENTS


@dataclass(frozen=True)
class Cost:
    """Counts of one inference; integers only, so that a stored cost equals a fresh one.

    ``cycles``: of the accelerator, exact; ``host_cycles``: what the host takes beside them by the space's host
    costs, an estimate, None in stores that were made before it was counted. ``kinds``: cycles per kind of layer, in
    the order of the network; they add up to ``cycles``. ``macs`` and ``bound_cycles`` (the roofline) count the
    accelerator's layers; ``read_bytes`` and ``write_bytes``: what layers move from and to system memory, without
    instructions; ``host`` are (name, kind, MACs) of the nodes that the host runs; ``activity``: events by name, for
    the energy (see `dovetail.sw.analysis.cost.activity`).
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

    @property
    def host_macs(self) -> int:
        """MACs on the host."""
        return sum(macs for _, _, macs in self.host)

    def to_dict(self) -> dict[str, Any]:
        """As JSON has it."""
        return asdict(self)

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Cost:
        """The inverse of :meth:`to_dict`, from JSON too."""
        counts = [data[name] for name in ("cycles", "macs", "bound_cycles", "read_bytes", "write_bytes")]
        counts += [*data["kinds"].values(), *data.get("activity", {}).values(), *(macs for _, _, macs in data["host"])]
        if (activity := data.get("activity")) and not EVENTS.keys() <= activity.keys():
            raise ValueError("activity must have every event")
        counts += [] if data.get("host_cycles") is None else [data["host_cycles"]]
        if any(type(count) is not int or not 0 <= count < 1 << 63 for count in counts):
            raise ValueError("counts must be whole numbers from 0 to 2**63 - 1")
        if any(type(word) is not str for name, kind, _ in data["host"] for word in (name, kind)):
            raise ValueError("names of the host's nodes must be text")
        return cls(**{**data, "host": tuple((name, kind, macs) for name, kind, macs in data["host"])})


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
