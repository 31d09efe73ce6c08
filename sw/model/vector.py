"""VECTOR: pooling, element-wise operations, activations, copies."""

from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt

from dovetail.isa.common.sizes import INT32_BYTES
from dovetail.isa.config.resolved import Config
from dovetail.isa.instructions.checks import View
from dovetail.isa.instructions.table import INSTRUCTIONS, Op
from dovetail.isa.timing.vector import rows_at_once
from dovetail.sw.model.base import Int8s, Plans, Sram, SystemMemory, UnitModel, gathered, strided
from dovetail.sw.model.output import Output
from dovetail.sw.model.window import Window

Array = npt.NDArray[Any]

_CODES = np.arange(256, dtype=np.uint8).view(np.int8)


class _Plan:
    """Everything that the registers decide."""

    def __init__(self, config: Config, op: Op, registers: View) -> None:
        r = registers
        self.row = row = INSTRUCTIONS[op]
        self.output = Output(config, r, lanes=config.vector_lanes, group=config.vector_lanes, item=row.output_bytes)
        self.item = row.input_bytes
        self.window = Window(config, r, self.output.channels, single=not row.taps, item=self.item)
        self.parameters = row.parameters(r)
        self.b_address, self.b_size = r.region("B")
        self.modulus = 1 << config.offset_bits
        self.b_y_step, self.b_x_step = r["B_Y_STEP"] % self.modulus, r["B_X_STEP"] % self.modulus
        self.table: Array | None = None
        if not (row.taps or row.reads_b or row.int32_input):
            # A function of one byte: its results are looked up, unless it is a copy.
            table = row.compute(_CODES, None, self.parameters)
            self.table = None if np.array_equal(table, _CODES) else table

    def compute(self, a: Array, b: Array | None) -> Array:
        """int8 or int32 results."""
        if self.table is not None:
            return np.asarray(self.table[a.view(np.uint8)])
        return self.row.compute(a, b, self.parameters)


class VectorModel(UnitModel):
    """The vector unit."""

    def __init__(self, config: Config) -> None:
        super().__init__(config)
        self._plans = Plans(partial(_Plan, config))

    def execute(self, op: Op, registers: View, sram: Sram, memory: SystemMemory) -> None:
        plan = self._plans.of(op, registers)
        row, b = plan.row, None
        if row.looks_up:
            b = _table(plan, sram)
        elif row.records:
            b = _records(plan, sram)
        elif row.two_operands:
            b = _operand_b(plan, sram)
        plan.output.write(sram, plan.compute(_operand_a(plan, sram), b), pixels_at_once=rows_at_once(self.config, op))


def _operand_a(plan: _Plan, sram: Sram) -> Array:
    """[height, width, channels] int8 or int32; of several taps the largest, or for averages their sum."""
    window = plan.window
    places = [(ky, kx) for ky in range(window.kh) for kx in range(window.kw)]
    if window.regular:
        image = window.image(sram, np.int8)
        taps = [window.tap(image, ky, kx) for ky, kx in places]
    else:
        taps = [window.gather(sram, ky, kx) for ky, kx in places]
    if not plan.row.taps:
        return taps[0]
    if plan.parameters.average:
        total = taps[0].astype(np.int64)
        for tap in taps[1:]:
            total += tap
        return total
    best = np.array(taps[0])
    for tap in taps[1:]:
        np.maximum(best, tap, out=best)
    return best


def _table(plan: _Plan, sram: Sram) -> Int8s:
    """The bytes of a table: of ACT_LUT [256] results by the bits of the operand."""
    table = np.full(plan.row.table_bytes, plan.parameters.zb, np.int8)
    size = min(plan.b_size, len(table))
    table[:size] = sram.signed(plan.b_address, size)
    return table


def _records(plan: _Plan, sram: Sram) -> Array:
    """[2, channels] int32: the two words of each channel."""
    lanes = plan.output.lanes
    block, lane = np.divmod(np.arange(plan.window.channels, dtype=np.int64), lanes)
    offset = INT32_BYTES * (2 * lanes * block + lane + lanes * np.arange(2)[:, None])
    return gathered(sram.signed(plan.b_address, plan.b_size), offset % plan.modulus, item=INT32_BYTES, zero=0)


def _operand_b(plan: _Plan, sram: Sram) -> Array:
    """[height, width, channels] int8 or int32."""
    height, width, channels = plan.window.height, plan.window.width, plan.window.channels
    end = (height - 1) * plan.b_y_step + (width - 1) * plan.b_x_step + channels * plan.item
    if end <= plan.b_size:
        data, shape = sram.data.view(np.int8), (height, width, channels * plan.item)
        values = strided(data, plan.b_address, shape, (plan.b_y_step, plan.b_x_step, 1))
        return values if plan.item == 1 else values.view("<i4")
    y = np.arange(height, dtype=np.int64)[:, None, None] * plan.b_y_step
    x = np.arange(width, dtype=np.int64)[None, :, None] * plan.b_x_step
    offset = (y + x + np.arange(channels, dtype=np.int64) * plan.item) % plan.modulus
    return gathered(sram.signed(plan.b_address, plan.b_size), offset, item=plan.item, zero=plan.parameters.zb)
