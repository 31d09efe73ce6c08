"""What the area of an accelerator's blocks depends on: counts of bits and lanes, as the hardware is built (hw/).

A block's LUTs and flip-flops are sums of its terms, each with a coefficient that is fitted to synthesis results
(`benchmarks/area.py`). A term is a guess, by counting, of what its part of the block takes: its coefficient is near 1.
DSPs and block RAMs follow from the structure, without a fit.
"""

from __future__ import annotations

from collections.abc import Mapping

from dovetail.isa.common.sizes import ceil_div
from dovetail.isa.config.resolved import Config
from dovetail.isa.instructions.table import PAGE_BYTES
from dovetail.isa.timing.array import RADIX
from dovetail.isa.timing.vector import table_lanes

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
    records = ceil_div(config.acc_lanes, config.requant_lanes) * 2
    page = ceil_div(max(config.bus, 64), BRAM_BITS) * ceil_div(2 * PAGE_BYTES // (max(config.bus, 64) // 8), BRAM_ROWS)
    accumulators = ACCUMULATOR_PORTS * ceil_div(32 * config.acc_lanes, BRAM_BITS)
    tables = config.vector_lanes if config.activation and table_lanes(config) < DISTRIBUTED_TABLE else 0
    return {
        "control": page,
        "memory": config.banks * bank,
        "array": accumulators + (2 * config.requant_lanes if records > DISTRIBUTED_ROWS else 0),
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
    """SRAM, LOAD and STORE."""
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
    weights = config.macs_per_cycle * held
    matrix = 8 * config.word_bytes * config.matmul
    lut = {
        "one": 4000,
        "requantiser lanes": 1200 * config.requant_lanes,
        "accumulator bits": 4 * 32 * config.acc_lanes,
        "adder bits": adders,
        "depthwise bits": 5 * held * config.depthwise_lanes,
        "weight bits of a matrix": 1.5 * weights * config.matmul,
        "matrix": 10 * matrix,
    }
    ff = {
        "one": 3200,
        "requantiser lanes": 1300 * config.requant_lanes,
        "accumulator bits": 4 * 32 * config.acc_lanes,
        "weight and product bits": 2 * weights + config.macs_per_cycle * product + registers,
        "depthwise bits": 5 * held * config.depthwise_lanes,
        "matrix": 4 * matrix,
    }
    return lut, ff


def _tree(config: Config, bits: int) -> tuple[int, int]:
    """Bits of the adders and of the registers of the trees that sum products of so many bits."""
    adders, registers, rows = 0, 0, config.ic_lanes
    while rows > 1:
        fewer = ceil_div(rows, RADIX)
        bits += (RADIX - 1).bit_length()
        adders += (rows - fewer) * config.oc_lanes * bits
        registers += fewer * config.oc_lanes * bits
        rows = fewer
    return adders, registers


def _vector(config: Config) -> tuple[Terms, Terms]:
    """The vector unit."""
    lanes, operands = config.vector_lanes, int(config.elementwise)
    lut = {"one": 2700, "operands": 900 * operands, "lanes": 1100 * lanes, "operand lanes": 1800 * lanes * operands}
    ff = {"one": 1400, "operands": 300 * operands, "lanes": 1200 * lanes, "operand lanes": 500 * lanes * operands}
    return lut, ff
