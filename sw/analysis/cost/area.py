"""The area of an accelerator on an ECP5: a model fitted to synthesis results (see docs/area.md).

Its terms are numbers of bits and lanes that follow from the configuration; what a term costs is fitted.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass, fields
from functools import cache
from pathlib import Path
from typing import Any

from dovetail.isa.common.sizes import ceil_div
from dovetail.isa.config.resolved import Config
from dovetail.isa.instructions.table import PAGE_BYTES
from dovetail.isa.timing.array import RADIX
from dovetail.isa.timing.vector import table_lanes
from dovetail.sw.errors import DovetailError

MODEL = Path(__file__).parent / "tables" / "ecp5.json"
"""The fitted coefficients, the measurements that they were fitted to, and their errors; `benchmarks/area.py` writes
it."""
Terms = Mapping[str, float]

BRAM_BITS = 36
"""Width of a block RAM of up to 512 words; a quarter of a byte enable's 9 bits each."""
BRAM_ROWS = 512
DISTRIBUTED_ROWS = 48
"""Words of the largest memory of requantisation records that becomes distributed RAM."""
DISTRIBUTED_TABLE = 8
"""Bytes of the narrowest row with which a lane's look-up table becomes distributed RAM."""
ACCUMULATOR_PORTS = 2
REQUANTISER_DSPS = 4
"""Of a product of two 32-bit numbers."""


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
    that have not seen them too, and, where the hardware has changed since the fit, of those that were synthesised
    again; ``dsp`` and ``bram`` are exact there. ``blocks``: by name, adding up to the whole.
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
        error=max(*model["error"].values(), *model.get("changed", {}).values()),
        blocks=parts,
        extrapolated=tuple(_outside(config, model["ranges"])),
    )


