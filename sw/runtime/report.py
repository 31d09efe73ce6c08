"""What one inference of a compiled network takes: cycles, layer by layer, and memory."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

from dovetail.isa.common.html import html_table
from dovetail.isa.config.resolved import Config
from dovetail.isa.instructions.table import Unit
from dovetail.isa.timing.timeline import Counters, Timeline
from dovetail.sw.analysis.sram import SramUse, sram_use
from dovetail.sw.host.work import HostWork
from dovetail.sw.runtime.clock import milliseconds, per_second


@dataclass(frozen=True)
class LayerReport:
    """A layer's share of a run.

    ``cycles``: from the end of the layer before to its own end, so the layers of a network add up to its cycles;
    ``bound``: the roofline max(macs / PEs, least_bytes / bus bytes * beat_cycles) in cycles.
    """

    name: str
    kind: str
    macs: int
    cycles: int
    bound: int
    least_bytes: int
    moved_bytes: int


@dataclass(frozen=True)
class MemoryUse:
    """Bytes of system memory, in the order in which they lie there: constants, tensors in one block, instructions.

    ``least_tensors``: what tensors would need at least, however they were placed.
    """

    constants: int
    tensors: int
    least_tensors: int
    program: int

    @property
    def total(self) -> int:
        """All of it."""
        return self.constants + self.tensors + self.program


@dataclass(frozen=True)
class Report:
    """Timing and memory of one inference, without tensor data.

    ``cycles``: of the accelerator, exact; ``first_cycles``: of a run that loads what stays in SRAM then, the same if
    nothing does; ``host_work``: what the host takes beside them, an estimate; `total` is both.
    ``bound``: roofline of the whole network in cycles: max(macs / PEs, bytes / bus bytes * beat_cycles), where
    ``least_bytes`` counts the network's accelerator inputs and outputs and every weight once. ``host``: nodes on the
    host and why. ``memory``: the bytes of system memory that the program uses. ``config``: the accelerator.
    """

    cycles: int
    first_cycles: int
    macs: int
    host_macs: int
    bound: int
    least_bytes: int
    moved_bytes: int
    layers: tuple[LayerReport, ...]
    counters: dict[Unit, Counters]
    timeline: tuple[Timeline, ...]
    host: dict[str, str]
    host_work: HostWork
    memory: MemoryUse
    config: Config

    def __repr__(self) -> str:
        return (
            f"<Report {self.cycles:,} cycles, about {self.host_work.cycles:,} of the host, {len(self.layers)} layers,"
            f" {self.utilisation:.1%} of {self.pe} multipliers>"
        )

    def _repr_html_(self) -> str:
        rows = [
            (n, each.name, each.kind, each.cycles, f"{each.cycles / self.cycles:.1%}", each.macs, each.moved_bytes)
            for n, each in enumerate(self.layers)
        ]
        host = self.host_work.cycles
        notes = (
            f"{self.utilisation:.1%} of {self.pe} multipliers busy; cycles / roofline {self.over_bound:.3f};"
            f" {self.memory.total:,} bytes of system memory",
            f"about {host:,} cycles of the host beside them, an estimate: {self.host_work.basis}" if host else "",
        )
        head = ("#", "layer", "kind", "cycles", "share", "MACs", "bytes moved")
        return html_table(f"{self.cycles:,} cycles of the accelerator", head, "rllrrrr", rows, "\n".join(notes))

    @property
    def pe(self) -> int:
        """Multipliers of the array."""
        return self.config.macs_per_cycle

    @cached_property
    def sram(self) -> SramUse:
        """The bytes of SRAM that the program uses."""
        return sram_use(self.config, self.timeline)

    @property
    def utilisation(self) -> float:
        """Share of the multipliers' cycles that did multiply-accumulates of the network."""
        return self.macs / (self.cycles * self.pe) if self.cycles else 0.0

    @property
    def over_bound(self) -> float:
        """Cycles over the roofline bound."""
        return self.cycles / self.bound if self.bound else 0.0

    def total(self, clock: float | None = None) -> int:
        """Cycles of the accelerator and, by the estimate, of the host, one after the other.

        ``clock``: of the accelerator in Hz; it matters only where host costs hold with a clock of their own.
        """
        return self.cycles + self.host_work.at(clock)

    def latency(self, clock: float) -> float:
        """Milliseconds of an inference at a clock in Hz; the host's part is an estimate."""
        return milliseconds(self.total(clock), clock)

    def fps(self, clock: float) -> float:
        """Inferences per second at a clock in Hz, one after the other."""
        return per_second(self.total(clock), clock)

    def by_kind(self) -> dict[str, int]:
        """Cycles per kind of layer."""
        total: dict[str, int] = {}
        for layer in self.layers:
            total[layer.kind] = total.get(layer.kind, 0) + layer.cycles
        return total
