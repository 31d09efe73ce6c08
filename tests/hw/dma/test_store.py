"""The STORE core against a row-by-row oracle for bytes and the timing rules for cycles."""

import random
from typing import Any

import pytest

from dovetail.hw.dma.store import StoreCore
from dovetail.isa.config.given import MemoryTiming
from dovetail.isa.config.resolved import Config
from dovetail.isa.instructions.table import REGISTERS, Unit
from dovetail.isa.timing.dma import write_duration
from dovetail.isa.timing.memory import SRAM_READ
from tests.hw.benches import WriteMemory
from tests.hw.dma import bench as shared
from tests.hw.dma.bench import MEMORY, REGS, make
from tests.slow import slow

CASES = [
    (32, MemoryTiming(write_latency=1, beat_cycles=1), 1),
    slow(32, MemoryTiming(write_latency=9, beat_cycles=2), 2),
    (64, MemoryTiming(write_latency=20, beat_cycles=1), 4),
    slow(64, MemoryTiming(write_latency=3, beat_cycles=5), 3),
    (128, MemoryTiming(write_latency=17, beat_cycles=1), 16),
    (256, MemoryTiming(write_latency=30, beat_cycles=3), 5),
    (512, MemoryTiming(write_latency=2, beat_cycles=1), 2),
]


class Bench(shared.Bench):
    core: StoreCore
    claims = "reads"

    def __init__(self, config: Config, base: int = 0) -> None:
        super().__init__(config, base)
        self.core = StoreCore(config)
        self.bus = WriteMemory(self.core.axi, self.memory, config.like_fixed)
        self.sram, self.wanted = random.Random(1).randbytes(config.sram), bytearray(self.memory)

    async def serve(self, ctx: Any) -> None:
        port, width = self.core.sram, self.config.word_bytes
        later = [0] * SRAM_READ
        async for _, _, en, addr in ctx.tick().sample(port.en, port.addr):
            word = (self.sram * 2)[addr : addr + width] if en else bytes(width)
            later.append(int.from_bytes(word, "little"))
            ctx.set(port.data, later[-SRAM_READ])

    def check(self, r: dict[str, int]) -> bool:
        whole = True
        for address, size, place in shared.pieces(self.config.bus_bytes, self.base, r):
            if address + size <= len(self.memory):
                self.wanted[address : address + size] = (
                    bytes(size) if place is None else self.sram[place : place + size]
                )
            else:
                whole = False
        assert self.memory == self.wanted
        return whole


def test_its_registers_are_those_of_load() -> None:
    assert REGISTERS[Unit.STORE].keys() == REGS.keys()
    assert [r.index for r in REGISTERS[Unit.STORE].values()] == [r.index for r in REGS.values()]


@pytest.mark.parametrize(("first", "last"), [(0, 0), (1, 2), (3, 3), (0, 3)])
def test_a_region_that_ends_with_a_bank_claims_no_other(first: int, last: int) -> None:
    shared.check_claims(Bench(make(*CASES[0])), first, last)


@pytest.mark.parametrize(("bus", "timing", "outstanding"), CASES)
def test_random_transfers(bus: int, timing: MemoryTiming, outstanding: int) -> None:
    shared.check_transfers(Bench(make(bus, timing, outstanding), base=0x1000), bus, write_duration)


def test_checks() -> None:
    shared.check_checks(Bench(make(64, MemoryTiming(write_latency=1), 2)))


def test_bus_error() -> None:
    config = make(64, MemoryTiming(write_latency=4), 2)
    shared.check_bus_error(Bench(config), MEMORY - 24, write_duration)
