"""The front end: its decoder against the instruction table, and when it does what."""

import random
from typing import Any

import numpy as np
import pytest

from dovetail.hw.common.ports import EntryKind
from dovetail.hw.sequencer.frontend import MANY, Decoder, Frontend, first_cause
from dovetail.isa.config.resolved import Config
from dovetail.isa.instructions.parameters import resolve
from dovetail.isa.instructions.table import (
    BY_NUMBER,
    INSTRUCTIONS,
    PAGE_WORDS,
    Cause,
    Op,
    Unit,
    cfg,
    decode,
    sync,
    to_bytes,
)
from dovetail.isa.timing.sequencer import PAGE_READY, front_end_faults
from tests.hw.benches import simulate
from tests.slow import slow

CONFIG = Config(ic_lanes=4, oc_lanes=4, sram="32 KiB", banks=4)
CONFIGS = {
    "all": CONFIG,
    "no vector, no depthwise": CONFIG.replace(
        pooling=False, elementwise=False, activation=False, matmul=False, depthwise="none"
    ),
    "parameters": CONFIG.replace(parameters=5),
    "all parameters": CONFIG.replace(parameters=15),
}


def words_to_decode() -> list[int]:
    rng = random.Random(0)
    words = [int(op) for op in Op] + list(range(256))
    words += [int(op) | 1 << bit for op in Op for bit in range(8, 64)]
    words += [Op.CFG | number << 8 | value << 32 for number in range(256) for value in (0, 0xFFFF_FFFF)]
    words += [r.number << 8 | Op.CFG | 1 << 32 + bit for r in BY_NUMBER.values() for bit in range(0, 32, 5)]
    words += [cfg(Unit.LOAD, "LENGTH", number, number) for number in range(16)]
    words += [Op.SYNC | unit << 8 | on << 16 | 7 << 32 for unit in range(6) for on in range(6)]
    words += [rng.choice(list(Op)) | rng.getrandbits(56) << 8 & rng.getrandbits(64) for _ in range(300)]
    return words


@pytest.mark.parametrize("name", [slow(name) if n % 2 else name for n, name in enumerate(CONFIGS)])
def test_decoder(name: str) -> None:
    config = CONFIGS[name]
    decoder = Decoder(config)
    words = words_to_decode()
    causes = front_end_faults(config, resolve(config, np.array(words, np.uint64), ())).tolist()

    async def bench(ctx: Any) -> None:
        for word, cause in zip(words, causes, strict=True):
            ctx.set(decoder.word, word)
            await ctx.delay(1e-9)
            seen = ctx.get(decoder.decoded)
            assert Cause(ctx.get(first_cause(decoder.decoded))) == cause, hex(word)
            assert seen.bad == bool(cause)
            want = decode(word)
            if want.param > config.parameters:
                assert cause == Cause.RESERVED
            elif cause not in (Cause.NONE, Cause.UNIT_ABSENT) and not 15 & word >> 16:
                assert want.fault == cause
            if cause:
                continue
            assert seen.end == (want.op == Op.END)
            if want.op == Op.CFG and want.register:
                assert (seen.kind, seen.unit, seen.code, seen.value) == (
                    EntryKind.CFG,
                    want.register.unit,
                    want.register.index,
                    want.value,
                )
            elif want.op == Op.SYNC:
                assert want.on is not None
                assert (seen.kind, seen.unit, seen.waits, seen.value) == (
                    EntryKind.WAIT,
                    want.unit,
                    1 << want.on,
                    min(want.value, MANY),
                )
            elif want.op != Op.END and want.op is not None:
                assert (seen.kind, seen.unit, seen.code) == (EntryKind.OP, INSTRUCTIONS[want.op].unit, want.op)

    simulate(decoder, bench)


