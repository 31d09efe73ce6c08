"""Whether a design fits a part, before and after synthesis, and which parameters make it smaller."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from dovetail.flows.fpga.design.boards import RESOURCES, Part
from dovetail.flows.fpga.tools import BuildError
from dovetail.flows.options.parameters import changed
from dovetail.isa.common.sizes import format_bytes
from dovetail.isa.config.given import FEATURES, ConfigError
from dovetail.isa.config.resolved import Config
from dovetail.sw.analysis.cost.area import Area, area_of
from dovetail.sw.errors import DovetailError

DOUBT = 0.5
"""Share by which an estimate may be too high outside of what was measured; a guess."""
HINTS = 3
"""Changes that a message names per resource, at most."""
WORTH = 0.01
"""A change is named if it saves at least this share of what is used."""
HALVED = ("ic_lanes", "oc_lanes", "pixel_lanes", "requant_lanes", "vector_lanes", "sram", "banks", "bus", "stripe")


def excess(used: Mapping[str, int], part: Part) -> dict[str, int]:
    """The excess over the part's resources, where there is any."""
    return {name: used[name] - total for name, total in part.total.items() if used.get(name, 0) > total}


def check_estimate(configs: Sequence[Config], part: Part, memory: Mapping[str, int]) -> None:
    """Raise BuildError where the estimate of the area says that accelerators cannot fit.

    ``memory``: what the memory beside them takes, by resource. LUTs and flip-flops count only beyond the
    estimate's largest error, or `DOUBT` outside of what was measured. The estimate is for ECP5. An iCE40 and a Gowin
    part have LUTs of the same size and no better carry chains or multipliers: a design takes no fewer of them there,
    within that doubt.
    """
    areas = [area for config in configs if (area := _area(config))]
    if len(areas) < len(configs):
        return
    counted = tuple(RESOURCES) if part.family == "ecp5" else ("lut", "ff")
    of = "" if part.family == "ecp5" else " for an ECP5 with LUTs of the same size"
    shares = [_least(area, DOUBT if area.extrapolated or of else area.error) for area in areas]
    least = {name: sum(share[name] for share in shares) + memory.get(name, 0) for name in shares[0] if name in counted}
    if over := excess(least, part):
        told = {name: sum(getattr(area, name) for area in areas) + memory.get(name, 0) for name in over}
        raise BuildError(
            f"does not fit {part.name}, says the estimate{of}: {shortage(told, part)}; {advice(configs, over)}"
            " (--force synthesises it all the same)"
        )


def _area(config: Config) -> Area | None:
    """The estimate, if there is one of the kind of engine."""
    try:
        return area_of(config)
    except DovetailError:
        return None


def _least(area: Area, error: float) -> dict[str, int]:
    """What the accelerator takes if the estimate is too high by a share of ``error``."""
    return {
        "lut": int(area.lut / (1 + error)),
        "ff": int(area.ff / (1 + error)),
        "dsp": area.dsp,
        "bram": area.bram,
    }


def check_netlist(
    configs: Sequence[Config], part: Part, used: Mapping[str, int], what: str = "after synthesis"
) -> None:
    """Raise BuildError where a netlist has more than the part. ``what``: when it was counted."""
    if over := excess(used, part):
        raise BuildError(f"does not fit {part.name} {what}: {shortage(used, part, over)}; {advice(configs, over)}")


def shortage(used: Mapping[str, int], part: Part, over: Mapping[str, int] | None = None) -> str:
    """The resources that do not suffice, with numbers."""
    return ", ".join(
        f"{RESOURCES[name]} {used[name]:,} of {part.total[name]:,} ({used[name] - part.total[name]:,} too many)"
        for name in (used if over is None else over)
    )


def advice(configs: Sequence[Config], over: Mapping[str, int]) -> str:
    """Changes that save some resources."""
    if len(configs) > 1:
        return "take smaller accelerators, or fewer"
    (config,) = configs
    told = []
    for name in over:
        if name in ("lut", "ff", "dsp", "bram"):
            found = sorted(savings(config, name), key=lambda saving: -saving[1])[:HINTS]
            if found:
                told.append(f"{RESOURCES[name]}: " + ", ".join(f"{text} saves about {n:,}" for text, n in found))
    return f"to change, estimated for ECP5: {'; '.join(told)}" if told else "take a smaller configuration"


def savings(config: Config, resource: str) -> Iterator[tuple[str, int]]:
    """(change, how much of the resource it saves by the estimate) of the single changes worth naming."""
    area = _area(config)
    if area is None:
        return
    now = getattr(area, resource)
    for name, value in _changes(config):
        try:
            saved = now - getattr(area_of(changed(config, {name: value})), resource)
        except ConfigError:
            continue
        if saved >= max(1, WORTH * now):
            yield _change(config, name, value), saved


def _changes(config: Config) -> Iterator[tuple[str, Any]]:
    for name in HALVED:
        value = getattr(config, name)
        if value and value > 1:
            yield name, value // 2
    if config.depth_conv:
        yield "depthwise", "none"
    yield from ((name, False) for name in FEATURES if getattr(config, name))


def _change(config: Config, name: str, value: Any) -> str:
    if name == "sram":
        return f"sram {format_bytes(config.sram)} to {format_bytes(value)}"
    before = getattr(config, name)
    return f"{name} {str(before).lower()} to {str(value).lower()}"
