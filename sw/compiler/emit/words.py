"""Turns tile tasks into instruction words: register writes that change something, waits, operations, loads ahead.

Computations and stores keep their order, and so do loads; but a load is emitted as soon as no earlier operation needs
the bytes that it replaces, or makes those that it reads, and its unit's queue has room, however far ahead of its task
that is. In some programs loads may also overtake one that has to wait.
"""

from array import array
from collections.abc import Iterable, Sequence
from itertools import takewhile
from operator import add
from typing import NamedTuple

from dovetail.isa.config.resolved import Config
from dovetail.isa.instructions.table import PAGE_WORDS, QUEUE_DEPTH, REGISTERS, Op, Unit
from dovetail.isa.timing.core import engine
from dovetail.isa.timing.operations import rules_of
from dovetail.isa.timing.run import time_program
from dovetail.sw.compiler.emit.arena import Arena
from dovetail.sw.compiler.emit.hazards import Range, Tracker
from dovetail.sw.compiler.emit.operations import TRANSFERS, Form, Task, Transfer, forms_of
from dovetail.sw.compiler.emit.stores import Stores
from dovetail.sw.compiler.plan.smaller import Moved, Residents

_MARGIN = 128
"""LOAD is given its next load when at most this many cycles of work are left to it."""
_ARRAY = int(Unit.ARRAY)
_MAX_FORMS = 1 << 12
"""Forms of transfers that are kept."""
_AHEAD = 64
"""Loads behind one that must wait, of which one may go first."""
_LOOKS = 8
"""The limit is checked after this many loads."""
_WAITS = 2
"""Approximate number of words of an operation beside register writes: waits, itself."""
_WORDS = 6
"""Approximate number of words of an operation: register writes, waits, itself."""


class _Operation(NamedTuple):
    """An instruction to come. Ranges are what it touches: SRAM, then system memory."""

    layer: int
    form: Form
    addresses: tuple[int, ...]
    cycles: int
    reads: tuple[Range, ...] = ()
    writes: tuple[Range, ...] = ()
    mem_reads: tuple[Range, ...] = ()
    mem_writes: tuple[Range, ...] = ()


def _moved(operation: _Operation, moved: Moved, forms: dict[int, Form]) -> _Operation:
    """The operation at its place in a larger SRAM; ``forms``: those with addresses of their own, by identity."""
    form, addresses = operation.form, operation.addresses
    if form.unit in TRANSFERS:
        addresses = addresses[0], moved.at(addresses[1])
    else:
        addresses = tuple(map(moved.at, addresses))
        form = forms.get(id(form)) or forms.setdefault(id(form), form.moved(moved))
    reads, writes = tuple(map(moved.region, operation.reads)), tuple(map(moved.region, operation.writes))
    return operation._replace(form=form, addresses=addresses, reads=reads, writes=writes)


def _meet(one: _Operation, other: _Operation) -> bool:
    """Whether one of two operations writes what the other one touches in SRAM."""
    pairs = (one.writes, (*other.reads, *other.writes)), (other.writes, one.reads)
    return any(a < c + d and c < a + b for written, touched in pairs for a, b in written for c, d in touched)


class _Load(NamedTuple):
    """A load to emit: after the first ``after`` of the other operations, and before number ``due`` of them."""

    operation: _Operation
    after: int
    due: int


