"""A malformed network gives one error, or a correct program: compiled and run, its outputs equal the definition's."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from dovetail.isa.config.resolved import Config
from dovetail.sw import frontend
from dovetail.sw.analysis import preflight
from dovetail.sw.compiler.options import Options
from dovetail.sw.errors import DovetailError
from dovetail.sw.frontend.parsed_file import NetworkFile
from dovetail.sw.network import reference
from dovetail.sw.quantise.float_network import FloatGraph, read_float
from dovetail.sw.quantise.quantiser import quantise
from dovetail.sw.quantise.samples import RandomSamples
from dovetail.sw.runtime.compiled_network import compile_network

CONFIG = Config(ic_lanes=8, oc_lanes=8, sram="64 KiB")
_RUN = 10**8
"""Multiply-accumulates of the largest network that is run, and bytes of its largest tensor."""


def exactly(folder: Path) -> None:
    """Inspect, quantise if it is float, compile and run the network ``net`` of a folder."""
    path = folder / "net"
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
        graph = frontend.load(NetworkFile(path.stem, data))
    compiled = compile_network(graph, CONFIG)
    assert inspected is None, f"compiles, but cannot be inspected: {inspected}"
    if graph.total_macs > _RUN or max(tensor.size for tensor in graph.tensors.values()) > _RUN:
        return
    random = np.random.default_rng(0)
    sample = {port.name: random.integers(0, 100, port.shape).astype(port.dtype) for port in graph.inputs}
    outputs, expected = compiled.run(sample).outputs, reference.run(graph, sample)
    for name, value in expected.items():
        same = np.array_equal(outputs[name], value, equal_nan=value.dtype.kind == "f")
        assert same, f"output {name!r} is not what the graph's definition says"