def measured_quantities(config: Config) -> dict[str, int]:
    """The quantities by which a configuration is inside or outside the measured range."""
    return {
        "ic_lanes": config.ic_lanes,
        "oc_lanes": config.oc_lanes,
        "ic_lanes * oc_lanes": config.weight_bytes,
        "multipliers of depthwise taps": config.macs_per_cycle * config.depth_conv,
        "requant_lanes": config.requant_lanes,
        "pixel_lanes": config.pixel_lanes,
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
    for name in config.extensions:
        yield f"extension {name}: its stages are not counted; --measure counts them, in the vector unit"


@cache
def _model() -> Any:
    return json.loads(MODEL.read_text(encoding="utf-8"))


def forget() -> None:
    """Read the model again, as it has changed."""
    _model.cache_clear()


def blocks(config: Config) -> Mapping[str, tuple[Terms, Terms]]:
    """Per block that the accelerator has, the terms of its LUTs and of its flip-flops."""
    made = {"control": _control(config), "memory": _memory(config), "array": _array(config)}
    return made | ({"vector": _vector(config)} if config.vector else {})


def dsps(config: Config) -> Mapping[str, int]:
    """Per block, its 18 x 18 multipliers; the array's one more counts a tile's pixels."""
    vector = config.vector_lanes * REQUANTISER_DSPS * (2 if config.elementwise else 1)
    return {
        "array": config.macs_per_cycle + REQUANTISER_DSPS * config.requant_lanes + 1,
        "vector": vector * config.vector,
    }


def brams(config: Config) -> Mapping[str, int]:
    """Per block, its block RAMs: page buffers; banks; accumulators, records; look-up tables."""
    rows = config.bank_bytes // config.word_bytes // 2
    # Of a block RAM's 36 bits 32 count, as a byte is written by itself, and half as many for twice the words.
    bank = 2 * ceil_div(config.word_bytes, 4) * ceil_div(rows, BRAM_ROWS)
    rows, records = config.depthwise_visits(config.depthwise_sets), ceil_div(config.oc_lanes, config.requant_lanes)
    if config.depth_conv:
        records = max(records * config.depthwise_sets, ceil_div(config.acc_lanes, config.requant_lanes) * rows)
    page = ceil_div(max(config.bus, 64), BRAM_BITS) * ceil_div(2 * PAGE_BYTES // (max(config.bus, 64) // 8), BRAM_ROWS)
    accumulators = ACCUMULATOR_PORTS * ceil_div(32 * config.acc_lanes, BRAM_BITS)
    tables = config.vector_lanes if config.activation and table_lanes(config) < DISTRIBUTED_TABLE else 0
    return {
        "control": page,
        "memory": config.banks * bank,
        "array": accumulators + (2 * config.requant_lanes if 2 * records > DISTRIBUTED_ROWS else 0),
        "vector": tables,
    }


def _control(config: Config) -> tuple[Terms, Terms]:
    """Host registers, counters, front end, queues, unit controls, scoreboard."""
    units = 3 + config.vector
    claims = units * config.banks  # of banks, held by each unit and compared with those of all others
    lut = {
        "one": 3600,
        "vector unit": 950 * config.vector,
        "bus": config.bus,
        "claims of banks": 5 * claims * (units - 1),
    }
    ff = {"one": 1100, "vector unit": 170 * config.vector, "bus": 3 * config.bus, "claims of banks": 3 * claims}
    return lut, ff


def _memory(config: Config) -> tuple[Terms, Terms]:
    word = config.word_bytes
    vector = config.vector * config.vector_lanes * (4 if config.elementwise else 1)
    read = 8 * (2 * word + vector + config.bus_bytes)  # ARRAY's two ports read whole words
    writers = 2 + config.vector
    written = (
        1 << (max(config.bus_bytes, 4 * config.requant_lanes, vector) - 1).bit_length()
    )  # bytes, by the widest of them
    rows = 2 * config.banks  # an even and an odd one per bank
    lut = {
        "one": 1500,
        "bits read x banks": read * config.banks,
        "bytes of rows x writers": word * rows * writers,
        "bits of the bus, rotated": 3 * config.bus * (config.bus_bytes - 1).bit_length(),
    }
    ff = {
        "one": 2000,
        "bits of rows": 8 * word * rows,
        "bits written x banks": 8 * written * config.banks,
        "bytes of rows": word * rows,
        "bits read": 2 * read,
        "bus": 3 * config.bus,
    }
    return lut, ff


def _array(config: Config) -> tuple[Terms, Terms]:
    """Sequencer, reads, weights, multipliers, adder trees, accumulators, requantiser."""
    held = 9 if config.matmul else 8  # bits of an operand
    product = 17 if config.matmul else 16
    adders, registers = _tree(config, product)
    weights = config.weight_bytes * held
    matrix = 8 * config.word_bytes * config.matmul
    lut = {
        "one": 4000,
        "requantiser lanes": 1200 * config.requant_lanes,
        "accumulator bits": 4 * 32 * config.acc_lanes,
        "adder bits": adders,
        "pixel lanes": _gathered(config, held),
        "weight sets": weights * _set_rows(config),
        "depthwise bits": 5 * held * config.macs_per_cycle * config.depth_conv,
        "weight bits of a matrix": 1.5 * weights * config.matmul,
        "matrix": 10 * matrix,
    }
    ff = {
        "one": 3200,
        "requantiser lanes": 1300 * config.requant_lanes,
        "accumulator bits": 4 * 32 * config.acc_lanes,
        "weight and product bits": 2 * weights + config.macs_per_cycle * product + registers,
        "pixel lanes": _gathers(config, held),
        "depthwise bits": 5 * held * config.macs_per_cycle * config.depth_conv,
        "matrix": 4 * matrix,
    }
    return lut, ff


def _tree(config: Config, bits: int) -> tuple[int, int]:
    """Bits of the adders and of the registers of the trees that sum products of so many bits."""
    adders, registers, rows = 0, 0, config.ic_lanes
    while rows > 1:
        fewer = ceil_div(rows, RADIX)
        bits += (RADIX - 1).bit_length()
        adders += (rows - fewer) * config.oc_lanes * config.pixel_lanes * bits
        registers += fewer * config.oc_lanes * config.pixel_lanes * bits
        rows = fewer
    return adders, registers


def _gathered(config: Config, held: int) -> float:
    """LUTs where the bytes of a group of pixels come together: multiplexers of its input blocks, two LUTs for a choice
    of four; a matrix product's subtractors."""
    if config.pixel_lanes == 1:
        return 0
    lanes = config.pixel_lanes * config.ic_lanes
    return 8 * lanes * (config.weight_sets - 1) * 2 / 3 + held * lanes * config.matmul


def _gathers(config: Config, held: int) -> int:
    """Registers there: a group of pixels, all but one pixel of the next; two of an operand per further lane."""
    further = config.pixel_lanes - 1
    block = config.weight_sets * config.ic_lanes
    return (8 * block * (further + config.pixel_lanes) if further else 0) + 2 * held * config.ic_lanes * further


def _set_rows(config: Config) -> int:
    """Sixteens of rows of the memory of weights, distributed RAM: twice as many as there are sets, as some load while
    others are in use."""
    sets = config.weight_sets
    return 0 if sets == 1 else ceil_div(2 << (sets - 1).bit_length(), 16)


def _vector(config: Config) -> tuple[Terms, Terms]:
    lanes, operands = config.vector_lanes, int(config.elementwise)
    lut = {"one": 2700, "operands": 900 * operands, "lanes": 1100 * lanes, "operand lanes": 1800 * lanes * operands}
    ff = {"one": 1400, "operands": 300 * operands, "lanes": 1200 * lanes, "operand lanes": 500 * lanes * operands}
    return lut, ff
