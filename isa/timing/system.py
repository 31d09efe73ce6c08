"""Times accelerators that compete for one memory: when everything of each starts and ends.

Each accelerator alone is played with assumed durations of its transfers (`isa.timing.core`); then the bursts of all go
through interconnect and memory together (`isa.timing.interconnect`), which gives new durations; and so on, until
nothing changes. What happens in a cycle follows from earlier cycles, so every round makes at least one more transfer
final, and there is one end: what the hardware does. It is slower than one accelerator by far: a round takes some
microseconds for each burst, and there are as many rounds as transfers in the worst case.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from dovetail.isa.config.given import ConfigError, MemoryTiming
from dovetail.isa.config.resolved import Config
from dovetail.isa.config.system import System
from dovetail.isa.instructions.checks import View
from dovetail.isa.instructions.table import PAGE_BYTES, Unit
from dovetail.isa.timing.core import run
from dovetail.isa.timing.dma import ADDRESS, PLACE, READ_END, WRITE_END, WRITE_FIRST, Shape, bursts
from dovetail.isa.timing.interconnect import DATA, NEVER, Addresses, WriteData
from dovetail.isa.timing.jobs import Job, check_jobs, origins
from dovetail.isa.timing.memory import Broken, Direction
from dovetail.isa.timing.run import check_places, timeline_of, without_words, work_of
from dovetail.isa.timing.sequencer import CHECK, Words, as_words
from dovetail.isa.timing.timeline import FETCH, Timeline

MOST_BEATS = 1 << 26
"""Of all transfers together, so that an answer comes in minutes at the latest."""
LONG_AGO = -(1 << 40)


@dataclass(frozen=True)
class Begun:
    """A program that an accelerator runs: its words, where they are in system memory, and what its addresses are
    relative to. ``cycle``: the cycle of the system that is cycle 0 of the run."""

    words: Words
    address: int = 0
    base: int = 0
    cycle: int = 0


def time_system(
    system: System, programs: Mapping[str, Begun], *, memory_bytes: int | None = None, broken: Broken = ()
) -> dict[str, Timeline]:
    """When everything in programs happens that run at once, each in cycles of its own run.

    Parameters
    ----------
    system
        The accelerators, and the timing of memory.
    programs
        By name of the accelerator; others rest.
    memory_bytes, broken
        See :func:`~dovetail.isa.timing.run.time_program`; the system's memory if left out.

    Raises
    ------
    ConfigError
        For a microcoded accelerator, whose transfers have other rules; for transfers of too many beats.
    ValueError
        When an address is not what a host can set.
    """
    size = system.memory_bytes if memory_bytes is None else memory_bytes
    players = {name: _player(system, name, begun, size, broken) for name, begun in programs.items()}
    _check_beats(players.values())
    _settle(system, lambda: list(players.items()))
    return {name: player.timeline for name, player in players.items()}


@dataclass(frozen=True)
class JobTimes:
    """When jobs run, in their order: cycle 0 of each run in cycles of the system, and its timeline in cycles of its
    own; None of a job that never starts, as one that it waits for has faulted."""

    origins: tuple[int | None, ...]
    timelines: tuple[Timeline | None, ...]

    @property
    def ends(self) -> tuple[int | None, ...]:
        """The cycle behind each run's last one."""
        return tuple(
            None if origin is None or line is None else origin + line.cycles
            for origin, line in zip(self.origins, self.timelines, strict=True)
        )

    @property
    def cycles(self) -> int:
        """From the system's cycle 0 to the end of the last run."""
        return max((end for end in self.ends if end is not None), default=0)


def time_jobs(system: System, jobs: Sequence[Job], *, memory_bytes: int | None = None, broken: Broken = ()) -> JobTimes:
    """When everything in the jobs of a plan happens; parameters and errors are those of :func:`time_system`.

    Raises
    ------
    ConfigError
        Also for jobs of an accelerator that the system has not, and for jobs that would wait for ever.
    """
    check_jobs(system, jobs)
    size = system.memory_bytes if memory_bytes is None else memory_bytes
    players = [_player(system, job.accelerator, Begun(job.words, job.address, job.base), size, broken) for job in jobs]
    _check_beats(players)
    found: list[int | None] = []

    def begin() -> list[tuple[str, _Player]]:
        lines = [player.timeline for player in players]
        found[:] = origins(
            jobs, system.reaction, [line.cycles for line in lines], [line.fault is not None for line in lines]
        )
        started = [n for n, origin in enumerate(found) if origin is not None]
        for n in started:
            players[n].begin(found[n] or 0)
        return [(jobs[n].accelerator, players[n]) for n in started]

    _settle(system, begin)
    lines = (None if origin is None else player.timeline for origin, player in zip(found, players, strict=True))
    return JobTimes(tuple(found), tuple(lines))


