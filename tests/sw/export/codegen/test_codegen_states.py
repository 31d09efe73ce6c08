"""Generated C keeps variables between runs, and takes the parameters of a run from its inputs; its accelerator is the
model."""

from __future__ import annotations

import ctypes
import subprocess
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from dovetail.isa.config.resolved import Config
from dovetail.isa.parameters import Formula, Parameters, RunInput, Term
from dovetail.sw.export.codegen.c_text import Constants
from dovetail.sw.export.codegen.run_inputs import RunInputs
from dovetail.sw.export.codegen.writer import Storage, Writer
from dovetail.sw.network import ir
from dovetail.sw.network.layout import Array, Layout, Sample
from dovetail.sw.random.networks import RandomNet
from dovetail.sw.runtime.compiled_network import CompiledNetwork, compile_network
from dovetail.sw.runtime.decoder import Decoder
from dovetail.sw.runtime.engines import create
from tests.sw.compiler.decoder import LENGTH, decoder, steps
from tests.sw.compiler.test_in_place import MANY_BANKS, wide
from tests.sw.export.codegen.conftest import FLAGS, random_inputs
from tests.sw.runtime.stateful_networks import lstm, streaming, svdf
from tests.sw.runtime.test_states import _variable

Build = Callable[[CompiledNetwork], Any]
RANGE = -16
"""DOVETAIL_ERROR_RANGE"""
CONFIG = Config(ic_lanes=4, oc_lanes=4, sram="32 KiB", banks=4, bus=32, parameters=2)
WHOLE = Config(ic_lanes=4, oc_lanes=4, sram="32 KiB", softmax=1, norm=1, parameters=1)
DECODER = "zoo:decoder_tiny?depth=1&channels=32&heads=2&groups=1&hidden=20&words=30&length=9"


def follow(compiled: CompiledNetwork, built: Any, samples: Sequence[Sample]) -> None:
    """Runs in a row give the network's outputs in its cycles; after a reset once more."""
    assert built.init() == 0
    for _ in range(2):
        compiled.reset()
        results = []
        for sample in samples:
            wanted = compiled.run(sample)
            outputs, cycles = built.run(sample)
            assert cycles == wanted.cycles
            for name, value in wanted.outputs.items():
                np.testing.assert_array_equal(outputs[name], value, name)
            results.append(outputs)
        assert built.library.inference_reset(built.inference) == 0
    assert len({value.tobytes() for outputs in results for value in outputs.values()}) > 1


def several(compiled: CompiledNetwork, count: int = 5) -> list[dict[str, Array]]:
    rng = np.random.default_rng(0)
    return [random_inputs(compiled.graph, rng) for _ in range(count)]


@pytest.mark.parametrize("dtype", ["int32", "int64"])
def test_a_cache_in_place(dtype: str, build: Build) -> None:
    compiled = compile_network(decoder(dtype=dtype), CONFIG)
    assert len(compiled.code.parameters.formulas) == 1 and not compiled.code.host_reasons
    built = build(compiled)
    follow(compiled, built, steps(compiled.graph))
    text = built.project.files["inference.c"].decode()
    assert text.count("memcpy(SCRATCH") == text.count("state cache") - len(compiled.graph.states) == 0


def test_a_cache_that_stays_in_sram(build: Build, monkeypatch: pytest.MonkeyPatch) -> None:
    """The first run loads it, and the first one behind a reset; the others take fewer cycles."""
    graph = decoder()
    draft = wide(graph, MANY_BANKS)
    monkeypatch.setattr("dovetail.sw.compiler.compile.plan", lambda _: draft)
    compiled = compile_network(graph, MANY_BANKS, effort=0)
    assert compiled.code.segments[0].entry == 1
    built = build(compiled)
    follow(compiled, built, steps(graph))
    first, second = steps(graph, 2)
    assert built.run(first)[1] > built.run(second)[1] == compiled.report().cycles
    assert "int keeps;" in built.project.files["inference.h"].decode()


def test_weights_that_stay_in_sram(build: Build) -> None:
    """Of a network without variables."""
    compiled = compile_network("zoo:autoencoder", MANY_BANKS, effort=0, keep_weights=True)
    report, built = compiled.report(), build(compiled)
    assert built.init() == 0
    cycles = []
    for sample in several(compiled, 3):
        outputs, taken = built.run(sample)
        cycles.append(taken)
        for name, value in compiled.run(sample).outputs.items():
            np.testing.assert_array_equal(outputs[name], value)
    assert cycles == [report.first_cycles] + [report.cycles] * 2 != [report.cycles] * 3


