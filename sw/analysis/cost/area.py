"""The area of an accelerator on an ECP5: a model fitted to synthesis results (see docs/area.md)."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass, fields
from functools import cache
from pathlib import Path
from typing import Any

from dovetail.isa.common.sizes import ceil_div
from dovetail.isa.config.resolved import Config
from dovetail.sw.analysis.cost.area_terms import blocks, brams, dsps
from dovetail.sw.errors import DovetailError

MODEL = Path(__file__).parent / "tables" / "ecp5.json"
"""The fitted coefficients, the measurements that they were fitted to, and their errors; `benchmarks/area.py` writes
it."""


@dataclass(frozen=True)
class Resources:
    """Resources of an ECP5. ``lut``: 4-input LUTs, those of carry chains and distributed RAM included; ``ff``:
    flip-flops; ``dsp``: 18 x 18 multipliers; ``bram``: block RAMs of 16 Kibit."""

    lut: int
    ff: int
    dsp: int
    bram: int


PARTS = {
    "ECP5-25F": Resources(24_288, 24_288, 28, 56),
    "ECP5-45F": Resources(43_848, 43_848, 72, 108),
    "ECP5-85F": Resources(83_640, 83_640, 156, 208),
}
"""What the parts of the family have, the smallest first."""


@dataclass(frozen=True)
class Area(Resources):
    """The estimate for a whole accelerator.

    ``error``: the largest relative error of ``lut`` and ``ff`` in all configurations that were synthesised, of fits
    that have not seen them too; ``dsp`` and ``bram`` are exact there. ``blocks``: by name, adding up to the whole.
    ``extrapolated``: one line per quantity that lies outside of what was measured; then the error is not known.
    """

    error: float
    blocks: Mapping[str, Resources]
    extrapolated: tuple[str, ...] = ()


def beyond(area: Resources, part: Resources) -> list[str]:
    """The resources of which a part has too few, by name."""
    return [field.name for field in fields(Resources) if getattr(area, field.name) > getattr(part, field.name)]


def smallest_part(area: Resources) -> str:
    """The smallest part of the family that has as much, or nothing."""
    return next((name for name, part in PARTS.items() if not beyond(area, part)), "")


def total(parts: Iterable[Resources]) -> Resources:
    """All parts together."""
    found = list(parts)
    return Resources(*(sum(getattr(part, field.name) for part in found) for field in fields(Resources)))


def area_of(config: Config) -> Area:
    """The estimated area of an accelerator; the memory timing does not matter.

    Raises `DovetailError` for the microcoded accelerator: the estimate is of the other one.
    """
    if config.serial:
        raise DovetailError("area is estimated for serial = false; what serial = true takes is in `dovetail docs up5k`")
    model = _model()
    multipliers, memories = dsps(config), brams(config)
    parts = {}
    for name, terms in blocks(config).items():
        lut, ff = (
            round(sum(model["coefficients"][name][resource][term] * size for term, size in of.items()))
            for resource, of in zip(("lut", "ff"), terms, strict=True)
        )
        parts[name] = Resources(lut, ff, multipliers.get(name, 0), memories.get(name, 0))
    return Area(
        **asdict(total(parts.values())),
        error=max(model["error"].values()),
        blocks=parts,
        extrapolated=tuple(_outside(config, model["ranges"])),
    )


def measured_quantities(config: Config) -> dict[str, int]:
    """The quantities by which a configuration is inside or outside the measured range."""
    return {
        "ic_lanes": config.ic_lanes,
        "oc_lanes": config.oc_lanes,
        "ic_lanes * oc_lanes": config.macs_per_cycle,
        "depthwise_lanes": config.depthwise_lanes,
        "requant_lanes": config.requant_lanes,
        "accumulators per requantiser lane": ceil_div(config.acc_lanes, config.requant_lanes),
        "vector_lanes": config.vector_lanes if config.vector else 1,
        "bus": config.bus,
        "banks": config.banks,
        "bytes of an SRAM word": config.word_bytes,
        "banks * bytes of an SRAM word": config.banks * config.word_bytes,
        "words of a bank": config.bank_bytes // config.word_bytes,
    }


def _outside(config: Config, ranges: Mapping[str, list[int]]) -> Iterator[str]:
    for name, value in measured_quantities(config).items():
        low, high = ranges[name]
        if not low <= value <= high:
            yield f"{name} {value}: measured were {low}..{high}"


@cache
def _model() -> Any:
    return json.loads(MODEL.read_text(encoding="utf-8"))


def forget() -> None:
    """Read the model again, as it has changed."""
    _model.cache_clear()
