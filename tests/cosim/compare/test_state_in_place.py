"""A decoder's caches on model and RTL: one program for every position, equal in every byte and cycle."""

from pathlib import Path

import numpy as np

from dovetail.cosim.compare.networks import verify
from dovetail.cosim.compare.windows import layers_of, verify_windows
from dovetail.sw.network import reference
from dovetail.sw.runtime.compiled_network import compile_network
from tests.cosim.compare.test_lockstep import SMALL
from tests.sw.compiler.decoder import LENGTH, decoder, steps

CONFIG = SMALL["parameters"]


def test_every_position(build_cache: Path) -> None:
    graph = decoder()
    compiled = compile_network(graph, CONFIG)
    assert not compiled.code.host_reasons
    verdicts = verify(compiled, steps(graph), cache=build_cache)
    assert len(verdicts) == LENGTH
    assert all(verdict.equal for verdict in verdicts), [verdict.first_difference for verdict in verdicts]
    state = graph.initial_state()
    for step in steps(graph):
        state = graph.next_state(reference.evaluate(graph, state | graph.bind(step)))
    assert all(np.array_equal(compiled.state[name], state[name]) for name in state)


def test_windows_have_the_position_too(build_cache: Path) -> None:
    compiled = compile_network(decoder(layers=1), CONFIG)
    sample = steps(compiled.graph)[5]
    verdicts = verify_windows(compiled, sample, layers_of(compiled, ".."), cache=build_cache)
    assert verdicts and not any(verdict.first_difference for verdict in verdicts)
