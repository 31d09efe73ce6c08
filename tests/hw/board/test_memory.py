"""Memories of a board: bytes against a plain array, beats against the timing that they state."""

import random
from collections import deque
from collections.abc import Callable
from typing import Any, NamedTuple

import pytest

from dovetail.hw.board import sdram
from dovetail.hw.board.memory import BoardMemory
from dovetail.hw.common.axi import INCR
from dovetail.isa.config.given import MemoryTiming
from dovetail.isa.host import DECERR, OKAY
from dovetail.isa.timing.memories.sdram import NANOSECONDS
from tests.hw.benches import simulate

KINDS = [
    ("bram", 32, 3 * 4096),
    ("bram", 128, 8192),
    ("spram", 32, 1 << 17),
    ("spram", 64, 1 << 17),
    ("sdram", 32, 1 << 14),
    ("sdram", 64, 1 << 16),
    ("sdram32", 32, 1 << 16),
    ("sdram32", 64, 1 << 14),
]
OUTSTANDING = 3
PAGE = 4096


CLOCK = 100_000_000


class Chip:
    """SDRAM of 16 or 32 bits, which checks every command against its datasheet's times, in cycles of 10 ns."""

    RCD, RP, RAS, RC, RFC, WR, REFRESH, POWER_UP = 2, 2, 5, 7, 7, 2, 780, 200
    NEVER = -1_000_000

    def __init__(self, pins: Any, shape: sdram.Chip) -> None:
        self.pins = pins
        self.shape = shape
        self.cells: dict[tuple[int, int, int], int] = {}
        self.rows: dict[int, int] = {}
        self.now = 0
        self.refreshes = 0
        self.mode: int | None = None
        self.at: dict[str, dict[int, int]] = {name: {} for name in ("activate", "precharge", "write", "read")}
        self.refreshed = self.NEVER

    def place(self, address: int) -> tuple[int, int, int]:
        """Bank, row and column of a byte address."""
        column = address // (self.shape.width // 8)
        bank = column >> self.shape.column_bits
        return bank & 3, bank >> 2, column & self.columns - 1

    @property
    def columns(self) -> int:
        return 1 << self.shape.column_bits

    def since(self, what: str, bank: int) -> int:
        return self.now - self.at[what].get(bank, self.NEVER)

    async def run(self, ctx: Any) -> None:
        """The chip takes commands in the middle of a cycle; what a READ finds is there around the next one but one."""
        pins = self.pins
        signals = (pins.ras, pins.cas, pins.we, pins.ba, pins.a, pins.dqm, pins.dq_o, pins.dq_oe)
        coming: int | None = None
        async for *_, ras, cas, we, bank, a, dqm, data, driven in ctx.tick().sample(*signals):
            self.now += 1
            ctx.set(pins.dq_i, 0xDEAD if coming is None else coming)
            assert not driven or (coming is None and self.since("read", 0) > 3), "both drive the data"
            assert driven == (cas and we and not ras)
            coming = self.take(ras | cas << 1 | we << 2, bank, a, dqm, data)
            if self.mode is not None:
                assert self.now - self.refreshed <= self.REFRESH + 60, "a refresh is late"

    def take(self, command: int, bank: int, a: int, dqm: int, data: int) -> int | None:
        """Carries a command out; gives what a READ finds."""
        if command:
            assert self.now > self.POWER_UP and self.now - self.refreshed >= self.RFC
        if command == 0b001:
            assert self.mode is not None and bank not in self.rows
            assert self.since("precharge", bank) >= self.RP and self.since("activate", bank) >= self.RC
            self.rows[bank] = a
            self.at["activate"][bank] = self.now
        elif command == 0b101:
            for n in list(self.rows) if a >> 10 & 1 else [bank]:
                assert self.since("activate", n) >= self.RAS and self.since("write", n) >= self.WR
                self.rows.pop(n, None)
            self.at["precharge"] = dict.fromkeys(range(4), self.now)
        elif command == 0b011:
            assert not self.rows and self.since("precharge", 0) >= self.RP
            self.refreshed = self.now
            self.refreshes += 1
        elif command == 0b111:
            assert self.refreshes >= 8 and not self.rows and a == 0x20 and bank == 0
            self.mode = a
        elif command in (0b010, 0b110):
            assert bank in self.rows and self.since("activate", bank) >= self.RCD and a < self.columns
            place = bank, self.rows[bank], a
            if command == 0b010:
                self.at["read"][0] = self.now
                return self.cells.get(place, 0)
            old, mask = self.cells.get(place, 0), sum(0xFF << 8 * n for n in range(4) if dqm >> n & 1)
            self.cells[place] = old & mask | data & ~mask
            self.at["write"][bank] = self.now
        return None


