"""Takes network files, one after the other, through all that a user may do with them; any may bring this program down.

    python malformed_worker.py FOLDER

Prints a JSON line ahead of each file of the folder, and one with what became of it: an error that a user sees, a
program whose outputs are those of the graph's definition, or something that must not be.
"""

from __future__ import annotations

import json
import resource
import signal
import sys
import time
from pathlib import Path
from types import FrameType

import numpy as np

from dovetail.isa.config import Config
from dovetail.sw import frontend, preflight, reference
from dovetail.sw import graph as ir
from dovetail.sw.compiler.options import Options
from dovetail.sw.errors import DovetailError
from dovetail.sw.network import compile_network
from dovetail.sw.quantise import FloatGraph, quantise
from dovetail.sw.quantise.network import read_float
from dovetail.sw.quantise.samples import RandomSamples

CONFIG = Config(ic_lanes=8, oc_lanes=8, sram="64 KiB")
SECONDS = 20
"""Of processor time."""
MEMORY = 8 << 30
"""Bytes of address space; libraries reserve much that they do not use."""
_RUN = 10**8
"""Multiply-accumulates of the largest network that is run, and bytes of its largest tensor."""


class Late(BaseException):
    """Not an Exception, which front ends turn into errors of their own."""


def late(signal_number: int, frame: FrameType | None) -> None:
    raise Late


def main(folder: Path) -> None:
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
    signal.signal(signal.SIGPROF, late)
    for path in sorted(folder.iterdir()):
        print(json.dumps({"begins": path.name}), flush=True)
        start = time.process_time()
        signal.setitimer(signal.ITIMER_PROF, SECONDS)
        try:
            outcome = "program: " + _taken(path)
        except DovetailError as error:
            outcome = f"error: {error}"
        except Late:
            outcome = "late"
        except BaseException as error:
            outcome = f"leak: {type(error).__name__}: {error}"
        signal.setitimer(signal.ITIMER_PROF, 0)
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss >> 10
        record = {"name": path.name, "outcome": outcome, "seconds": time.process_time() - start, "peak": peak}
        print(json.dumps(record), flush=True)


def _taken(path: Path) -> str:
    """Read, quantise if it is float, compile, and run."""
    inspected: DovetailError | None = None
    try:
        preflight.inspect(path, CONFIG, Options())
    except DovetailError as error:
        inspected = error
    try:
        graph = frontend.load(path)
    except DovetailError as error:
        if "must be quantised" not in str(error):
            raise
        model = read_float(path)
        data = quantise(model, RandomSamples(FloatGraph(model).inputs, 1)).SerializeToString()
        graph = frontend.parse(data, path.stem, None)
    compiled = compile_network(graph, CONFIG)
    if inspected is not None:
        raise AssertionError(f"compiles, but cannot be inspected: {inspected}")
    if graph.total_macs > _RUN or max(tensor.size for tensor in graph.tensors.values()) > _RUN:
        return "compiled"
    sample = _random(graph)
    outputs, expected = compiled.run(sample).outputs, reference.run(graph, sample)
    for name, value in expected.items():
        same = np.array_equal(outputs[name], value, equal_nan=value.dtype.kind == "f")
        assert same, f"output {name!r} is not what the graph's definition says"
    return "run"


def _random(graph: ir.Graph) -> dict[str, np.ndarray]:
    random = np.random.default_rng(0)
    return {port.name: random.integers(0, 100, port.shape).astype(port.dtype) for port in graph.inputs}


if __name__ == "__main__":
    main(Path(sys.argv[1]))
