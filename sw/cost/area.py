"""What an accelerator takes of an ECP5: a model fitted to synthesis results (see docs/area.md)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from dovetail.isa.config import Config


@dataclass(frozen=True)
class Resources:
    """Resources of an ECP5. ``lut``: 4-input LUTs, those of carry chains and distributed RAM included; ``ff``:
    flip-flops; ``dsp``: 18 x 18 multipliers; ``bram``: block RAMs of 16 Kibit."""

    lut: int
    ff: int
    dsp: int
    bram: int


@dataclass(frozen=True)
class Area(Resources):
    """The estimate for a whole accelerator.

    ``error``: the largest relative error of ``lut`` and ``ff`` on configurations that the fit has not seen; ``dsp`` and
    ``bram`` are exact there. ``blocks``: by name, adding up to the whole. ``extrapolated``: one line per parameter that
    lies outside of what was measured; then the error is not known.
    """

    error: float
    blocks: Mapping[str, Resources]
    extrapolated: tuple[str, ...] = ()


def area_of(config: Config) -> Area:
    """The estimated area of an accelerator; the memory timing does not matter."""
    raise NotImplementedError(config)