class Read(NamedTuple):
    """A read burst as it was accepted."""

    cycle: int
    address: int
    beats: int


class Bench:
    """Random bursts on both directions at once. Writes go to even pages, reads come from odd ones."""

    def __init__(self, kind: str, bus: int, size: int, *, seed: int) -> None:
        memory = BoardMemory(kind, size)
        self.timing = memory.timing
        self.dut: Any = memory.component(bus=bus, outstanding=OUTSTANDING, clock_hz=CLOCK, simulation=True)
        self.chip: Chip | None = None
        if memory.chip:  # and a shorter power-up
            self.dut.nanoseconds = NANOSECONDS | {"power_up": 2000}
            self.chip = Chip(self.dut.pins, memory.chip)
        self.rng = random.Random(seed)
        self.width, self.size = bus // 8, size
        self.image = bytearray(size)
        self.cycle = 0
        self.accesses = 0  # of the link in :meth:`disturb`
        self.waiting = False  # for the answer to one
        self.reads: list[Read] = []
        self.read_beats: list[tuple[int, int, int, int]] = []  # cycle, data, response, last
        self.addressed: list[int] = []  # cycles of write addresses
        self.write_bursts: list[tuple[int, int]] = []  # address, beats
        self.late: Callable[[int], int] = lambda burst: 0  # cycles by which a write's data come later than they could
        self.write_beats: list[int] = []
        self.answers: list[tuple[int, int]] = []  # cycle, response
        self.expected_answers: list[tuple[int, int]] = []  # cycle of the last beat, response

    def burst(self, odd: int) -> tuple[int, int]:
        """Address and beats, in an even or odd page; now and then outside memory."""
        rng = self.rng
        pages = [n for n in range(self.size // PAGE) if n % 2 == odd] + [self.size // PAGE + odd, 0xF_FFFE + odd]
        beats = rng.choice((1, 1, 2, 3, 16))
        first = rng.randrange(PAGE // self.width - beats + 1)
        return rng.choice(pages) * PAGE + first * self.width, beats

    async def link(self, ctx: Any, address: int, data: int | None = None) -> int:
        """Write or read a word by the link."""
        port = self.dut.port.link
        ctx.set(port.valid, 1)
        ctx.set(port.write, data is not None)
        ctx.set(port.address, address // 4)
        ctx.set(port.data, data or 0)
        await ctx.tick().until(port.ready)
        ctx.set(port.valid, 0)
        if data is not None:
            return 0
        while not ctx.get(port.answer):
            await ctx.tick()
        return int(ctx.get(port.read_data))

    @property
    def background(self) -> tuple[Any, ...]:
        """What runs beside the memory."""
        return (self.chip.run,) if self.chip else ()

    async def fill(self, ctx: Any) -> None:
        """Random words in the first odd page and the last one; between them there are zeros."""
        pages = range(self.size // PAGE)
        if self.chip:
            width = self.chip.shape.width
            for address in range(PAGE, 2 * PAGE, width // 8):
                value = self.chip.cells[self.chip.place(address)] = self.rng.getrandbits(width)
                self.image[address : address + width // 8] = value.to_bytes(width // 8, "little")
            return
        for page in sorted({1, max(n for n in pages if n % 2)}):
            for address in range(page * PAGE, (page + 1) * PAGE, 16):
                value = self.rng.getrandbits(32)
                await self.link(ctx, address, value)
                self.image[address : address + 4] = value.to_bytes(4, "little")

    def disturb(self, ctx: Any) -> None:
        """In each cycle, perhaps a step of an access of the link to the first odd page, which keeps its bytes."""
        port = self.dut.port.link
        address = 4 * ctx.get(port.address)
        expected = int.from_bytes(self.image[address : address + 4], "little")
        if self.waiting and ctx.get(port.answer):
            assert ctx.get(port.read_data) == expected
            self.waiting = False
        elif not ctx.get(port.valid) and not self.waiting and self.rng.random() < 0.3:
            address = self.rng.randrange(PAGE, 2 * PAGE, 4)
            ctx.set(port.address, address // 4)
            ctx.set(port.data, int.from_bytes(self.image[address : address + 4], "little"))
            ctx.set(port.write, self.rng.random() < 0.5)
            ctx.set(port.valid, 1)

    async def traffic(self, ctx: Any, bursts: int, *, link: bool = False) -> None:
        """Bursts with hardly a pause, until all are answered; ``link``: and what :meth:`disturb` does."""
        read, write, rng = self.dut.port.read, self.dut.port.write, self.rng
        for port, prefix in ((read, "ar"), (write, "aw")):
            ctx.set(getattr(port, f"{prefix}burst"), INCR)
            ctx.set(getattr(port, f"{prefix}size"), self.width.bit_length() - 1)
        ctx.set(read.rready, 1)
        ctx.set(write.bready, 1)
        open_writes: deque[list[int]] = deque()  # address, beats to come
        to_read = to_write = bursts
        in_flight = unanswered = 0
        while to_read or to_write or in_flight or unanswered:
            if link:
                self.disturb(ctx)
            if not ctx.get(read.arvalid) and to_read and in_flight < OUTSTANDING and rng.random() < 0.7:
                address, beats = self.burst(1)
                ctx.set(read.araddr, address)
                ctx.set(read.arlen, beats - 1)
                ctx.set(read.arvalid, 1)
            if not ctx.get(write.awvalid) and to_write and unanswered < OUTSTANDING and rng.random() < 0.7:
                address, beats = self.burst(0)
                ctx.set(write.awaddr, address)
                ctx.set(write.awlen, beats - 1)
                ctx.set(write.awvalid, 1)
            first = len(self.write_bursts) - len(open_writes)  # of the bursts whose data are not all there
            if not ctx.get(write.wvalid) and open_writes and self.cycle > self.addressed[first] + self.late(first):
                ctx.set(write.wdata, rng.getrandbits(8 * self.width))
                ctx.set(write.wstrb, rng.choice(((1 << self.width) - 1, rng.getrandbits(self.width))))
                ctx.set(write.wlast, open_writes[0][1] == 1)
                ctx.set(write.wvalid, 1)
            addressed = ctx.get(read.arvalid) and ctx.get(read.arready)
            write_addressed = ctx.get(write.awvalid) and ctx.get(write.awready)
            written = ctx.get(write.wvalid) and ctx.get(write.wready)
            if addressed:
                self.reads.append(Read(self.cycle, ctx.get(read.araddr), ctx.get(read.arlen) + 1))
                to_read, in_flight = to_read - 1, in_flight + 1
            if ctx.get(read.rvalid):
                last = ctx.get(read.rlast)
                self.read_beats.append((self.cycle, ctx.get(read.rdata), ctx.get(read.rresp), last))
                in_flight -= last
            if ctx.get(write.bvalid):
                self.answers.append((self.cycle, ctx.get(write.bresp)))
                unanswered -= 1
            if written:
                self.store(open_writes, ctx.get(write.wdata), ctx.get(write.wstrb))
            if write_addressed:
                self.addressed.append(self.cycle)
                self.write_bursts.append((ctx.get(write.awaddr), ctx.get(write.awlen) + 1))
                open_writes.append([ctx.get(write.awaddr), ctx.get(write.awlen) + 1])
                to_write, unanswered = to_write - 1, unanswered + 1
            linked = link and ctx.get(self.dut.port.link.valid) and ctx.get(self.dut.port.link.ready)
            await ctx.tick()
            self.cycle += 1
            if linked:
                ctx.set(self.dut.port.link.valid, 0)
                self.accesses += 1
                self.waiting = not ctx.get(self.dut.port.link.write)
            for done, valid in ((addressed, read.arvalid), (write_addressed, write.awvalid), (written, write.wvalid)):
                if done:
                    ctx.set(valid, 0)

    def store(self, open_writes: deque[list[int]], data: int, strobe: int) -> None:
        """A write beat that was accepted."""
        address, beats = burst = open_writes[0]
        for lane in range(self.width):
            if strobe >> lane & 1 and address + lane < self.size:
                self.image[address + lane] = data >> 8 * lane & 0xFF
        burst[0] += self.width
        burst[1] -= 1
        self.write_beats.append(self.cycle)
        if beats == 1:
            self.expected_answers.append((self.cycle, OKAY if address < self.size else DECERR))
            open_writes.popleft()

    def check_bytes(self) -> None:
        """What was read, and every answer."""
        beats = iter(self.read_beats)
        for burst in self.reads:
            for n in range(burst.beats):
                address = burst.address + n * self.width
                _, data, response, last = next(beats)
                assert last == (n == burst.beats - 1)
                assert response == (OKAY if address < self.size else DECERR)
                if response == OKAY:
                    assert data == int.from_bytes(self.image[address : address + self.width], "little")
        assert [code for _, code in self.answers] == [code for _, code in self.expected_answers]

    def check_timing(self) -> None:
        """The rules of :mod:`dovetail.isa.timing.dma`."""
        timing = self.timing
        if timing is None:
            return
        cycles = [cycle for cycle, *_ in self.read_beats]
        free = 0
        for burst in self.reads:
            first = max(burst.cycle + timing.read_latency, free)
            expected = [first + n * timing.beat_cycles for n in range(burst.beats)]
            assert cycles[: burst.beats] == expected
            del cycles[: burst.beats]
            free = expected[-1] + timing.beat_cycles
        assert [a for a, _ in self.answers] == [last + timing.write_latency for last, _ in self.expected_answers]
        gaps = [b - a for a, b in zip(self.write_beats, self.write_beats[1:], strict=False)]
        assert min(gaps) == timing.beat_cycles
        assert gaps.count(timing.beat_cycles) > len(gaps) // 2


@pytest.mark.parametrize("kind, bus, size", KINDS)
def test_bytes_and_beats(kind: str, bus: int, size: int) -> None:
    bench = Bench(kind, bus, size, seed=bus)

    async def host(ctx: Any) -> None:
        await bench.fill(ctx)
        await bench.traffic(ctx, 60 if bench.chip is None else 20)
        bench.check_bytes()
        bench.check_timing()
        for address in range(0, PAGE, 16 if bench.chip is None else 64):
            assert await bench.link(ctx, address) == int.from_bytes(bench.image[address : address + 4], "little")

    simulate(bench.dut, host, background=bench.background)


@pytest.mark.parametrize("kind, bus, size", KINDS)
def test_the_link_comes_between(kind: str, bus: int, size: int) -> None:
    """Its own reads and writes of an odd page, and nobody else's bytes change."""
    bench = Bench(kind, bus, size, seed=bus)

    async def host(ctx: Any) -> None:
        await bench.fill(ctx)
        await bench.traffic(ctx, 60 if bench.chip is None else 20, link=True)
        bench.check_bytes()
        assert bench.accesses > 20

    simulate(bench.dut, host, background=bench.background)


@pytest.mark.parametrize("kind", ["bram", "sdram", "sdram32"])
def test_settled_memory_has_no_history(kind: str) -> None:
    """Whatever rows are open and whenever refreshes were due: afterwards the same bursts take the same cycles."""
    found = []
    for history in range(5):
        bench = Bench(kind, 64, 1 << 14, seed=1)
        if bench.chip:
            bench.dut.nanoseconds |= {"refresh_interval": 500}

        async def host(ctx: Any, bench: Bench = bench, history: int = history) -> None:
            await bench.fill(ctx)
            await ctx.tick().repeat(300 + 11 * history)
            for n in range(history):
                await bench.link(ctx, PAGE * n)
            port = bench.dut.port.link
            ctx.set(port.settle, 1)
            await ctx.tick().until(port.settled)
            ctx.set(port.settle, 0)
            bench.rng.seed(2)
            await bench.traffic(ctx, 8)

        simulate(bench.dut, host, background=bench.background)
        found.append(([cycle for cycle, *_ in bench.read_beats], [cycle for cycle, _ in bench.answers]))
    assert all(times == found[0] for times in found) and found[0][0] and found[0][1]


def test_kinds_and_sizes() -> None:
    assert BoardMemory("bram", 8192).timing == MemoryTiming(read_latency=3, write_latency=2, beat_cycles=1)
    with pytest.raises(ValueError, match="memory kind must be one of bram, spram, sdram, sdram32, not 'flash'"):
        BoardMemory("flash", 4096)
    with pytest.raises(ValueError, match="memory must be a multiple of 4096 bytes, not 5000"):
        BoardMemory("bram", 5000)
    sizes: Any = {"outstanding": 4, "clock_hz": CLOCK, "simulation": True}
    with pytest.raises(ValueError, match="memory must be 65536 or 131072 bytes of single-port RAM with a bus of 32"):
        BoardMemory("spram", 1 << 18).component(bus=32, **sizes)
    with pytest.raises(ValueError, match="bus must be 32 or 64 bits with single-port RAM, not 128"):
        BoardMemory("spram", 1 << 17).component(bus=128, **sizes)
