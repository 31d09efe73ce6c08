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
from dovetail.isa.timing.core.engine import play
from dovetail.isa.timing.sequencer import END_TO_DONE, PAGE_READY, UNIT_OF, Fields, Uint64s, Words, as_words
from dovetail.isa.timing.timeline import Int64s

NONE = -1
"""No action."""
_DISPATCHED, _POPPED, _ENDED = range(3)


@dataclass(frozen=True)
class Events:
    """A program's actions, the END last; the lists up to ``number`` have one element per action.

    Parameters
    ----------
    words: those before the END.
    fetches: which actions are the pages' fetches.
    before: the action before it in its unit, or `NONE`.
    place: the action that had its queue place before it, or `NONE`.
    target: what a wait waits for, or `NONE`.
    page: the fetch that the first action of a page waits for, or `NONE`.
    number: its place in a timeline, if it is an operation or a fetch, or `NONE`.
    operations: the actions that have a number, by it.
    """

    words: Uint64s
    fetches: Int64s
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
    pages = min(stop // PAGE_WORDS + 2, len(words) // PAGE_WORDS)
    words = words[:stop]
    code, middle, upper, value = Fields.of(words)
    is_wait, is_operation = code == Op.SYNC, UNIT_OF[code] >= 0
    units_of_words = np.where(code == Op.CFG, middle >> 6, np.where(is_wait, middle, UNIT_OF[code]))
    follows = np.maximum(np.arange(-1, pages - 1), 0) * PAGE_WORDS  # per fetch the word that it goes before
    fetches = follows + np.arange(pages)
    actions = np.delete(np.arange(stop + 1 + pages), fetches)  # of the words
    unit_of = np.insert(units_of_words, follows, Unit.LOAD)
    units = [np.flatnonzero(unit_of == unit) for unit in Unit]

    before, place, target, page, number = np.full((5, len(unit_of) + 1), NONE)
    for unit, mine in enumerate(units):
        before[mine[1:]], place[mine[QUEUE_DEPTH:]] = mine[:-1], mine[:-QUEUE_DEPTH]
        operations = np.flatnonzero(is_operation & (units_of_words == unit))
        waits = np.flatnonzero(is_wait & (upper == unit))
        awaited = np.searchsorted(operations, waits) - value[waits].astype(np.int64) - 1
        target[actions[waits[awaited >= 0]]] = actions[operations[awaited[awaited >= 0]]]
    page[fetches[1:]] = fetches[:-1]
    if stop // PAGE_WORDS == pages - 1:  # nothing is fetched ahead there
        page[actions[stop - stop % PAGE_WORDS]] = fetches[-1]
    lasting = np.sort(np.concatenate([fetches, actions[:-1][is_operation]]))
    number[lasting] = np.arange(len(lasting))
    columns = (column.tolist() for column in (before, place, target, page, number, lasting))
    return Events(words, fetches, *columns)


def times_of(events: Events, durations: Sequence[int], *, queues: bool = True) -> Times:
    """When everything happens if the ``operations`` take these durations; without ``queues`` these hold any number."""
    lasting, count = np.array(durations), len(events.before)
    assert len(lasting) == len(events.operations)
    played = play(events.words, len(events.fetches), lasting, QUEUE_DEPTH if queues else count)
    pop = np.empty(count, np.int64)
    pop[np.delete(np.arange(count), events.fetches)] = [*played.pops, played.last + 1]  # the END is not popped
    pop[events.operations] = played.starts
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
