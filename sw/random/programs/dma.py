"""Random registers of LOAD and STORE."""

import random

from dovetail.isa.config.resolved import Config
from dovetail.isa.instructions.table import (
    Unit,
    pack,
)
from dovetail.sw.random.programs.walks import DATA_BYTES, MASK, Registers


def dma_registers(rng: random.Random, config: Config, unit: Unit) -> Registers:
    """A strided transfer inside the data area."""
    while True:
        length = rng.choice((rng.randint(1, 40), rng.randint(1, 300), rng.randint(1, 5000)))
        rows = rng.choice((1, 1, 2, rng.randint(1, 8)))
        planes = rng.choice((1, 1, 1, 2, 3))
        if rows * planes * length > 12000:
            continue
        row_step = length + rng.choice((0, 0, 1, rng.randint(0, 64)))
        plane_step = rows * row_step + rng.choice((0, rng.randint(0, 100)))
        sram_row = length + rng.choice((0, 0, 3, rng.randint(0, 64)))
        sram_plane = rows * sram_row + rng.choice((0, rng.randint(0, 50)))
        size = (planes - 1) * sram_plane + (rows - 1) * sram_row + length
        span = (planes - 1) * plane_step + (rows - 1) * row_step + length
        if size > config.sram // 2 or span > DATA_BYTES // 2:
            continue
        start = rng.randrange(DATA_BYTES - span)
        if rng.random() < 0.3:
            start &= ~63
        if rng.random() < 0.15:  # rows from the last to the first
            start += (rows - 1) * row_step
            row_step = -row_step & MASK
        if rng.random() < 0.1:
            size = max(1, size - rng.randint(1, length))  # parts of it are dropped
        if rng.random() < 0.05:
            sram_row = rng.getrandbits(32)
        address = rng.randrange(config.sram - size)
        if rng.random() < 0.3:
            address &= ~63
        return {
            "MEM_ADDR": start,
            "MEM_ROW_STEP": row_step,
            "MEM_PLANE_STEP": plane_step,
            "SRAM_ADDR": address,
            "SRAM_BYTES": size,
            "SRAM_ROW_STEP": sram_row,
            "SRAM_PLANE_STEP": sram_plane,
            "LENGTH": length,
            "COUNT": pack(unit, "COUNT", rows=rows, planes=planes),
        }


def contiguous(unit: Unit, memory: int, address: int, size: int) -> Registers:
    """A transfer of ``size`` bytes between ``memory`` and SRAM ``address``."""
    steps = dict.fromkeys(("MEM_ROW_STEP", "MEM_PLANE_STEP", "SRAM_ROW_STEP", "SRAM_PLANE_STEP"), 0)
    return steps | {
        "MEM_ADDR": memory,
        "SRAM_ADDR": address,
        "SRAM_BYTES": size,
        "LENGTH": size,
        "COUNT": pack(unit, "COUNT", rows=1, planes=1),
    }
