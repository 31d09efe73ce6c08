"""States that are updated where they lie: one program for every position, bytes as the interpreter has them."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from dovetail.isa.config.resolved import Config
from dovetail.isa.instructions.parameters import names_parameter
from dovetail.isa.instructions.table import Unit
from dovetail.isa.parameters import Formula, Parameters, RunInput, Term
from dovetail.isa.program import Program, ProgramError
from dovetail.sw.analysis.explain.explainer import explain
from dovetail.sw.analysis.history import history
from dovetail.sw.compiler.draft import Draft
from dovetail.sw.compiler.emit.beside import accesses_of
from dovetail.sw.compiler.emit.operations import Task
from dovetail.sw.compiler.emit.overlap import overlapped
from dovetail.sw.compiler.emit.reach import bound_of, faults_of
from dovetail.sw.compiler.options import Options
from dovetail.sw.compiler.partition.in_place import parameters_of
from dovetail.sw.compiler.partition.outline import partition
from dovetail.sw.compiler.plan.choices import Way
from dovetail.sw.compiler.search import search
from dovetail.sw.errors import CompileError, NetworkError
from dovetail.sw.frontend import load
from dovetail.sw.network import ir, reference
from dovetail.sw.random.networks import RandomNet
from dovetail.sw.runtime.compiled_network import CompiledNetwork, compile_network
from dovetail.sw.runtime.engine import Engine
from dovetail.sw.runtime.engines import create
from dovetail.sw.runtime.saved_places import Unfit
from dovetail.sw.runtime.saved_program import _code_of
from dovetail.sw.runtime.system_network import plan_network
from tests.sw.compiler.decoder import DEPTH, HEADS, LENGTH, decoder, steps
from tests.sw.compiler.devices.test_plan import system_of

CONFIG = Config(ic_lanes=4, oc_lanes=4, sram="32 KiB", banks=4, bus=32, parameters=2)
MANY_BANKS = CONFIG.replace(sram="64 KiB", banks=16)
"""Some are set apart for variables."""


def run_all(compiled: CompiledNetwork, graph: ir.Graph) -> list[int]:
    """Every position, against the interpreter; cycles of each."""
    state = graph.initial_state()
    cycles = []
    for step in steps(graph):
        values = reference.evaluate(graph, state | graph.bind(step))
        state = graph.next_state(values)
        result = compiled.run(step)
        (name,) = result.outputs
        assert np.array_equal(result.outputs[name], values[graph.outputs[0].tensor])
        assert all(np.array_equal(compiled.state[name], state[name]) for name in state)
        cycles.append(result.cycles)
    return cycles


@pytest.mark.parametrize("effort", [0, 1])
def test_every_position(effort: int) -> None:
    graph = decoder()
    compiled = compile_network(graph, CONFIG, effort=effort)
    assert not compiled.code.host_reasons and len(compiled.code.segments) == 1
    assert compiled.code.parameters == Parameters(
        (RunInput("position", 0, LENGTH - 1),), (Formula(terms=(Term("position", step=DEPTH),)),)
    )
    cycles = run_all(compiled, graph)
    assert cycles[0] == compiled.report().cycles
    assert max(cycles) <= compiled.program.segments[0].bound
    (segment,) = compiled.code.segments
    assert names_parameter(np.array(segment.words, np.uint64)).sum() == len(graph.states)


def wide(graph: ir.Graph, config: Config) -> Draft:
    """The draft in which the tasks of many steps run beside each other."""
    return Draft(partition(graph, config, Options(effort=0)), Way(0, True, wide=True))


@pytest.mark.parametrize("rows", [1, 3])
def test_rows_are_put_in_their_place_in_sram(rows: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """A variable is loaded as the run before left it; its new rows have two places by a parameter, one of them in
    system memory."""
    monkeypatch.setattr("dovetail.sw.compiler.plan.residency.KEPT_SHARE", 99)
    graph = decoder(rows=rows)
    draft = wide(graph, MANY_BANKS)
    assert draft.segments[0].whole and not draft.segments[0].kept
    monkeypatch.setattr("dovetail.sw.compiler.compile.plan", lambda _: draft)
    compiled = compile_network(graph, MANY_BANKS, effort=0)
    (segment,) = compiled.code.segments
    assert names_parameter(np.array(segment.words, np.uint64)).sum() == 2 * len(graph.states)
    layers = [layer for layer in compiled.report().layers if layer.kind == "update"]
    assert [layer.moved_bytes for layer in layers] == [HEADS * DEPTH * (LENGTH + rows)] * 4
    parameters, stored = compiled.code.parameters, _stored(compiled)
    assert not list(faults_of(MANY_BANKS, segment.words, parameters, stored, compiled.code.memory_bytes))
    if rows == 1:
        assert max(run_all(compiled, graph)) <= compiled.program.segments[0].bound


@pytest.mark.parametrize("rows", [1, 3])
def test_variables_stay_in_sram(rows: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """The first pages load them. A run that finds them leaves these pages out; its other pages load no variable."""
    graph = decoder(rows=rows)
    draft = wide(graph, MANY_BANKS)
    monkeypatch.setattr("dovetail.sw.compiler.compile.plan", lambda _: draft)
    compiled = compile_network(graph, MANY_BANKS, effort=0)
    (segment,) = compiled.code.segments
    assert segment.entry == 1
    updates = [layer for layer in compiled.report().layers if layer.kind == "update"]
    assert [layer.moved_bytes for layer in updates] == [HEADS * DEPTH * rows] * 4
    parameters, stored = compiled.code.parameters, _stored(compiled)
    assert not list(faults_of(MANY_BANKS, segment.words, parameters, stored, compiled.code.memory_bytes))
    if rows == 1:
        cycles = run_all(compiled, graph)
        assert max(cycles) == cycles[0] <= compiled.program.segments[0].bound
        assert set(cycles[1:]) == {compiled.report().cycles} != {cycles[0]}
    explained, found = explain(compiled), history(compiled)
    assert explained.cycles == found.cycles == compiled.report().cycles
    counters = compiled.report().counters
    assert all(
        sum(wait.end - wait.start for wait in found.waits if wait.unit == unit) == counters[unit].token for unit in Unit
    )


def test_what_stays_in_sram_is_loaded_again_where_it_may_have_changed(monkeypatch: pytest.MonkeyPatch) -> None:
    """After a reset, with other values of the variables, on another engine, after another program's run."""
    graph = decoder()
    draft = wide(graph, MANY_BANKS)
    monkeypatch.setattr("dovetail.sw.compiler.compile.plan", lambda _: draft)
    one, other = (compile_network(graph, MANY_BANKS, effort=0) for _ in range(2))
    engine, warm = create("model", MANY_BANKS), one.report().cycles
    samples = steps(graph)

    def run(network: CompiledNetwork, position: int, engine: Engine = engine) -> bool:
        """Whether the run found SRAM as it was left; its results are those of a network that has not."""
        fresh = CompiledNetwork(network.code)
        fresh.state = {name: value.copy() for name, value in network.state.items()}
        wanted = fresh.run(samples[position], create("model", MANY_BANKS))
        result = network.run(samples[position], engine)
        assert all(np.array_equal(result.outputs[name], value) for name, value in wanted.outputs.items())
        assert all(np.array_equal(network.state[name], value) for name, value in fresh.state.items())
        assert (result.cycles == warm) == (result.cycles < wanted.cycles)
        return result.cycles == warm

    assert [run(one, 0), run(one, 1), run(one, 2)] == [False, True, True]
    one.reset()
    assert [run(one, 0), run(one, 1)] == [False, True]
    next(iter(one.state.values()))[0, 0, 0] += 1
    assert [run(one, 2), run(one, 3)] == [False, True]
    assert [run(other, 0), run(other, 1), run(one, 4), run(other, 2)] == [False, True, False, False]
    assert [run(other, 3, create("model", MANY_BANKS)), run(other, 4)] == [False, False]
    engine.reset()
    assert [run(other, 5), run(other, 6)] == [False, True]
    engine.write_sram(engine.read_sram())
    assert [run(other, 7), run(other, 8)] == [False, True]


