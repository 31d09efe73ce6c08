"""The host's registers over AXI4-Lite."""

from typing import Any

import pytest

from dovetail.hw.host.registers import Host
from dovetail.isa.config.resolved import Config
from dovetail.isa.host import HOST_REGISTERS, ID, OKAY, SLVERR, STALLS, VERSION
from dovetail.isa.instructions.table import Cause, Unit
from tests.hw.benches import host_read, host_write, simulate

CONFIG = Config(ic_lanes=4, oc_lanes=4, sram="32 KiB", banks=4)


@pytest.fixture
def host() -> Host:
    return Host(CONFIG)


def test_table() -> None:
    offsets = [r.offset for r in HOST_REGISTERS.values()]
    assert len(set(offsets)) == len(offsets)
    assert all(offset % 4 == 0 and offset < 4096 for offset in offsets)


def test_read_only_registers(host: Host) -> None:
    async def bench(ctx: Any) -> None:
        ctx.set(host.first.cause, Cause.SRAM_RANGE)
        ctx.set(host.first.pc, 0x12345678)
        ctx.set(host.cycles, 5 << 32 | 100)
        want = {
            "ID": ID,
            "VERSION": VERSION,
            "CONFIG_HASH_LO": CONFIG.hash & 0xFFFF_FFFF,
            "CONFIG_HASH_HI": CONFIG.hash >> 32,
            "CAUSE": Cause.SRAM_RANGE,
            "FAULT_PC": 0x12345678,
            "CYCLES_LO": 100,
            "CYCLES_HI": 5,
        }
        for unit in Unit:
            want |= {f"{unit.name}_{stall}": 1000 + 4 * unit + n for n, stall in enumerate(STALLS)}
        for name, value in want.items():
            assert await host_read(ctx, host.bus, name) == (value, OKAY), name
            assert HOST_REGISTERS[name].access == "r"
            assert await host_write(ctx, host.bus, name, 0) == OKAY
            assert await host_read(ctx, host.bus, name) == (value, OKAY), name

    async def counter(ctx: Any) -> None:
        asked = 0
        async for _, _, ask, number in ctx.tick().sample(host.counter.ask, host.counter.number):
            asked = asked + 1 if ask else 0
            ctx.set(host.counter.answered, asked == 5)
            ctx.set(host.counter.value, 1000 + number)

    simulate(host, bench, background=(counter,))


def test_addresses_and_byte_strobes(host: Host) -> None:
    async def bench(ctx: Any) -> None:
        for name, mask in (("PROGRAM", 0xFFFF_FC00), ("PAGES", 0x007F_FFFF), ("BASE", 0xFFFF_F000)):
            assert [part.mask for part in HOST_REGISTERS[name].parts] == [mask]
            assert await host_write(ctx, host.bus, name, 0xFFFF_FFFF) == OKAY
            assert await host_read(ctx, host.bus, name) == (mask, OKAY)
            await host_write(ctx, host.bus, name, 0x1122_3344, strobe=0b0100)
            assert (await host_read(ctx, host.bus, name))[0] == (mask & 0xFF00_FFFF | 0x0022_0000 & mask)
        assert ctx.get(host.program) == 0xFF22_FC00
        ctx.set(host.busy, 1)
        await host_write(ctx, host.bus, "PROGRAM", 0)
        await host_write(ctx, host.bus, "BASE", 0)
        await host_write(ctx, host.bus, "PAGES", 0)
        assert ctx.get(host.program) and ctx.get(host.base) and ctx.get(host.pages)

    simulate(host, bench)


@pytest.mark.parametrize("offset", [0x02C, 0x080, 0xFFC])
def test_no_such_register(host: Host, offset: int) -> None:
    async def bench(ctx: Any) -> None:
        assert await host_read(ctx, host.bus, offset) == (0, SLVERR)
        assert await host_write(ctx, host.bus, offset, 1) == SLVERR

    simulate(host, bench)


