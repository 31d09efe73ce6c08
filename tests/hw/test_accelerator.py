"""Whole programs on the accelerator (block RAM form) against the timing of the whole program, and their bytes."""

import random
from types import SimpleNamespace
from typing import Any

import pytest

from dovetail.hw.accelerator import HOST_PREFIX, MEMORY_PREFIX, Accelerator
from dovetail.isa.config.given import MemoryTiming
from dovetail.isa.config.resolved import Config
from dovetail.isa.host import STALLS
from dovetail.isa.instructions.table import PAGE_BYTES, PAGE_WORDS, Cause, Op, Unit, cfg, pack, sync, to_bytes
from dovetail.isa.timing.run import time_program
from dovetail.isa.timing.timeline import Timeline
from tests.hw.benches import ReadMemory, WriteMemory, host_read, host_write, simulate

MEMORY = 32 << 10
BASE = 0x3000
CONFIG = Config(
    ic_lanes=4,
    oc_lanes=4,
    sram="32 KiB",
    banks=4,
    bus=64,
    outstanding=2,
    memory=MemoryTiming(read_latency=12, write_latency=7),
)

Words = list[int]
Event = tuple[int, bool, int, int, int]


class Bench:
    """Runs programs one after another, as a host would."""

    def __init__(self, config: Config, memory: bytes) -> None:
        self.config = config
        self.top = Accelerator(config, simulation=False, trace=True)
        self.host, bus = self._port(HOST_PREFIX), self._port(MEMORY_PREFIX)
        self.memory = bytearray(memory)
        self.read = ReadMemory(bus, self.memory, config.like_fixed)
        self.write = WriteMemory(bus, self.memory, config.like_fixed)
        self.events: list[Event] = []

    def _port(self, prefix: str) -> SimpleNamespace:
        members = [name for name in self.top.signature.members if name.startswith(prefix)]
        return SimpleNamespace(**{name.removeprefix(prefix): getattr(self.top, name) for name in members})

    async def watch(self, ctx: Any) -> None:
        top = self.top
        signals = [
            getattr(top, f"trace_{u.name.lower()}_{part}") for u in Unit for part in ("start", "fetch", "pc", "end")
        ]
        cycle = 0
        open_: dict[Unit, tuple[bool, int, int]] = {}
        async for _, _, busy, *values in ctx.tick().sample(top.trace_busy, *signals):
            for u in Unit:
                start, fetch, pc, end = values[4 * u : 4 * u + 4]
                if start:
                    assert u not in open_
                    open_[u] = bool(fetch), pc, cycle
                if end:
                    self.events.append((int(u), *open_.pop(u), cycle))
            cycle = cycle + 1 if busy else 0

    async def run(self, ctx: Any, words: Words, pages: int, address: int) -> dict[str, int]:
        """Writes the program to memory, runs it, gives the host's registers."""
        self.memory[address : address + 8 * len(words)] = to_bytes(words)
        self.events.clear()
        for name, value in (("PROGRAM", address), ("PAGES", pages), ("BASE", BASE), ("CONTROL", 3)):
            assert await host_write(ctx, self.host, name, value) == 0
        for _ in range(20_000):
            if ctx.get(self.top.irq):
                break
            await ctx.tick()
        else:
            raise AssertionError("program hangs")
        names = ["STATUS", "CAUSE", "FAULT_PC", "CYCLES_LO", *(f"{u.name}_{s}" for u in Unit for s in STALLS)]
        return {name: (await host_read(ctx, self.host, name))[0] for name in names}

    def simulate(self, bench: Any) -> None:
        simulate(self.top, bench, background=(self.read.run, self.write.run, self.watch))