class Emitter:
    """The words of one segment.

    ``words`` are there after `end`; ``layers`` maps the word index of each operation to the layer it belongs to.
    ``arena`` knows which operation touches which SRAM last, of those that were added; ``clock`` when they are executed.

    Parameters
    ----------
    config
        The accelerator.
    like
        What has written the words of the same tasks for one with less SRAM. Addresses are moved to the larger one;
        the order of operations and all waits stay, others are added.
    overtakes
        Whether a load may go before one that must wait for operations, of all that was added before `end`.
    """

    def __init__(self, config: Config, like: "Emitter | None" = None, *, overtakes: bool = False) -> None:
        self.config, self.like, self.overtakes = config, like, overtakes
        self.words = array("Q")
        self.layers: dict[int, int] = {}
        self.moved: dict[int, int] = {}
        """Bytes moved over the bus, by layer."""
        self.arena = Arena(like.config if like else config)
        self._tracker = Tracker(config)
        self.clock = engine.clock(rules_of(config).fetch)
        self._by_clock = not config.serial  # the clock times queues, and the microcoded accelerator has none
        self.cycles = self.span = 0
        """Cycles of the program, once it has ended, and those from the start of its first operation to the end of the
        last one."""
        self._places: dict[int, tuple[Moved, dict[int, Form]]] = {}
        """By layer, where its addresses are on the larger memory, and its forms with addresses of their own there."""
        self._steps: dict[int, int] = {}
        """By layer, the number of the call of `place` that brought it."""
        self._operations: list[_Operation] = []
        self._out = 0  # of them
        self._loads: list[_Load] = []
        self.turns: list[int] = []
        """Of each load, the other operations before it."""
        self.order: list[int] = []
        """The loads' numbers as they are emitted, where some overtake others."""
        self._ends: list[int] = []
        """About when each of the other operations ends, in the same case."""
        self.waits: list[list[list[int]]] = [[] for _ in Unit]
        """Of each unit's operations, in order, the SYNC words before each."""
        self.late: set[int] = set()
        """Layers that wait, or load weights later, where they do not in ``like``."""
        self.meets = False
        """Whether an operation that goes before an earlier task, as it has nothing to do with it in ``like``, would
        write what that one touches: a tensor in several banks lies in fewer. There are no words then."""
        self._stored = Stores()
        self._transfers = forms_of(config.like_fixed, config.bus, config.outstanding)
        self._values = [[0] * len(REGISTERS[unit]) for unit in Unit]
        self._latest: list[Form | None] = [None] * len(Unit)
        self._busy = [0] * len(Unit)
        """Per unit the cycles that it needs for the operations to come."""

    def place(self, tasks: Iterable[Task], residents: Residents) -> None:
        """All tasks of some layers, before any of them is added: where their addresses are on a larger memory.
        ``residents``: what is in SRAM before or after them."""
        if not self.like:
            return
        tasks = tuple(tasks)
        touched = [region for task in tasks for regions in task.touched for region in regions]
        touched += [transfer.sram_range for task in tasks for transfer in task.loads]
        places = Moved(self.like.config, self.config, residents, touched), dict[int, Form]()
        self._places |= {task.layer: places for task in tasks}
        self._steps |= dict.fromkeys((task.layer for task in tasks), max(self._steps.values(), default=0) + 1)

    def add(self, tasks: Iterable[Task]) -> None:
        """Take tasks, in an order in which they could be executed one by one."""
        operations, touch, busy = self._operations, self.arena.touch, self._busy
        begin = len(operations), len(self._loads)
        for task in tasks:
            due, layer = len(operations), task.layer
            for transfer in task.loads:
                self._add_load(layer, transfer, due)
            for form, addresses, reads, write in task.computes:
                cycles = form.cycles(self.config, addresses)
                busy[form.unit] += cycles + 1
                operations.append(_Operation(layer, form, addresses, cycles, reads, (write,)))
                number = len(operations)
                for region in reads:
                    touch(region, number)
                touch(write, number)
            for transfer in task.stores:
                self._add_store(layer, transfer)
        if self.like:
            self._move(*begin)

    def _move(self, first: int, first_load: int) -> None:
        """Move the operations and loads from these on to their place in the larger SRAM."""
        operations, loads = self._operations[first:], self._loads[first_load:]
        self._operations[first:] = [_moved(one, *self._places[one.layer]) for one in operations]
        self._loads[first_load:] = [
            load._replace(operation=_moved(load.operation, *self._places[load.operation.layer])) for load in loads
        ]
        self.meets |= self._crosses(first, first_load)

    def _crosses(self, first: int, first_load: int) -> bool:
        """Whether one of these operations and loads meets another one that is of an earlier step and comes later."""
        operations, loads, steps = self._operations[first:], self._loads[first_load:], self._steps
        if len({steps[one.layer] for one in operations}) < 2:
            return False
        for number, one in enumerate(operations):
            if any(steps[other.layer] < steps[one.layer] and _meet(one, other) for other in operations[number + 1 :]):
                return True
        for number, (load, _, due) in enumerate(loads):
            behind = [*operations[due - first :], *(other.operation for other in loads[number + 1 :])]
            if any(steps[other.layer] < steps[load.layer] and _meet(load, other) for other in behind):
                return True
        return False

    def advance(self, limit: int | None, *, rest: int = 0, more: int = 0, alone: bool = False) -> bool:
        """Write the loads that were added, and all operations that go before them.

        Returns False, as soon as that is sure, if ``cycles`` would exceed ``limit``, or for what ``meets`` says; the
        words are of no use then.

        Parameters
        ----------
        limit
            The most cycles; None for any.
        rest, more
            The least cycles from when the array has done what was added, and the least number of operations to come.
        alone
            Whether the limit is for ``span``.
        """
        if self.overtakes:
            return self._overtaking(limit, alone)
        operations, out = self._operations, self._out
        every = len(operations) + len(self._loads) + more
        if self.meets:
            return False
        for number in range(len(self.turns), len(self._loads)):
            load = self._loads[number]
            if number % _LOOKS == 0 and self._is_over(limit, every - number - out, rest, alone):
                return False
            if self.like:
                after = due = self.like.turns[number]
                # A tensor in several banks lies in fewer here: what it has to do with may be more.
                for later in range(due, load.due):
                    if _meet(load.operation, operations[later]):
                        self.late |= {load.operation.layer, operations[later].layer}
                        after = later + 1
            else:
                after, due = load.after, load.due
            while out < after or (out < due and self._goes_first(operations[out].form.unit)):
                self._emit(operations[out])
                out += 1
            self.turns.append(out)
            self._emit(load.operation)
        self._out = out
        return True

    def _is_over(self, limit: int | None, left: int, rest: int, alone: bool) -> bool:
        """Whether it is sure that ``cycles`` will exceed the limit, as of `advance`, with at least ``left`` operations
        to come."""
        if limit is None or left <= PAGE_WORDS or not self._by_clock:  # the clock would not be exact
            return False
        free, busy = self.clock.free, self._busy
        least: int = max(*map(add, free, busy), free[_ARRAY] + busy[_ARRAY] + rest)
        return least > limit + alone * self.clock.begun

    def _overtaking(self, limit: int | None, alone: bool) -> bool:
        """As `advance`, in an order of loads of its own."""
        waiting = list(range(len(self.turns), len(self._loads)))
        if self.like:
            return self._as_like(waiting, limit, alone)
        while waiting:
            if len(waiting) % _LOOKS == 0 and self._is_over(limit, self._left(waiting), 0, alone):
                return False
            due, chosen = self._loads[waiting[0]].due, self._choice(waiting)
            if chosen is None or (self._out < due and self._is_ready(self._operations[self._out])):
                self._emit_next()
            else:
                waiting.remove(chosen)
                self._emit_load(chosen)
        return True

    def _choice(self, waiting: Sequence[int]) -> int | None:
        """The load that comes next: the first one whose operations will have ended by when LOAD can start it, else the
        first one that may come; None if none may."""
        free, possible = self.clock.free[Unit.LOAD], None
        for number in waiting[:_AHEAD]:
            after = self._loads[number].after
            if after <= self._out:
                if not after or self._ends[after - 1] <= free:
                    return number
                possible = number if possible is None else possible
        return possible

    def _is_ready(self, operation: _Operation) -> bool:
        """As `_goes_first`, of all words of an operation."""
        values, clock, unit = self._values[operation.form.unit], self.clock, operation.form.unit
        places = (fixed if place < 0 else operation.addresses[place] for _, _, fixed, place in operation.form.registers)
        words = _WAITS + sum(
            values[index] != value for (index, *_), value in zip(operation.form.registers, places, strict=True)
        )
        ready = clock.ready(unit, min(words, QUEUE_DEPTH))
        if words > QUEUE_DEPTH:
            ready = max(ready, clock.free[unit] + words - QUEUE_DEPTH)
        return ready < max(clock.ready(Unit.LOAD, _WORDS), clock.free[Unit.LOAD] - _MARGIN)

    def _left(self, waiting: Sequence[int]) -> int:
        """Operations to come, with the loads that wait."""
        return len(self._operations) - self._out + len(waiting)

    def _as_like(self, waiting: list[int], limit: int | None, alone: bool) -> bool:
        """As `advance`: the loads in the order of ``like``, but behind all that they have to do with here."""
        assert self.like
        turns = dict(zip(self.like.order, self.like.turns, strict=True))
        if self.meets:
            return False

        def emit_load(number: int) -> None:
            load, after = self._loads[number], turns[number]
            waiting.remove(number)
            for later in range(max(after, self._out), load.due):
                if _meet(load.operation, self._operations[later]):
                    self.late |= {load.operation.layer, self._operations[later].layer}
                    after = later + 1
            overtaken = takewhile(lambda other: other < number, waiting)
            before = [other for other in overtaken if _meet(load.operation, self._loads[other].operation)]
            while self._out < after:
                emit_loads([*takewhile(lambda other: self._loads[other].due <= self._out, waiting)])
                self._emit_next()
            emit_loads(before)
            self._emit_load(number)

        def emit_loads(numbers: Sequence[int]) -> None:
            for number in numbers:
                if number in waiting:
                    emit_load(number)

        for place, number in enumerate(self.like.order):
            if place % _LOOKS == 0 and self._is_over(limit, self._left(waiting), 0, alone):
                return False
            emit_loads([number])
        return True

    def _emit_next(self) -> None:
        """The next operation."""
        operation = self._operations[self._out]
        self._emit(operation)
        self._ends.append(self.clock.free[operation.form.unit])
        self._out += 1

    def _emit_load(self, number: int) -> None:
        self.turns.append(self._out)
        self.order.append(number)
        self._emit(self._loads[number].operation)

    def end(self, limit: int | None = None, *, alone: bool = False) -> bool:
        """Write the words: all that was added, the end, and what fills the last page. As `advance`."""
        if not self.advance(limit, alone=alone):
            return False
        for operation in self._operations[self._out :]:
            self._emit(operation)
        self.words.append(int(Op.END))
        self.words.extend([int(Op.END)] * (-len(self.words) % PAGE_WORDS))
        self.cycles, self.span = self._timed()
        return limit is None or (self.span if alone else self.cycles) <= limit

    def _timed(self) -> tuple[int, int]:
        """Cycles of the program, and from the start of its first operation to the end of the last one."""
        if not self._by_clock:
            timeline = time_program(self.config, self.words)
            operations = ~timeline.is_fetch
            span = timeline.end[operations].max() - timeline.start[operations].min() + 1 if operations.any() else 0
            return timeline.cycles, int(span)
        cycles = self.clock.end()
        return cycles, self.clock.ended - self.clock.begun

    @property
    def array_cycles(self) -> int:
        """Cycles of the array that were added and are not written yet."""
        return self._busy[_ARRAY]

    def _goes_first(self, unit: int) -> bool:
        """Whether an operation for a unit is emitted before a load: the unit's queue has room for it while LOAD is
        still busy. More loads than LOAD needs to stay busy would only delay instruction fetches, which queue behind
        them.
        """
        clock = self.clock
        return clock.ready(unit, _WORDS) < max(clock.ready(Unit.LOAD, _WORDS), clock.free[Unit.LOAD] - _MARGIN)

    def _add_load(self, layer: int, transfer: Transfer, due: int) -> None:
        form, cycles, memory, sram = self._transfer(layer, transfer, Unit.LOAD)
        after = max(self.arena.touched(sram), self._stored.latest(memory))
        operation = _Operation(layer, form, transfer[:2], cycles, writes=(sram,), mem_reads=(memory,))
        self._loads.append(_Load(operation, after, due))

    def _add_store(self, layer: int, transfer: Transfer) -> None:
        form, cycles, memory, sram = self._transfer(layer, transfer, Unit.STORE)
        self._operations.append(_Operation(layer, form, transfer[:2], cycles, reads=(sram,), mem_writes=(memory,)))
        self.arena.touch(sram, len(self._operations))
        self._stored.add(memory, len(self._operations))

    def _transfer(self, layer: int, transfer: Transfer, unit: Unit) -> tuple[Form, int, Range, Range]:
        """Its form and duration, and the ranges that it touches in system memory and in SRAM."""
        key = unit, *transfer[2:]
        known = self._transfers.get(key)
        if known is None:
            if len(self._transfers) >= _MAX_FORMS:
                self._transfers.clear()
            sizes = transfer.bytes, transfer.memory_range[1], transfer.sram_range[1]
            known = self._transfers[key] = transfer.form(unit), *sizes
        form, moved, memory, sram = known
        self.moved[layer] = self.moved.get(layer, 0) + moved
        cycles = form.cycles(self.config, transfer)
        self._busy[unit] += cycles + 1
        return form, cycles, (transfer.memory, memory), (transfer.sram, sram)

    def _emit(self, operation: _Operation) -> None:
        """The words of an operation."""
        layer, form, addresses, cycles, reads, writes, mem_reads, mem_writes = operation
        words, unit = self.words, form.unit
        done = self.waits[unit]
        waited = self.like.waits[unit][len(done)] if self.like else ()
        values, before = self._values[unit], len(words)
        if form.param:
            values[form.moving[0][0]] = -1  # a run decides what it is
        if form is self._latest[unit]:
            for (index, word), value in zip(form.moving, addresses, strict=True):
                if values[index] != value:
                    values[index] = value
                    words.append(word | value << 32)
        else:
            self._latest[unit] = form
            for index, word, fixed, place in form.registers:
                value = fixed if place < 0 else addresses[place]
                if values[index] != value:
                    values[index] = value
                    words.append(word | value << 32)
        if form.param:
            values[form.moving[0][0]] = -1
        waits = self._tracker.issue(
            unit, reads=reads, writes=writes, mem_reads=mem_reads, mem_writes=mem_writes, waited=waited
        )
        if self.like:
            if waits:
                self.late.add(layer)
            waits = [*waited, *waits]
        done.append(waits)
        words.extend(waits)
        self.layers[len(words)] = layer
        words.append(form.op)
        self._busy[unit] -= cycles + 1
        self.clock.add(words, before, cycles)
