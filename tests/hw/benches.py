"""Benches for Amaranth's simulator: system memory behind AXI4 with exact timing, and a host on AXI4-Lite."""

from collections import deque
from typing import Any

from amaranth.hdl import Fragment
from amaranth.sim import Simulator

from dovetail.hw.common.axi import INCR
from dovetail.hw.common.elaboration import checked
from dovetail.hw.common.ports import GROUP
from dovetail.isa.config.given import MemoryTiming
from dovetail.isa.host import HOST_REGISTERS
from dovetail.isa.timing.dma import BOUNDARY

OKAY, SLVERR = 0, 2


class ReadMemory:
    """System memory on AXI4 read channels, ``size`` bytes from address 0 on; beyond it every beat is an error.

    Timing is that of :class:`~dovetail.isa.config.given.MemoryTiming`: addresses are always taken; a burst's
    first beat comes ``read_latency`` cycles after its address at the earliest, beats are ``beat_cycles`` apart.
    """

    def __init__(self, port: Any, memory: bytearray, timing: MemoryTiming) -> None:
        self.port, self.memory, self.timing = port, memory, timing
        self.width = len(port.rdata) // 8
        self.beats: deque[tuple[int, int, int]] = deque()  # cycle, address, last
        self.bursts: list[tuple[int, int, int]] = []  # cycle, address, beats
        self.next_beat = 0
        self.in_flight = self.most_in_flight = 0

    async def run(self, ctx: Any) -> None:
        port, timing = self.port, self.timing
        ctx.set(port.arready, 1)
        cycle = 0
        async for *_, valid, address, length, size, kind, ready in ctx.tick().sample(
            port.arvalid, port.araddr, port.arlen, port.arsize, port.arburst, port.rready
        ):
            assert ready or not ctx.get(port.rvalid)
            if ctx.get(port.rvalid) and ctx.get(port.rlast):
                self.in_flight -= 1
            if valid:
                check_burst(address, length + 1, size, kind, self.width)
                self.in_flight += 1
                self.most_in_flight = max(self.most_in_flight, self.in_flight)
                self.bursts.append((cycle, address, length + 1))
                for beat in range(length + 1):
                    self.next_beat = max(self.next_beat, cycle + timing.read_latency)
                    self.beats.append((self.next_beat, address + beat * self.width, beat == length))
                    self.next_beat += timing.beat_cycles
            cycle += 1
            if self.beats and self.beats[0][0] == cycle:
                _, address, last = self.beats.popleft()
                inside = address + self.width <= len(self.memory)
                data = self.memory[address : address + self.width] if inside else bytes(self.width)
                ctx.set(port.rvalid, 1)
                ctx.set(port.rdata, int.from_bytes(data, "little"))
                ctx.set(port.rresp, OKAY if inside else SLVERR)
                ctx.set(port.rlast, last)
            else:
                ctx.set(port.rvalid, 0)


