"""The fast model: what the accelerator does to memory, and when; exact on both counts.

The timing engine says what is executed and when; the units then carry it out in the order in which they start, on
NumPy arrays. Each unit is an object that may be probed, subclassed or replaced:

    class Probe(ArrayModel):
        def execute(self, op, registers, sram, memory):
            super().execute(op, registers, sram, memory)
            print(op, registers["TILE", "height"])

    Model(config, units={Unit.ARRAY: Probe(config)})
"""

from collections import OrderedDict
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from threadpoolctl import ThreadpoolController

from dovetail.isa.config.resolved import Config
from dovetail.isa.instructions.checks import View
from dovetail.isa.instructions.table import PAGE_BYTES, Op, Unit
from dovetail.isa.timing.run import time_program
from dovetail.isa.timing.timeline import FETCH, Timeline
from dovetail.sw.model.array import ArrayModel
from dovetail.sw.model.base import Bytes, Sram, SystemMemory, UnitModel
from dovetail.sw.model.dma import LoadModel, StoreModel
from dovetail.sw.model.vector import VectorModel
from dovetail.sw.runtime.engine import RunResult

UNITS: dict[Unit, type[UnitModel]] = {
    Unit.LOAD: LoadModel,
    Unit.ARRAY: ArrayModel,
    Unit.VECTOR: VectorModel,
    Unit.STORE: StoreModel,
}

_TIMELINES = 16


class Model:
    """The model of one accelerator; an :class:`~dovetail.sw.runtime.engine.Engine`.

    Parameters
    ----------
    config
        The accelerator and the timing of its memory.
    units
        Units to use instead of the usual ones.

    Members
    -------
    broken
        (address, bytes) of parts of system memory that answer with bus errors, multiples of 64.
    """

    def __init__(self, config: Config, *, units: Mapping[Unit, UnitModel] | None = None) -> None:
        self._config = config
        self.units: dict[Unit, UnitModel] = {u: make(config) for u, make in UNITS.items()} | dict(units or {})
        """The units that execute operations."""
        self.sram = Sram(config.sram)
        self.broken: tuple[tuple[int, int], ...] = ()
        self.holds: object | None = None
        self._threads = ThreadpoolController()
        self._timelines: OrderedDict[tuple[Any, ...], Timeline] = OrderedDict()

    @property
    def config(self) -> Config:
        """The accelerator."""
        return self._config

    def reset(self) -> None:
        """As after power-up: SRAM is zero."""
        self.holds = None
        self.sram = Sram(self._config.sram)

    def read_sram(self) -> Bytes:
        """A copy of SRAM."""
        return self.sram.data.copy()

    def write_sram(self, contents: Bytes) -> None:
        """Replace SRAM, all of it."""
        self.holds = None
        if contents.shape != self.sram.data.shape:
            raise ValueError(f"contents must be {self.sram.data.size} bytes, not {contents.size}")
        self.sram.data[:] = contents
        self.sram.touch(0, contents.size)

    def time(self, memory: Bytes, program: int, pages: int, base: int = 0, parameters: Sequence[int] = ()) -> Timeline:
        """The timeline of a run, without running it."""
        if not pages >= 1:
            raise ValueError(f"pages must be at least 1, not {pages}")
        words = memory[program : program + pages * PAGE_BYTES].tobytes()
        # Pages outside memory are never executed: fetching them is a fault.
        words += bytes(pages * PAGE_BYTES - len(words))
        key = (words, program, base, memory.size, self.broken, tuple(parameters))
        timeline = self._timelines.get(key)
        if timeline is None:
            timeline = time_program(
                self._config,
                words,
                address=program,
                base=base,
                memory_bytes=memory.size,
                broken=self.broken,
                parameters=parameters,
            )
            self._timelines[key] = timeline
            if len(self._timelines) > _TIMELINES:
                self._timelines.popitem(last=False)
        return timeline

    def run(self, memory: Bytes, program: int, pages: int, base: int = 0, parameters: Sequence[int] = ()) -> RunResult:
        """Run a program; see :meth:`~dovetail.sw.runtime.engine.Engine.run`. ``memory`` is changed in place."""
        self.holds = None
        timeline = self.time(memory, program, pages, base, parameters)
        system = SystemMemory(memory, base, self.broken)
        units = {int(u): (u, model) for u, model in self.units.items()}
        order = np.argsort(timeline.start, kind="stable")
        order = order[timeline.works[order] & (timeline.op[order] != FETCH)]
        ops, numbers = timeline.op.tolist(), timeline.unit.tolist()
        # The matrix products are small: threads of BLAS would cost more than they bring, most of all on a busy
        # machine.
        with self._threads.limit(limits=1, user_api="blas"):
            for n in order.tolist():
                unit, model = units[numbers[n]]
                model.execute(Op(ops[n]), View(unit, timeline.registers[n]), self.sram, system)
        return RunResult(memory, timeline.cycles, timeline, timeline.counters, timeline.fault)
