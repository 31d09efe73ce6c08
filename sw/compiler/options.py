"""Choices of a compilation that are not part of the hardware."""

from dataclasses import dataclass

from dovetail.sw.errors import CompileError

TILINGS = ("free", "channels")


@dataclass(frozen=True)
class Options:
    """``tiling``: ``"free"`` cuts rows and channels as is cheapest; ``"channels"`` cuts output channels only, as the
    reference study did. ``keep_tensors``: no system memory is used twice, so every tensor can be read after a run."""

    tiling: str = "free"
    keep_tensors: bool = False

    def __post_init__(self) -> None:
        if self.tiling not in TILINGS:
            raise CompileError(f"tiling must be one of {', '.join(TILINGS)}, not {self.tiling!r}")