class WriteMemory:
    """The same for the write channels: a beat is taken ``beat_cycles`` after the one before it at the earliest, a burst
    is answered ``write_latency`` cycles after its last beat. A burst beyond the memory is answered with an error."""

    def __init__(self, port: Any, memory: bytearray, timing: MemoryTiming) -> None:
        self.port, self.memory, self.timing = port, memory, timing
        self.width = len(port.wdata) // 8
        self.open: deque[list[int]] = deque()  # address, beats left, error
        self.answers: deque[tuple[int, int]] = deque()
        self.bursts: list[tuple[int, int, int]] = []
        self.written: list[int] = []  # cycles of beats
        self.in_flight = self.most_in_flight = 0

    async def run(self, ctx: Any) -> None:
        port, timing, width = self.port, self.timing, self.width
        ctx.set(port.awready, 1)
        ctx.set(port.wready, 1)
        cycle, next_beat = 0, 0
        async for *_, valid, address, length, size, kind, w_valid, data, strobe, last, ready in ctx.tick().sample(
            *(port.awvalid, port.awaddr, port.awlen, port.awsize, port.awburst),
            *(port.wvalid, port.wdata, port.wstrb, port.wlast, port.bready),
        ):
            if ctx.get(port.bvalid):
                assert ready
                self.in_flight -= 1
            if w_valid and ctx.get(port.wready):
                burst = self.open[0]  # write data never comes before its address
                for lane in range(width):
                    if strobe >> lane & 1:
                        if burst[0] + lane < len(self.memory):
                            self.memory[burst[0] + lane] = data >> 8 * lane & 0xFF
                        else:
                            burst[2] = SLVERR
                burst[0] += width
                burst[1] -= 1
                assert last == (burst[1] == 0)
                if last:
                    self.answers.append((cycle + timing.write_latency, burst[2]))
                    self.open.popleft()
                self.written.append(cycle)
                next_beat = cycle + timing.beat_cycles
            if valid:
                check_burst(address, length + 1, size, kind, width)
                self.in_flight += 1
                self.most_in_flight = max(self.most_in_flight, self.in_flight)
                self.bursts.append((cycle, address, length + 1))
                self.open.append([address, length + 1, OKAY])
            cycle += 1
            ctx.set(port.wready, cycle >= next_beat)
            if self.answers and self.answers[0][0] == cycle:
                ctx.set(port.bvalid, 1)
                ctx.set(port.bresp, self.answers.popleft()[1])
            else:
                ctx.set(port.bvalid, 0)


def check_burst(address: int, beats: int, size: int, kind: int, width: int) -> None:
    """AXI4's rules for a burst of whole beats."""
    assert kind == INCR and 1 << size == width and address % width == 0 and beats <= 256
    assert address // BOUNDARY == (address + beats * width - 1) // BOUNDARY, "burst crosses 4 KiB"


def offer_register(ctx: Any, cfg: Any, index: int, value: int) -> None:
    """Has a unit's register written at the end of this cycle, and of each until ``cfg.en`` is low again."""
    group, place = divmod(index, GROUP)
    ctx.set(cfg.en, 1)
    ctx.set(cfg.due, 1)
    ctx.set(cfg.group, 1 << group)
    ctx.set(cfg.place, 1 << place)
    ctx.set(cfg.value, value)


async def host_write(ctx: Any, port: Any, name: str | int, value: int, strobe: int = 0xF) -> int:
    """Write the host register of a name or an offset; gives the response."""
    ctx.set(port.awaddr, HOST_REGISTERS[name].offset if isinstance(name, str) else name)
    ctx.set(port.wdata, value)
    ctx.set(port.wstrb, strobe)
    ctx.set(port.awvalid, 1)
    ctx.set(port.wvalid, 1)
    ctx.set(port.bready, 1)
    await ctx.tick().until(port.awready & port.wready)
    ctx.set(port.awvalid, 0)
    ctx.set(port.wvalid, 0)
    (response,) = await ctx.tick().sample(port.bresp).until(port.bvalid)
    return int(response)


async def host_read(ctx: Any, port: Any, name: str | int) -> tuple[int, int]:
    """Read the host register of a name or an offset; gives value and response."""
    ctx.set(port.araddr, HOST_REGISTERS[name].offset if isinstance(name, str) else name)
    ctx.set(port.arvalid, 1)
    ctx.set(port.rready, 1)
    await ctx.tick().until(port.arready)
    ctx.set(port.arvalid, 0)
    value, response = await ctx.tick().sample(port.rdata, port.rresp).until(port.rvalid)
    return int(value), int(response)


def simulate(design: Any, *benches: Any, background: tuple[Any, ...] = ()) -> None:
    """Run ``benches`` to their end against ``design``, at one clock per nanosecond."""
    with checked():
        simulator = Simulator(Fragment.get(design, None))
    simulator.add_clock(1e-9, if_exists=True)
    for bench in background:
        simulator.add_testbench(bench, background=True)
    for bench in benches:
        simulator.add_testbench(bench)
    simulator.run()