def _player(system: System, name: str, begun: Begun, size: int, broken: Broken) -> "_Player":
    """The player of an accelerator's program. Raises ConfigError or ValueError."""
    config = replace(system[name].config, memory=system.memory)
    if config.serial:
        raise ConfigError(f"accelerators.{name}: must not be microcoded to be timed among others")
    check_places(begun.address, begun.base, size, broken)
    return _Player(config, begun, size, broken)


def _check_beats(players: Iterable["_Player"]) -> None:
    """Raises ConfigError for transfers of too many beats."""
    total = sum(player.beats for player in players)
    if total > MOST_BEATS:
        raise ConfigError(f"transfers must have at most {MOST_BEATS} beats to be timed among others, not {total}")


def _settle(system: System, begin: Callable[[], list[tuple[str, "_Player"]]]) -> None:
    """Plays rounds until nothing changes. ``begin``: lets the runs of a round begin; they and their accelerators, those
    of an accelerator in order."""
    while True:
        running = begin()
        managers = [
            ([player for name, player in running if name == part.name], part.config.outstanding)
            for part in system.accelerators
        ]
        reads, writes = (
            [_Flow([t for player in players for t in player.moves(unit)], most) for players, most in managers]
            for unit in (Unit.LOAD, Unit.STORE)
        )
        _serve(reads, _Reads(system.memory), READ_END)
        _serve(writes, _Writes(system.memory, len(managers)), WRITE_END)
        if not sum(player.learns() for _, player in running):
            return


@dataclass
class _Transfer:
    """The bursts of an operation or a fetch. ``verified``: the cycle of the system in which it passed its checks;
    ``end`` is found."""

    bus_bytes: int
    shape: Shape
    verified: int = 0
    end: int = 0

    def beats(self) -> Iterator[int]:
        """Of each burst."""
        for start in self.shape.starts():
            for *_, beats in bursts(start, self.shape.length, self.bus_bytes):
                yield beats


