"""When a channel of DRAM behind its controller answers bursts: the rule of `docs/memory.md`, event by event.

An event is the choice of a request: from it on the ticks of all its commands are known. `cosim/rtl/dram_model.h` does
the same cycle by cycle, in C++.
"""

from collections import deque
from dataclasses import dataclass, field
from itertools import pairwise

from dovetail.isa.config.memory import FIELDS, PLACES, DramTiming
from dovetail.isa.timing.memories.interface import Beat

LONG_AGO = -(1 << 60)


@dataclass
class _Burst:
    number: int
    write: bool
    parts: deque[range]  # requests of each beat, or of the response, that are to come
    ready: list[int]  # of each request: the cycle in which its data are there; 0 until that is known


@dataclass
class _Request:
    arrival: int
    burst: _Burst
    part: int
    bank: int
    row: int


@dataclass
class _Bank:
    row: int | None = None
    activate: int = 0  # from when on each command is legal
    precharge: int = 0
    column: int = 0


@dataclass
class _Columns:
    """From when on columns are legal, somewhere."""

    read: int = 0
    write: int = 0

    def legal(self, *, write: bool) -> int:
        return self.write if write else self.read

    def later(self, *, read: int, write: int) -> None:
        self.read, self.write = max(self.read, read), max(self.write, write)


@dataclass
class Events:
    """How often rows were open, closed, or others; and refreshes."""

    hits: int = 0
    misses: int = 0
    conflicts: int = 0
    refreshes: int = 0


@dataclass
class _Side:
    """A direction of the bus."""

    coming: deque[_Request] = field(default_factory=deque)  # have not arrived, in the order of arrival
    open: deque[_Burst] = field(default_factory=deque)  # have not ended
    count: int = 0
    next: int = 0  # the first cycle of the next beat, or response


