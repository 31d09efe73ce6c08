"""VECTOR: pooling, element-wise operations, activations, copies."""

from typing import Any

import numpy as np
import numpy.typing as npt

from dovetail.isa.config.resolved import Config
from dovetail.isa.instructions.checks import View
from dovetail.isa.instructions.table import INSTRUCTIONS, Op
from dovetail.isa.numerics.add import add
from dovetail.isa.numerics.average import average_product
from dovetail.isa.numerics.leaky_relu import leaky_relu
from dovetail.isa.numerics.multiply import multiply
from dovetail.isa.numerics.requantise import requantise
from dovetail.isa.numerics.rounding import Rounding, wrap32
from dovetail.isa.numerics.shift import shift32
from dovetail.isa.numerics.vector import VectorOperation, VectorParameters
from dovetail.sw.model.base import Int8s, Sram, SystemMemory, UnitModel, gathered, int6, int8, strided
from dovetail.sw.model.output import Output
from dovetail.sw.model.window import Window

Array = npt.NDArray[Any]

_WRAP = 1 << 32


class _Plan:
    """Everything that the registers decide."""

    def __init__(self, config: Config, op: Op, registers: View) -> None:
        r = registers
        self.op = op
        self.row = INSTRUCTIONS[op]
        self.output = Output(r, lanes=config.vector_lanes, group=config.vector_lanes, item=self.row.output_bytes)
        self.item = self.row.input_bytes
        self.window = Window(r, self.output.channels, single=not self.row.taps, item=self.item)
        self.rounding = Rounding(r["MODE", "rounding"])
        self.average, self.requantise = bool(r["MODE", "average"]), bool(r["MODE", "requantise"])
        self.zero_in = int8(r["QUANT", "zero_in"])
        self.zero_out, self.lo, self.hi = (int8(r["QUANT", name]) for name in ("zero_out", "lo", "hi"))
        self.mult, self.shift = r["OUT_MULT", "mult"], int6(r["SHIFTS", "out"])
        self.mult_b, self.shift_b = r["B_MULT", "mult"], int6(r["SHIFTS", "b"])
        self.bias = (r["SUM_BIAS"] + (_WRAP >> 1)) % _WRAP - (_WRAP >> 1)
        self.count = r["POOL_COUNT", "count"]
        # A multiplier has 31 bits.
        self.magic, self.pool_shift = r["POOL_MAGIC"] & 0x7FFF_FFFF, int6(r["POOL_SHIFT", "shift"])
        self.b_address, self.b_size = r.region("B")
        self.b_y_step, self.b_x_step = r["B_Y_STEP"], r["B_X_STEP"]
        self.zero_b = int8(r["B_ZERO", "zero_b"])
        subtract = op == Op.E_ADD and r["MODE", "subtract"]
        self.add = VectorParameters(
            rounding=self.rounding,
            za=self.zero_in,
            zb=self.zero_b,
            zy=self.zero_out,
            mult_a=r["A_MULT", "mult"],
            shift_a=int6(r["SHIFTS", "a"]),
            mult_b=self.mult_b,
            shift_b=self.shift_b,
            mult_out=self.mult,
            shift_out=self.shift,
            lo=self.lo,
            hi=self.hi,
            operation=VectorOperation.SUBTRACT if subtract else self.row.scaling or VectorOperation.ADD,
        )
        self.table = self._table()

    def _table(self) -> Int8s | None:
        """[256] results by the bits of the operand, of those operations that rescale one int8 operand."""
        if not self.row.rescales:
            return None
        total = np.arange(256, dtype=np.uint8).view(np.int8).astype(np.int64) - self.zero_in
        if self.row.scaling == VectorOperation.LEAKY:
            multipliers = self.mult, self.shift, self.mult_b, self.shift_b
            return leaky_relu(total, *multipliers, self.rounding, self.zero_out, self.lo, self.hi)
        return self.rescale(np.abs(total) if self.row.scaling == VectorOperation.ABSOLUTE else total)

    def rescale(self, total: npt.NDArray[np.int64]) -> Int8s:
        """int32 sums to int8 by OUT_MULT."""
        return requantise(total, self.mult, self.shift, self.rounding, self.zero_out, self.lo, self.hi)