def matches(bench: Bench, seen: dict[str, int], timeline: Timeline) -> None:
    """Every start and end, the counters and the fault are as timed."""
    fault = timeline.fault
    assert seen["STATUS"] == (2 | (4 if fault else 0))
    assert (Cause(seen["CAUSE"]), seen["FAULT_PC"]) == ((fault.cause, fault.pc) if fault else (Cause.NONE, 0))
    rows = zip(timeline.unit, timeline.is_fetch, timeline.pc, timeline.start, timeline.end, strict=True)
    want = sorted((int(u), bool(f), int(pc), int(start), int(end)) for u, f, pc, start, end in rows)
    assert sorted(bench.events) == want
    assert seen["CYCLES_LO"] == timeline.cycles
    for unit, counters in timeline.counters.items():
        counted = tuple(seen[f"{unit.name}_{stall}"] for stall in STALLS)
        assert counted == (counters.busy, counters.config, counters.token, counters.idle), unit.name


def transfer(unit: Unit, mem: int, sram: int, length: int, rows: int = 1, step: int = 0) -> Words:
    values = {
        "MEM_ADDR": mem,
        "MEM_ROW_STEP": step,
        "SRAM_ADDR": sram,
        "SRAM_BYTES": rows * length,
        "SRAM_ROW_STEP": length,
        "LENGTH": length,
        "COUNT": pack(unit, "COUNT", rows=rows, planes=1),
    }
    return [cfg(unit, name, value) for name, value in values.items()] + [
        Op.DMA_READ if unit == Unit.LOAD else Op.DMA_WRITE
    ]


LOAD, ARRAY, VECTOR, STORE = Unit
COPY = [
    *transfer(LOAD, 0x103, 0x21, 100, 3, 150),
    *transfer(STORE, 0x2005, 0x21, 300),
    *[cfg(ARRAY, "KC", 1)] * 3,
]
COPY.insert(-4, sync(STORE, LOAD))
END = [int(Op.END)]
POOL = [
    cfg(VECTOR, "IN_ADDR", 0x2000),
    cfg(VECTOR, "IN_BYTES", 64),
    cfg(VECTOR, "OUT_ADDR", 0x100),
    cfg(VECTOR, "OUT_BYTES", 64),
    cfg(VECTOR, "TILE", pack(VECTOR, "TILE", height=5, width=3)),
    cfg(VECTOR, "GEOMETRY", pack(VECTOR, "GEOMETRY", kh=1, kw=1, stride_y=1, dilation_y=1)),
    cfg(VECTOR, "BLOCKS", pack(VECTOR, "BLOCKS", count=1, last=1)),
    Op.POOL,
]

PROGRAMS: dict[str, Words] = {
    "end only": END,
    "copy": COPY + END,
    "unknown opcode": [*COPY, 0x7F, *END],
    "reserved bit": [*COPY, Op.END | 1 << 9],
    "unknown register": [*COPY, Op.CFG | 0x3F << 8],
    "reserved bit of a register": [cfg(ARRAY, "KC", 1 << 20)],
    "unknown unit": [sync(STORE, LOAD) | 4 << 8],
    "no end": COPY * 3 + [cfg(LOAD, "LENGTH", 3)] * (128 - 3 * len(COPY)),
    "zero size": [*COPY, cfg(STORE, "LENGTH", 0), Op.DMA_WRITE, *COPY, *END],
    "range while another runs": [*COPY, cfg(STORE, "SRAM_ADDR", 0x7FFF), Op.DMA_WRITE, Op.DMA_WRITE, *COPY * 2],
    "bus error of a read": [*COPY, *transfer(LOAD, 0x7000, 0, 60), *COPY, *END],
    "bus error of a write": [*COPY, *transfer(STORE, 0x7000, 0, 60), *COPY, *END],
    "token": [
        *transfer(LOAD, 0, 0, 600),
        sync(STORE, LOAD),
        Op.DMA_READ,
        sync(STORE, LOAD, 1),
        sync(ARRAY, STORE),
        *END,
    ],
    "two pages": [*COPY * 3, *[cfg(STORE, "LENGTH", 9)] * 140, *END],
    "three pages, full queue": [*transfer(LOAD, 0, 0, 100), *[Op.DMA_READ] * 20, *[sync(ARRAY, LOAD, 2)] * 240, *END],
    "pool beside a load": [*POOL, *transfer(LOAD, 0, 0x4000, 500), *END],
    "write port taken": [*POOL[:-1], cfg(VECTOR, "OUT_ADDR", 0x4000), *transfer(LOAD, 0, 0x4000, 700), Op.POOL, *END],
    "read port taken": [*transfer(STORE, 0, 0x2000, 700), *POOL, *END],
}