class Bench:
    """Plays LOAD and the queues: fetches end when told, entries are recorded with their cycles."""

    def __init__(self, pages: list[list[int]], program: int, config: Config = CONFIG) -> None:
        self.config, self.program = config, program
        self.pages = [page + [0] * (PAGE_WORDS - len(page)) for page in pages]
        self.front = Frontend(config)
        self.pushed: list[tuple[int, Unit, EntryKind, int, int, int]] = []
        self.faults: list[tuple[int, Cause, int]] = []
        self.cycle = -1

    async def watch(self, ctx: Any) -> None:
        front = self.front
        queues = [s for unit in Unit for s in (front.queues[unit].valid, front.queues[unit].ready)]
        async for _, _, start, failed, fault, *handshakes in ctx.tick().sample(
            front.start, front.failed, front.fault, *queues, *(front.queues[unit].payload for unit in Unit)
        ):
            if start:
                self.cycle = -1
            if failed:
                self.faults.append((self.cycle, Cause(fault.cause), fault.pc))
            for unit in Unit:
                if handshakes[2 * unit] and handshakes[2 * unit + 1]:
                    e = handshakes[2 * len(Unit) + unit]
                    self.pushed.append((self.cycle, unit, e.kind, e.code, e.value, e.pc))
            self.cycle += 1

    async def begin(self, ctx: Any) -> None:
        front = self.front
        ctx.set(front.program, self.program)
        ctx.set(front.pages, len(self.pages))
        for unit in Unit:
            ctx.set(front.queues[unit].ready, 1)
        ctx.set(front.start, 1)
        await ctx.tick()
        ctx.set(front.start, 0)

    async def fetched(self, ctx: Any, page: int) -> int:
        """Fill page ``page`` and end its fetch; gives the fetch's end cycle."""
        front, width = self.front, self.config.bus_bytes
        data = to_bytes(self.pages[page])
        half = (self.program // 1024 + page) % 2
        ctx.set(front.page.en, 1)
        for beat in range(len(data) // width):
            ctx.set(front.page.row, half * (1024 // width) + beat)
            ctx.set(front.page.data, int.from_bytes(data[beat * width : (beat + 1) * width], "little"))
            await ctx.tick()
        ctx.set(front.page.en, 0)
        ctx.set(front.fetched, 1)
        end = self.cycle
        await ctx.tick()
        ctx.set(front.fetched, 0)
        return end

    def simulate(self, bench: Any) -> None:
        simulate(self.front, bench, background=(self.watch,))


@pytest.mark.parametrize("bus", [32, 64, 256])
@pytest.mark.parametrize("program", [0x400, 0x800])
def test_order_and_cycles(bus: int, program: int) -> None:
    """fetch(0); fetch(1) when page 0 is there, then its words one per cycle, then page 1."""
    words = [cfg(Unit(n % 4), "QUANT" if n % 4 in (1, 2) else "LENGTH", n) for n in range(PAGE_WORDS)]
    bench = Bench([words, [int(Op.DMA_READ), int(Op.END)]], program, CONFIG.replace(bus=bus))

    async def run(ctx: Any) -> None:
        await bench.begin(ctx)
        end = await bench.fetched(ctx, 0)
        second = await bench.fetched(ctx, 1)
        for _ in range(PAGE_WORDS):
            await ctx.tick()
        assert ctx.get(bench.front.stopped)
        fetches = [e for e in bench.pushed if e[2] == EntryKind.FETCH]
        assert [(e[0], e[4], e[5]) for e in fetches] == [(0, program, 0), (end + PAGE_READY, program + 1024, 1)]
        others = [e for e in bench.pushed if e[2] != EntryKind.FETCH]
        first = end + PAGE_READY + 1
        assert [(e[0], e[1], e[4], e[5]) for e in others[:PAGE_WORDS]] == [
            (first + n, Unit(n % 4), n, n) for n in range(PAGE_WORDS)
        ]
        assert others[PAGE_WORDS:] == [
            (max(first + PAGE_WORDS, second + PAGE_READY), Unit.LOAD, EntryKind.OP, Op.DMA_READ, 0, PAGE_WORDS)
        ]

    bench.simulate(run)


def test_parameters() -> None:
    """Each is added to the words that name it, in the word's cycle; a WAIT behind one has none."""
    config = CONFIG.replace(parameters=2)
    words = [cfg(Unit.LOAD, "MEM_ADDR", -3, 1), cfg(Unit.LOAD, "MEM_ADDR", 9), cfg(Unit.STORE, "MEM_ADDR", 1, 2)]
    words += [sync(Unit.LOAD, Unit.STORE), int(Op.END)]
    bench = Bench([words], 0, config)

    async def run(ctx: Any) -> None:
        ctx.set(bench.front.parameters, [5, 0xFFFF_FFF0])
        await bench.begin(ctx)
        end = await bench.fetched(ctx, 0)
        await ctx.tick().repeat(10)
        first = end + PAGE_READY
        assert [(e[0], e[4]) for e in bench.pushed[1:]] == [
            (first, 2), (first + 1, 9), (first + 2, 0xFFFF_FFF1), (first + 3, 0)
        ]  # fmt: skip
        assert ctx.get(bench.front.stopped) and not bench.faults

    bench.simulate(run)


def test_sync_targets_and_full_queue() -> None:
    words = [int(Op.DMA_WRITE)] * 3 + [
        sync(Unit.LOAD, Unit.STORE, 1),
        sync(Unit.LOAD, Unit.STORE, 9),
        int(Op.DMA_WRITE),
    ]
    bench = Bench([[*words, int(Op.END)]], 0)

    async def run(ctx: Any) -> None:
        await bench.begin(ctx)
        end = await bench.fetched(ctx, 0)
        await ctx.tick().repeat(PAGE_READY - 1)
        ctx.set(bench.front.queues[Unit.STORE].ready, 0)  # no place for the first word
        await ctx.tick().repeat(5)
        ctx.set(bench.front.queues[Unit.STORE].ready, 1)
        await ctx.tick().repeat(10)
        first = end + PAGE_READY + 5
        assert [e[0] for e in bench.pushed[1:]] == list(range(first, first + 6))
        targets = [e[4] for e in bench.pushed[1:] if e[2] == EntryKind.WAIT]
        assert targets == [2, (3 - 9) & 0xFFFF_FFFF], "none if negative"
        assert ctx.get(bench.front.stopped) and not bench.faults

    bench.simulate(run)


def test_fault_and_no_end() -> None:
    bench = Bench([[cfg(Unit.LOAD, "LENGTH", 1)] * 5 + [0xEE]], 0)

    async def run(ctx: Any) -> None:
        await bench.begin(ctx)
        end = await bench.fetched(ctx, 0)
        await ctx.tick().repeat(PAGE_READY + 5)
        assert bench.faults == [(end + PAGE_READY + 5, Cause.OPCODE, 5)]
        ctx.set(bench.front.halt, 1)
        await ctx.tick().repeat(4)
        assert len(bench.faults) == 1 and len(bench.pushed) == 6
        bench.pages = [[cfg(Unit.LOAD, "LENGTH", 1)] * PAGE_WORDS]
        await bench.begin(ctx)
        ctx.set(bench.front.halt, 0)
        end = await bench.fetched(ctx, 0)
        await ctx.tick().repeat(PAGE_READY + PAGE_WORDS)
        assert bench.faults[1:] == [(end + PAGE_READY + PAGE_WORDS, Cause.NO_END, PAGE_WORDS)]

    bench.simulate(run)
