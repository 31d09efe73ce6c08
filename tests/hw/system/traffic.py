"""Random managers and a random memory around the interconnect: in Amaranth's simulator, and by the rule alone.

All that is random is drawn before: both sides see the same bursts, delays and cycles in which memory is ready. Both
give the same record: of every handshake, its cycle and what it carried.
"""

import random
from collections import deque
from dataclasses import dataclass, field
from typing import Any

from amaranth.utils import exact_log2

from dovetail.hw.common.axi import INCR
from dovetail.hw.system.interconnect import Interconnect, Manager
from dovetail.isa.timing.dma import ADDRESS, PLACE
from dovetail.isa.timing.interconnect import DATA, Addresses, WriteData

CYCLES = 1 << 16
"""For which it is drawn when memory is ready."""


@dataclass(frozen=True)
class Burst:
    """A burst of ``beats``. Its address is presented ``gap`` cycles later than it could be, a write beat ``gaps``."""

    address: int
    beats: int
    gap: int
    gaps: tuple[int, ...]
    data: tuple[int, ...] = ()
    strobes: tuple[int, ...] = ()


@dataclass(frozen=True)
class Serve:
    """How memory serves a burst: cycles from the address (of a read) or the last beat (of a write) to the answer at the
    earliest, and between the beats of a read."""

    latency: int
    gaps: tuple[int, ...]


@dataclass
class Direction:
    """Reads, or writes: the bursts of each manager, how memory serves them in the order of acceptance, and when it is
    ready."""

    bursts: list[list[Burst]]
    serves: list[Serve]
    address_ready: list[bool]
    data_ready: list[bool]


@dataclass
class Record:
    """Handshakes of a direction: (cycle, what it carried), at the managers and at memory."""

    addresses: list[list[Any]]
    data: list[list[Any]]
    answers: list[list[Any]]
    memory_addresses: list[Any] = field(default_factory=list)
    memory_data: list[Any] = field(default_factory=list)

    @staticmethod
    def of(managers: int) -> "Record":
        return Record(*([[] for _ in range(managers)] for _ in range(3)))


def draw(rng: random.Random, managers: tuple[Manager, ...], count: int, *, writes: bool, busy: bool) -> Direction:
    """``count`` bursts for each manager. ``busy``: nobody waits without need, and memory is always ready."""

    def often(most: int) -> int:
        return 0 if busy or rng.random() < 0.7 else rng.randint(1, most)

    bursts = []
    for manager in managers:
        mine = []
        for _ in range(count):
            size = manager.bus // 8
            beats = rng.choice((1, 1, 2, 3, 4, 9))
            block = rng.randrange(1 << 20) * 4096
            address = block + rng.randrange(0, 4096 - beats * size + 1, size)
            gaps = tuple(often(4) for _ in range(beats))
            data: tuple[int, ...] = ()
            strobes: tuple[int, ...] = ()
            if writes:
                data = tuple(rng.getrandbits(manager.bus) for _ in range(beats))
                strobes = tuple(rng.getrandbits(size) for _ in range(beats))
            mine.append(Burst(address, beats, often(30), gaps, data, strobes))
        bursts.append(mine)
    most = max(len(gaps) for mine in bursts for gaps in (burst.gaps for burst in mine))
    serves = [
        Serve(1 if busy else rng.randint(1, 12), tuple(often(3) for _ in range(most)))
        for _ in range(count * len(managers))
    ]

    def ready(share: float) -> list[bool]:
        return [busy or rng.random() < share for _ in range(CYCLES)]

    return Direction(bursts, serves, ready(0.6), ready(0.8))


