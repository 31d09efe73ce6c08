"""Bench of the host's register block on AXI4-Lite: ports ``bus`` and those of ``dovetail.hw.host.registers.Host``.

Options: ``config`` (TOML), ``seed``, ``accesses`` (how many), ``stall`` (share of cycles).
"""

from typing import Any

import cocotb
from cocotb.triggers import RisingEdge
from cocotbext.axi import AxiResp

from dovetail.cosim.benches.axi import HostDriver
from dovetail.cosim.benches.bench import config, cycles, options, rng, start
from dovetail.isa.config.resolved import Config
from dovetail.isa.host import (
    ADDRESS_BITS,
    CONTROL_IRQ,
    CONTROL_START,
    ID,
    STALLS,
    STATUS_BUSY,
    STATUS_DONE,
    STATUS_FAULT,
    VERSION,
    host_registers,
)
from dovetail.isa.instructions.table import PAGE_BYTES, Unit
from dovetail.isa.timing.dma import BOUNDARY

WORD = 0xFFFF_FFFF


def masks(config: Config) -> dict[str, int]:
    """Bits that a write sets."""
    found = {"PROGRAM": WORD - PAGE_BYTES + 1, "PAGES": (1 << 23) - 1, "BASE": WORD - BOUNDARY + 1}
    return found | {f"PARAM{n + 1}": WORD for n in range(config.parameters)}


class HostModel:
    """The registers as the host sees them; the engine's side of them is in the attributes."""

    def __init__(self, config: Config) -> None:
        self.config = config
        self.masks = masks(config)
        self.set = dict.fromkeys(self.masks, 0)
        self.irq_enable = self.done = self.busy = self.faulted = False
        self.cause = self.pc = self.cycles = 0
        self.stalls = dict.fromkeys(Unit, (0,) * len(STALLS))
        self.starts = 0
        """Start pulses so far."""

    def read(self, name: str) -> int:
        """A register's value."""
        if name in self.set:
            return self.set[name]
        for unit in Unit:
            if name.startswith(f"{unit.name}_"):
                return dict(zip(STALLS, self.stalls[unit], strict=True))[name.split("_")[1]]
        values: dict[str, int] = {
            "ID": ID,
            "VERSION": VERSION,
            "CONFIG_HASH_LO": self.config.hash & WORD,
            "CONFIG_HASH_HI": self.config.hash >> 32,
            "CONTROL": self.irq_enable << CONTROL_IRQ.low,
            "STATUS": self.busy << STATUS_BUSY.low
            | self.done << STATUS_DONE.low
            | (self.faulted and not self.busy) << STATUS_FAULT.low,
            "CAUSE": self.cause,
            "FAULT_PC": self.pc,
            "CYCLES_LO": self.cycles & WORD,
            "CYCLES_HI": self.cycles >> 32,
        }
        return values[name]

    def write(self, name: str, value: int, mask: int) -> None:
        """A write of the bits in ``mask``."""
        given = value & mask
        if name in self.set and not self.busy:
            self.set[name] = (self.set[name] & ~mask | given) & self.masks[name]
        if name == "CONTROL":
            if mask >> CONTROL_IRQ.low & 1:
                self.irq_enable = bool(given >> CONTROL_IRQ.low & 1)
            if given >> CONTROL_START.low & 1 and not self.busy:
                self.starts += 1
                self.done = False
        if name == "STATUS" and given >> STATUS_DONE.low & 1:
            self.done = False

    @property
    def irq(self) -> bool:
        """The interrupt."""
        return self.irq_enable and self.done


async def _count(dut: Any, model: HostModel) -> None:
    """Answers for the counters, each time after some cycles."""
    dut.counter__answered.value = 0
    while True:
        await RisingEdge(dut.clk)
        if int(dut.counter__ask.value):
            await cycles(dut, 1 + int(dut.counter__number.value) % 5)
            unit, part = divmod(int(dut.counter__number.value), len(STALLS))
            dut.counter__value.value = model.stalls[Unit(unit)][part]
            dut.counter__answered.value = 1
            await cycles(dut, 1)
            dut.counter__answered.value = 0
            await cycles(dut, 1)


async def _ended(dut: Any, model: HostModel) -> None:
    """A run ends."""
    dut.ended.value = 1
    await cycles(dut, 1)
    dut.ended.value = 0
    await cycles(dut, 1)
    model.done = True


@cocotb.test()
async def random_accesses(dut: Any) -> None:
    """Reads and writes of all registers and of none, with any bytes, while the engine's side changes between them."""
    numbers = rng()
    model = HostModel(config())
    host = HostDriver(dut, "bus_")
    host.stall(numbers, options().get("stall", 0.5))
    starts = [0]

    async def count() -> None:
        while True:
            await RisingEdge(dut.clk)
            starts[0] += int(dut.start.value)

    cocotb.start_soon(count())
    cocotb.start_soon(_count(dut, model))
    await start(dut)
    registers = host_registers(config().parameters)
    for name in registers:
        assert await host.read(name) == (model.read(name), AxiResp.OKAY), f"{name} after reset"
    for n in range(options().get("accesses", 150)):
        if numbers.random() < 0.2:
            model.busy, model.faulted = numbers.random() < 0.4, numbers.random() < 0.5
            model.cause, model.pc, model.cycles = (
                numbers.randrange(16),
                numbers.getrandbits(32),
                numbers.getrandbits(64),
            )
            model.stalls = {unit: tuple(numbers.getrandbits(32) for _ in STALLS) for unit in Unit}
            dut.busy.value, dut.faulted.value, dut.cycles.value = int(model.busy), int(model.faulted), model.cycles
            dut.first.value = model.cause | model.pc << 4
            await cycles(dut, 1)
        if numbers.random() < 0.1:
            await _ended(dut, model)
        name = numbers.choice([r.name for r in registers.values() if r.access == "rw" or numbers.random() < 0.2])
        if numbers.random() < 0.5:
            first = numbers.randrange(4)
            size = numbers.randint(1, 4 - first)
            value = numbers.getrandbits(32)
            answer = await host.write(name, value, first=first, size=size)
            assert answer == AxiResp.OKAY, f"access {n}: write of {name} was answered with {answer!r}"
            model.write(name, value, (1 << 8 * size) - 1 << 8 * first)
        else:
            read = await host.read(name)
            assert read == (model.read(name), AxiResp.OKAY), (
                f"access {n}: {name} must be {model.read(name):#x}, not {read}"
            )
        await cycles(dut, 2)
        assert bool(dut.irq.value) == model.irq, f"access {n}: irq"
        assert starts[0] == model.starts, f"access {n}: {starts[0]} start pulses, not {model.starts}"
        shown = [int(p.value) for p in (dut.program, dut.pages, dut.base)]
        if config().parameters:
            together = int(dut.parameters.value)
            shown += [together >> 32 * k & WORD for k in range(config().parameters)]
        assert shown == list(model.set.values())
    assert model.starts, "no start was written"


@cocotb.test()
async def no_such_register(dut: Any) -> None:
    """Offsets without a register answer SLVERR, read as zero, and change nothing."""
    host = HostDriver(dut, "bus_")
    await start(dut)
    known = {register.offset for register in host_registers(config().parameters).values()}
    unknown = [offset for offset in range(0, 1 << ADDRESS_BITS, 4) if offset not in known]
    for offset in rng().sample(unknown, 12):
        assert await host.write(offset, WORD) == AxiResp.SLVERR
        assert await host.read(offset) == (0, AxiResp.SLVERR)
    for name in masks(config()):
        assert await host.read(name) == (0, AxiResp.OKAY)
