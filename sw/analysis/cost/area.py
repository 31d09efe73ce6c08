"""The area of an accelerator on an ECP5: a model fitted to synthesis results (see docs/area.md).

Its terms are numbers of bits and lanes that follow from the configuration; what a term costs is fitted.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from functools import cache
from pathlib import Path
from typing import Any

from dovetail.isa.common.sizes import ceil_div
from dovetail.isa.config.resolved import LUT_ROWS, ROW_STEPS, Config
from dovetail.isa.instructions.checks import MAX_SLIDE
from dovetail.isa.instructions.table import PAGE_BYTES, TABLE_BYTES
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
DISTRIBUTED_ROWS = 32
"""Rows of the largest look-up table that becomes distributed RAM."""
DEEPEST_ROWS = 16 << 10
"""Rows of a block RAM of one bit."""
ACCUMULATOR_PORTS = 2
SCALER_DSPS = 3
"""Of a product of two 32-bit numbers, by three smaller ones."""
OPERAND_DSPS, NORM_DSPS = 4, 2
"""Of the products of an element-wise operation's two operands; of NORM's, where there are none of these."""
SOFTMAX_DSPS = 4
"""Of each row of SOFTMAX at once, for its multiplier of 32 bits."""


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


def area_of_all(configs: Sequence[Config]) -> Area:
    """The estimated area of several accelerators together, without what joins them. Raises as :func:`area_of`."""
    areas = [area_of(config) for config in configs]
    return Area(
        **asdict(total(areas)),
        error=max(area.error for area in areas),
        blocks={name: total(area.blocks[name] for area in areas if name in area.blocks) for name in areas[0].blocks},
        extrapolated=tuple(dict.fromkeys(line for area in areas for line in area.extrapolated)),
    )


def measured_quantities(config: Config) -> Mapping[str, Mapping[str, int]]:
    """Per block that the accelerator has, the quantities by which it is inside or outside the measured range."""
    words = _slots(config) * config.depthwise_sets * config.oc_lanes
    made = {
        "memory": {
            "bus": config.bus,
            "banks": config.banks,
            "bytes of an SRAM word": config.word_bytes,
            "banks * bytes of an SRAM word": config.banks * config.word_bytes,
            "words of a bank": config.bank_bytes // config.word_bytes,
        },
        "array": {
            "ic_lanes": config.ic_lanes,
            "oc_lanes": config.oc_lanes,
            "pixel_lanes": config.pixel_lanes,
            "multipliers": config.macs_per_cycle,
            "requant_lanes": config.requant_lanes,
            "accumulators": config.acc_lanes,
            "bytes of depthwise words": words * config.depth_conv,
            "kernel_rows": config.kernel_rows,
        },
    }
    made["control"] = {"parameters": config.parameters}
    if config.vector:
        names = "vector_lanes", "softmax", "norm", "norm_bits"
        made["vector"] = {name: getattr(config, name) for name in names}
    return made


def _outside(config: Config, ranges: Mapping[str, Mapping[str, list[int]]]) -> Iterator[str]:
    for block, quantities in measured_quantities(config).items():
        for name, value in quantities.items():
            low, high = ranges[block][name]
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
    """Per block, its 18 x 18 multipliers, exact for lanes that are powers of two. One more of the array counts a tile's
    pixels."""
    operands = OPERAND_DSPS if config.elementwise else NORM_DSPS * (config.norm > 0)
    vector = config.vector_lanes * (SCALER_DSPS + operands) + SOFTMAX_DSPS * config.softmax
    return {
        "array": config.macs_per_cycle + SCALER_DSPS * config.requant_lanes + 1,
        "vector": vector * config.vector,
    }


def brams(config: Config) -> Mapping[str, int]:
    """Per block, its block RAMs: page buffers; banks; accumulators, records; look-up tables."""
    rows = config.bank_bytes // config.word_bytes // 2
    # Of a block RAM's 36 bits 32 count, as a byte is written by itself, and half as many for twice the words.
    bank = 2 * ceil_div(config.word_bytes, 4) * ceil_div(rows, BRAM_ROWS)
    page = ceil_div(max(config.bus, 64), BRAM_BITS) * ceil_div(2 * PAGE_BYTES // (max(config.bus, 64) // 8), BRAM_ROWS)
    accumulators = ACCUMULATOR_PORTS * ceil_div(32 * config.acc_lanes, BRAM_BITS)
    table = TABLE_BYTES // table_lanes(config) > DISTRIBUTED_ROWS
    tables = config.vector_lanes if config.activation and table else 0
    # Of a row of SOFTMAX: a table with two reads at once, and the distances of 4,096 elements.
    tables += config.softmax * (2 * ceil_div(config.vector_lanes, 4) + 2)
    lines = ceil_div((config.kernel_rows - 1) * 8 * config.depthwise_sets * config.oc_lanes, BRAM_BITS)
    lines *= ceil_div(ROW_STEPS * config.line_words, BRAM_ROWS)
    kept = 2 * config.requant_lanes if config.stripe_buffers * config.record_groups > LUT_ROWS else 0
    return {
        "control": page,
        "memory": config.banks * bank,
        "array": accumulators + kept + lines,
        "vector": tables,
    }


def _control(config: Config) -> tuple[Terms, Terms]:
    """Host registers, counters, front end, queues, unit controls, scoreboard."""
    units = 3 + config.vector
    claims = units * config.banks  # of banks, held by each unit and compared with those of all others
    offset = 32 * (config.parameters > 0)  # bits that are added to a word's value
    lut = {
        "one": 3200,
        "vector unit": 700 * config.vector,
        "bus": 2 * config.bus,
        "claims of banks": 5 * claims * (units - 1),
        "parameters": 2 * offset + 32 * config.parameters,
    }
    ff = {
        "one": 1500,
        "vector unit": 170 * config.vector,
        "bus": 2 * config.bus,
        "claims of banks": 2 * claims,
        "parameters": offset + 32 * config.parameters,
    }
    return lut, ff


def _memory(config: Config) -> tuple[Terms, Terms]:
    """LOAD and STORE; the SRAM's banks, and what brings bytes of any alignment to its readers and from its writers."""
    word, banks, bits = config.word_bytes, config.banks, 8 * config.word_bytes
    vector = _power(config.vector_lanes * (4 if config.elementwise else 1))
    # Bytes of each reader and writer; the array's weights are whole words but for a matrix.
    readers = [word, word, config.bus_bytes] + [vector] * config.vector
    turned = [word] * (1 + config.matmul) + readers[2:]
    writers = [config.bus_bytes, _power(4 * config.requant_lanes)] + [vector] * config.vector
    rows = 2 * (config.bank_bytes // word // 2 - 1).bit_length()  # bits of a row in each half
    where = rows + (word - 1).bit_length() + 1
    lut = {
        "one": 2000,
        "bus": 5 * config.bus,
        "bits of banks": bits * banks,
        "bits read": sum(bits * banks - 8 * few for few in readers) / 3,
        "bytes chosen": word * banks * len(readers),
        "bits turned": sum(8 * few * (few - 1).bit_length() for few in turned + writers),
        "bits written": (8 * max(writers) + 2 * word + where) * banks,
        "deep banks": 2 * bits * banks * (_pieces(config) - 1) * 2 / 3,
    }
    ff = {
        "one": 1500,
        "bus": 4 * config.bus,
        "bits of banks": bits * banks * (1 + len(readers)),
        "bits read": 8 * sum(readers),
        "addresses": banks * (word + len(readers) * where + len(writers) * (2 * word + rows)),
        "bits written": 8 * sum(writers) * banks,
    }
    return lut, ff


def _power(number: int) -> int:
    """The power of two that is no less."""
    return 1 << (number - 1).bit_length()


def _pieces(config: Config) -> int:
    """Block RAMs that a bit of half a bank is spread over: a block RAM has that many rows of one bit."""
    return ceil_div(config.bank_bytes // config.word_bytes // 2, DEEPEST_ROWS)


def _array(config: Config) -> tuple[Terms, Terms]:
    """Sequencer, reads, weights, multipliers, adder trees, accumulators, requantiser."""
    held = 9 if config.matmul else 8  # bits of an operand
    product = 17 if config.matmul else 16
    adders, registers = _tree(config, product)
    weights = config.weight_bytes * held
    sums = 32 * config.acc_lanes
    group = 8 * config.weight_sets * config.ic_lanes  # bits of a pixel that are kept for its turn
    lanes, further = config.pixel_lanes, config.pixel_lanes - 1
    slots, channels = _slots(config), 8 * config.oc_lanes * config.depth_conv
    seen, words = _rows_seen(config)
    operands = held * (config.macs_per_cycle if config.depth_conv else lanes * config.ic_lanes)
    matrix = 8 * config.word_bytes * config.matmul
    lut = {
        "one": 1400,
        "offset bits": 80 * config.offset_bits,
        "depthwise": 400 * config.depth_conv,
        "pixel lanes": 2 * sums * (further > 0),
        "requantiser lanes": 1050 * config.requant_lanes,
        "accumulator bits": 3 * sums,
        "picked accumulators": max(0, sums - 32 * config.requant_lanes) * 2 / 3,
        "adder bits": adders,
        "input bits": 8 * config.word_bytes + held * lanes * config.ic_lanes * (1 + config.matmul),
        "blocks of a group": lanes * 8 * config.ic_lanes * (config.weight_sets - 1) * 2 / 3,
        "weight sets": weights * _set_rows(config),
        "depthwise operands": 2 * held * config.macs_per_cycle * config.depth_conv,
        "depthwise words": channels * (4 + slots * (config.depthwise_sets - 1) * 2 / 3),
        "kernel rows": 100 * (config.kernel_rows > 1) + seen,
        "matrix": 200 * config.matmul + 3 * matrix,
        "weight bits of a matrix": 1.5 * weights * config.matmul,
    }
    ff = {
        "one": 1500,
        "offset bits": 60 * config.offset_bits,
        "depthwise": 300 * config.depth_conv,
        "requantiser lanes": 1000 * config.requant_lanes,
        "accumulator bits": 4 * sums,
        "weight bits": 2 * weights,
        "products": config.macs_per_cycle * product + registers,
        "operands": operands,
        "input bits": 8 * config.word_bytes + held * lanes * config.ic_lanes,
        "pixels of a group": group * (further + lanes) * (further > 0),
        "depthwise words": channels * slots * (2 * config.depthwise_sets + 1),
        "kernel rows": 30 * (config.kernel_rows > 1) + words,
        "matrix": 150 * config.matmul + 2 * matrix,
    }
    return lut, ff


def _rows_seen(config: Config) -> tuple[int, int]:
    """Bits that are chosen from lines before a step's own, and of the registers with these lines' words."""
    chosen = words = 0
    for row in range(1, config.kernel_rows):
        fits = config.row_kernels(row + 1)
        chosen += sum(fits) * 8 * config.acc_lanes
        words += 2 * max(fits) * 8 * config.depthwise_sets * config.oc_lanes
    return chosen, words


def _slots(config: Config) -> int:
    """Words that a group of pixels of DEPTH_CONV needs at most."""
    return (config.pixel_lanes - 1) * MAX_SLIDE + config.ic_lanes


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


def _set_rows(config: Config) -> int:
    """Sixteens of rows of the memory of weights, distributed RAM: twice as many as there are sets, as some load while
    others are in use."""
    sets = config.weight_sets
    return 0 if sets == 1 else ceil_div(2 << (sets - 1).bit_length(), 16)


def _vector(config: Config) -> tuple[Terms, Terms]:
    lanes, operands = config.vector_lanes, int(config.elementwise)
    norm = config.norm > 0
    passes = norm or config.softmax > 0  # over rows
    lut = {
        "one": 1900,
        "operands": 300 * operands,
        "lanes": 750 * lanes,
        "operand lanes": 2200 * lanes * operands,
        "passes": 700 * passes,
        "rows of softmax": 2400 * config.softmax,
        "rows of norm": 900 * config.norm,
        "norm lanes": lanes * norm * (100 if operands else 400),
        "rows of norm of 16 bits": 400 * config.norm * config.norm16,
        "norm lanes of 16 bits": 700 * lanes * config.norm16,
    }
    ff = {
        "one": 1600,
        "operands": 400 * operands,
        "lanes": 1000 * lanes,
        "operand lanes": 800 * lanes * operands,
        "passes": 300 * passes,
        "rows of softmax": 1300 * config.softmax,
        "rows of norm": 600 * config.norm,
        "norm lanes": lanes * norm * (100 if operands else 300),
        "rows of norm of 16 bits": 200 * config.norm * config.norm16,
        "norm lanes of 16 bits": 300 * lanes * config.norm16,
    }
    return lut, ff
