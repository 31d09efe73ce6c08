"""The host's accesses reach the accelerator whose registers are at the address."""

from typing import Any

from amaranth import Module
from amaranth.lib import wiring

from dovetail.hw.host.registers import Host
from dovetail.hw.system.decoder import HostDecoder
from dovetail.isa.config.resolved import Config
from dovetail.isa.host import CONTROL_START, DECERR, HOST_REGISTERS, ID, OKAY, SLVERR
from tests.hw.benches import host_read, host_write, simulate
from tests.hw.netlist import Netlist

CONFIGS = [Config(pe=8, sram="32 KiB", banks=4), Config(pe=16, sram="64 KiB", banks=4), Config.load("icebreaker")]
WINDOWS = [0x4000_2000, 0x4000_0000, 0xFFFF_F000]


def design() -> tuple[Any, HostDecoder, list[Host]]:
    m = Module()
    m.submodules.decoder = decoder = HostDecoder(WINDOWS)
    hosts = [Host(config) for config in CONFIGS]
    for k, host in enumerate(hosts):
        m.submodules[f"host{k}"] = host
        wiring.connect(m, decoder.accelerators[k], host.bus)
    return m, decoder, hosts


def test_every_window_and_none() -> None:
    m, decoder, hosts = design()

    async def bench(ctx: Any) -> None:
        bus = decoder.bus
        for k, window in enumerate(WINDOWS):
            assert await host_write(ctx, bus, window + HOST_REGISTERS["PROGRAM"].offset, 1024 * (k + 1)) == OKAY
        for k, (window, config) in enumerate(zip(WINDOWS, CONFIGS, strict=True)):
            assert await host_read(ctx, bus, window) == (ID, OKAY)
            assert await host_read(ctx, bus, window + 8) == (config.hash & 0xFFFF_FFFF, OKAY)
            assert await host_read(ctx, bus, window + HOST_REGISTERS["PROGRAM"].offset) == (1024 * (k + 1), OKAY)
            assert await host_read(ctx, bus, window + 0xFFC) == (0, SLVERR), "no such register"
            assert ctx.get(hosts[k].program) == 1024 * (k + 1)
        for address in (0, 0x4000_1000, 0xC000_2000):
            assert await host_read(ctx, bus, address) == (0, DECERR)
            assert await host_write(ctx, bus, address, 1) == DECERR

    simulate(m, bench)


def test_byte_strobes_pass() -> None:
    m, decoder, hosts = design()

    async def bench(ctx: Any) -> None:
        address = WINDOWS[1] + HOST_REGISTERS["PROGRAM"].offset
        assert await host_write(ctx, decoder.bus, address, 0x1234_5400) == OKAY
        assert await host_write(ctx, decoder.bus, address, 0xABCD_EF00, strobe=0b0100) == OKAY
        assert ctx.get(hosts[1].program) == 0x12CD_5400
        assert ctx.get(hosts[0].program) == ctx.get(hosts[2].program) == 0

    simulate(m, bench)


def test_cycles_of_a_start_and_a_read() -> None:
    m, decoder, hosts = design()
    seen: dict[str, list[int]] = {"start": [], "taken": [], "answered": [], "read": []}

    async def watch(ctx: Any) -> None:
        now = 0
        bus = decoder.bus
        async for *_, start, taken, answered, read in ctx.tick().sample(
            hosts[2].start, bus.awready, bus.bvalid, bus.rvalid
        ):
            for name, value in (("start", start), ("taken", taken), ("answered", answered), ("read", read)):
                if value:
                    seen[name].append(now)
            now += 1

    async def bench(ctx: Any) -> None:
        await ctx.tick().repeat(10)
        await host_write(ctx, decoder.bus, WINDOWS[2] + HOST_REGISTERS["CONTROL"].offset, CONTROL_START.mask)
        await ctx.tick().repeat(10)

    async def read(ctx: Any) -> None:
        await ctx.tick().repeat(40)
        await host_read(ctx, decoder.bus, WINDOWS[0])

    simulate(m, bench, read, background=(watch,))
    assert seen == {"taken": [11], "start": [14], "answered": [15], "read": [45]}


def test_outputs_are_registers() -> None:
    netlist = Netlist(HostDecoder(WINDOWS))
    constant = ("rready", "bready")
    loose = {name for name, bit in netlist.outputs() if not netlist.from_register(bit)}
    assert sorted(name for name in loose if not name.endswith(constant)) == []
    assert not any(netlist.reached_by_inputs(bit) for _, bit in netlist.outputs())
