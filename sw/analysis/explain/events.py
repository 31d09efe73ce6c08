"""The events of a program and what each waits for: times under any durations, and the critical path.

An *action* is a word up to the END, or a page's fetch, in the order in which the front end takes them. It is
dispatched, popped by its unit, and ends; `dovetail.isa.timing.sequencer` says when. What each of them waits for does
not depend on durations.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from dovetail.isa.instructions.table import PAGE_WORDS, QUEUE_DEPTH, Op, Unit
from dovetail.isa.timing.sequencer import (
    END_TO_DONE,
    OPERATION,
    PAGE_READY,
    WAIT,
    WRITES,
    Chunks,
    Words,
    as_words,
    chunks_of,
)
from dovetail.isa.timing.timeline import Int64s

NONE = -1
"""No action."""
_DISPATCHED, _POPPED, _ENDED = range(3)


@dataclass(frozen=True)
class Events:
    """A program's actions, the END last; the lists up to ``number`` have one element per action.

    Parameters
    ----------
    chunks: the program as the recurrence takes it.
    units: the actions of each unit.
    before: the action before it in its unit, or `NONE`.
    place: the action that had its queue place before it, or `NONE`.
    target: what a wait waits for, or `NONE`.
    page: the fetch that the first action of a page waits for, or `NONE`.
    number: its place in a timeline, if it is an operation or a fetch, or `NONE`.
    operations: the actions that have a number, by it.
    """

    chunks: Chunks
    units: Sequence[Int64s]
    before: Sequence[int]
    place: Sequence[int]
    target: Sequence[int]
    page: Sequence[int]
    number: Sequence[int]
    operations: Sequence[int]


@dataclass(frozen=True)
class Times:
    """Cycles in which the actions are popped (the END: dispatched) and ended, and what the whole program takes."""

    pop: Sequence[int]
    end: Sequence[int]
    cycles: int


def events_of(program: Words) -> Events:
    """The events of a program that ends with END and in which nothing faults."""
    words = as_words(program)
    stop = int(np.argmax((words & np.uint64(0xFF)) == Op.END))
    chunks = chunks_of(words, stop)
    pages = len(chunks.fetches)
    follows = np.array([0, *range(0, (pages - 1) * PAGE_WORDS, PAGE_WORDS)])  # per fetch the word that it goes before
    fetches = follows + np.arange(pages)
    numbers = np.arange(stop + 1)
    actions = numbers + np.searchsorted(follows, numbers, "right")  # of the words
    counts = np.where(chunks.kinds == WRITES, chunks.amounts, 1)
    unit_of = np.insert(np.repeat(chunks.units, counts), follows, Unit.LOAD)
    units = [np.flatnonzero(unit_of == unit) for unit in Unit]

    before, place, target, page, number = np.full((5, len(unit_of) + 1), NONE)
    at = actions[np.cumsum(counts) - counts]
    for unit, mine in enumerate(units):
        before[mine[1:]], place[mine[QUEUE_DEPTH:]] = mine[:-1], mine[:-QUEUE_DEPTH]
        operations = at[(chunks.kinds == OPERATION) & (chunks.units == unit)]
        waits = (chunks.kinds == WAIT) & (chunks.ons == unit)
        awaited = np.searchsorted(operations, at[waits]) - chunks.amounts[waits] - 1
        target[at[waits][awaited >= 0]] = operations[awaited[awaited >= 0]]
    page[fetches[1:]] = fetches[:-1]
    if stop // PAGE_WORDS == pages - 1:  # nothing is fetched ahead there
        page[actions[stop - stop % PAGE_WORDS]] = fetches[-1]
    lasting = np.sort(np.concatenate([fetches, at[chunks.kinds == OPERATION]]))
    number[lasting] = np.arange(len(lasting))
    columns = (column.tolist() for column in (before, place, target, page, number, lasting))
    return Events(chunks, units, *columns)


def times_of(events: Events, durations: Sequence[int], *, queues: bool = True) -> Times:
    """When everything happens if the ``operations`` take these durations; without ``queues`` these hold any number."""
    depth = QUEUE_DEPTH if queues else len(events.before)
    lasting = np.array(durations)
    sequencer = events.chunks.run(lasting, depth=depth)
    pop = np.full(len(events.before), sequencer.now + 1)  # the END is not popped
    for mine, pops in zip(events.units, sequencer.pops, strict=True):
        pop[mine] = pops[depth:]
    end = pop.copy()
    end[events.operations] += lasting
    return Times(pop.tolist(), end.tolist(), int(end.max()) + END_TO_DONE)


def critical_path(events: Events, times: Times, *, queues: bool = True) -> list[int]:
    """The operations and fetches, by number, that a program waits for from its first cycle to its last, in this order.

    Between them it waits for words to be dispatched and popped, a cycle each, for decoding, and for start and end.
    Where an event waits for two things that come in the same cycle, the path goes to the unit's own last action, then
    to what a wait is for, then to the front end; a dispatch to the queue, then to the page, then to the word before.
    """
    pop, end = times.pop, times.end
    befores, places, targets, pages = events.before, events.place, events.target, events.page
    path: list[int] = []
    time = times.cycles - END_TO_DONE
    action = end.index(time)
    event = _DISPATCHED if action == len(end) - 1 else _ENDED
    while True:
        if event == _ENDED:
            if events.number[action] >= 0:
                path.append(events.number[action])
            time, event = pop[action], _POPPED
        elif event == _POPPED:
            before, target = befores[action], targets[action]
            if before >= 0 and end[before] + 1 == time:
                action, event = before, _ENDED
            elif target >= 0 and end[target] + 1 == time:
                action, event = target, _ENDED
            else:
                time, event = time - 1, _DISPATCHED
        else:
            place, page = places[action], pages[action]
            if queues and place >= 0 and pop[place] + 1 == time:
                action, time, event = place, time - 1, _POPPED
            elif page >= 0 and end[page] + PAGE_READY == time:
                action, event = page, _ENDED
            elif action:
                action, time = action - 1, time - 1
            else:
                break
    path.reverse()
    return path
