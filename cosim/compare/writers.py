"""Which operation of a program wrote a byte: the model runs the program once more and watches it."""

from collections.abc import Callable

import numpy as np

from dovetail.cosim.rtl.setting import Setting
from dovetail.isa.config.resolved import Config
from dovetail.isa.instructions.checks import View, regions
from dovetail.isa.instructions.table import Op, Unit
from dovetail.isa.timing.memory import ADDRESS_SPACE
from dovetail.isa.timing.timeline import FETCH, Timeline
from dovetail.sw.compiler.emit.hazards import transfer_rows
from dovetail.sw.model.accelerator import UNITS, Model
from dovetail.sw.model.base import Sram, SystemMemory, UnitModel


class _Watch(UnitModel):
    """A unit that tells ``report`` of every operation whether it wrote the byte."""

    def __init__(self, unit: UnitModel, address: int, sram: bool, report: Callable[[bool], None]) -> None:
        super().__init__(unit.config)
        self._unit, self._address, self._sram, self._report = unit, address, sram, report

    def execute(self, op: Op, registers: View, sram: Sram, memory: SystemMemory) -> None:
        if not self._sram:
            self._unit.execute(op, registers, sram, memory)
            rows = transfer_rows(op, registers.values, memory.base) if registers.unit == Unit.STORE else ()
            self._report(any((self._address - start) % ADDRESS_SPACE < size for start, size in rows))
            return
        start, size = next(iter(regions(op, registers).writes), (0, 0))
        if not start <= self._address < start + size:
            self._unit.execute(op, registers, sram, memory)
            self._report(False)
            return
        region, at = sram.data[start : start + size], self._address - start
        before = region.copy()
        self._unit.execute(op, registers, sram, memory)
        after = region.copy()
        wrote = bool(after[at] != before[at])
        if not wrote:  # it may have written what was there: with another byte there, it shows
            region[:] = before
            region[at] ^= 0xFF
            sram.touch(start, size)
            self._unit.execute(op, registers, sram, memory)
            wrote = bool(region[at] != before[at] ^ 0xFF)
            region[:] = after
            sram.touch(start, size)
        self._report(wrote)


def writer(
    config: Config,
    timeline: Timeline,
    setting: Setting,
    address: int,
    *,
    sram: bool,
    broken: tuple[tuple[int, int], ...] = (),
) -> int | None:
    """The entry of the model's timeline that wrote a byte of SRAM (or of system memory) last; None if nothing did."""
    written: list[bool] = []
    units: dict[Unit, UnitModel] = {
        unit: _Watch(make(config), address, sram, written.append) for unit, make in UNITS.items()
    }
    model = Model(config, units=units)
    model.broken = broken
    model.write_sram(setting.sram)
    model.run(setting.memory.copy(), *setting.arguments)
    order = np.argsort(timeline.start, kind="stable")
    order = order[timeline.works[order] & (timeline.op[order] != FETCH)]
    found = np.flatnonzero(written)
    return int(order[found[-1]]) if len(found) else None
