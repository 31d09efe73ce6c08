"""Bench of the whole accelerator: host on AXI4-Lite, system memory on AXI4, programs against the model.

Options: ``config`` (TOML), ``seed``, ``share`` of cycles in which the buses stall (0: exact memory timing, and cycles
and counters are compared), ``cases`` (files of :class:`~dovetail.cosim.rtl.setting.LoadedProgram`), ``programs`` (how
many random legal ones) of ``operations`` operations, ``faults`` (names of causes to provoke).
"""

from pathlib import Path
from typing import Any

import cocotb
from cocotbext.axi import AxiResp

from dovetail.cosim.benches.accelerator import AcceleratorScoreboard, Run, fault_case
from dovetail.cosim.benches.axi import AxiMemory, AxiRules, HostDriver, TimedMemory
from dovetail.cosim.benches.bench import config, options, rng, start, until
from dovetail.cosim.benches.modelled_memory import ModelledMemory
from dovetail.cosim.rtl.setting import LoadedProgram
from dovetail.isa.config.given import MemoryTiming
from dovetail.isa.host import CONTROL_IRQ, CONTROL_START, STATUS_DONE, host_registers
from dovetail.isa.instructions.table import Cause
from dovetail.sw.random.programs.legal import legal_program
from dovetail.sw.runtime.engine import run_registers

LIMIT = 500_000
"""Cycles that a program may take in a bench."""


class AcceleratorBench:
    """The host's view: fill memory, start, wait for the interrupt, read what is left. The buses stall in a ``share`` of
    all cycles."""

    def __init__(self, dut: Any, *, share: float) -> None:
        self.dut, self._config = dut, config()
        self.memory = bytearray()
        self.host = HostDriver(dut, "s_axil")
        self._modelled: ModelledMemory | None = None
        self.rules = AxiRules(dut, "m_axi", outstanding=self._config.outstanding)
        if share:
            numbers = rng(7)
            self.host.stall(numbers, share)
            AxiMemory(dut, "m_axi", self.memory).stall(numbers, share)
        elif isinstance(self._config.memory, MemoryTiming):
            TimedMemory(dut, "m_axi", self.memory, self._config.memory)
        else:
            self._modelled = ModelledMemory(dut, "m_axi", self.memory, self._config.memory)

    async def run(self, case: LoadedProgram) -> Run:
        """Run a program to its end or fault."""
        self.memory[:] = case.memory.tobytes()  # of another size, perhaps
        if self._modelled is not None:
            self._modelled.restart()
        values = run_registers(self._config, *case.arguments)
        for name, value in (*values, ("CONTROL", CONTROL_START.mask | 1 << CONTROL_IRQ.low)):
            assert await self.host.write(name, value) == AxiResp.OKAY
        await until(self.dut, lambda: bool(self.dut.irq.value), limit=LIMIT, what="the interrupt")
        self.rules.finish()
        registers = {name: (await self.host.read(name))[0] for name in host_registers(self._config.parameters)}
        assert await self.host.write("STATUS", 1 << STATUS_DONE.low) == AxiResp.OKAY
        await until(self.dut, lambda: not self.dut.irq.value, limit=10, what="the end of the interrupt")
        return Run(bytes(self.memory), registers)


def cases() -> list[tuple[str, LoadedProgram]]:
    """What the options ask for, by name."""
    found = [(Path(path).stem, LoadedProgram.load(Path(path))) for path in options().get("cases", ())]
    for n in range(options().get("programs", 0)):
        p = legal_program(rng(n), config(), count=options().get("operations", 6))
        found.append((f"random program {n}", LoadedProgram(p.memory, *p.arguments)))
    found += [(name, fault_case(config(), Cause[name])) for name in options().get("faults", ())]
    return found


@cocotb.test()
async def programs(dut: Any) -> None:
    """Every case, one after another, each in a memory of its own."""
    share = options().get("share", 0)
    wanted = cases()
    assert wanted, "the options name no program"
    scoreboard = AcceleratorScoreboard(config(), timed=not share)
    bench = AcceleratorBench(dut, share=share)
    await start(dut)
    for name, case in wanted:
        result = scoreboard.check(name, case, await bench.run(case))
        dut._log.info(f"{name}: {result.cycles} cycles by the model, fault {result.fault}")
    scoreboard.save_coverage()