class AddressMap:
    """Bank and row of an address."""

    def __init__(self, timing: DramTiming) -> None:
        sizes = {"bank": timing.banks, "group": timing.groups, "column": timing.row // timing.block}
        shift = timing.block.bit_length() - 1
        self._places: dict[str, tuple[int, int]] = {}
        for name in reversed(timing.map.split("-")):
            bits = sizes.get(name, 1).bit_length() - 1
            self._places[name] = shift, (1 << bits) - 1
            shift += bits
        assert set(self._places) == set(FIELDS)
        self._banks = timing.banks
        self.shifts = {name: place for name, (place, _) in self._places.items()}
        """The lowest bit of each field."""

    def bank(self, address: int) -> int:
        """Its number: those of a group lie together."""
        (group, groups), (bank, banks) = self._places["group"], self._places["bank"]
        return (address >> group & groups) * self._banks + (address >> bank & banks)

    def row(self, address: int) -> int:
        """Its number in the bank."""
        return address >> self._places["row"][0]


class Dram:
    """The controller and its channel. Whoever uses it keeps the order of time: before a :meth:`serve`, every burst
    that is accepted before `next`, or whose last write beat is taken before it, must be known; and minds that it holds
    `places` bursts of a direction.

    Parameters
    ----------
    timing
        Of the memory.
    bus_bytes
        Of a beat, unless a burst says otherwise.
    """

    places = PLACES

    def __init__(self, timing: DramTiming, bus_bytes: int) -> None:
        self.timing, self.bus_bytes = timing, bus_bytes
        self.events = Events()
        self._map = AddressMap(timing)
        self._banks = [_Bank() for _ in range(timing.groups * timing.banks)]
        self._groups = [_Columns() for _ in range(timing.groups)]
        self._anywhere = _Columns()
        self._opens = [LONG_AGO] * timing.groups  # latest ACTIVATE of each group
        self._activates = deque([LONG_AGO] * 4)  # the latest four
        self._refresh = timing.refi
        self._sides = _Side(), _Side()
        self._queue: deque[_Request] = deque()
        self._columns = deque([LONG_AGO] * timing.ahead)  # of the latest choices
        self._chosen = -1
        self._passed = 0
        self.written: int | None = None
        """When the last beat is taken of the write that was taken last; None before there is one."""

    def take(
        self, accepted: int, address: int, beats: int, *, write: bool, data: int = 0, beat_bytes: int | None = None
    ) -> None:
        """A burst that is accepted in this cycle; of a write ``data`` is the cycle of its first beat, the others come
        one a cycle. ``beat_bytes``: of its beats, that may be narrower than the bus."""
        timing, side = self.timing, self._sides[write]
        size = beat_bytes or self.bus_bytes
        start = address // size * size
        blocks = range(start // timing.block, (start + beats * size - 1) // timing.block + 1)
        edges = [start, start + beats * size] if write else [start + n * size for n in range(beats + 1)]
        parts = deque(
            range(low // timing.block - blocks[0], (high - 1) // timing.block - blocks[0] + 1)
            for low, high in pairwise(edges)
        )
        burst = _Burst(side.count, write, parts, [0] * len(blocks))
        side.count += 1
        side.open.append(burst)
        if write:
            self.written = accepted = data + beats - 1
        arrival = timing.arrival(accepted)
        for part, block in enumerate(blocks):
            at = block * timing.block
            side.coming.append(_Request(arrival, burst, part, self._map.bank(at), self._map.row(at)))

    @property
    def tick(self) -> int | None:
        """Of the next choice; None if there is nothing to choose."""
        coming = [side.coming[0].arrival for side in self._sides if side.coming]
        if not self._queue and not coming:
            return None
        return max(self._chosen + 1, self._columns[0] + 1, 0 if self._queue else min(coming))

    @property
    def next(self) -> int | None:
        """The cycle of the next choice: what is taken before it may be part of it. None if there is no burst."""
        tick = self.tick
        return None if tick is None else (tick - self.timing.front) * self.timing.clock // self.timing.dram_clock

    def serve(self) -> list[Beat]:
        """The next choice: the beats and responses that follow from it and from those before."""
        now = self.tick
        assert now is not None
        while any(side.coming and side.coming[0].arrival <= now for side in self._sides):
            reads, writes = (side.coming[0].arrival if side.coming else now + 1 for side in self._sides)
            self._queue.append(self._sides[writes < reads].coming.popleft())
        self._refreshes(now)
        request = self._choice()
        end = self._commands(now, request)
        self._chosen = now
        burst = request.burst
        burst.ready[request.part] = self.timing.ready(end)  # above 0
        return self._beats(burst.write)

    def _choice(self) -> _Request:
        """The request that is served next, taken from the queue."""
        oldest, place = self._queue[0], 0
        row = self._banks[oldest.bank].row
        if row not in (None, oldest.row) and self._passed < self.timing.queue:
            first = list(self._queue)[: self.timing.queue]
            place = next((n for n, r in enumerate(first) if (r.bank, r.row) == (oldest.bank, row)), 0)
        self._passed = self._passed + 1 if place else 0
        request = self._queue[place]
        del self._queue[place]
        return request

    def _refreshes(self, now: int) -> None:
        """All that are due by a tick."""
        timing = self.timing
        while self._refresh <= now:
            time, is_open = self._refresh, False
            for bank in self._banks:
                if bank.row is not None:
                    time, is_open = max(time, bank.precharge), True
            time += timing.rp * is_open
            time = max(time, *(bank.activate for bank in self._banks if bank.row is None), 0)
            for bank in self._banks:
                bank.row, bank.activate = None, time + timing.rfc
            self.events.refreshes += 1
            self._refresh += timing.refi
            if bank.activate <= self._refresh <= now:  # nothing happens in between: only the latest matters
                skipped = (now - self._refresh) // timing.refi
                self._refresh += skipped * timing.refi
                self.events.refreshes += skipped

    def _commands(self, now: int, request: _Request) -> int:
        """Gives a request's commands: the tick at which its data have come or gone."""
        timing, bank = self.timing, self._banks[request.bank]
        number = request.bank // timing.banks
        group, write = self._groups[number], request.burst.write
        if bank.row == request.row:
            self.events.hits += 1
        else:
            if bank.row is None:
                self.events.misses += 1
            else:
                self.events.conflicts += 1
                bank.activate = max(now, bank.precharge) + timing.rp
            opened = max(
                now,
                bank.activate,
                self._activates[-1] + timing.rrd,
                self._opens[number] + timing.rrd_l,
                self._activates.popleft() + timing.faw,
            )
            self._activates.append(opened)
            self._opens[number] = opened
            bank.row, bank.column, bank.precharge = request.row, opened + timing.rcd, opened + timing.ras
        column = max(now, bank.column, group.legal(write=write), self._anywhere.legal(write=write))
        end = column + (timing.cwl if write else timing.cl) + timing.data_ticks
        if write:
            self._anywhere.later(read=end + timing.wtr, write=column + timing.ccd)
            group.later(read=end + timing.wtr_l, write=column + timing.ccd_l)
            bank.precharge = max(bank.precharge, end + timing.wr)
        else:
            self._anywhere.later(read=column + timing.ccd, write=column + timing.rtw)
            group.later(read=column + timing.ccd_l, write=0)
            bank.precharge = max(bank.precharge, column + timing.rtp)
        self._columns.popleft()
        self._columns.append(column)
        return end

    def _beats(self, write: bool) -> list[Beat]:
        """The beats, or responses, of a direction that have their turn and are known by now."""
        side, found = self._sides[write], list[Beat]()
        while side.open:
            burst = side.open[0]
            while burst.parts and all(ready := [burst.ready[part] for part in burst.parts[0]]):
                cycle = max(side.next, *ready)
                side.next = cycle + 1
                burst.parts.popleft()
                found.append(Beat(write, burst.number, not burst.parts, cycle))
            if burst.parts:
                break
            side.open.popleft()
        return found
