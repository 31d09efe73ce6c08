"""Where the cycles of a network go: dataclasses of an explanation."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from fractions import Fraction
from math import ceil, prod
from typing import Any

from dovetail.isa.common.html import html_table
from dovetail.isa.common.sizes import ceil_div
from dovetail.sw.analysis.explain.causes import BOUNDS, CAUSES
from dovetail.sw.host.work import HostWork

Shares = Mapping[str, int]
"""Cycles by the name of the cause, in the order of `CAUSES`; those with none are left out."""


def by_bound(shares: Shares) -> dict[str, int]:
    """Cycles by what limits them, in the order of `BOUNDS`; those with none are left out."""
    total = dict.fromkeys(BOUNDS, 0)
    for name, cycles in shares.items():
        total[CAUSES[name].bound] += cycles
    return {bound: cycles for bound, cycles in total.items() if cycles}


def total_of(shares: Iterable[Shares]) -> Shares:
    """All of them added up, cause by cause."""
    total = dict.fromkeys(CAUSES, 0)
    for share in shares:
        for name, cycles in share.items():
            total[name] += cycles
    return {name: cycles for name, cycles in total.items() if cycles}


def bound_of(shares: Shares) -> str:
    """What most of the cycles are spent on; the first of `BOUNDS` in a tie, empty without any cycle."""
    total = by_bound(shares)
    return max(total, key=total.__getitem__, default="")


@dataclass(frozen=True)
class WhatIf:
    """The same program, timed again with a resource made free.

    ``resource``: its name in `dovetail.sw.analysis.explain.causes.RESOURCES`; ``cycles``: what the run, or the
    layer, takes then; ``bound``: what most of these are spent on.
    """

    resource: str
    cycles: int
    bound: str

    def to_dict(self) -> dict[str, Any]:
        """What JSON can express."""
        return {"resource": self.resource, "cycles": self.cycles, "bound": self.bound}


@dataclass(frozen=True)
class _Roofline:
    """A place on the roofline, of a layer or a network.

    Parameters
    ----------
    macs: multiply-accumulates of the network, without those of idle lanes.
    cycles: what it takes.
    read_bytes, write_bytes: moved from and to system memory, without instructions.
    peak: MACs per cycle of all multipliers.
    bandwidth: bytes per cycle of the bus, in either direction.
    shares: cycles by cause; they add up to ``cycles``.
    """

    macs: int
    cycles: int
    read_bytes: int
    write_bytes: int
    peak: int
    bandwidth: Fraction
    shares: Shares

    @property
    def bound(self) -> str:
        """What most of the cycles are spent on, one of `BOUNDS`."""
        return bound_of(self.shares)

    @property
    def bounds(self) -> dict[str, int]:
        """Cycles by what limits them, in the order of `BOUNDS`; those with none are left out."""
        return by_bound(self.shares)

    @property
    def bound_compute(self) -> int:
        """Cycles that the multipliers need at least."""
        return -(-self.macs // self.peak)

    @property
    def bound_memory(self) -> int:
        """Cycles that the bus needs at least for what is moved: reads and writes pass at the same time."""
        return ceil(max(self.read_bytes, self.write_bytes) / self.bandwidth)

    @property
    def intensity(self) -> float | None:
        """MACs per byte in the busier direction of the bus; None if nothing is moved."""
        moved = max(self.read_bytes, self.write_bytes)
        return self.macs / moved if moved else None

    @property
    def attained(self) -> float:
        """MACs per cycle."""
        return self.macs / self.cycles if self.cycles else 0.0

    @property
    def ceiling(self) -> float:
        """MACs per cycle that the roofline allows at this intensity."""
        intensity = self.intensity
        return self.peak if intensity is None else min(self.peak, intensity * float(self.bandwidth))

    def _place(self) -> dict[str, Any]:
        return {
            "macs": self.macs,
            "cycles": self.cycles,
            "read_bytes": self.read_bytes,
            "write_bytes": self.write_bytes,
            "bound": self.bound,
            "bound_compute": self.bound_compute,
            "bound_memory": self.bound_memory,
            "intensity": self.intensity,
            "attained": self.attained,
            "ceiling": self.ceiling,
            "shares": dict(self.shares),
            "bounds": self.bounds,
        }


@dataclass(frozen=True)
class LayerExplanation(_Roofline):
    """A layer's share of a run: from the end of the layer before to its own end.

    ``ahead``: how many of its cycles the critical path spends on operations of other layers, such as loads for the
    next one; ``next``: this layer when what bounds it is free.
    """

    name: str
    kind: str
    ahead: int
    next: WhatIf | None

    def to_dict(self) -> dict[str, Any]:
        """What JSON can express."""
        return {
            "name": self.name,
            "kind": self.kind,
            **self._place(),
            "ahead": self.ahead,
            "next": self.next and self.next.to_dict(),
        }


@dataclass(frozen=True)
class Explanation(_Roofline):
    """Where the cycles of an inference go. Those of the layers add up to the network's, share by share.

    ``host_macs``: left to the host; ``host``: what the host takes beside ``cycles``, an estimate that no share is part
    of; ``next``: the network with one resource free, the
    fewest cycles first; ``ladder``: with what bounds it free, then with what bounds it then free as well, and so on.
    """

    network: str
    config: Mapping[str, Any]
    host_macs: int
    host: HostWork
    layers: tuple[LayerExplanation, ...]
    next: tuple[WhatIf, ...]
    ladder: tuple[WhatIf, ...] = ()

    @property
    def depthwise_peak(self) -> int | None:
        """MACs per cycle of depthwise layers with kernels of 3 x 3, where they have fewer multipliers than others;
        None where there are no such layers, or they are emulated, which takes another number for each."""
        if self.config.get("depthwise") != "native":
            return None
        names = "ic_lanes", "oc_lanes", "pixel_lanes", "kernel_rows"
        taps, *others, rows = (int(self.config.get(name, 1)) for name in names)
        steps = ceil_div(3, rows)  # of a kernel, with as many of its rows at once as there are lanes for
        lanes = 9 * prod(others) // steps if rows > 1 else min(taps, 3) * prod(others)
        there = any(layer.kind == "depthwise" and layer.cycles for layer in self.layers)
        return lanes if there and lanes < self.peak else None

    def __repr__(self) -> str:
        bound = f", bound by {self.bound}" if self.bound else ""
        return f"<Explanation {self.network}: {self.cycles:,} cycles, {len(self.layers)} layers{bound}>"

    def _repr_html_(self) -> str:
        most = sorted(self.shares.items(), key=lambda share: -share[1])
        spent = [(CAUSES[name].title, n, f"{n / self.cycles:.1%}", CAUSES[name].doc) for name, n in most]
        free = [(what.resource, what.cycles, f"{what.cycles / self.cycles - 1:+.1%}") for what in self.next if most]
        return html_table(
            f"{self.network}: where {self.cycles:,} cycles go",
            ("cause", "cycles", "share", "what it is"),
            "lrrl",
            spent,
        ) + html_table("The same program with one resource free", ("free", "cycles", "change"), "lrr", free)

    def to_dict(self) -> dict[str, Any]:
        """What JSON can express."""
        return {
            "network": self.network,
            "config": dict(self.config),
            "peak": self.peak,
            "depthwise_peak": self.depthwise_peak,
            "bandwidth": float(self.bandwidth),
            "host_macs": self.host_macs,
            "host": self.host.to_dict(),
            **self._place(),
            "next": [what.to_dict() for what in self.next],
            "ladder": [what.to_dict() for what in self.ladder],
            "layers": [layer.to_dict() for layer in self.layers],
        }
