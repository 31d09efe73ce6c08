"""VECTOR: pooling and element-wise addition."""

from typing import Any

import numpy as np
import numpy.typing as npt

from dovetail.isa.checks import View
from dovetail.isa.config import Config
from dovetail.isa.instructions import Op
from dovetail.isa.numerics import AddParams, Rounding, add, average_product, requantise
from dovetail.sw.model_units.base import Int8s, Sram, SystemMemory, UnitModel, int6, int8, strided
from dovetail.sw.model_units.output import Output
from dovetail.sw.model_units.window import Window

_WRAP = 1 << 32


class _Plan:
    """Everything that the registers decide."""

    def __init__(self, config: Config, op: Op, registers: View) -> None:
        r = registers
        self.output = Output(r, lanes=config.vec, group=config.vec, item=1)
        self.window = Window(r, self.output.channels, single=op == Op.E_ADD)
        self.rounding = Rounding(r["MODE", "rounding"])
        self.average, self.requantise = bool(r["MODE", "average"]), bool(r["MODE", "requantise"])
        self.zero_out, self.lo, self.hi = (int8(r["QUANT", name]) for name in ("zero_out", "lo", "hi"))
        self.mult, self.shift = r["OUT_MULT", "mult"], int6(r["SHIFTS", "out"])
        self.bias = (r["SUM_BIAS"] + (_WRAP >> 1)) % _WRAP - (_WRAP >> 1)
        self.count = r["POOL_COUNT", "count"]
        # A multiplier has 31 bits.
        self.magic, self.pool_shift = r["POOL_MAGIC"] & 0x7FFF_FFFF, int6(r["POOL_SHIFT", "shift"])
        self.b_address, self.b_size = r.region("B")
        self.b_y_step, self.b_x_step = r["B_Y_STEP"], r["B_X_STEP"]
        self.zero_b = int8(r["B_ZERO", "zero_b"])
        self.add = AddParams(
            rounding=self.rounding,
            za=int8(r["QUANT", "zero_in"]),
            zb=self.zero_b,
            zy=self.zero_out,
            mult_a=r["A_MULT", "mult"],
            shift_a=int6(r["SHIFTS", "a"]),
            mult_b=r["B_MULT", "mult"],
            shift_b=int6(r["SHIFTS", "b"]),
            mult_out=self.mult,
            shift_out=self.shift,
            lo=self.lo,
            hi=self.hi,
        )


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
        result = _add(plan, sram) if op == Op.E_ADD else _pool(plan, sram)
        plan.output.write(sram, result, pixel_by_pixel=True)


def _taps(plan: _Plan, sram: Sram) -> list[npt.NDArray[Any]]:
    window = plan.window
    places = [(ky, kx) for ky in range(window.kh) for kx in range(window.kw)]
    if window.regular:
        image = window.image(sram, np.int8)
        return [window.tap(image, ky, kx) for ky, kx in places]
    return [window.gather(sram, ky, kx) for ky, kx in places]


def _pool(plan: _Plan, sram: Sram) -> Int8s:
    taps = _taps(plan, sram)
    if not plan.average:
        best: Int8s = np.array(taps[0])
        for tap in taps[1:]:
            np.maximum(best, tap, out=best)
        return np.maximum(np.minimum(best, np.int8(plan.hi)), np.int8(plan.lo))
    total = taps[0].astype(np.int64)
    for tap in taps[1:]:
        total += tap
    total = (total + plan.bias).astype(np.int32).astype(np.int64)
    if plan.requantise:
        return requantise(total, plan.mult, plan.shift, plan.rounding, plan.zero_out, plan.lo, plan.hi)
    mean = average_product(total, plan.count, plan.magic, plan.pool_shift, plan.rounding) + plan.zero_out
    return np.maximum(np.minimum(mean, plan.hi), plan.lo).astype(np.int8)


def _add(plan: _Plan, sram: Sram) -> Int8s:
    (a,) = _taps(plan, sram)
    return add(a, _operand_b(plan, sram), plan.add)


def _operand_b(plan: _Plan, sram: Sram) -> Int8s:
    region = sram.signed(plan.b_address, plan.b_size)
    height, width, channels = shape = (plan.window.height, plan.window.width, plan.window.channels)
    end = (height - 1) * plan.b_y_step + (width - 1) * plan.b_x_step + channels
    if end <= plan.b_size:
        data = sram.data.view(np.int8)
        return strided(data, plan.b_address, shape, (plan.b_y_step, plan.b_x_step, 1))
    y = np.arange(height, dtype=np.int64)[:, None, None] * plan.b_y_step
    x = np.arange(width, dtype=np.int64)[None, :, None] * plan.b_x_step
    offset = (y + x + np.arange(channels, dtype=np.int64)) % _WRAP
    inside = offset < plan.b_size
    return np.where(inside, region[np.where(inside, offset, 0)], np.int8(plan.zero_b))
