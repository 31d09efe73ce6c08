"""Options of a compilation that are not part of the hardware."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from dovetail.sw.compiler.partition.host_cost import HostCost, default_host
from dovetail.sw.errors import CompileError

TILINGS = ("free", "channels")
EFFORTS = (0, 1, 2, 3)
MODES = ("latency", "throughput")
"""What a plan for a system makes fast: one inference, or many."""


@dataclass(frozen=True)
class Options:
    """``tiling``: ``"free"`` cuts rows and channels as is cheapest; ``"channels"`` cuts output channels only, as the
    reference study did, and keeps no tensor in SRAM. ``keep_tensors``: every tensor can be read after a run: none
    stays in SRAM, and no system memory is used twice. ``host``: what the host costs, by which small islands between
    host nodes are left to it. ``effort``, 0..3: how hard layers' schedules are searched for; 0 estimates, 1 prices the
    best few estimates exactly, 2 more, 3 all that could be better; ``"channels"`` is always tiled by estimates.
    ``exact``: float operators between integers stay on the host, with the reference runtime's bytes, where their
    integer forms may be one step off. ``keep_weights``: those that there is room for stay in SRAM from run to run, for
    an accelerator that runs no other program; cycles are those of a run that finds them. ``smaller``: plans for less
    SRAM are tried as well, so that more of it never costs cycles."""

    tiling: str = "free"
    keep_tensors: bool = False
    host: HostCost = field(default_factory=default_host)
    effort: int = 1
    exact: bool = False
    keep_weights: bool = False
    smaller: bool = True

    def __post_init__(self) -> None:
        if self.tiling not in TILINGS:
            raise CompileError(f"tiling must be one of {', '.join(TILINGS)}, not {self.tiling!r}")
        for name in ("keep_tensors", "exact", "keep_weights", "smaller"):
            if not isinstance(getattr(self, name), bool):
                raise CompileError(f"{name} must be true or false, not {getattr(self, name)!r}")
        if self.effort not in EFFORTS:
            raise CompileError(f"effort must be 0..{EFFORTS[-1]}, not {self.effort!r}")

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Options:
        """The options that `dataclasses.asdict` wrote."""
        return cls(**{**data, "host": HostCost.from_dict(data["host"])})