def read_data(address: int, bus: int) -> int:
    """What memory holds in the beat at an address."""
    return random.Random(address // (bus // 8)).getrandbits(bus)


def next_ready(ready: list[bool], cycle: int) -> int:
    return next(now for now in range(cycle, CYCLES) if ready[now])


def predicted(interconnect: Interconnect, direction: Direction, *, writes: bool) -> Record:
    """The record by the rule of :mod:`dovetail.isa.timing.interconnect`."""
    managers, bus = interconnect.managers, interconnect.bus
    record = Record.of(len(managers))
    addresses, beats = Addresses(len(managers)), WriteData()
    done = [0] * len(managers)  # bursts presented
    granted = [0] * len(managers)
    accepted: list[list[int]] = [[] for _ in managers]
    ends: list[list[int]] = [[] for _ in managers]  # at the manager
    beat_free = [0] * len(managers)  # from when on a manager presents its next write beat
    served = last_answer = 0

    def presents(k: int) -> int | None:
        """When the manager presents its next address, if that is known."""
        if done[k] == len(direction.bursts[k]) or done[k] != granted[k]:
            return None
        earliest = accepted[k][-1] + ADDRESS if done[k] else 0
        if done[k] >= managers[k].outstanding:
            earliest = max(earliest, ends[k][done[k] - managers[k].outstanding] + PLACE)
        return earliest + direction.bursts[k][done[k]].gap

    while True:
        known = [(when, k) for k in range(len(managers)) if (when := presents(k)) is not None]
        grant = addresses.due()
        if known and (grant is None or min(known)[0] < grant.cycle):
            when, k = min(known)
            accepted[k].append(addresses.present(k, when))
            record.addresses[k].append((accepted[k][-1], direction.bursts[k][done[k]].address))
            done[k] += 1
            continue
        if grant is None:
            return record
        addresses.grant(grant)
        k = grant.manager
        burst, serve = direction.bursts[k][granted[k]], direction.serves[served]
        taken = next_ready(direction.address_ready, grant.offered)
        addresses.taken(taken)
        size = exact_log2(managers[k].bus // 8)
        record.memory_addresses.append((taken, k, burst.address, burst.beats - 1, size, INCR))
        if writes:
            beat_free[k] = max(beat_free[k], accepted[k][granted[k]] + 1)
            for n, gap in enumerate(burst.gaps):
                last = n == burst.beats - 1
                came = beats.accept(beat_free[k] + gap, taken)
                beat_free[k] = came + 1
                record.data[k].append((came, burst.data[n]))
                left = next_ready(direction.data_ready, beats.offered)
                beats.taken(left)
                lane = (burst.address + (n << size)) % (bus // 8)
                strobes = burst.strobes[n] << lane
                seen = (burst.data[n] << 8 * lane) & spread(strobes)
                record.memory_data.append((left, seen, strobes, last))
            last_answer = max(left + serve.latency, last_answer + 1)
        else:
            last_answer = max(taken + serve.latency - 1, last_answer)
            for n in range(burst.beats):
                last_answer += 1 + serve.gaps[n]
                address = burst.address + (n << size)
                wide = read_data(address, bus) >> 8 * (address % (bus // 8))
                record.data[k].append((last_answer + DATA, wide & (1 << managers[k].bus) - 1, n == burst.beats - 1))
        ends[k].append(last_answer + DATA)
        record.answers[k].append((ends[k][-1], served % 4))
        granted[k] += 1
        served += 1


def spread(strobes: int) -> int:
    """A byte of ones for every bit."""
    return sum(0xFF << 8 * lane for lane in range(strobes.bit_length()) if strobes >> lane & 1)


class Bench:
    """The same in Amaranth's simulator."""

    def __init__(self, interconnect: Interconnect, reads: Direction, writes: Direction) -> None:
        self.interconnect = interconnect
        self.reads, self.writes = reads, writes
        count = len(interconnect.managers)
        self.read, self.write = Record.of(count), Record.of(count)
        self.left = [len(mine) for direction in (reads, writes) for mine in direction.bursts]
        self.ended = False

    def processes(self) -> list[Any]:
        """Background testbenches."""
        found = []
        for k in range(len(self.interconnect.managers)):
            for channel, direction, record in (("ar", self.reads, self.read), ("aw", self.writes, self.write)):
                found.append(self._manager(k, channel, direction, record))
            found.append(self._write_data(k))
        return [*found, self._memory_reads, self._memory_writes]

    async def finish(self, ctx: Any) -> None:
        """Until every burst has its answer, and some cycles more."""
        for _ in range(CYCLES):
            if not any(self.left):
                break
            await ctx.tick()
        assert not any(self.left), "bursts without an answer"
        await ctx.tick().repeat(20)

    def _manager(self, k: int, channel: str, direction: Direction, record: Record) -> Any:
        reads = channel == "ar"
        port = getattr(self.interconnect, f"{'read' if reads else 'write'}{k}")
        manager = self.interconnect.managers[k]

        async def run(ctx: Any) -> None:
            valid, ready, addr, length, size, kind = (
                getattr(port, channel + name) for name in ("valid", "ready", "addr", "len", "size", "burst")
            )
            answers = (
                (port.rvalid, port.rlast, port.rresp, port.rdata)
                if reads
                else (port.bvalid, port.bvalid, port.bresp, port.bvalid)
            )
            ctx.set(port.rready if reads else port.bready, 1)
            ctx.set(size, exact_log2(manager.bus // 8))
            ctx.set(kind, INCR)
            ends: list[int] = []
            sent, present, offered = 0, None, False
            now, earliest = 0, 0
            while True:
                if not offered and sent < len(direction.bursts[k]):
                    burst = direction.bursts[k][sent]
                    place = sent - manager.outstanding
                    if place < len(ends):
                        present = max(earliest, ends[place] + PLACE if place >= 0 else 0) + burst.gap
                        if now >= present:
                            offered = True
                            ctx.set(valid, 1)
                            ctx.set(addr, burst.address)
                            ctx.set(length, burst.beats - 1)
                *_, took, came, last, resp, word = await ctx.tick().sample(ready, *answers)
                if offered and took:
                    record.addresses[k].append((now, burst.address))
                    offered, earliest, sent = False, now + ADDRESS, sent + 1
                    ctx.set(valid, 0)
                if came and reads:
                    record.data[k].append((now, word, last))
                if came and last:
                    ends.append(now)
                    record.answers[k].append((now, resp))
                    self.left[k + (0 if reads else len(self.interconnect.managers))] -= 1
                now += 1

        return run

    def _write_data(self, k: int) -> Any:
        port = getattr(self.interconnect, f"write{k}")

        async def run(ctx: Any) -> None:
            now, free, burst_number, n, offered = 0, 0, 0, 0, False
            bursts = self.writes.bursts[k]
            while True:
                accepted = self.write.addresses[k]
                if not offered and burst_number < len(bursts) and burst_number < len(accepted):
                    burst = bursts[burst_number]
                    if n == 0:
                        free = max(free, accepted[burst_number][0] + 1)
                    if now >= free + burst.gaps[n]:
                        offered = True
                        ctx.set(port.wvalid, 1)
                        ctx.set(port.wdata, burst.data[n])
                        ctx.set(port.wstrb, burst.strobes[n])
                        ctx.set(port.wlast, n == burst.beats - 1)
                (*_, took) = await ctx.tick().sample(port.wready)
                if offered and took:
                    self.write.data[k].append((now, burst.data[n]))
                    offered, free, n = False, now + 1, n + 1
                    ctx.set(port.wvalid, 0)
                    if n == burst.beats:
                        burst_number, n = burst_number + 1, 0
                now += 1

        return run

    async def _memory_reads(self, ctx: Any) -> None:
        port, record, direction = self.interconnect.memory_read, self.read, self.reads
        beats: deque[Any] = deque()
        now, latest = 0, 0
        while True:
            ctx.set(port.arready, direction.address_ready[now])
            shown = beats and beats[0][0] == now
            ctx.set(port.rvalid, bool(shown))
            if shown:
                _, who, data, resp, last = beats.popleft()
                ctx.set(port.rid, who)
                ctx.set(port.rdata, data)
                ctx.set(port.rresp, resp)
                ctx.set(port.rlast, last)
            sampled = (port.arvalid, port.arready, port.arid, port.araddr, port.arlen, port.arsize, port.arburst)
            *_, valid, ready, who, address, length, size, kind = await ctx.tick().sample(*sampled)
            if valid and ready:
                serve = direction.serves[len(record.memory_addresses)]
                resp = len(record.memory_addresses) % 4
                record.memory_addresses.append((now, who, address, length, size, kind))
                latest = max(now + serve.latency - 1, latest)
                for n in range(length + 1):
                    latest += 1 + serve.gaps[n]
                    data = read_data(address + (n << size), self.interconnect.bus)
                    beats.append((latest, who, data, resp, n == length))
            now += 1

    async def _memory_writes(self, ctx: Any) -> None:
        port, record, direction = self.interconnect.memory_write, self.write, self.writes
        answers: deque[Any] = deque()
        order: deque[Any] = deque()
        now, latest, served = 0, 0, 0
        while True:
            ctx.set(port.awready, direction.address_ready[now])
            ctx.set(port.wready, direction.data_ready[now])
            shown = answers and answers[0][0] == now
            ctx.set(port.bvalid, bool(shown))
            if shown:
                _, who, resp = answers.popleft()
                ctx.set(port.bid, who)
                ctx.set(port.bresp, resp)
            sampled = (port.awvalid, port.awready, port.awid, port.awaddr, port.awlen, port.awsize, port.awburst)
            beat = (port.wvalid, port.wready, port.wdata, port.wstrb, port.wlast)
            (
                *_,
                valid,
                ready,
                who,
                address,
                length,
                size,
                kind,
                w_valid,
                w_ready,
                data,
                strobes,
                last,
            ) = await ctx.tick().sample(*sampled, *beat)
            if w_valid and w_ready:
                assert order, "a beat without an address"
                record.memory_data.append((now, data & spread(strobes), strobes, last))
                if last:
                    latest = max(now + direction.serves[served].latency, latest + 1)
                    answers.append((latest, order.popleft(), served % 4))
                    served += 1
            if valid and ready:
                record.memory_addresses.append((now, who, address, length, size, kind))
                order.append(who)
            now += 1
