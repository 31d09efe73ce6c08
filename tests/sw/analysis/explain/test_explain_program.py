"""Explained programs against a simulation cycle by cycle, as docs/architecture.md tells it: with anything free."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

import pytest

from dovetail.isa.config.resolved import Config
from dovetail.isa.instructions.checks import View
from dovetail.isa.instructions.table import INSTRUCTIONS, PAGE_WORDS, QUEUE_DEPTH, Op, Unit, unit_of
from dovetail.isa.timing.operations import duration, rules_of
from dovetail.isa.timing.run import time_program
from dovetail.isa.timing.sequencer import END_TO_DONE, PAGE_READY
from dovetail.isa.timing.timeline import FETCH, Timeline
from dovetail.sw.analysis.explain.causes import NOTHING_FREE, RESOURCES, Resource, fastest
from dovetail.sw.analysis.explain.cycle_parts import parts_of
from dovetail.sw.analysis.explain.program import ExplainedProgram
from dovetail.sw.random.programs.accelerators import random_config
from dovetail.sw.random.programs.legal import RandomProgram, legal_program


@dataclass
class _Entry:
    """Of a queue: ``pushed`` in a cycle; lasts ``duration`` cycles beyond the one in which it is popped."""

    pushed: int
    duration: int = 0
    on: int | None = None
    target: int = 0
    counts: bool = False
    page: int | None = None


@dataclass
class _Unit:
    queue: list[_Entry] = field(default_factory=list)
    pops: list[int] = field(default_factory=list)
    ends: list[int] = field(default_factory=list)
    busy: int = -1

    def places(self, cycle: int) -> int:
        """Entries that take a place in a cycle: what is popped in it does as well."""
        return len(self.queue) + sum(pop >= cycle for pop in self.pops[-QUEUE_DEPTH:])


class _Machine:
    def __init__(self, words: Sequence[int], durations: Sequence[int], queues: bool) -> None:
        self.words = list(words) + [int(Op.END)] * (-len(words) % PAGE_WORDS)
        self.durations = iter(durations)
        self.depth = QUEUE_DEPTH if queues else 1 << 60
        self.units = [_Unit() for _ in Unit]
        self.dispatched = [0] * len(Unit)
        self.arrived: dict[int, int] = {}
        self.cycle = 0
        self.last = 0

    def run(self) -> int:
        actions = self._actions()
        pending = next(actions)
        ended = False
        while not ended or any(unit.queue or unit.busy >= self.cycle for unit in self.units):
            if not ended and self._acts(*pending):
                ended = pending[1] == Op.END
                self.last = self.cycle
                pending = next(actions)
            for unit in self.units:
                self._pop(unit)
            self.cycle += 1
        return max(self.last, *(end for unit in self.units for end in unit.ends or [0])) + END_TO_DONE

    def _actions(self) -> Iterator[tuple[int | None, int | None, int]]:
        """(page that must have arrived, word or None for a fetch, page to fetch)."""
        yield None, None, 0
        for page in range(len(self.words) // PAGE_WORDS):
            if (page + 1) * PAGE_WORDS < len(self.words):
                yield page, None, page + 1
            for word in self.words[page * PAGE_WORDS : (page + 1) * PAGE_WORDS]:
                yield page, word, 0
        yield None, None, 0

    def _acts(self, page: int | None, word: int | None, fetched: int) -> bool:
        """Carry an action of the front end out, if it may go."""
        if page is not None and self.cycle < self.arrived.get(page, 1 << 60) + PAGE_READY:
            return False
        if word is not None and word & 0xFF == Op.END:
            return True
        entry = _Entry(self.cycle)
        if word is None:
            number = int(Unit.LOAD)
            entry.page = fetched
        elif word & 0xFF == Op.CFG:
            number = word >> 14 & 3
        elif word & 0xFF == Op.SYNC:
            number = word >> 8 & 0xFF
            entry.on = word >> 16 & 0xFF
            entry.target = max(0, self.dispatched[entry.on] - (word >> 32))
        else:
            unit = INSTRUCTIONS[Op(word & 0xFF)].unit
            assert unit is not None
            number = int(unit)
            entry.counts = True
        if self.units[number].places(self.cycle) >= self.depth:
            return False
        if entry.counts or entry.page is not None:
            entry.duration = next(self.durations)
        self.dispatched[number] += entry.counts
        self.units[number].queue.append(entry)
        return True

    def _pop(self, unit: _Unit) -> None:
        if unit.busy >= self.cycle or not unit.queue or unit.queue[0].pushed >= self.cycle:
            return
        entry = unit.queue[0]
        if entry.on is not None and sum(end < self.cycle for end in self.units[entry.on].ends) < entry.target:
            return
        unit.queue.pop(0)
        unit.pops.append(self.cycle)
        unit.busy = self.cycle + entry.duration
        self.last = max(self.last, unit.busy)
        if entry.counts:
            unit.ends.append(unit.busy)
        if entry.page is not None:
            self.arrived[entry.page] = unit.busy


def durations_of(config: Config, timeline: Timeline, resource: Resource) -> list[int]:
    """What everything in a timeline takes if a resource is free."""
    config = fastest(config) if resource.memory else config
    durations = []
    for code, registers in zip(timeline.op.tolist(), timeline.registers, strict=True):
        if code == FETCH:
            durations.append(0 if "fetch" in resource.causes else rules_of(config).fetch)
            continue
        op = Op(code)
        view = View(unit_of(op), registers)
        cycles = duration(config, op, view, resource.free)
        parts = parts_of(config, op, view, cycles, free=resource.free)
        durations.append(sum(own for name, own in parts.items() if name not in resource.causes))
    return durations


def random_program(seed: int) -> tuple[RandomProgram, Timeline]:
    rng = random.Random(seed)
    config = random_config(rng)
    program = legal_program(rng, config, count=rng.choice((3, 8, 16)))
    timeline = time_program(
        config, program.words, address=program.program, base=program.base, memory_bytes=len(program.memory)
    )
    assert timeline.fault is None
    return program, timeline


@pytest.mark.parametrize("seed", range(12))
def test_cycles_with_anything_free(seed: int) -> None:
    program, timeline = random_program(seed)
    config, words = program.config, program.words
    layers = {pc: number // 3 for number, pc in enumerate(sorted(timeline.pc[~timeline.is_fetch].tolist()))}
    explained = ExplainedProgram(config, words, timeline, layers, [0] * (max(layers.values()) + 1))
    several = RESOURCES["array"].and_also(RESOURCES["load"]).and_also(RESOURCES["frontend"])
    for resource in (NOTHING_FREE, *RESOURCES.values(), several.and_also(RESOURCES["memory"])):
        spent = explained.spent(resource)
        durations = durations_of(config, timeline, resource)
        expected = _Machine(words, durations, not resource.queues).run()
        assert sum(layer.cycles for layer in spent) == expected, resource.name
        assert not any(name in resource.causes for layer in spent for name in layer.shares), resource.name
    assert sum(layer.cycles for layer in explained.spent()) == timeline.cycles


@pytest.mark.parametrize("seed", range(40))
def test_layers_end_with_their_last_operation(seed: int) -> None:
    """Whatever layer an operation is said to belong to: a layer's time ends when those up to it have ended."""
    program, timeline = random_program(seed)
    rng = random.Random(seed)
    pcs = timeline.pc[~timeline.is_fetch].tolist()
    count = rng.randint(1, 6)
    layers = {pc: rng.randrange(count) for pc in pcs} | {pcs[0]: count - 1}
    spent = ExplainedProgram(program.config, program.words, timeline, layers, [0] * count).spent()
    after = dict(zip(pcs, (timeline.end[~timeline.is_fetch] + 1).tolist(), strict=True))
    for index in range(count - 1):
        ended = max((after[pc] for pc in pcs if layers[pc] <= index), default=0)
        assert sum(layer.cycles for layer in spent[: index + 1]) == ended
    assert all(cycles > 0 for layer in spent for cycles in layer.shares.values())
    assert all(0 <= layer.ahead <= layer.cycles for layer in spent)
    if count == 1:
        assert spent[0].ahead == 0