@pytest.mark.slow
@pytest.mark.parametrize("half", [0, 1])
def test_programs_one_after_another(half: int) -> None:
    memory = random.Random(0).randbytes(MEMORY)
    bench = Bench(CONFIG, memory)
    pages = max(-(-len(words) // PAGE_WORDS) for words in PROGRAMS.values())
    assert pages * PAGE_BYTES <= BASE

    async def run(ctx: Any) -> None:
        for name, words in list(PROGRAMS.items())[half::2]:
            bench.memory[:] = memory
            padded = words + [0] * (-len(words) % PAGE_WORDS)
            seen = await bench.run(ctx, padded, len(padded) // PAGE_WORDS, PAGE_BYTES)
            timeline = time_program(CONFIG, padded, address=PAGE_BYTES, base=BASE, memory_bytes=MEMORY)
            try:
                matches(bench, seen, timeline)
            except AssertionError as error:
                raise AssertionError(f"{name}: {error}") from None
            if name == "copy":
                rows = [memory[BASE + 0x103 + 150 * n :][:100] for n in range(3)]
                assert bench.memory[BASE + 0x2005 :][:300] == b"".join(rows)

    bench.simulate(run)


def test_fetch_beyond_memory() -> None:
    bench = Bench(CONFIG, bytes(MEMORY))

    async def run(ctx: Any) -> None:
        address = MEMORY - PAGE_BYTES
        words = [cfg(ARRAY, "KC", 1)] * PAGE_WORDS
        seen = await bench.run(ctx, words, 2, address)
        timeline = time_program(CONFIG, words + [Op.END] * PAGE_WORDS, address=address, base=BASE, memory_bytes=MEMORY)
        assert timeline.fault and timeline.fault.cause == Cause.BUS_FETCH
        matches(bench, seen, timeline)
        empty = await bench.run(ctx, [], 0, 0)
        matches(bench, empty, time_program(CONFIG, [], base=BASE, memory_bytes=MEMORY))
        assert empty["CAUSE"] == Cause.NO_END
        assert (await bench.run(ctx, [Op.END], 1, 0))["CAUSE"] == Cause.NONE

    bench.simulate(run)


def random_words(rng: random.Random) -> Words:
    """Transfers with SYNCs as they come."""
    words: Words = []
    while len(words) < rng.choice([40, 140]):
        unit = rng.choice([LOAD, STORE])
        words += transfer(
            unit,
            rng.randrange(0x3000),
            rng.randrange(0x7000),
            rng.randint(1, 200),
            rng.randint(1, 4),
            rng.randrange(600),
        )
        if rng.random() < 0.5:
            words.append(words[-1])
        if rng.random() < 0.5:
            words.append(sync(rng.choice(list(Unit)), rng.choice(list(Unit)), rng.choice([0, 0, 1, 5])))
    return words + END


@pytest.mark.parametrize("bus", [128])
def test_random_programs(bus: int) -> None:
    config = CONFIG.replace(
        bus=bus, outstanding=3, memory=MemoryTiming(read_latency=3, write_latency=30, beat_cycles=2)
    )
    bench = Bench(config, random.Random(0).randbytes(MEMORY))
    rng = random.Random(bus)

    async def run(ctx: Any) -> None:
        for _ in range(2):
            words = random_words(rng)
            words += [0] * (-len(words) % PAGE_WORDS)
            seen = await bench.run(ctx, words, len(words) // PAGE_WORDS, 0)
            matches(bench, seen, time_program(config, words, base=BASE, memory_bytes=MEMORY))

    bench.simulate(run)
