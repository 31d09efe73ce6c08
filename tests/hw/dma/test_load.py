"""The LOAD core against a row-by-row oracle for bytes and the timing rules for cycles."""

from typing import Any

import pytest

from dovetail.hw.dma.load import LoadCore
from dovetail.isa.config.given import MemoryTiming
from dovetail.isa.config.resolved import Config
from dovetail.isa.instructions.table import PAGE_BYTES, Cause
from dovetail.isa.timing.dma import Shape, read_duration
from tests.hw.benches import ReadMemory
from tests.hw.dma import bench as shared
from tests.hw.dma.bench import MEMORY, make
from tests.slow import slow

CASES = [
    (32, MemoryTiming(read_latency=1, beat_cycles=1), 1),
    slow(32, MemoryTiming(read_latency=9, beat_cycles=2), 2),
    (64, MemoryTiming(read_latency=40, beat_cycles=1), 4),
    slow(64, MemoryTiming(read_latency=3, beat_cycles=5), 3),
    (128, MemoryTiming(read_latency=17, beat_cycles=1), 16),
    (256, MemoryTiming(read_latency=30, beat_cycles=3), 5),
    (512, MemoryTiming(read_latency=2, beat_cycles=1), 2),
]


class Bench(shared.Bench):
    core: LoadCore
    claims = "writes"

    def __init__(self, config: Config, base: int = 0) -> None:
        super().__init__(config, base)
        self.core = LoadCore(config)
        self.bus = ReadMemory(self.core.axi, self.memory, config.like_fixed)
        self.sram, self.wanted = bytearray(config.sram), bytearray(config.sram)
        self.pages = bytearray(2 * PAGE_BYTES)

    async def serve(self, ctx: Any) -> None:
        sram, page, width = self.core.sram, self.core.page, self.config.bus_bytes
        async for _, _, en, addr, size, data, p_en, p_row, p_data in ctx.tick().sample(
            sram.en, sram.addr, sram.size, sram.data, page.en, page.row, page.data
        ):
            if en:
                assert 0 < size <= width and addr + size <= len(self.sram)
                self.sram[addr : addr + size] = (data & (1 << 8 * size) - 1).to_bytes(size, "little")
            if p_en:
                self.pages[p_row * width : (p_row + 1) * width] = p_data.to_bytes(width, "little")

    def check(self, r: dict[str, int]) -> bool:
        whole = True
        for address, size, place in shared.pieces(self.config.bus_bytes, self.base, r):
            whole = whole and address + size <= len(self.memory)
            if whole and place is not None:
                self.wanted[place : place + size] = self.memory[address : address + size]
        assert self.sram == self.wanted
        return whole

    async def fetch(self, ctx: Any, page: int) -> tuple[Cause, int, int, int]:
        """Cause, banks, duration, error of a fetch."""
        ctx.set(self.core.core.fetch, 1)
        ctx.set(self.core.core.address, page)
        result = await self.operate(ctx)
        ctx.set(self.core.core.fetch, 0)
        return result


@pytest.mark.parametrize(("first", "last"), [(0, 0), (1, 2), (3, 3), (0, 3)])
def test_a_region_that_ends_with_a_bank_claims_no_other(first: int, last: int) -> None:
    shared.check_claims(Bench(make(*CASES[0])), first, last)


@pytest.mark.parametrize(("bus", "timing", "outstanding"), CASES)
def test_random_transfers(bus: int, timing: MemoryTiming, outstanding: int) -> None:
    shared.check_transfers(Bench(make(bus, timing, outstanding), base=0x1000), bus, read_duration)


@pytest.mark.parametrize("bus", [32, 64, 128, 512])
def test_fetch(bus: int) -> None:
    config = make(bus, MemoryTiming(read_latency=5), 2)
    bench = Bench(config)

    async def run(ctx: Any) -> None:
        for page in (0x400, 0x1C00, 0x800):
            _, banks, cycles, error = await bench.fetch(ctx, page)
            assert not banks and not error
            assert cycles == read_duration(config, Shape(page, 1, 1, 0, 0, PAGE_BYTES))
            half = page & PAGE_BYTES
            assert bench.pages[half : half + PAGE_BYTES] == bench.memory[page : page + PAGE_BYTES]
        assert not any(bench.sram)
        assert (await bench.fetch(ctx, MEMORY))[3]
        assert not (await bench.fetch(ctx, 0x400))[3]

    bench.simulate(run)


def test_checks() -> None:
    shared.check_checks(Bench(make(64, MemoryTiming(read_latency=1), 2)))


def test_bus_error() -> None:
    """Nothing is written from the first faulty beat on; the timing stays."""
    config = make(64, MemoryTiming(read_latency=4), 2)
    shared.check_bus_error(Bench(config), MEMORY - 20, read_duration)