def test_variables_that_stay_in_a_program_file(monkeypatch: pytest.MonkeyPatch) -> None:
    graph = decoder()
    draft = wide(graph, MANY_BANKS)
    monkeypatch.setattr("dovetail.sw.compiler.compile.plan", lambda _: draft)
    compiled = compile_network(graph, MANY_BANKS, effort=0)
    program = Program.from_bytes(compiled.program.to_bytes())
    assert [segment.entry for segment in program.segments] == [1]
    assert _code_of(program, graph).segments == tuple(
        replace(segment, words=list(segment.words)) for segment in compiled.code.segments
    )
    for entry in (0, 2):
        segments = tuple(replace(segment, entry=entry) for segment in program.segments)
        with pytest.raises(Unfit):
            _code_of(replace(program, segments=segments), graph)
    pages = program.segments[0].pages
    with pytest.raises(ProgramError, match=f"^entry of segment 0 must be below {pages} pages, not {pages}$"):
        replace(program, segments=(replace(program.segments[0], entry=pages),))


def _stored(compiled: CompiledNetwork) -> list[range]:
    """All of system memory behind the constants."""
    return [range(compiled.code.constants_bytes, compiled.code.stream_offset)]


def test_a_plan_of_a_smaller_memory_keeps_its_order_on_a_larger_one(monkeypatch: pytest.MonkeyPatch) -> None:
    graph, larger = decoder(), MANY_BANKS.replace(sram="256 KiB", banks=16)
    small = wide(graph, MANY_BANKS)
    moved = small.moved(larger)
    assert moved.cycles({}, None) == small.cycles({}, None)
    one, other = small.emitted(0), moved.emitted(0)
    assert one and other and (one.order, one.turns) == (other.order, other.turns)
    assert one.words != other.words and not other.meets
    monkeypatch.setattr("dovetail.sw.compiler.compile.plan", lambda _: moved)
    run_all(compile_network(graph, larger, effort=0), graph)


