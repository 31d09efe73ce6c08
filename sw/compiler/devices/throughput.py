"""The plan that makes many inferences fast: each goes from accelerator to accelerator, or stays on one.

Inferences that stay on one accelerator each are one way. Where accelerators differ, another one is that each computes
what suits it: inferences take routes of several legs, and while one inference is on its second leg, the next one is on
its first. The way is taken that takes fewer cycles on the whole system.

Accelerators of equal configurations that begin at once ask for memory at the same moments. So the plan lets them begin
one after the other; by how many cycles is tried out. Where they still wait for one another, programs are tried that
were compiled for a slower memory: they load less at a time, and less in all.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain, product

from dovetail.isa.config.system import System
from dovetail.isa.timing.jobs import Job
from dovetail.isa.timing.memory import ADDRESS_SPACE
from dovetail.isa.timing.system import time_jobs
from dovetail.sw.compiler.compile import Code
from dovetail.sw.compiler.devices.host_layers import host_reasons
from dovetail.sw.compiler.devices.interleaved import interleaved_plan
from dovetail.sw.compiler.devices.pieces import Prices, compiled, targets_of
from dovetail.sw.compiler.devices.plan import Layout, Plan, Task
from dovetail.sw.compiler.devices.routes import PRICED, Leg, Routes
from dovetail.sw.compiler.devices.timetable import Timetable, Visit, dealt
from dovetail.sw.compiler.options import Options
from dovetail.sw.errors import CompileError
from dovetail.sw.network import ir

LATER = (0, 64, 32, 16, 8, 4)
"""By what part of an inference's cycles an accelerator begins later than the one before it, divided by their number;
0: at once."""
CLOSER = (0, 2, 4, 6)
"""By effort, how often better starts are looked for beside those, each time half as far away."""
CROWDED = 1.01
"""By how much inferences may take longer than without contention, before programs for a slower memory are tried."""


@dataclass(frozen=True)
class Trial:
    """A timetable and the programs of its legs, in memory as ``layout`` has it; its jobs, and how long they take.
    ``starts``: from which cycles on accelerators begin, in the order of their first visits; ``rivals``: see
    :func:`~dovetail.sw.compiler.devices.pieces.targets_of`."""

    table: Timetable
    codes: Mapping[Leg, Code]
    layout: Layout
    rivals: int
    jobs: tuple[Job, ...] = ()
    cycles: int = 0
    starts: tuple[int, ...] = ()


def throughput_plan(
    system: System,
    graph: ir.Graph,
    options: Options,
    inferences: int,
    *,
    legs: bool = True,
    clock: float | None = None,
) -> Plan:
    """The plan of that many inferences of a graph. ``legs``: inferences may go from accelerator to accelerator, if the
    host computes no layers. ``clock``: as of :func:`~dovetail.sw.compiler.devices.latency.latency_plan`.

    Raises
    ------
    CompileError: a layer that no accelerator can compute, variables that go from one inference to the next; memory that
        is too small.
    """
    if graph.states and inferences > 1:
        raise CompileError("inferences must follow one another, as the network has variables: inferences must be 1")
    if host_reasons(system, graph, options):
        return interleaved_plan(system, graph, options, inferences, clock)
    search = _Search(system, graph, options, inferences)
    trials = search.whole()
    if not trials or (legs and inferences > 1 and len(search.routes.members) > 1):
        trials += search.in_legs()
    trials.sort(key=lambda trial: trial.cycles)
    if trials and len(system.accelerators) > 1 and trials[0].cycles > CROWDED * trials[0].table.cycles:
        trials = sorted([*trials, *chain(*map(search.frugal, trials))], key=lambda trial: trial.cycles)
    refused = None
    for trial in trials:
        try:
            return search.plan(search.closer(trial))
        except CompileError as error:  # others may need less memory
            refused = refused or error
    raise refused or CompileError("mode must be latency: the accelerators cannot compute the network leg by leg")


def alone(system: System, graph: ir.Graph, options: Options) -> dict[str, int | None]:
    """Cycles of one inference on each accelerator while the others rest, by name, with its start; None where an
    accelerator cannot compute all of it."""
    search = _Search(system, graph, options, 1)
    codes = search.codes(search.all_legs, search.layout, 1)
    cycles = {leg.kind: search.cycles(leg, code) for leg, code in codes.items()}
    return {
        part.name: cycles.get(next(kind for kind, own in enumerate(search.routes.members) if number in own))
        for number, part in enumerate(system.accelerators)
    }


class _Search:
    """What is tried for some inferences of a graph."""

    def __init__(self, system: System, graph: ir.Graph, options: Options, inferences: int) -> None:
        self.system, self.graph, self.options, self.inferences = system, graph, options, inferences
        priced = (replace(options, effort=effort, smaller=False) for effort in PRICED[options.effort])
        self.searches = [Routes(system, graph, Prices(), each, options.effort) for each in priced]
        self.routes = self.searches[0]
        self.all_legs = [Leg(0, len(self.routes.nodes), kind) for kind in range(len(self.routes.members))]
        share = self.routes.share(self.all_legs[0])
        assert share
        self.layout = Layout(graph, [share], (0,) * inferences)
        """Of inferences that stay on one accelerator."""

    # --- programs ----------------------------------------------------------------------------------------------

    def codes(self, legs: Iterable[Leg], layout: Layout, rivals: int) -> dict[Leg, Code]:
        """The program of each leg, without those that its accelerators cannot compute."""
        found = {}
        for leg in legs:
            share = self.routes.share(leg)
            target = targets_of(self.system, rivals)[self.routes.members[leg.kind][0]]
            code = share and compiled(target, share, self.options, share.given(layout.where[0], layout.start))
            if code:
                found[leg] = code
        return found

    def cycles(self, leg: Leg, code: Code) -> int:
        """Of a leg while the others rest, with its start."""
        name = self.system.accelerators[self.routes.members[leg.kind][0]].name
        return time_jobs(self.system, [Job(name, code.segments[0].words)], memory_bytes=ADDRESS_SPACE).cycles

    # --- ways --------------------------------------------------------------------------------------------------

    def whole(self) -> list[Trial]:
        """Each inference on one accelerator, as soon as one is free. Slow accelerators get none where memory has no
        room for them. Nothing if no accelerator can compute the whole network."""
        codes = self.codes(self.all_legs, self.layout, 1)
        cycles = {leg: self.cycles(leg, code) for leg, code in codes.items()}
        able = sorted((cycles[leg], number, leg) for leg in codes for number in self.routes.members[leg.kind])
        best: list[Trial] = []
        for count in range(len(able), 0, -1):
            busy, visits = {number: 0 for _, number, _ in able[:count]}, list[Visit]()
            for inference in range(self.inferences):
                took, number, leg = min(able[:count], key=lambda one: busy[one[1]] + one[0])
                busy[number] += took
                visits.append(Visit(inference, leg, number, ()))
            table = Timetable(tuple(visits), (0,) * self.inferences, max(busy.values()))
            tried = self.timed(Trial(table, codes, self.layout, 1))
            if best and tried.cycles >= best[0].cycles:
                break
            best = [tried]
        return best

    def in_legs(self) -> list[Trial]:
        """Inferences that go from accelerator to accelerator; nothing if none should."""
        found = list[Trial]()
        for search in self.searches:
            table = dealt(search.find(), self.inferences, search.members, search.cycles)
            if any(len(search.nodes) > visit.leg.last - visit.leg.first for visit in table.visits):
                found += self._with_programs(table, 1)
        return found

    def frugal(self, trial: Trial) -> list[Trial]:
        """The same with programs for a memory that is slower by the number of accelerators."""
        return self._with_programs(trial.table, len(self.system.accelerators))

    def _with_programs(self, table: Timetable, rivals: int) -> list[Trial]:
        """A timetable's trial; nothing if a leg has no program that is compiled so."""
        legs = dict.fromkeys(visit.leg for visit in table.visits)
        shares = [share for leg in legs if (share := self.routes.share(leg))]
        layout = Layout(self.graph, shares, table.slots)
        codes = self.codes(legs, layout, rivals)
        return [self.timed(Trial(table, codes, layout, rivals))] if len(codes) == len(legs) else []

    # --- starts ------------------------------------------------------------------------------------------------

    def timed(self, trial: Trial) -> Trial:
        """The trial with about the best starts: accelerators begin equally long after one another."""
        count, span = trial.table.working, trial.table.cycles / self.inferences
        tries = [int(span / part) if part else 0 for part in (LATER if count > 1 else LATER[:1])]
        found = (self._begun(trial, [later * place for place in range(count)]) for later in tries)
        return min(found, key=lambda one: one.cycles)

    def closer(self, trial: Trial) -> Trial:
        """The trial with better starts, if there are: of all accelerators, then of each by itself."""
        count, first = trial.table.working, trial.table.cycles / self.inferences / max(LATER)
        rounds = [max(trial.starts[-1] / count, first) / 2**half for half in range(1, CLOSER[self.options.effort] + 1)]
        each = [[int(other == place) for other in range(count)] for place in range(1, count)]
        for directions in ([[*range(count)]], each) if count > 1 else ():
            for step, direction, way in product(rounds, directions, (-1, 1)):
                starts = [
                    max(int(had + way * step * part), 0) for had, part in zip(trial.starts, direction, strict=True)
                ]
                trial = min(trial, self._begun(trial, starts), key=lambda one: one.cycles)
        return trial

    def _begun(self, trial: Trial, starts: Sequence[int]) -> Trial:
        """The trial with these starts."""
        jobs, places = list[Job](), dict[int, int]()
        for visit in trial.table.visits:
            name, words = self.system.accelerators[visit.accelerator].name, trial.codes[visit.leg].segments[0].words
            first = visit.accelerator not in places
            place = places.setdefault(visit.accelerator, len(places))
            jobs.append(Job(name, words, after=visit.after, earliest=starts[place] if first else 0))
        cycles = time_jobs(self.system, jobs, memory_bytes=ADDRESS_SPACE).cycles
        return replace(trial, jobs=tuple(jobs), cycles=cycles, starts=tuple(starts))

    # --- the plan ----------------------------------------------------------------------------------------------

    def plan(self, trial: Trial) -> Plan:
        """The plan that does what was tried. Raises CompileError if memory is too small."""
        layout, own = trial.layout, dict[int, int]()
        for visit in trial.table.visits:
            own[visit.accelerator] = max(own.get(visit.accelerator, 0), Layout.own_bytes(trial.codes[visit.leg]))
        places = {number: layout.take(size) for number, size in own.items()}
        tasks = []
        for visit, job in zip(trial.table.visits, trial.jobs, strict=True):
            words, address = layout.program(
                trial.codes[visit.leg], inference=visit.inference, own=places[visit.accelerator]
            )
            names = tuple(node.name for node in self.routes.nodes[visit.leg.first : visit.leg.last])
            tasks.append(Task(replace(job, words=words, address=address), names, inference=visit.inference))
        return layout.plan(self.system, tasks)