@pytest.mark.parametrize("rows", [1, 3])
def test_a_cache_that_the_host_updates(rows: int, build: Build) -> None:
    compiled = compile_network(decoder(rows=rows), CONFIG.replace(parameters=0))
    assert len(compiled.code.host_reasons) == len(compiled.graph.states)
    samples = steps(compiled.graph, LENGTH - rows + 1)
    built = build(compiled)
    follow(compiled, built, samples)
    samples[0]["position"][:] = LENGTH - rows + 1
    assert refused(built, samples[0]) == RANGE


def refused(built: Any, sample: Sample) -> int:
    """Status of a run, which leaves the outputs alone."""
    graph = built.compiled.graph
    outputs = [np.full(port.shape, 77, port.dtype) for port in graph.outputs]
    status = int(built.status_of_run([np.ascontiguousarray(sample[port.name]) for port in graph.inputs], outputs))
    assert all((value == 77).all() for value in outputs)
    return status


@pytest.mark.parametrize("position", [-1, LENGTH, 2**31, -(2**63), 2**32])
def test_a_place_out_of_range_is_refused(position: int, build: Build) -> None:
    compiled = compile_network(decoder(), CONFIG)
    built = build(compiled)
    assert built.init() == 0
    first, second = steps(compiled.graph, 2)
    assert np.array_equal(built.run(first)[0].popitem()[1], compiled.run(first).outputs.popitem()[1])
    before = built.shared.copy()
    assert refused(built, {**first, "position": np.array([position])}) == RANGE
    np.testing.assert_array_equal(built.shared, before)
    assert built.text(RANGE) == "a number that a run is given, such as a position or a token, is outside its range"
    assert np.array_equal(built.run(second)[0].popitem()[1], compiled.run(second).outputs.popitem()[1])


@pytest.mark.parametrize("parameters", [1, 3])
def test_tokens(parameters: int, build: Build) -> None:
    """The same tokens as by the model's engine, to the end of the cache, and again after a reset. With 3 parameters the
    accelerator picks all rows, and nothing is left to the host."""
    config = WHOLE.replace(parameters=parameters)
    compiled = compile_network(DECODER, config, effort=0)
    assert bool(compiled.code.host_reasons) == (parameters == 1)
    built = build(compiled)
    assert built.init() == 0
    wanted = list(Decoder(compiled, create("model", config)).write([1, 4, 7], count=20))
    assert len(wanted) == 9
    for _ in range(2):
        token = 1
        for position, step in enumerate(wanted):
            token = step.token if position < 3 else token
            outputs, cycles = built.run({"tokens": np.array([[token]]), "position": np.array([position])})
            token = int(outputs["logits"].argmax())
            assert (token, cycles) == (step.next, step.result.cycles)
        assert built.library.inference_reset(built.inference) == 0
    header = built.project.files["inference.h"].decode()
    assert "/* input position: int64 [1], 0 to 8 */" in header and "kept between runs */" not in header
    for token in (30, -31, 2**40):
        assert refused(built, {"tokens": np.array([[token]]), "position": np.array([0])}) == RANGE


@pytest.mark.parametrize(
    "data",
    [
        lstm(),
        lstm(steps=1, width=30, units=32),
        lstm(time_major=True),
        lstm(clip=0.5),
        svdf(),
        svdf(time="int8"),
        streaming(),
        streaming(initial=None),
    ],
)
def test_variables_of_tflite_files(data: bytes, build: Build, tmp_path: Path) -> None:
    (tmp_path / "net.tflite").write_bytes(data)
    compiled = compile_network(tmp_path / "net.tflite", CONFIG, effort=0)
    built = build(compiled)
    follow(compiled, built, several(compiled))
    assert built.project.state_bytes == sum(state.initial.nbytes for state in compiled.graph.states)
    apart = not all(compiled.code.in_place(state) for state in compiled.graph.states)
    assert ("kept between runs */" in built.project.files["inference.h"].decode()) == apart
    copies = built.project.files["inference.c"].decode().count("/* state ") - len(compiled.graph.states)
    assert bool(copies) == apart


