"""Accelerators that share a memory, played in rounds: where there is no compiler, and what the compiled form,
`isa/timing/core/events.cpp`, is held against.

Each program is played alone with assumed durations of its transfers; then the bursts of all go to memory together, in
the order of time, which gives new durations; and so on, until nothing changes. What happens in a cycle follows from
earlier cycles, so every round makes at least one more transfer final, and there is one end: what the hardware does.
"""

from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from dovetail.isa.config.memory import Memory as MemoryKind
from dovetail.isa.instructions.table import PAGE_BYTES, Unit
from dovetail.isa.timing.core import recurrence
from dovetail.isa.timing.core.recurrence import Outcome, Work
from dovetail.isa.timing.dma import ADDRESS, PLACE, READ_END, WRITE_END, WRITE_FIRST, Shape, bursts
from dovetail.isa.timing.interconnect import DATA, NEVER, TURN, Addresses
from dovetail.isa.timing.jobs import AnyJob, spans
from dovetail.isa.timing.memories.interface import Memory
from dovetail.isa.timing.memories.models import model_of
from dovetail.isa.timing.sequencer import CHECK, Int64s

LONG_AGO = -(1 << 40)


class Machine(NamedTuple):
    """Accelerators before a memory. Of each one ``outstanding``, bursts in flight, and ``bus_bytes`` of a beat;
    ``joined``: by an interconnect; else there is one, right at memory; ``beat_bytes``: of memory's beats."""

    outstanding: Sequence[int]
    bus_bytes: Sequence[int]
    joined: bool
    memory: MemoryKind
    beat_bytes: int

    def model(self) -> Memory:
        """Its memory, to which nothing has happened."""
        return model_of(self.memory, self.beat_bytes)


