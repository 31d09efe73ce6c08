"""Queue, unit control and bank claims."""

import random
from dataclasses import dataclass
from typing import Any

import pytest

from dovetail.hw.common.ports import GROUP, EntryKind, sources, targets
from dovetail.hw.sequencer.control import UnitControl
from dovetail.hw.sequencer.queue import Queue
from dovetail.hw.sequencer.scoreboard import Scoreboard
from dovetail.isa.config.resolved import Config
from dovetail.isa.instructions.table import QUEUE_DEPTH, Cause, Op, Unit
from dovetail.isa.timing.sequencer import CHECK
from tests.hw.benches import simulate

CONFIG = Config(ic_lanes=4, oc_lanes=4, sram="32 KiB", banks=4)


def entry(kind: Any, code: int = 0, value: int = 0, pc: int = 0, waits: int = 0) -> dict[str, Any]:
    return {"kind": kind, "code": code, "waits": waits, "value": value, "pc": pc}


def shown(entry: dict[str, Any]) -> dict[str, Any]:
    """An entry at the front of its queue."""
    group, place = divmod(entry["code"] % GROUP**2, GROUP)
    works = entry["kind"] in (EntryKind.OP, EntryKind.FETCH)
    return entry | {"group": (entry["kind"] == EntryKind.CFG) << group, "place": 1 << place, "works": works}


# --- queue -------------------------------------------------------------------------------------------------------


def test_queue_depth_must_be_a_power_of_two() -> None:
    with pytest.raises(ValueError, match="depth must be a power of two of at least 2, not 12"):
        Queue(depth=12)


def test_queue_under_random_traffic() -> None:
    """An entry shows the cycle after its push, a place is free the cycle after its pop, unless it is kept."""
    queue = Queue(depth=QUEUE_DEPTH)
    rng = random.Random(0)

    async def bench(ctx: Any) -> None:
        held: list[int] = []
        kept = False
        for cycle in range(600):
            eager = cycle // 100 % 3
            push, pop = rng.random() < (0.9, 0.5, 0.2)[eager], rng.random() < (0.2, 0.5, 0.9)[eager]
            clear = rng.random() < 0.01
            ctx.set(queue.i.payload, entry(EntryKind.CFG, value=cycle))
            ctx.set(queue.i.valid, push)
            ctx.set(queue.o.ready, pop)
            ctx.set(queue.clear, clear)
            free = len(held) + kept < QUEUE_DEPTH
            assert ctx.get(queue.i.ready) == free
            assert ctx.get(queue.o.valid) == bool(held)
            if held:
                assert ctx.get(queue.o.payload.value) == held[0]
            kept = (kept or bool(pop and held)) and rng.random() < 0.7
            ctx.set(queue.kept, kept)
            if pop and held:
                held.pop(0)
            if push and free:
                held.append(cycle)
            if clear:
                held.clear()
                kept = False
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
        self.completed: dict[int, int] = {}  # from which cycle on STORE has completed how many operations
        self.cycle = 0
        self.cause, self.conflict, self.race, self.error, self.work = Cause.NONE, 0, 0, 0, 5

    async def watch(self, ctx: Any) -> None:
        c = self.control
        pending: list[int] = []
        failed = 0  # in the cycle before
        while True:
            self.cycle += 1
            ctx.set(c.entries.payload, shown(self.entries[0]) if self.entries else {})
            ctx.set(c.entries.valid, bool(self.entries))
            if self.cycle in self.completed:
                ctx.set(c.completed[Unit.STORE], self.completed[self.cycle])
            ctx.set(c.halt, bool(self.faults or failed))
            ctx.set(c.core.cause, self.cause)
            ctx.set(c.claim.conflict, self.conflict)
            ctx.set(c.claim.race, self.race)
            ctx.set(c.claim.blocked, self.conflict | self.race)
            ctx.set(c.core.error, self.error)
            ctx.set(c.core.done, bool(pending) and pending[0] == self.cycle)
            if ctx.get(c.core.go):
                pending = [self.cycle + self.work]
            if ctx.get(c.trace.end):
                self.ends.append(self.cycle)
            if failed:
                self.faults.append((self.cycle - 1, Cause(ctx.get(c.fault.cause)), ctx.get(c.fault.pc)))
            failed = ctx.get(c.failed)
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
    bench.entries = [
        entry(EntryKind.WAIT, value=2, waits=1 << Unit.STORE),
        entry(EntryKind.WAIT, value=-1 & 0xFFFF_FFFF, waits=1 << Unit.ARRAY),
        entry(EntryKind.CFG, 3, 99),
    ]
    bench.completed = {5: 1, 20: 2}

    async def run(ctx: Any) -> None:
        await ctx.tick().repeat(18)
        # It has left the queue, but has its place there, and nothing follows it.
        assert bench.popped == [1] and ctx.get(bench.control.activity.token) and ctx.get(bench.control.kept)
        await ctx.tick().repeat(10)
        assert bench.popped == [1, 21, 22] and not ctx.get(bench.control.kept)

    bench.simulate(run)


def test_wait_beyond_the_low_bits() -> None:
    """A wait that was popped is compared by low bits: a target of 32 looks like 0 there."""
    bench = Bench()
    bench.entries = [entry(EntryKind.WAIT, value=32, waits=1 << Unit.STORE), entry(EntryKind.CFG, 3, 99)]
    bench.completed = {1: 28, 5: 29, 10: 30, 15: 31, 20: 32}

    async def run(ctx: Any) -> None:
        await ctx.tick().repeat(25)
        assert bench.popped == [1, 21]

    bench.simulate(run)