@pytest.mark.parametrize("value", [None, np.array([[1, 2, 3, 4]], np.int8)])
def test_what_is_kept_may_be_an_input_or_a_constant(value: Array | None, build: Build, tmp_path: Path) -> None:
    (tmp_path / "net.tflite").write_bytes(_variable(False, value))
    compiled = compile_network(tmp_path / "net.tflite", CONFIG, effort=0)
    follow(compiled, build(compiled), several(compiled))


@pytest.mark.parametrize("on_host", [False, True])
@pytest.mark.parametrize("order", [(1, 2, 0), (1, 0, 2), (2, 0, 1), (0, 2, 1)])
def test_variables_that_take_each_others_values(order: tuple[int, ...], on_host: bool, build: Build) -> None:
    """Each of three finds what one of them, or the input, was in the run before; an output is one of them too."""
    net = RandomNet(3)
    x = net.input(1, 1, 1, 8)
    names = [net.tensor(1, 1, 1, 8) for _ in range(3)]
    for name in names:
        net.tensors[name] = replace(net.tensors[name], zero_point=net.zero(x), scale=net.tensors[x].scale)
    values = [x, *names]
    states = tuple(
        ir.State(f"s{n}", name, values[order[n]], np.full((1, 1, 1, 8), n + 1, np.int8)) for n, name in enumerate(names)
    )
    y = names[0]
    for name in (names[1], names[2], x):
        y = net.elementwise("ADD", y, name)
    port = replace(decoder().inputs[0], name="x", tensor=x, layout=Layout.plain((1, 1, 1, 8)))
    outputs = replace(port, name="y", tensor=y), replace(port, name="s2 as it was", tensor=names[2])
    graph = ir.Graph((port,), outputs, net.tensors, tuple(net.nodes), "random", "turns", states).check()
    compiled = compile_network(graph, CONFIG.replace(elementwise=not on_host))
    assert bool(compiled.code.host_reasons) == on_host
    follow(compiled, build(compiled), several(compiled, 6))


def test_formulas(tmp_path: Path) -> None:
    """The C text of a formula gives the formula's value."""
    terms = [
        Term("p"),
        Term("p", step=-5),
        Term("p", step=3, offset=7, divisor=4),
        Term("p", step=9, offset=2**32 - 1, divisor=10),
        Term("p", step=11, divisor=6, rest=True),
    ]
    formulas = (*(Formula(terms=(term,)) for term in terms), Formula(2**32 - 3, tuple(terms)), Formula(12))
    parameters = Parameters((RunInput("p", 0, 2**32 - 1),), formulas)
    graph = decoder()
    tensors = {"p": replace(graph.tensors["position"], name="p")}
    writer = Writer(replace(graph, tensors=tensors), Storage(graph, {}), Constants())
    inputs = RunInputs(parameters, writer)
    inputs.check(["p"], lambda name: "&p")
    inputs.set()
    body = "\n".join(writer.lines())
    text = f"""
#include <stdint.h>
#define DOVETAIL_ERROR_RANGE -16
static struct {{ int device; }} one, *inference = &one;
static uint32_t found[8];
static int dovetail_set_parameter(int *device, uint32_t number, uint32_t value)
{{ *device = 0; found[number] = value; return 0; }}
const uint32_t *values(int64_t p) {{ static const uint32_t *none; int status; {body} ; return found; }}
""".replace("return DOVETAIL_ERROR_RANGE;", "return none;").replace("return status;", "return none;")
    (tmp_path / "formulas.c").write_text(text)
    subprocess.run(["gcc", *FLAGS, "-shared", "formulas.c", "-o", "formulas.so"], cwd=tmp_path, check=True)
    library = ctypes.CDLL(str(tmp_path / "formulas.so"))
    library.values.restype = ctypes.POINTER(ctypes.c_uint32)
    library.values.argtypes = (ctypes.c_int64,)
    for value in (0, 1, 2, 5, 6, 7, 11, 12, 13, 1000, 2**31, 2**32 - 1):
        found = library.values(value)
        assert tuple(found[1 + n] for n in range(len(formulas))) == parameters.values({"p": value})
    assert not library.values(-1) and not library.values(2**32)
