"""The whole accelerator in a bench: cases to run, and a scoreboard backed by the model. No part of it needs cocotb."""

import json
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from dovetail.cosim.compare.lockstep import compare
from dovetail.cosim.coverage.bins import Counts, as_json, cover
from dovetail.cosim.rtl.setting import LoadedProgram
from dovetail.isa.config.resolved import Config
from dovetail.isa.instructions.table import PAGE_BYTES, Cause, Op, Unit, cfg, from_bytes, pack, to_bytes
from dovetail.sw.model.accelerator import Model
from dovetail.sw.runtime.engine import RunResult, without_timeline

FUNCTIONAL = "functional-coverage.json"
"""File in which a scoreboard leaves the functional coverage of a run."""


@dataclass(frozen=True)
class Run:
    """What the accelerator left behind: memory, and host registers by name."""

    memory: bytes
    registers: dict[str, int]


class AcceleratorScoreboard:
    """What a run must leave behind, from the model. SRAM persists from run to run.

    ``timed``: system memory keeps the configuration's timing exactly, so cycles and counters are compared too.
    ``covered``: the functional bins of these runs.
    """

    def __init__(self, config: Config, *, timed: bool) -> None:
        self._model, self._timed = Model(config), timed
        self.covered: Counts = Counter()

    def save_coverage(self) -> None:
        """Write what was covered into the current folder, where :func:`~dovetail.cosim.benches.runner.run` finds it."""
        Path(FUNCTIONAL).write_text(json.dumps({"functional": as_json(self.covered)}))

    def check(self, name: str, case: LoadedProgram, run: Run) -> RunResult:
        """Compare a run of ``case``; gives the model's result. Raises AssertionError with the first difference."""
        result = self._model.run(case.memory.copy(), *case.arguments)
        found = without_timeline(np.frombuffer(run.memory, np.uint8), run.registers.__getitem__)
        found = replace(found, timeline=result.timeline)
        if not self._timed:
            found = replace(found, cycles=result.cycles, counters=result.counters)
        difference = compare(result, found).first_difference
        assert not difference, f"{name}: {difference}"
        self.covered.update(cover(self._model.config, list(from_bytes(case.text)), result.timeline, case.base))
        return result


MEMORY = 1 << 14
"""System memory of the programs below."""
PROGRAM = 3 * PAGE_BYTES


def _transfer(unit: Unit, op: Op, **changes: int) -> list[int]:
    values = {"MEM_ADDR": 0, "SRAM_BYTES": 64, "LENGTH": 64, "COUNT": pack(unit, "COUNT", rows=1, planes=1), **changes}
    return [*(cfg(unit, name, value) for name, value in values.items()), int(op)]


FAULTS: dict[Cause, Callable[[Config], list[int]]] = {
    Cause.OPCODE: lambda config: [0xFE],
    Cause.RESERVED: lambda config: [1 << 63 | int(Op.END)],
    Cause.REGISTER: lambda config: [int(Op.CFG) | 0x3F << 8],
    Cause.NO_END: lambda config: [cfg(Unit.LOAD, "LENGTH", 1)] * (PAGE_BYTES // 8),
    Cause.ZERO_SIZE: lambda config: _transfer(Unit.LOAD, Op.DMA_READ, LENGTH=0),
    Cause.SRAM_RANGE: lambda config: _transfer(Unit.STORE, Op.DMA_WRITE, SRAM_ADDR=config.sram - 32),
    Cause.BUS_READ: lambda config: _transfer(Unit.LOAD, Op.DMA_READ, MEM_ADDR=MEMORY - 32),
    Cause.BUS_WRITE: lambda config: _transfer(
        Unit.STORE, Op.DMA_WRITE, MEM_ADDR=MEMORY - 32, SRAM_ADDR=config.bank_bytes
    ),
}
"""Words of programs that end with a cause, whatever the timing of memory."""


def fault_case(config: Config, cause: Cause) -> LoadedProgram:
    """A program that moves some bytes, and then does what ends with ``cause``."""
    words = _transfer(Unit.LOAD, Op.DMA_READ) + FAULTS[cause](config)
    if cause != Cause.NO_END:
        words.append(int(Op.END))
    stream = to_bytes(words[: PAGE_BYTES // 8]).ljust(PAGE_BYTES, b"\0")
    memory = np.random.default_rng(int(cause)).integers(0, 256, MEMORY, np.uint8)
    memory[PROGRAM : PROGRAM + PAGE_BYTES] = np.frombuffer(stream, np.uint8)
    return LoadedProgram(memory, PROGRAM, 1)
