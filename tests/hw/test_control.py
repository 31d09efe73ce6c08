"""Queue, unit control and bank claims."""

import random
from typing import Any

import pytest

from dovetail.hw.control import UnitControl
from dovetail.hw.ports import EntryKind
from dovetail.hw.queue import Queue
from dovetail.hw.scoreboard import Scoreboard
from dovetail.hw.testing import simulate
from dovetail.isa.config import Config
from dovetail.isa.instructions import QUEUE_DEPTH, Cause, Op, Unit
from dovetail.isa.timing.common import CHECK

CONFIG = Config(ic_lanes=4, oc_lanes=4, sram="32 KiB", banks=4)


def entry(kind: Any, code: int = 0, value: int = 0, pc: int = 0) -> dict[str, Any]:
    return {"kind": kind, "code": code, "value": value, "pc": pc}


# --- queue -------------------------------------------------------------------------------------------------------


def test_queue_depth_must_be_a_power_of_two() -> None:
    with pytest.raises(ValueError, match="depth must be a power of two of at least 2, not 12"):
        Queue(depth=12)


def test_queue_under_random_traffic() -> None:
    """An entry shows the cycle after its push, a place is free the cycle after its pop."""
    queue = Queue(depth=QUEUE_DEPTH)
    rng = random.Random(0)

    async def bench(ctx: Any) -> None:
        held: list[int] = []
        for cycle in range(600):
            eager = cycle // 100 % 3
            push, pop = rng.random() < (0.9, 0.5, 0.2)[eager], rng.random() < (0.2, 0.5, 0.9)[eager]
            clear = rng.random() < 0.01
            ctx.set(queue.i.payload, entry(EntryKind.CFG, value=cycle))
            ctx.set(queue.i.valid, push)
            ctx.set(queue.o.ready, pop)
            ctx.set(queue.clear, clear)
            assert ctx.get(queue.i.ready) == (len(held) < QUEUE_DEPTH)
            assert ctx.get(queue.o.valid) == bool(held)
            if held:
                assert ctx.get(queue.o.payload.value) == held[0]
            full = len(held) == QUEUE_DEPTH
            if pop and held:
                held.pop(0)
            if push and not full:
                held.append(cycle)
            if clear:
                held.clear()
            await ctx.tick()

    simulate(queue, bench)


# --- control -----------------------------------------------------------------------------------------------------


class Bench:
    """Offers entries to a control and plays its core: an operation takes ``work`` cycles from its verification on."""

    def __init__(self, unit: Unit = Unit.LOAD) -> None:
        self.control = UnitControl(CONFIG, unit=unit)
        self.entries: list[dict[str, Any]] = []
        self.popped: list[int] = []
        self.ends: list[int] = []
        self.faults: list[tuple[int, Cause, int]] = []
        self.cycle = 0
        self.cause, self.conflict, self.error, self.work = Cause.NONE, 0, 0, 5

    async def watch(self, ctx: Any) -> None:
        c = self.control
        pending: list[int] = []
        while True:
            self.cycle += 1
            if self.entries:
                ctx.set(c.entries.payload, self.entries[0])
            ctx.set(c.entries.valid, bool(self.entries))
            ctx.set(c.halt, bool(self.faults))
            ctx.set(c.core.cause, self.cause)
            ctx.set(c.claim.conflict, self.conflict)
            ctx.set(c.core.error, self.error)
            ctx.set(c.core.done, bool(pending) and pending[0] == self.cycle)
            if ctx.get(c.core.go):
                pending = [self.cycle + self.work]
            if ctx.get(c.trace.end):
                self.ends.append(self.cycle)
            if ctx.get(c.failed):
                self.faults.append((self.cycle, Cause(ctx.get(c.fault.cause)), ctx.get(c.fault.pc)))
            if ctx.get(c.entries.valid) and ctx.get(c.entries.ready):
                self.popped.append(self.cycle)
                self.entries.pop(0)
            await ctx.tick()

    def simulate(self, bench: Any) -> None:
        simulate(self.control, bench, background=(self.watch,))