class VectorModel(UnitModel):
    """The vector unit."""

    def __init__(self, config: Config) -> None:
        super().__init__(config)
        self._plans: dict[tuple[Op, tuple[int, ...]], _Plan] = {}

    def execute(self, op: Op, registers: View, sram: Sram, memory: SystemMemory) -> None:
        key = (op, tuple(registers.values))
        plan = self._plans.get(key)
        if plan is None:
            if len(self._plans) > 1 << 15:
                self._plans.clear()
            plan = self._plans[key] = _Plan(self.config, op, registers)
        taps = _taps(plan, sram)
        if plan.row.taps:
            result: Array = _pool(plan, taps)
        elif plan.row.two_operands:
            result = _binary(plan, taps[0], _operand_b(plan, sram))
        else:
            result = _unary(plan, taps[0], sram)
        plan.output.write(sram, result, pixel_by_pixel=True)


def _taps(plan: _Plan, sram: Sram) -> list[Array]:
    """[height, width, channels] int8 or int32 per tap."""
    window = plan.window
    places = [(ky, kx) for ky in range(window.kh) for kx in range(window.kw)]
    if window.regular:
        image = window.image(sram, np.int8)
        return [window.tap(image, ky, kx) for ky, kx in places]
    return [window.gather(sram, ky, kx) for ky, kx in places]


def _pool(plan: _Plan, taps: list[Array]) -> Int8s:
    if not plan.average:
        best: Int8s = np.array(taps[0])
        for tap in taps[1:]:
            np.maximum(best, tap, out=best)
        return np.maximum(np.minimum(best, np.int8(plan.hi)), np.int8(plan.lo))
    total = taps[0].astype(np.int64)
    for tap in taps[1:]:
        total += tap
    total = wrap32(total + plan.bias)
    if plan.requantise:
        return plan.rescale(total)
    mean = average_product(total, plan.count, plan.magic, plan.pool_shift, plan.rounding) + plan.zero_out
    return np.maximum(np.minimum(mean, plan.hi), plan.lo).astype(np.int8)


def _binary(plan: _Plan, a: Array, b: Array) -> Array:
    """int8, or int32 for E32_ADD."""
    if plan.row.scaling is None:
        return _with_bias(plan, a.astype(np.int64) + b).astype(np.int32)
    if plan.row.scaling == VectorOperation.MULTIPLY:
        return multiply(a, b, plan.add)
    return add(a, b, plan.add)


def _unary(plan: _Plan, a: Array, sram: Sram) -> Array:
    """int8, or int32 for E32_SHIFT."""
    if plan.op == Op.MOV:
        return a
    if plan.op == Op.REQUANT:
        return plan.rescale(_with_bias(plan, a))
    if plan.op == Op.E32_SHIFT:
        return shift32(_with_bias(plan, a), plan.shift, plan.rounding).astype(np.int32)
    table = plan.table
    if table is None:  # ACT_LUT
        table = np.full(256, plan.zero_b, np.int8)
        size = min(plan.b_size, 256)
        table[:size] = sram.signed(plan.b_address, size)
    return np.asarray(table[a.view(np.uint8)])


def _with_bias(plan: _Plan, values: Array) -> npt.NDArray[np.int64]:
    """int32 values plus SUM_BIAS, modulo 2^32."""
    return wrap32(values.astype(np.int64) + plan.bias)


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
    offset = (y + x + np.arange(channels, dtype=np.int64) * plan.item) % _WRAP
    return gathered(sram.signed(plan.b_address, plan.b_size), offset, item=plan.item, zero=plan.zero_b)