def test_tasks_of_many_steps_keep_what_they_need_before_them(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of any two tasks that change places neither writes what the other one touches."""
    seen: list[tuple[list[Task], list[Task]]] = []

    def spy(config: Config, tasks: list[Task], *, brief: bool) -> list[Task]:
        seen.append((tasks, overlapped(config, tasks, brief=brief)))
        return seen[-1][1]

    monkeypatch.setattr("dovetail.sw.compiler.emit.lower.overlapped", spy)
    config = Config(sram="512 KiB", bus=64, softmax=1, norm=1, parameters=1)
    assert wide(load("zoo:decoder_tiny?depth=2&length=64"), config).cycles({}, None)
    ((tasks, order),) = seen
    places = {id(task): number for number, task in enumerate(order)}
    changed = 0
    assert len(places) == len(tasks) == len(order)
    for number, task in enumerate(tasks):
        for later in tasks[number + 1 :]:
            if places[id(later)] < places[id(task)]:
                changed += 1
                pairs = ((a, b) for a in accesses_of(task) for b in accesses_of(later))
                assert not any(
                    a[1] // 2 == b[1] // 2 and (a[1] | b[1]) % 2 and a[2] < b[3] and b[2] < a[3] for a, b in pairs
                )
    assert changed


def test_only_the_rows_are_stored() -> None:
    compiled = compile_network(decoder(), CONFIG)
    layers = [layer for layer in compiled.report().layers if layer.kind == "update"]
    assert [layer.moved_bytes for layer in layers] == [HEADS * DEPTH] * 4
    where = compiled.code.where
    assert all(where[state.read] == where[state.written] for state in compiled.graph.states)


def test_several_rows_at_once() -> None:
    graph = decoder(rows=3)
    compiled = compile_network(graph, CONFIG)
    assert compiled.code.parameters.inputs == (RunInput("position", 0, LENGTH - 3),)
    state = graph.initial_state()
    for step in steps(graph, 3):
        step["position"] = step["position"] * 3
        values = reference.evaluate(graph, state | graph.bind(step))
        state = graph.next_state(values)
        compiled.run(step)
        assert all(np.array_equal(compiled.state[name], state[name]) for name in state)


def test_a_position_outside() -> None:
    compiled = compile_network(decoder(dtype="int32"), CONFIG)
    (step,) = steps(compiled.graph, 1)
    step["position"] = np.array([LENGTH], np.int32)
    with pytest.raises(NetworkError, match=r"^position must be 0\.\.15, not 16$"):
        compiled.run(step)


def test_without_parameters_it_is_the_hosts() -> None:
    graph = decoder()
    compiled = compile_network(graph, CONFIG.replace(parameters=0))
    assert set(compiled.code.host_reasons.values()) == {"the configuration has parameters = 0"}
    assert compiled.code.parameters == Parameters()
    run_all(compiled, graph)


def test_what_else_reads_the_state_keeps_it_on_the_host() -> None:
    graph = decoder(layers=1)
    state = graph.states[0].read
    tensor = replace(graph.tensors[state], name="seen")
    node = ir.Table(name="see", inputs=(state,), outputs=("seen",), values=np.arange(-128, 128).astype(np.int8))
    port = replace(graph.outputs[0], name="seen", tensor="seen")
    tensors, nodes = {**graph.tensors, "seen": tensor}, (*graph.nodes, node)
    graph = replace(graph, tensors=tensors, nodes=nodes, outputs=(*graph.outputs, port)).check()
    updates = [node.name for node in graph.nodes if isinstance(node, ir.Update)]
    reasons = compile_network(graph, CONFIG).code.host_reasons
    assert reasons[updates[0]] == f"{state!r} must be read by nothing else, as its rows are replaced where they lie"
    assert updates[1] not in reasons


def test_reach() -> None:
    """Stores stay within the states for every position that is allowed, and for no more."""
    compiled = compile_network(decoder(), CONFIG)
    code = compiled.code
    (segment,) = code.segments
    regions = [range(code.where[name], code.where[name] + code.graph.tensors[name].bytes) for name in code.where]
    parameters = parameters_of(code.graph, ())
    assert not list(faults_of(CONFIG, segment.words, parameters, regions, code.memory_bytes))
    further = replace(parameters, inputs=(RunInput("position", 0, LENGTH),))
    found = list(faults_of(CONFIG, segment.words, further, regions, code.memory_bytes))
    assert len(found) == len(code.graph.states)
    assert all(text.endswith(f"of system memory with parameters {LENGTH * DEPTH}") for text in found)
    assert bound_of(CONFIG, segment.words, parameters) >= compiled.report().cycles


def test_in_a_program_file() -> None:
    graph = decoder()
    compiled = compile_network(graph, CONFIG)
    again = Program.from_bytes(compiled.program.to_bytes())
    assert again.parameters == compiled.code.parameters
    code = _code_of(again, graph)
    assert (code.parameters, code.where) == (compiled.code.parameters, compiled.code.where)


def test_a_system_does_not_update_in_place() -> None:
    text = "^accelerators of a system must have parameters = 0 to update variables, not 2$"
    with pytest.raises(CompileError, match=text):
        plan_network(decoder(), system_of(CONFIG, CONFIG))


def matrices_made() -> ir.Graph:
    """Products of one row with matrices that a convolution makes, and a convolution behind them."""
    net = RandomNet(3)
    x = net.conv(net.input(1, 1, 1, 32), 64, 1)
    mixed = net.matmul(net.reshape(x, 16, 1, 4), net.reshape(net.conv(x, 128, 1), 16, 4, 2))
    return net.graph(net.conv(net.reshape(mixed, 1, 1, 1, 32), 32, 1))


@pytest.mark.parametrize("network", ["zoo:decoder_tiny?depth=2&length=64", ""])
def test_loads_overtake_those_that_wait_for_a_store(network: str) -> None:
    """Weights are loaded before keys that wait for the new row; nothing that LOAD replaces is still to be used."""
    config = Config(sram="512 KiB", bus=64, softmax=1, norm=1, parameters=1)
    graph = load(network) if network else matrices_made()
    outline = partition(graph, config, Options(effort=0))
    draft = search(outline)[0] if network else Draft(outline, Way(0, True))
    emitter = draft.emitted(0)
    assert emitter and emitter.cycles == draft.cycles({}, None)
    assert sorted(emitter.order) == list(range(len(emitter.order))) != emitter.order
    last = -1
    for number, turn in zip(emitter.order, emitter.turns, strict=True):
        one = emitter._loads[number]
        assert last <= turn <= one.due
        assert turn >= one.after or emitter.like
        last = turn


def test_products_of_few_rows_share_their_records() -> None:
    """A node with products loads each matrix once, and records once: at most those of a product's columns."""
    compiled = compile_network("zoo:decoder_tiny?depth=1&length=256", CONFIG.replace(sram="512 KiB", bus=64, softmax=1))
    moved = {layer.name: layer.moved_bytes for layer in compiled.report().layers}
    keys, records = 4 * 256 * 8, 256 * 16
    assert keys < moved["layer0_scores"] <= keys + records


def test_what_several_nodes_read_is_loaded_once() -> None:
    """Sines and cosines by rotations of queries and keys, of two layers; the mask by all heads."""
    config = Config(sram="512 KiB", bus=64, softmax=1, norm=1, parameters=1)
    compiled = compile_network("zoo:decoder_tiny?depth=2&length=64", config, effort=0)
    moved = {layer.name: layer.moved_bytes for layer in compiled.report().layers}
    for part, size in (("straight", 8), ("across", 8), ("masked", 64)):
        layers = {name: count for name, count in moved.items() if name.endswith(part)}
        assert len(layers) >= 2 and sum(layers.values()) == size, layers