def test_pops_and_ends() -> None:
    bench = Bench()
    op = entry(EntryKind.OP, Op.DMA_READ)
    bench.entries = [entry(EntryKind.CFG, 3, 99), op, entry(EntryKind.FETCH, value=0x400), entry(EntryKind.CFG), op]

    async def run(ctx: Any) -> None:
        await ctx.tick().repeat(50)
        length = CHECK + bench.work
        assert bench.popped == [1, 2, 3 + length, 4 + 2 * length, 5 + 2 * length]
        assert bench.ends == [2 + length, 3 + 2 * length, 5 + 3 * length]
        assert ctx.get(bench.control.done) == 2, "fetches do not count"
        assert not bench.faults

    bench.simulate(run)


def test_wait() -> None:
    bench = Bench()
    bench.entries = [entry(EntryKind.WAIT, Unit.STORE, 2), entry(EntryKind.WAIT, Unit.ARRAY, 0)]

    async def run(ctx: Any) -> None:
        await ctx.tick().repeat(10)
        assert not bench.popped and ctx.get(bench.control.activity.token)
        ctx.set(bench.control.completed[Unit.STORE], 2)
        now = bench.cycle
        await ctx.tick().repeat(3)
        assert bench.popped == [now + 1, now + 2]

    bench.simulate(run)


@pytest.mark.parametrize(
    ("cause", "conflict", "reported"),
    [
        (Cause.ZERO_SIZE, 0, Cause.ZERO_SIZE),
        (Cause.NONE, 1, Cause.BANK_CONFLICT),
        (Cause.SRAM_RANGE, 1, Cause.SRAM_RANGE),
    ],
)
def test_verification(cause: Cause, conflict: int, reported: Cause) -> None:
    bench = Bench()
    bench.cause, bench.conflict = cause, conflict
    bench.entries = [entry(EntryKind.OP, Op.DMA_READ, pc=77), entry(EntryKind.CFG)]

    async def run(ctx: Any) -> None:
        await ctx.tick().repeat(20)
        assert bench.faults == [(1 + CHECK, reported, 77)]
        assert bench.popped == [1] and bench.ends == [1 + CHECK]
        assert ctx.get(bench.control.idle) and ctx.get(bench.control.done) == 0

    bench.simulate(run)


@pytest.mark.parametrize(
    ("unit", "kind", "cause"),
    [
        (Unit.LOAD, EntryKind.OP, Cause.BUS_READ),
        (Unit.LOAD, EntryKind.FETCH, Cause.BUS_FETCH),
        (Unit.STORE, EntryKind.OP, Cause.BUS_WRITE),
    ],
)
def test_bus_errors(unit: Unit, kind: EntryKind, cause: Cause) -> None:
    bench = Bench(unit)
    bench.error = 1
    bench.entries = [entry(kind, pc=5)]

    async def run(ctx: Any) -> None:
        await ctx.tick().repeat(20)
        assert bench.faults == [(1 + CHECK + bench.work, cause, 5)]

    bench.simulate(run)


# --- claims ------------------------------------------------------------------------------------------------------


def test_claims_against_a_list() -> None:
    board = Scoreboard(CONFIG)
    rng = random.Random(1)
    banks = CONFIG.n_banks

    async def bench(ctx: Any) -> None:
        held: dict[Unit, tuple[int, int]] = {}
        for _ in range(500):
            granted: dict[Unit, tuple[int, int]] = {}
            releases = []
            for unit in Unit:
                port = board.units[unit]
                ask = unit not in held and rng.random() < 0.5
                reads = rng.getrandbits(banks) & rng.getrandbits(banks)
                writes = rng.getrandbits(banks) & rng.getrandbits(banks)
                release = unit in held and rng.random() < 0.4
                for name, value in (("verify", ask), ("reads", reads), ("writes", writes), ("release", release)):
                    ctx.set(getattr(port, name), value)
                rivals = [*held.values(), *granted.values()]
                conflict = any(reads & r or writes & w for r, w in rivals)
                if unit not in held:
                    assert ctx.get(port.conflict) == conflict
                ctx.set(port.granted, ask and not conflict)
                if ask and not conflict:
                    granted[unit] = reads, writes
                if release:
                    releases.append(unit)
            for unit in Unit:
                assert ctx.get(board.reads[unit]) == held.get(unit, (0, 0))[0]
            await ctx.tick()
            held |= granted
            for unit in releases:
                del held[unit]

    simulate(board, bench)
