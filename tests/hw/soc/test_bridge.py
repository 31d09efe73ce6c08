"""The processor's buses reach memory and registers, in the order in which the program asks."""

from typing import Any

import pytest
from amaranth import Module
from amaranth.lib import wiring

from dovetail.hw.soc.bridge import POSTED, Bridge
from dovetail.hw.soc.peripheral import Peripheral, Register
from dovetail.hw.soc.vexriscv import BURST, LINE_WORDS, UNCACHED_BIT
from dovetail.isa.config.given import MemoryTiming
from dovetail.isa.host import ADDRESS_BITS
from tests.hw.benches import ReadMemory, WriteMemory, simulate

BYTES = 4096
REGISTERS = 1 << UNCACHED_BIT
SLOW = MemoryTiming(read_latency=9, write_latency=30, beat_cycles=2)


class Bench:
    """A bridge before a memory and the peripheral."""

    def __init__(self) -> None:
        self.m = Module()
        self.m.submodules.bridge = self.bridge = Bridge()
        self.m.submodules.peripheral = self.peripheral = Peripheral()
        bus, there = self.bridge.registers, self.peripheral.bus
        for name, member in there.signature.members.items():
            ours, theirs = getattr(bus, name), getattr(there, name)
            if len(ours) != len(theirs):
                ours = ours[:ADDRESS_BITS]
            self.m.d.comb += theirs.eq(ours) if member.flow == wiring.In else ours.eq(theirs)
        self.data = bytearray(range(256)) * (BYTES // 256)
        self.read = ReadMemory(self.bridge.read, self.data, SLOW)
        self.write = WriteMemory(self.bridge.write, self.data, SLOW)

    def run(self, *benches: Any) -> None:
        """Against memory, to the end of all."""
        simulate(self.m, *benches, background=(self.read.run, self.write.run))


async def access(ctx: Any, bus: Any, address: int, *, write: int | None = None, sel: int = 15, cti: int = 0) -> int:
    """A word on Wishbone."""
    ctx.set(bus.adr, address >> 2)
    ctx.set(bus.we, write is not None)
    ctx.set(bus.dat_mosi, write or 0)
    ctx.set(bus.sel, sel)
    ctx.set(bus.cti, cti)
    ctx.set(bus.cyc, 1)
    ctx.set(bus.stb, 1)
    (word,) = await ctx.tick().sample(bus.dat_miso).until(bus.ack)
    ctx.set(bus.cyc, 0)
    ctx.set(bus.stb, 0)
    return int(word)


async def line(ctx: Any, bus: Any, address: int) -> list[int]:
    """A cache line on Wishbone."""
    last = LINE_WORDS - 1
    return [await access(ctx, bus, address + 4 * n, cti=7 if n == last else BURST) for n in range(LINE_WORDS)]


def words(data: bytearray, address: int) -> list[int]:
    return [int.from_bytes(data[address + 4 * n :][:4], "little") for n in range(LINE_WORDS)]


def test_lines_for_both_buses_at_once() -> None:
    bench = Bench()

    def reader(bus: Any, lines: list[int]) -> Any:
        async def read(ctx: Any) -> None:
            for address in lines:
                assert await line(ctx, bus, address) == words(bench.data, address)

        return read

    bench.run(reader(bench.bridge.data, [0, 64, 96]), reader(bench.bridge.instructions, [1024, 1056, 2048, 4064]))
    assert sorted(address for _, address, _ in bench.read.bursts) == [0, 64, 96, 1024, 1056, 2048, 4064]
    assert {beats for *_, beats in bench.read.bursts} == {LINE_WORDS}


def test_a_read_sees_the_write_before_it() -> None:
    bench = Bench()

    async def program(ctx: Any) -> None:
        for n in range(2 * POSTED):
            await access(ctx, bench.bridge.data, 4 * n, write=0x0101_0101 * n)
        await access(ctx, bench.bridge.data, 8, write=0xAABB_CCDD, sel=0b0110)
        assert (await line(ctx, bench.bridge.data, 0))[:4] == [0, 0x0101_0101, 0x02BB_CC02, 0x0303_0303]

    bench.run(program)
    assert POSTED - 1 <= bench.write.most_in_flight <= POSTED


def test_registers_see_memory_as_it_is_written() -> None:
    bench = Bench()
    told: list[tuple[int, int]] = []

    async def watch(ctx: Any) -> None:
        peripheral = bench.peripheral
        while len(told) < 2:
            topic, value = await ctx.tick().sample(peripheral.topic, peripheral.value).until(peripheral.told)
            told.append((topic, value))
            assert bench.data[:4] == b"\x78\x56\x34\x12", "the write is in memory before the register's"
            assert not bench.write.answers

    async def program(ctx: Any) -> None:
        bus = bench.bridge.data
        await access(ctx, bus, 0, write=0x1234_5678)
        await access(ctx, bus, REGISTERS + Register.MARK, write=7)
        await access(ctx, bus, REGISTERS + Register.EXIT, write=9)
        low = await access(ctx, bus, REGISTERS + Register.CYCLES_LO)
        await ctx.tick().repeat(20)
        assert await access(ctx, bus, REGISTERS + Register.CYCLES_HI) == 0
        assert await access(ctx, bus, REGISTERS + Register.CYCLES_LO) > low + 20
        assert not ctx.get(bench.bridge.error)

    bench.run(watch, program)
    assert told == [(Register.MARK, 7), (Register.EXIT, 9)]


@pytest.mark.parametrize("way", ["read", "write", "fetch"])
def test_an_access_beyond_memory_is_told(way: str) -> None:
    bench = Bench()

    async def program(ctx: Any) -> None:
        if way == "fetch":
            await line(ctx, bench.bridge.instructions, BYTES)
        else:
            await access(ctx, bench.bridge.data, BYTES, write=1 if way == "write" else None)
            await access(ctx, bench.bridge.data, REGISTERS + Register.CYCLES_LO)
        await ctx.tick()
        assert ctx.get(bench.bridge.error)

    bench.run(program)
