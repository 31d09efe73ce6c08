"""A run as a file for trace viewers (ui.perfetto.dev, chrome://tracing): the Trace Event Format, as a JSON object.

Units are threads, operations complete events ("ph": "X"), SRAM and bus counters ("C"). The format counts microseconds:
a cycle is one of them, or what it takes at a clock. All times are whole nanoseconds: Perfetto counts in these, and
drops events that overlap.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from typing import Any

from dovetail.isa.instructions.table import Unit
from dovetail.sw.analysis.history import History, levels

PROCESS, LAYERS, UNITS = 1, 2, 3
"""The process, the thread of the layers, and that of the first unit; viewers put threads in this order."""


def chrome_trace(history: History, clock: float | None = None) -> str:
    """The file's text, an event per line. ``clock``: in Hz; without it a cycle is shown as a microsecond.

    Categories: ``operation`` (its durations add up to the unit's BUSY counter, fetches included), ``wait`` (to its
    TOKEN counter), ``layer``.
    """
    scale = scale_of(clock)
    about = {
        "network": history.network,
        "config_hash": f"{history.config.hash:016x}",
        "config": history.config.to_dict(),
        "cycles": history.cycles,
        "microseconds_per_cycle": scale,
    }
    return trace_text(_events(history, scale), about)


def scale_of(clock: float | None) -> float:
    """Microseconds of a cycle at a clock in Hz; a cycle is one of them without."""
    return 1 if clock is None else 1e6 / clock


def trace_text(events: Iterable[dict[str, Any]], about: dict[str, Any]) -> str:
    """A file's text, an event per line."""
    lines = ",\n".join(json.dumps(event) for event in events)
    return f'{{"traceEvents": [\n{lines}\n],\n"displayTimeUnit": "ns",\n"otherData": {json.dumps(about)}}}\n'


def thread_names(names: Iterable[tuple[int, str]], process: int = PROCESS) -> Iterator[dict[str, Any]]:
    """Threads by number, in their order."""
    for thread, name in names:
        yield {"ph": "M", "pid": process, "tid": thread, "name": "thread_name", "args": {"name": name}}
        yield {"ph": "M", "pid": process, "tid": thread, "name": "thread_sort_index", "args": {"sort_index": thread}}


def _events(history: History, scale: float) -> Iterator[dict[str, Any]]:
    yield {"ph": "M", "pid": PROCESS, "name": "process_name", "args": {"name": history.network}}
    yield from thread_names([(LAYERS, "layers"), *((UNITS + unit, unit.name) for unit in Unit)])

    def at(cycle: int) -> float:
        return round(cycle * scale, 3)

    def slice_of(thread: int, category: str, name: str, start: int, end: int, args: dict[str, Any]) -> dict[str, Any]:
        times = {"ts": at(start), "dur": round(at(end) - at(start), 3)}
        return {"ph": "X", "pid": PROCESS, "tid": thread, "cat": category, "name": name, **times, "args": args}

    for number, layer in enumerate(history.layers):
        if layer.end > layer.start:
            yield slice_of(LAYERS, "layer", layer.name, layer.start, layer.end, {"number": number, "kind": layer.kind})
    for event in history.events:
        where = history.layers[event.layer].name if event.layer is not None else ""
        args: dict[str, Any] = {"layer": where} if where else {}
        args |= {"bytes": event.moved} if event.moved else {}
        name = f"{event.name} {where}".rstrip()
        yield slice_of(UNITS + event.unit, "operation", name, event.start, event.end, {**args, **event.registers})
    for wait in history.waits:
        yield slice_of(UNITS + wait.unit, "wait", f"wait for {wait.on.name}", wait.start, wait.end, {})

    counters = {
        "SRAM live": levels((life.start, life.end, life.size) for life in history.lives),
        "LOAD in flight": levels((e.start, e.end, e.moved) for e in history.events if e.unit == Unit.LOAD),
        "STORE in flight": levels((e.start, e.end, e.moved) for e in history.events if e.unit == Unit.STORE),
    }
    for name, steps in counters.items():
        for cycle, amount in ((0, 0), *steps):
            yield {"ph": "C", "pid": PROCESS, "name": name, "ts": at(cycle), "args": {"bytes": amount}}
