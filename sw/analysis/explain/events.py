"""The events of a program and what each waits for: times under any durations, and the critical path.

The recurrence is that of `dovetail.isa.timing.recurrence`, without faults. There it is one loop for speed; here what
each word waits for is kept, as this does not depend on durations. An *action* is a word up to the END, or a page's
fetch, in
the order in which the front end takes them. It is dispatched, popped by its unit, and ends; register writes and waits
end as they are popped:

    dispatch(n) = max(dispatch(n - 1) + 1, pop(its queue place's last user) + 1, end(its page's fetch) + PAGE_READY)
    pop(n)      = max(end(before, of its unit) + 1, end(what a wait is for) + 1, dispatch(n) + 1)
    end(n)      = pop(n) + duration(n)
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from dovetail.isa.instructions.table import INSTRUCTIONS, PAGE_WORDS, QUEUE_DEPTH, Op, Unit
from dovetail.isa.timing.predecode import Words, as_words
from dovetail.isa.timing.sequencer import END_TO_DONE, FIRST_ACTION, PAGE_READY

NONE = -1
"""No action."""
_DISPATCHED, _POPPED, _ENDED = range(3)
_UNIT_OF = {int(op): int(row.unit) for op, row in INSTRUCTIONS.items() if row.unit is not None}


@dataclass(frozen=True)
class Events:
    """A program's actions, the END last; each list has one element per action.

    Parameters
    ----------
    before: the action before it in its unit, or `NONE`.
    place: the action that had its queue place before it, or `NONE`.
    target: what a wait waits for, or `NONE`.
    page: the fetch that the first action of a page waits for, or `NONE`.
    number: its place in a timeline, if it is an operation or a fetch, or `NONE`.
    operations: the actions that have a number, by it.
    """

    before: Sequence[int]
    place: Sequence[int]
    target: Sequence[int]
    page: Sequence[int]
    number: Sequence[int]
    operations: Sequence[int]


@dataclass(frozen=True)
class Times:
    """Cycles in which the actions are dispatched, popped and ended, and what the whole program takes."""

    dispatch: Sequence[int]
    pop: Sequence[int]
    end: Sequence[int]
    cycles: int


def events_of(program: Words) -> Events:
    """The events of a program that ends with END and in which nothing faults."""
    words = as_words(program)
    codes = (words & np.uint64(0xFF)).tolist()
    middles = (words >> np.uint64(8) & np.uint64(0xFF)).tolist()
    uppers = (words >> np.uint64(16) & np.uint64(0xFF)).tolist()
    values = (words >> np.uint64(32)).tolist()
    stop = codes.index(Op.END)
    cfg, sync, load = int(Op.CFG), int(Op.SYNC), int(Unit.LOAD)

    before: list[int] = []
    place: list[int] = []
    target: list[int] = []
    page: list[int] = []
    numbers: list[int] = []
    operations: list[int] = []
    queues: list[list[int]] = [[] for _ in Unit]
    done: list[list[int]] = [[] for _ in Unit]

    def push(unit: int, gate: int, awaited: int = NONE, *, lasts: bool = False) -> int:
        action = len(before)
        queue = queues[unit]
        before.append(queue[-1] if queue else NONE)
        place.append(queue[-QUEUE_DEPTH] if len(queue) >= QUEUE_DEPTH else NONE)
        target.append(awaited)
        page.append(gate)
        queue.append(action)
        numbers.append(len(operations) if lasts else NONE)
        if lasts:
            operations.append(action)
        return action

    pages = len(words) // PAGE_WORDS
    fetched = push(load, NONE, lasts=True)
    gate = NONE
    for pc in range(stop + 1):
        if pc % PAGE_WORDS == 0:
            gate = fetched
            if pc // PAGE_WORDS + 1 < pages:
                fetched = push(load, gate, lasts=True)
                gate = NONE
        code = codes[pc]
        if pc == stop:
            break
        if code == cfg:
            push(middles[pc] >> 6, gate)
        elif code == sync:
            on = done[uppers[pc]]
            number = len(on) - values[pc] - 1
            push(middles[pc], gate, on[number] if number >= 0 else NONE)
        else:
            unit = _UNIT_OF[code]
            done[unit].append(push(unit, gate, lasts=True))
        gate = NONE
    for column in (before, place, target, numbers):
        column.append(NONE)
    page.append(gate)
    return Events(before, place, target, page, numbers, operations)


def times_of(events: Events, durations: Sequence[int], *, queues: bool = True) -> Times:
    """When everything happens if the ``operations`` take these durations; without ``queues`` these hold any number."""
    dispatch: list[int] = []
    pop: list[int] = []
    end: list[int] = []
    lasting = [0] * len(events.before)
    for action, duration in zip(events.operations, durations, strict=True):
        lasting[action] = duration
    places = events.place if queues else [NONE] * len(lasting)
    now = FIRST_ACTION - 1
    for before, place, target, page, duration in zip(
        events.before, places, events.target, events.page, lasting, strict=True
    ):
        now += 1
        if place >= 0 and pop[place] >= now:
            now = pop[place] + 1
        if page >= 0 and end[page] + PAGE_READY > now:
            now = end[page] + PAGE_READY
        dispatch.append(now)
        time = now + 1
        if before >= 0 and end[before] >= time:
            time = end[before] + 1
        if target >= 0 and end[target] >= time:
            time = end[target] + 1
        pop.append(time)
        end.append(time + duration)
    pop[-1] = end[-1] = now  # the END is not popped
    return Times(dispatch, pop, end, max(end) + END_TO_DONE)


def critical_path(events: Events, times: Times, *, queues: bool = True) -> list[int]:
    """The operations and fetches, by number, that a program waits for from its first cycle to its last, in this order.

    Between them it waits for words to be dispatched and popped, a cycle each, for decoding, and for start and end.
    Where an event waits for two things that come in the same cycle, the path goes to the unit's own last action, then
    to what a wait is for, then to the front end; a dispatch to the queue, then to the page, then to the word before.
    """
    dispatch, pop, end = times.dispatch, times.pop, times.end
    befores, places, targets, pages = events.before, events.place, events.target, events.page
    path: list[int] = []
    last = times.cycles - END_TO_DONE
    action = end.index(last)
    event = _DISPATCHED if action == len(end) - 1 else _ENDED
    while True:
        if event == _ENDED:
            if events.number[action] >= 0:
                path.append(events.number[action])
            event = _POPPED
        elif event == _POPPED:
            before, target = befores[action], targets[action]
            if before >= 0 and end[before] + 1 == pop[action]:
                action, event = before, _ENDED
            elif target >= 0 and end[target] + 1 == pop[action]:
                action, event = target, _ENDED
            else:
                event = _DISPATCHED
        else:
            place, page = places[action], pages[action]
            if queues and place >= 0 and pop[place] + 1 == dispatch[action]:
                action, event = place, _POPPED
            elif page >= 0 and end[page] + PAGE_READY == dispatch[action]:
                action, event = page, _ENDED
            elif action:
                action -= 1
            else:
                break
    path.reverse()
    return path
