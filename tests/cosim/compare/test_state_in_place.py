"""A decoder's caches on model and RTL: one program for every position, equal in every byte and cycle."""

from pathlib import Path

import numpy as np
import pytest

from dovetail.cosim.compare.networks import verify
from dovetail.cosim.compare.windows import layers_of, verify_windows
from dovetail.sw.network import reference
from dovetail.sw.runtime.compiled_network import compile_network
from tests.cosim.compare.test_lockstep import SMALL
from tests.sw.compiler.decoder import LENGTH, WORDS, decoder, steps
from tests.sw.compiler.test_in_place import wide

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


def test_rows_of_a_table(build_cache: Path) -> None:
    """That each run's token picks, beside the rows of the caches: pages of the table and rows at their ends."""
    graph = decoder(layers=1, words=WORDS)
    compiled = compile_network(graph, CONFIG)
    assert not compiled.code.host_reasons
    samples = steps(graph)
    for number, token in enumerate((0, WORDS - 1, 63, 64)):
        samples[number]["token"][:] = token
    verdicts = verify(compiled, samples, cache=build_cache)
    assert all(verdict.equal for verdict in verdicts), [verdict.first_difference for verdict in verdicts]
    state = graph.initial_state()
    for step in samples:
        state = graph.next_state(reference.evaluate(graph, state | graph.bind(step)))
    assert all(np.array_equal(compiled.state[name], state[name]) for name in state)


def test_rows_are_put_in_their_place_in_sram(build_cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where banks are set apart for the caches, which the plan with the fewest cycles does not do for so small ones."""
    graph = decoder(layers=1)
    draft = wide(graph, CONFIG)
    monkeypatch.setattr("dovetail.sw.compiler.compile.plan", lambda _: draft)
    compiled = compile_network(graph, CONFIG, effort=0)
    assert draft.segments[0].whole and compiled.code.segments[0].entry == 1
    verdicts = verify(compiled, steps(graph), cache=build_cache)
    cycles = [verdict.segments[0].cycles_rtl for verdict in verdicts]
    assert cycles[0] > cycles[1] == compiled.report().cycles == max(cycles[1:])
    assert all(verdict.equal for verdict in verdicts), [verdict.first_difference for verdict in verdicts]


def test_windows_have_the_position_too(build_cache: Path) -> None:
    compiled = compile_network(decoder(layers=1), CONFIG)
    sample = steps(compiled.graph)[5]
    verdicts = verify_windows(compiled, sample, layers_of(compiled, ".."), cache=build_cache)
    assert verdicts and not any(verdict.first_difference for verdict in verdicts)
