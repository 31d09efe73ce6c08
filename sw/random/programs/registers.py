"""Random registers of any operation: those that pass its checks."""

import random

from dovetail.isa.config.resolved import Config
from dovetail.isa.instructions.checks import (
    View,
    check,
    claim,
    has,
)
from dovetail.isa.instructions.table import (
    DMA_OPS,
    INSTRUCTIONS,
    REGISTERS,
    Op,
    Unit,
)
from dovetail.sw.random.programs.array import array_registers
from dovetail.sw.random.programs.dma import dma_registers
from dovetail.sw.random.programs.vector import vector_registers
from dovetail.sw.random.programs.walks import Registers, sequence


def operations(config: Config) -> list[Op]:
    """The operations that a configuration has."""
    return [op for op, row in INSTRUCTIONS.items() if row.unit is not None and has(config, op)]


_FIXED = {"TILE", "BLOCKS", "KC", "STRIPE", "LENGTH", "COUNT"}
"""Registers that decide how long an operation takes; so do the taps."""

_MAX_TAPS = 16


def strange_registers(rng: random.Random, config: Config, op: Op, values: Registers) -> Registers:
    """Other registers of an ARRAY or VECTOR operation that pass its checks, a few of them as nobody would choose."""
    unit = INSTRUCTIONS[op].unit
    assert unit is not None
    while True:
        changed = values.copy()
        for name in rng.sample(sorted(values.keys() - _FIXED), rng.randint(1, 6)):
            near = values[name] + rng.randint(-9, 9)
            value = rng.choice((near, rng.randint(0, 9), -rng.randint(1, 300), rng.getrandbits(32)))
            changed[name] = value & REGISTERS[unit][name].mask
        view = View(unit, sequence(unit, changed))
        if view.taps <= _MAX_TAPS and _passes(config, op, view):
            return changed


def _passes(config: Config, op: Op, view: View) -> bool:
    return not check(config, op, view) and not claim(config, op, view).twice


def legal_registers(rng: random.Random, config: Config, op: Op) -> Registers:
    """Registers for ``op`` that pass its checks and do not put it in its own way."""
    unit = INSTRUCTIONS[op].unit
    assert unit is not None
    while True:
        if unit in DMA_OPS:
            values = dma_registers(rng, config, unit)
        elif unit == Unit.ARRAY:
            values = array_registers(rng, config, op)
        else:
            values = vector_registers(rng, config, op)
        if _passes(config, op, View(unit, sequence(unit, values))):
            break
    if unit not in DMA_OPS and rng.random() < 0.08:
        return strange_registers(rng, config, op, values)
    return values