@pytest.mark.parametrize("completed", [2, 1 << 20])
def test_wait_that_is_over_when_it_is_popped(completed: int) -> None:
    """The counts may be far beyond the target: other units go on while this one works."""
    bench = Bench()
    bench.entries = [entry(EntryKind.WAIT, value=2, waits=1 << Unit.STORE), entry(EntryKind.CFG, 3, 99)]
    bench.completed = {1: completed}

    async def run(ctx: Any) -> None:
        await ctx.tick().repeat(4)
        assert bench.popped == [1, 2]

    bench.simulate(run)


@pytest.mark.parametrize(
    ("cause", "conflict", "race", "reported"),
    [
        (Cause.ZERO_SIZE, 0, 0, Cause.ZERO_SIZE),
        (Cause.NONE, 1, 0, Cause.BANK_CONFLICT),
        (Cause.SRAM_RANGE, 1, 1, Cause.SRAM_RANGE),
        (Cause.NONE, 0, 1, Cause.RACE),
        (Cause.NONE, 1, 1, Cause.BANK_CONFLICT),
        (Cause.BANK_CONFLICT, 0, 1, Cause.BANK_CONFLICT),
    ],
)
def test_verification(cause: Cause, conflict: int, race: int, reported: Cause) -> None:
    bench = Bench()
    bench.cause, bench.conflict, bench.race = cause, conflict, race
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


@dataclass
class Claimed:
    """What an operation of a unit claims: bank masks, and the spans [start, end) that count."""

    reads: int
    writes: int
    sources: list[tuple[int, int]]
    target: tuple[int, int] | None

    def conflicts(self, other: "Claimed") -> bool:
        return bool(self.reads & other.reads or self.writes & other.writes)

    def races(self, other: "Claimed") -> bool:
        return any(
            set(range(*writer.target)) & set(range(*source))
            for writer, reader in ((self, other), (other, self))
            if writer.target
            for source in reader.sources
        )


BOARDS = {
    "all": Config(ic_lanes=4, oc_lanes=4, sram="32 KiB", banks=4),
    "no matrix product": Config(ic_lanes=4, oc_lanes=4, sram="40 KiB", banks=5, matmul=False),
    "pooling": Config(ic_lanes=4, oc_lanes=4, sram="32 KiB", banks=4, elementwise=False, activation=False),
    "no vector unit": Config(
        ic_lanes=4, oc_lanes=4, sram="32 KiB", banks=4, pooling=False, elementwise=False, activation=False
    ),
}


@pytest.mark.parametrize("name", BOARDS)
def test_claims_against_a_list(name: str) -> None:
    """Units ask, hold and release at random. Spans are short and near the SRAM's ends, so that one byte decides."""
    config = BOARDS[name]
    board = Scoreboard(config)
    rng = random.Random(1)
    banks, size = config.banks, config.sram
    units = [unit for unit in Unit if unit != Unit.VECTOR or config.vector]
    races: set[tuple[Unit, Unit]] = set()

    def span() -> tuple[int, int]:
        start = rng.choice([0, size - 6]) + rng.randrange(6)
        return start, min(start + rng.randint(1, 3), size)

    def claim(unit: Unit) -> Claimed:
        spans = [span() for _ in range(sources(config, unit)) if rng.random() < 0.5]
        target = span() if targets(config, unit) and rng.random() < 0.5 else None
        masks = [rng.getrandbits(banks) & rng.getrandbits(banks) & rng.getrandbits(banks) for _ in range(2)]
        return Claimed(masks[0], masks[1], spans, target)

    def show(ctx: Any, unit: Unit, claimed: Claimed) -> None:
        port = board.units[unit]
        ctx.set(port.reads, claimed.reads)
        ctx.set(port.writes, claimed.writes)
        places = [*claimed.sources, *[None] * (len(port.sources) - len(claimed.sources))]
        for signal, place in zip([*port.sources, port.target], [*places, claimed.target], strict=True):
            start, end = place or span()
            ctx.set(signal, {"start": start, "end": end, "valid": place is not None})

    async def bench(ctx: Any) -> None:
        held: dict[Unit, Claimed] = {}
        asking: dict[Unit, Claimed] = {}
        for _ in range(1500):
            granted: dict[Unit, Claimed] = {}
            releases = []
            for unit in units:
                port = board.units[unit]
                ask = asking.get(unit)
                release = unit in held and rng.random() < 0.3
                ctx.set(port.verify, ask is not None)
                ctx.set(port.release, release)
                ctx.set(port.granted, 0)
                if ask:
                    rivals = held | granted
                    conflict = any(ask.conflicts(rival) for rival in rivals.values())
                    rivals_racing = {(unit, other) for other, rival in rivals.items() if ask.races(rival)}
                    races.update(rivals_racing)
                    assert ctx.get(port.conflict) == conflict
                    assert ctx.get(port.race) == bool(rivals_racing)
                    if not conflict and not rivals_racing:
                        ctx.set(port.granted, 1)
                        granted[unit] = ask
                if release:
                    releases.append(unit)
            for unit in units:
                assert ctx.get(board.reads[unit]) == (held[unit].reads if unit in held else 0)
            # The spans of the next cycle's operations come a cycle ahead.
            asking = {}
            for unit in units:
                if unit not in held and unit not in granted and rng.random() < 0.5:
                    asking[unit] = claim(unit)
                    show(ctx, unit, asking[unit])
            await ctx.tick()
            held |= granted
            for unit in releases:
                del held[unit]

    simulate(board, bench)
    reading = [unit for unit in units if sources(config, unit)]
    writing = [unit for unit in units if targets(config, unit)]
    pairs = {(a, b) for a in reading for b in writing if a != b}
    assert races == pairs | {(b, a) for a, b in pairs}