class Task(NamedTuple):
    """A program that the accelerator of a number runs once: what the rules say of it, the durations of its transfers
    being of no account; the address of its first page; and ``shapes`` of its transfers, a row of `Shape` per operation.
    """

    accelerator: int
    work: Work
    address: int
    shapes: Int64s

    def beats(self, bus_bytes: int) -> int:
        """Of all its transfers, about."""
        rows, planes, length = (self.shapes[self.work.causes == 0, n].astype(float) for n in (1, 2, 5))
        return int((rows * planes * (length // bus_bytes + 1)).sum()) + len(self.work.lost) * (
            PAGE_BYTES // bus_bytes + 1
        )


class Plan(NamedTuple):
    """Tasks of a host, which starts or computes them: the job of each, and the cycles that it takes to react."""

    jobs: Sequence[AnyJob]
    reaction: int


Starts = Sequence[int] | Plan
"""In which cycles tasks begin: cycle 0 of each run, or who says so."""


class Done(NamedTuple):
    """When a task begins, in cycles of the machine, the cycle behind its last one, and what becomes of its program;
    None of a layer that the host computes."""

    origin: int
    past: int
    outcome: Outcome | None


def play(machine: Machine, tasks: Sequence[Task | None], starts: Starts) -> list[Done | None]:
    """What becomes of tasks, None of one that never starts. Those of an accelerator must not overlap, and are in the
    order of time. Of what the host computes itself, there is a job only."""
    players = [None if task is None else _Player(task, machine) for task in tasks]
    while True:
        begun = _begun(starts, players)
        running = list[_Player]()
        for player, span in zip(players, begun, strict=True):
            if player and span:
                player.origin = span[0]
                running.append(player)
        flows = [
            [
                _Flow([t for p in running if p.task.accelerator == n for t in p.transfers(unit)], most)
                for n, most in enumerate(machine.outstanding)
            ]
            for unit in (Unit.LOAD, Unit.STORE)
        ]
        _serve(machine, *flows)
        if not sum(player.learns() for player in running):
            break
    return [
        span and Done(*span, player.outcome if player else None) for player, span in zip(players, begun, strict=True)
    ]


def _begun(starts: Starts, players: Sequence["_Player | None"]) -> Sequence[tuple[int, int] | None]:
    """When each task begins and ends, if runs last as long as assumed."""
    lasted = [player.outcome.cycles if player else 0 for player in players]
    if not isinstance(starts, Plan):
        return [(first, first + cycles) for first, cycles in zip(starts, lasted, strict=True)]
    faulted = [player is not None and player.outcome.fault[0] != 0 for player in players]
    return spans(starts.jobs, starts.reaction, lasted, faulted)


@dataclass
class _Transfer:
    """The bursts of an operation or a fetch. ``start`` and ``lasts``: cycles of the run, which begins in the cycle
    ``origin`` of the machine; what it lasts is found."""

    bus_bytes: int
    shape: Shape
    origin: int = 0
    start: int = 0
    lasts: int = 0

    def bursts(self) -> Iterator[tuple[int, int]]:
        """Address and beats of each."""
        for start in self.shape.starts():
            for address, _, beats in bursts(start, self.shape.length, self.bus_bytes):
                yield (address - address % self.bus_bytes) & 0xFFFF_FFFF, beats


class _Player:
    """A program, with durations of transfers that change from round to round."""

    def __init__(self, task: Task, machine: Machine) -> None:
        self.task, self.work = task, task.work
        width = machine.bus_bytes[task.accelerator]
        self.origin = 0
        pcs = [pc for pc, word in enumerate(self.work.words.tolist()) if recurrence.is_operation(word)]
        self._numbers = {pc: n for n, pc in enumerate(pcs)}
        self._fetches = [
            _Transfer(width, Shape(task.address + PAGE_BYTES * page, 1, 1, 0, 0, PAGE_BYTES))
            for page in range(len(self.work.fetches))
        ]
        self._operations = [_Transfer(width, Shape(*shape)) for shape in task.shapes.tolist()]
        self._play()

    def _play(self) -> None:
        """When everything starts, if transfers last as long as assumed."""
        self.outcome = recurrence.run(self.work)
        self._under_way: dict[int, list[tuple[_Transfer, bool, int]]] = {Unit.LOAD: [], Unit.STORE: []}
        for (unit, op, pc, start, _), works in zip(self.outcome.columns.T.tolist(), self.outcome.works, strict=True):
            if unit in self._under_way and works:
                number = self._numbers[pc] if op else pc
                transfer = (self._operations if op else self._fetches)[number]
                transfer.start = start
                self._under_way[unit].append((transfer, not op, number))

    def transfers(self, unit: Unit) -> list[_Transfer]:
        """Of LOAD or STORE."""
        found = [transfer for transfer, *_ in self._under_way[unit]]
        for transfer in found:
            transfer.origin = self.origin
        return found

    def learns(self) -> bool:
        """Takes over how long transfers really lasted; whether that was news."""
        cycles, fetches = self.work.cycles.copy(), self.work.fetches.copy()
        for transfer, fetched, number in (*self._under_way[Unit.LOAD], *self._under_way[Unit.STORE]):
            (fetches if fetched else cycles)[number] = max(transfer.lasts, CHECK + 1)
        if np.array_equal(cycles, self.work.cycles) and np.array_equal(fetches, self.work.fetches):
            return False
        self.work = self.work._replace(cycles=cycles, fetches=fetches)
        self._play()
        return True


class _Flow:
    """The bursts of a manager in one direction, one after the other.

    ``presents``: when the address of ``burst`` is presented, NEVER while that is not known and at the end;
    ``accepted``: when the latest was; ``verified``: when the transfer was.
    """

    def __init__(self, transfers: Sequence[_Transfer], outstanding: int) -> None:
        self._outstanding = outstanding
        self._transfers = iter(transfers)
        self.accepted = LONG_AGO
        self.turn()

    def turn(self) -> None:
        """On to the next transfer."""
        self.transfer = next(self._transfers, None)
        self._ends: list[int] = []
        self._issued = 0
        self._held = False
        self.presents = NEVER
        if self.transfer is not None:
            self.verified = self.transfer.origin + self.transfer.start + CHECK
            self.bytes = self.transfer.bus_bytes
            self._coming = self.transfer.bursts()
            self.burst: tuple[int, int] | None = next(self._coming)
            self._schedule()

    def _schedule(self) -> None:
        if self._held or self.burst is None or self._issued - len(self._ends) >= self._outstanding:
            return
        place = self._ends[self._issued - self._outstanding] + PLACE if self._issued >= self._outstanding else 0
        self.presents = max(self.verified + ADDRESS, self.accepted + ADDRESS, place)

    def present(self) -> tuple[int, int]:
        """Address and beats of the burst, which waits for its acceptance."""
        assert self.burst is not None
        found, self.burst = self.burst, next(self._coming, None)
        self._issued += 1
        self._held, self.presents = True, NEVER
        return found

    def leave(self) -> None:
        """The address has left the manager's side."""
        self._held = False
        self._schedule()

    def answer(self, end: int, more: int) -> None:
        """The cycle of the oldest burst's last answer; ``more``: from there to the end of a transfer."""
        self._ends.append(end)
        if self.burst is None and len(self._ends) == self._issued:
            assert self.transfer is not None
            self.transfer.lasts = end + more - self.transfer.origin - self.transfer.start
            self.turn()
        else:
            self._schedule()


class _Line:
    """A direction: the ports of all accelerators, and their way to memory."""

    def __init__(self, flows: Sequence[_Flow], machine: Machine, memory: Memory, *, write: bool) -> None:
        self.flows, self.memory, self.write = flows, memory, write
        self.way = DATA if machine.joined else 0
        self.addresses = Addresses(len(flows)) if machine.joined else None
        self.slices: dict[int, _Burst] = {}
        self.offered: tuple[int, _Burst] | None = None  # memory sees it from this cycle on
        self.answers: deque[_Flow] = deque()
        self.waiting: deque[_Burst] = deque()
        self.flowing = False
        self.taken = LONG_AGO
        self.ends: list[int] = []
        self.accepted = 0

    def due(self) -> int:
        """The cycle of what happens next."""
        grant = self.addresses.due() if self.addresses else None
        return min(*(flow.presents for flow in self.flows), grant.cycle if grant else NEVER, self._room())

    def _room(self) -> int:
        """When memory accepts the address that it sees."""
        if self.offered is None:
            return NEVER
        place = self.accepted - self.memory.places
        if not self.memory.places or place < 0:
            return self.offered[0]
        return max(self.offered[0], self.ends[place] + 1) if place < len(self.ends) else NEVER

    def step(self) -> None:
        """What happens next."""
        grant = self.addresses.due() if self.addresses else None
        when, k = min((flow.presents, k) for k, flow in enumerate(self.flows))
        granted = grant.cycle if grant else NEVER
        if self._room() <= min(when, granted):
            self._accept(self._room())
        elif self.addresses and grant and granted <= when:
            self.addresses.grant(grant)
            self.offered = grant.offered, self.slices.pop(grant.manager)
            self.flows[grant.manager].leave()
        else:
            flow = self.flows[k]
            burst = _Burst(flow, *flow.present(), flow.verified + WRITE_FIRST + self.way)
            if self.addresses:
                flow.accepted = self.addresses.present(k, when)
                self.slices[k] = burst
            else:
                self.offered = when, burst

    def _accept(self, cycle: int) -> None:
        assert self.offered is not None
        burst, self.offered = self.offered[1], None
        self.accepted += 1
        self.answers.append(burst.flow)
        burst.accepted = cycle
        if self.addresses:
            self.addresses.taken(cycle)
        else:
            burst.flow.accepted = cycle
            burst.flow.leave()
        if self.write:
            burst.data = max(burst.data, cycle + TURN + self.way)
            self.waiting.append(burst)
            self.data()
        else:
            self._take(burst)

    def data(self) -> None:
        """Gives memory the writes whose data have the way."""
        while True:
            if self.flowing:
                if self.memory.written is None:
                    return
                self.flowing, self.taken = False, self.memory.written
            if not self.waiting:
                return
            burst = self.waiting.popleft()
            burst.data = max(burst.data, self.taken + 1)
            self.flowing = True
            self._take(burst)

    def _take(self, burst: "_Burst") -> None:
        self.memory.take(
            burst.accepted,
            burst.address,
            burst.beats,
            write=self.write,
            data=burst.data,
            beat_bytes=burst.flow.bytes,
        )

    def answer(self, cycle: int) -> None:
        """Memory's last answer to the oldest burst."""
        self.ends.append(cycle)
        self.answers.popleft().answer(cycle + self.way, WRITE_END if self.write else READ_END)


@dataclass
class _Burst:
    flow: _Flow
    address: int
    beats: int
    data: int
    accepted: int = 0


def _serve(machine: Machine, reads: Sequence[_Flow], writes: Sequence[_Flow]) -> None:
    """Puts all bursts through the way to memory, and memory."""
    memory = machine.model()
    lines = [_Line(flows, machine, memory, write=write) for write, flows in ((False, reads), (True, writes))]
    while True:
        line = min(lines, key=_Line.due)
        due, decision = line.due(), memory.next
        if decision is not None and decision <= due:
            for beat in memory.serve():
                if beat.last:
                    lines[beat.write].answer(beat.cycle)
            lines[1].data()
        elif due < NEVER:
            line.step()
        else:
            return
