"""Choices of a compilation that are not part of the hardware."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from dovetail.sw.compiler.host_cost import HostCost
from dovetail.sw.errors import CompileError

TILINGS = ("free", "channels")


@dataclass(frozen=True)
class Options:
    """``tiling``: ``"free"`` cuts rows and channels as is cheapest; ``"channels"`` cuts output channels only, as the
    reference study did. ``keep_tensors``: no system memory is used twice, so every tensor can be read after a run.
    ``host``: what the host costs, by which small islands between host nodes are left to it."""

    tiling: str = "free"
    keep_tensors: bool = False
    host: HostCost = field(default_factory=HostCost)

    def __post_init__(self) -> None:
        if self.tiling not in TILINGS:
            raise CompileError(f"tiling must be one of {', '.join(TILINGS)}, not {self.tiling!r}")

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Options:
        """The options that `dataclasses.asdict` wrote."""
        return cls(**{**data, "host": HostCost(**data["host"])})