class _Player:
    """An accelerator, with durations of transfers that change from round to round."""

    def __init__(self, config: Config, begun: Begun, memory_bytes: int, broken: Broken) -> None:
        self.config, self.begun = config, begun
        self.origin = begun.cycle
        words = as_words(begun.words)
        self.known: dict[tuple[bool, int], _Transfer] = {}
        """By whether it is a fetch, and number of the page or operation."""
        self.transfers: dict[Unit, list[tuple[tuple[bool, int], int]]] = {Unit.LOAD: [], Unit.STORE: []}
        """Of a unit what it transfers, and the start."""
        if not len(words):
            self.timeline = without_words()
            return
        self.work, self.operations = work_of(config, words, begun.address, begun.base, memory_bytes, broken)
        rows = self.operations.registers()
        for n, unit in enumerate(self.operations.units.tolist()):
            if unit in (Unit.LOAD, Unit.STORE) and not self.work.causes[n]:
                shape = Shape.of(View(Unit(unit), rows[n]), begun.base)
                self.known[False, n] = _Transfer(config.bus_bytes, shape)
        for page in range(len(self.work.fetches)):
            shape = Shape(begun.address + PAGE_BYTES * page, 1, 1, 0, 0, PAGE_BYTES)
            self.known[True, page] = _Transfer(config.bus_bytes, shape)
        self._play()

    @property
    def beats(self) -> int:
        """Of all transfers, about."""
        shapes = [transfer.shape for transfer in self.known.values()]
        return sum(s.rows * s.planes * (s.length // self.config.bus_bytes + 1) for s in shapes)

    def _play(self) -> None:
        """When everything starts, if transfers last as long as assumed: ``timeline``, and the transfers in it."""
        self.timeline = timeline_of(run(self.work), self.operations)
        line = self.timeline
        numbers = np.searchsorted(self.operations.pcs, line.pc)
        self.transfers = {Unit.LOAD: [], Unit.STORE: []}
        for unit, op, pc, n, start, works in zip(
            *(a.tolist() for a in (line.unit, line.op, line.pc, numbers, line.start, line.works)), strict=True
        ):
            if unit in self.transfers and works:
                key = (True, pc) if op == FETCH else (False, n)
                self.transfers[Unit(unit)].append((key, start))
                self.known[key].verified = self.origin + start + CHECK

    def begin(self, cycle: int) -> None:
        """Let the run begin in a cycle of the system."""
        self.origin = cycle
        for key, start in (*self.transfers[Unit.LOAD], *self.transfers[Unit.STORE]):
            self.known[key].verified = cycle + start + CHECK

    def moves(self, unit: Unit) -> list[_Transfer]:
        """The transfers of LOAD or STORE, in order."""
        return [self.known[key] for key, _ in self.transfers[unit]]

    def learns(self) -> bool:
        """Takes over how long transfers really lasted; whether that was news."""
        if not self.known:
            return False
        cycles, fetches = self.work.cycles.copy(), self.work.fetches.copy()
        for key, start in (*self.transfers[Unit.LOAD], *self.transfers[Unit.STORE]):
            fetched, number = key
            lasted = self.known[key].end - self.origin - start
            (fetches if fetched else cycles)[number] = max(lasted, CHECK + 1)
        if np.array_equal(cycles, self.work.cycles) and np.array_equal(fetches, self.work.fetches):
            return False
        self.work = self.work._replace(cycles=cycles, fetches=fetches)
        self._play()
        return True


class _Reads:
    """Memory's side of read bursts."""

    def __init__(self, memory: MemoryTiming) -> None:
        self.memory = Direction.reads(memory)
        self.last = LONG_AGO

    def serve(self, manager: int, flow: "_Flow", taken: int) -> int:
        """The cycle of the burst's last beat at its manager."""
        self.last = self.memory.last_beat(self.memory.first_beat(taken, self.last), flow.beats)
        return self.last + DATA


class _Writes:
    """Memory's side of write bursts, and the managers' beats."""

    def __init__(self, memory: MemoryTiming, managers: int) -> None:
        self.memory = Direction.writes(memory)
        self.data = WriteData()
        self.last = LONG_AGO
        self.free = [LONG_AGO] * managers

    def serve(self, manager: int, flow: "_Flow", taken: int) -> int:
        """The cycle of the burst's response at its manager."""
        presented = max(self.free[manager], flow.accepted + 1)
        if flow.begins is not None:
            presented = max(presented, flow.begins + WRITE_FIRST)
        for _ in range(flow.beats):
            presented = self.data.accept(presented, taken) + 1
            self.last = max(self.data.offered, self.last + self.memory.beat_cycles)
            self.data.taken(self.last)
        self.free[manager] = presented
        return self.memory.end(self.last) + DATA


def _serve(flows: Sequence["_Flow"], memory: _Reads | _Writes, more: int) -> None:
    """Puts the bursts of a direction through interconnect and memory; ``more``: cycles from a transfer's last answer to
    its end."""
    addresses = Addresses(len(flows))
    while True:
        when, k = min((flow.presents, k) for k, flow in enumerate(flows))
        grant = addresses.due()
        if when < (NEVER if grant is None else grant.cycle):
            flows[k].accept(addresses.present(k, when))
        elif grant is None:
            return
        else:
            addresses.grant(grant)
            addresses.taken(grant.offered)  # memory takes every address at once
            flow = flows[grant.manager]
            flow.answer(memory.serve(grant.manager, flow, grant.offered), more)


class _Flow:
    """The bursts of a manager, one after the other.

    ``beats``: of the burst that is due; ``presents``: when its address is presented, NEVER while it waits for its grant
    and at the end; ``accepted``: when it was accepted; ``begins``: when its transfer was verified, if it is the first
    one of it.
    """

    def __init__(self, transfers: Sequence[_Transfer], outstanding: int) -> None:
        self._outstanding = outstanding
        self._transfers = iter(transfers)
        self._ends: list[int] = []  # of the transfer's bursts
        self._next: int | None = None  # beats of the burst behind the one that is due
        self.beats, self.accepted = 0, LONG_AGO
        self.presents = NEVER
        self.begins: int | None = None
        self._turn()

    def _turn(self) -> None:
        """On to the next transfer."""
        self._ends.clear()
        transfer = next(self._transfers, None)
        self.presents, self.begins = NEVER, None
        if transfer is not None:
            self._transfer, self._coming, self.begins = transfer, transfer.beats(), transfer.verified
            self._next = next(self._coming)
            self._advance()

    def _advance(self) -> None:
        assert self._next is not None
        self.beats, self._next = self._next, next(self._coming, None)
        place = self._ends[-self._outstanding] + PLACE if len(self._ends) >= self._outstanding else LONG_AGO
        self.presents = max(self._transfer.verified + ADDRESS, self.accepted + ADDRESS, place)

    def accept(self, cycle: int) -> None:
        """The address that was presented is in the slice."""
        self.accepted, self.presents = cycle, NEVER

    def answer(self, end: int, more: int) -> None:
        """The burst was granted, and so the cycle of its last answer is known."""
        if self._next is None:
            self._transfer.end = end + more
            self._turn()
        else:
            self._ends.append(end)
            self.begins = None
            self._advance()