def test_answers_wait_until_they_are_taken(host: Host) -> None:
    async def bench(ctx: Any) -> None:
        bus = host.bus
        await host_write(ctx, bus, "PAGES", 7)
        await ctx.tick()
        for name, value in (("awaddr", HOST_REGISTERS["BASE"].offset), ("wdata", 0x5000), ("wstrb", 15), ("bready", 0)):
            ctx.set(getattr(bus, name), value)
        ctx.set(bus.awvalid, 1)
        ctx.set(bus.wvalid, 1)
        assert not ctx.get(bus.awready) and not ctx.get(bus.wready)
        await ctx.tick()
        assert ctx.get(bus.awready) and ctx.get(bus.wready) and not ctx.get(bus.bvalid)
        await ctx.tick()
        ctx.set(bus.wdata, 0x9000)
        for _ in range(3):
            assert ctx.get(bus.bvalid) and not ctx.get(bus.awready) and not ctx.get(bus.wready)
            assert ctx.get(host.base) == 0x5000
            await ctx.tick()
        ctx.set(bus.awvalid, 0)
        ctx.set(bus.wvalid, 0)
        ctx.set(bus.bready, 1)
        await ctx.tick()
        assert not ctx.get(bus.bvalid)

        ctx.set(bus.araddr, HOST_REGISTERS["PAGES"].offset)
        ctx.set(bus.arvalid, 1)
        ctx.set(bus.rready, 0)
        assert not ctx.get(bus.arready)
        await ctx.tick()
        assert ctx.get(bus.arready) and not ctx.get(bus.rvalid)
        await ctx.tick()
        ctx.set(bus.araddr, HOST_REGISTERS["BASE"].offset)
        for _ in range(3):
            assert (ctx.get(bus.rvalid), ctx.get(bus.arready), ctx.get(bus.rdata)) == (1, 0, 7)
            await ctx.tick()
        ctx.set(bus.arvalid, 0)
        ctx.set(bus.rready, 1)
        await ctx.tick()
        assert not ctx.get(bus.rvalid)

    simulate(host, bench)


def test_start_status_interrupt(host: Host) -> None:
    starts = []

    async def count(ctx: Any) -> None:
        async for _, _, start in ctx.tick().sample(host.start):
            starts.append(start)

    async def bench(ctx: Any) -> None:
        async def status() -> int:
            return (await host_read(ctx, host.bus, "STATUS"))[0]

        async def end() -> None:
            ctx.set(host.ended, 1)
            await ctx.tick()
            ctx.set(host.ended, 0)
            ctx.set(host.busy, 0)

        await host_write(ctx, host.bus, "CONTROL", 3)
        await ctx.tick()
        assert sum(starts) == 1
        assert (await host_read(ctx, host.bus, "CONTROL"))[0] == 2
        ctx.set(host.busy, 1)
        assert await status() == 1
        await host_write(ctx, host.bus, "CONTROL", 3)
        await ctx.tick()
        assert sum(starts) == 1, "a start while busy is ignored"
        assert not ctx.get(host.irq)
        await end()
        await ctx.tick()
        assert ctx.get(host.irq) and await status() == 2
        await host_write(ctx, host.bus, "STATUS", 0)
        await host_write(ctx, host.bus, "STATUS", 2, strobe=0b1110)
        assert ctx.get(host.irq) and await status() == 2, "only a written 1 clears"
        await host_write(ctx, host.bus, "STATUS", 2)
        assert not ctx.get(host.irq) and await status() == 0
        ctx.set(host.faulted, 1)
        await end()
        assert await status() == 6
        await host_write(ctx, host.bus, "CONTROL", 0)
        assert not ctx.get(host.irq) and await status() == 6
        await host_write(ctx, host.bus, "CONTROL", 1)
        ctx.set(host.faulted, 0)
        assert await status() == 0

    simulate(host, bench, background=(count,))


def test_parameters() -> None:
    host = Host(CONFIG.replace(parameters=2))

    async def bench(ctx: Any) -> None:
        for number, value in ((1, 0x1122_3344), (2, 0xFFFF_FFFF)):
            assert await host_read(ctx, host.bus, f"PARAM{number}") == (0, OKAY)
            assert await host_write(ctx, host.bus, f"PARAM{number}", value) == OKAY
            assert await host_read(ctx, host.bus, f"PARAM{number}") == (value, OKAY)
        await host_write(ctx, host.bus, "PARAM2", 0, strobe=0b0001)
        ctx.set(host.busy, 1)
        await host_write(ctx, host.bus, "PARAM1", 5)
        assert [ctx.get(host.parameters[n]) for n in range(2)] == [0x1122_3344, 0xFFFF_FF00]
        assert await host_write(ctx, host.bus, "PARAM3", 1) == SLVERR
        assert await host_read(ctx, host.bus, "PARAM3") == (0, SLVERR)

    simulate(host, bench)
