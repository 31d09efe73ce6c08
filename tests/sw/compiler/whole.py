"""Networks that run on the accelerator as a whole."""

import numpy as np

from dovetail.isa.config.resolved import Config
from dovetail.sw.compiler.emit.hazards import races
from dovetail.sw.network import ir, reference
from dovetail.sw.runtime.compiled_network import CompiledNetwork, Result, compile_network


def run_whole(graph: ir.Graph, config: Config) -> tuple[CompiledNetwork, Result]:
    """All of it runs on the accelerator, to the interpreter's bytes, in the report's cycles, and no transfers race."""
    compiled = compile_network(graph, config)
    assert not compiled.code.host_reasons
    rng = np.random.default_rng(3)
    inputs = {port.name: rng.integers(-128, 128, port.shape).astype(np.int8) for port in graph.inputs}
    result = compiled.run(inputs)
    for name, value in reference.run(graph, inputs).items():
        np.testing.assert_array_equal(result.outputs[name], value)
    assert result.cycles == compiled.report().cycles
    assert not any(races(timeline) for timeline in result.timeline)
    return compiled, result
