"""An inference on the SoC as a file for trace viewers (ui.perfetto.dev): host and accelerator side by side."""

from collections.abc import Iterator
from typing import Any

from dovetail.cosim.soc.inference import SocInference
from dovetail.isa.instructions.table import Op, Unit
from dovetail.sw.analysis.chrome_trace import LAYERS, PROCESS, UNITS, scale_of, thread_names, trace_text
from dovetail.sw.runtime.compiled_network import CompiledNetwork

HOST = LAYERS
"""The thread of the host, before those of the units."""


def soc_trace(compiled: CompiledNetwork, found: SocInference, clock: float | None = None) -> str:
    """The file's text. Categories: ``host``, its steps from the reset to the last result; ``operation``, what each unit
    does. ``clock``: in Hz; without it a cycle is shown as a microsecond."""
    scale = scale_of(clock)
    about = {
        "network": compiled.graph.name,
        "config_hash": f"{compiled.config.hash:016x}",
        "cycles": found.cycles,
        "microseconds_per_cycle": scale,
    }
    return trace_text(_events(compiled, found, scale), about)


def _events(compiled: CompiledNetwork, found: SocInference, scale: float) -> Iterator[dict[str, Any]]:
    yield {"ph": "M", "pid": PROCESS, "name": "process_name", "args": {"name": compiled.graph.name}}
    yield from thread_names([(HOST, "host"), *((UNITS + unit, unit.name) for unit in Unit)])

    def slice_of(thread: int, category: str, name: str, start: int, end: int) -> dict[str, Any]:
        first, last = (round(cycle * scale, 3) for cycle in (start, end))
        times = {"ts": first, "dur": round(last - first, 3)}
        return {"ph": "X", "pid": PROCESS, "tid": thread, "cat": category, "name": name, **times}

    for step in found.steps:
        yield slice_of(HOST, "host", step.name, step.start, step.end)
    layers = compiled.code.layers
    for segment, code in zip(found.segments, compiled.code.segments, strict=True):
        origin = segment.run.origin
        for unit, pc, fetch, start, end in segment.run.entries.tolist():
            name = "FETCH" if fetch else f"{Op(int(code.words[pc]) & 0xFF).name} {layers[code.layers[pc]].name}"
            yield slice_of(UNITS + unit, "operation", name, origin + start, origin + end + 1)
