"""Residual streams of 16 bits: what belongs to them, the form of the file, and that nothing in them saturates."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache

import numpy as np
import onnx
import pytest
from onnx import numpy_helper

from dovetail.sw.frontend.onnx.uint8_form import uint8_form
from dovetail.sw.host.onnx_session import open_session, with_outputs
from dovetail.sw.network.intervals import Interval, Join, intervals, of_norm, of_reals
from dovetail.sw.network.layout import Array, Sample
from dovetail.sw.quantise.calibration import Calibration
from dovetail.sw.quantise.float_network import FloatGraph
from dovetail.sw.quantise.quality import RUNTIME, Comparison
from dovetail.sw.quantise.quantiser import METADATA, Quantised, apply, quantise
from dovetail.sw.quantise.scheme import Scheme
from dovetail.sw.quantise.streams import reach, streams
from tests.sw.quantise.test_quantise import Net, residual, samples_of, scales_of

TOKENS, WIDTH = 6, 8
SCHEME = "int16-sums int32-last"


def norm(net: Net, x: str) -> str:
    return net.op("LayerNormalization", x, net.weights(WIDTH), net.weights(WIDTH), axis=-1)


def layer(net: Net, x: str) -> str:
    return net.op("MatMul", x, net.weights(WIDTH, WIDTH))


def numbers(net: Net, *values: int) -> str:
    return net.constant(np.array(values))


def row(net: Net, x: str) -> str:
    """The first token."""
    return net.op("Slice", x, numbers(net, 0), numbers(net, 1), numbers(net, 1))


def pre_norm() -> onnx.ModelProto:
    """A class token, positions, a block of two branches, a norm of the class token."""
    net = Net(1, TOKENS, WIDTH)
    x = net.op("Concat", net.weights(1, 1, WIDTH), layer(net, "x"), axis=1)
    x = net.op("Add", x, net.weights(TOKENS + 1, WIDTH))
    for _ in range(2):
        x = net.op("Add", x, layer(net, net.op("Relu", layer(net, norm(net, x)))))
    return net.model(layer(net, norm(net, row(net, x))))


def post_norm() -> onnx.ModelProto:
    """Positions, a block whose sums are normalised, one of the results as rows of a matrix."""
    net = Net(1, TOKENS, WIDTH)
    x = net.op("Add", net.weights(TOKENS, WIDTH), layer(net, "x"))
    x = norm(net, net.op("Add", layer(net, x), x))
    rows = net.op("Relu", layer(net, net.op("Reshape", x, numbers(net, TOKENS, WIDTH))))
    x = norm(net, net.op("Add", net.op("Reshape", rows, numbers(net, 1, TOKENS, WIDTH)), x))
    return net.model(layer(net, x))


@cache
def built(build: Callable[[], onnx.ModelProto]) -> tuple[FloatGraph, Quantised]:
    return quantised(build())


def quantised(model: onnx.ModelProto, text: str = SCHEME) -> tuple[FloatGraph, Quantised]:
    graph = FloatGraph(model)
    return graph, apply(Calibration(graph, samples_of(model, 8)), Scheme.parse(text))


class File:
    """A QDQ network, for asking where a node's operands come from."""

    def __init__(self, model: onnx.ModelProto) -> None:
        self.model = model
        self.constants = {tensor.name: numpy_helper.to_array(tensor) for tensor in model.graph.initializer}
        self.makers = {name: node for node in model.graph.node for name in node.output}

    def bits(self, node: onnx.NodeProto) -> int:
        return 8 * int(self.constants[node.input[2]].itemsize)

    def way(self, name: str) -> str:
        """The conversions between a tensor and what computes it, backwards: Q and DQ with their bits."""
        node = self.makers.get(name)
        if node is None:
            return f"int{self.constants[name].itemsize * 8}" if name in self.constants else "input"
        if not is_pair(node):
            return str(node.op_type)
        assert (node.domain == "com.microsoft") == (self.bits(node) == 16)
        kind = "Q" if node.op_type == "QuantizeLinear" else "DQ"
        return f"{kind}{self.bits(node)} {self.way(node.input[0])}"

    def ways(self) -> list[tuple[str, ...]]:
        """Operator of each node that is no conversion, and where its data come from."""
        return [
            (node.op_type, *(self.way(name) for name in node.input if name in self.makers or name == "x"))
            for node in self.model.graph.node
            if not is_pair(node)
        ]

    def scales(self) -> set[float]:
        """Steps of what has 16 bits; their zero points are 0."""
        wide = [node for node in self.model.graph.node if node.domain == "com.microsoft"]
        assert all(self.constants[node.input[2]] == 0 for node in wide)
        return {float(self.constants[node.input[1]]) for node in wide}


def is_pair(node: onnx.NodeProto) -> bool:
    return node.op_type in ("QuantizeLinear", "DequantizeLinear")


LAYER = "MatMul", "DQ8 Q8 MatMul", "DQ8 int8"
"""A layer behind another one."""
BRANCH = "DQ16 Q16 DQ8 Q8 MatMul"
"""Widened results of a layer."""
FORMS = {
    pre_norm: [
        ("MatMul", "DQ8 Q8 input", "DQ8 int8"),
        ("Concat", "DQ16 int16", BRANCH),
        ("Add", "DQ16 Q16 Concat", "DQ16 int16"),
        *[
            ("LayerNormalization", "DQ16 Q16 Add"),
            ("MatMul", "DQ8 Q8 LayerNormalization", "DQ8 int8"),
            LAYER,
            ("Add", "DQ16 Q16 Add", BRANCH),
        ]
        * 2,
        ("Slice", "DQ16 Q16 Add"),
        ("LayerNormalization", "DQ16 Q16 Slice"),
        ("MatMul", "DQ8 Q8 LayerNormalization", "DQ8 int8"),
    ],
    post_norm: [
        ("MatMul", "DQ8 Q8 input", "DQ8 int8"),
        ("Add", "DQ16 int16", BRANCH),
        ("MatMul", "DQ8 Q8 DQ16 Q16 Add", "DQ8 int8"),
        ("Add", BRANCH, "DQ16 Q16 Add"),
        ("LayerNormalization", "DQ16 Q16 Add"),
        ("Reshape", "DQ8 Q8 DQ16 Q16 LayerNormalization"),
        ("MatMul", "DQ8 Q8 Reshape", "DQ8 int8"),
        ("Reshape", "DQ8 Q8 MatMul"),
        ("Add", "DQ16 Q16 DQ8 Q8 Reshape", "DQ16 Q16 LayerNormalization"),
        ("LayerNormalization", "DQ16 Q16 Add"),
        ("MatMul", "DQ8 Q8 LayerNormalization", "DQ8 int8"),
    ],
}
both = pytest.mark.parametrize("build", FORMS)


@both
def test_the_form_of_the_file(build: Callable[[], onnx.ModelProto]) -> None:
    _, found = built(build)
    file = File(found.model)
    assert file.ways() == FORMS[build]
    (scale,) = file.scales()
    assert np.frexp(scale)[0] == 0.5
    for node in found.model.graph.node:
        if node.op_type == "Add":
            (reader,) = (user for user in found.model.graph.node if node.output[0] in user.input)
            assert (reader.op_type, reader.domain) == ("QuantizeLinear", "com.microsoft")


@both
def test_steps_are_the_smallest_of_which_nothing_saturates(build: Callable[[], onnx.ModelProto]) -> None:
    graph, found = built(build)
    (stream,) = found.plan.streams
    file = File(found.model)
    (scale,) = file.scales()
    eights = scales_of(found.model)
    reals = {name: [(end - eights[name][1]) * eights[name][0] for end in (-128, 127)] for name in stream.branches}
    ends = {name: (low, high) for name, (low, high) in reals.items()}
    assert all(each.fits for each in reach(graph, stream, ends, np.float32(scale)).values())
    assert not all(each.fits for each in reach(graph, stream, ends, np.float32(scale / 2)).values())


@both
@pytest.mark.parametrize("optimises", [True, False])
@pytest.mark.parametrize("form", [uint8_form, lambda model: model], ids=["uint8", "int8"])
def test_sums_are_exact_in_onnx_runtime(
    build: Callable[[], onnx.ModelProto], optimises: bool, form: Callable[[onnx.ModelProto], onnx.ModelProto]
) -> None:
    """Whatever the input is: a sum's int16 is the sum of its operands' int16."""
    _, found = built(build)
    file = File(found.model)
    sums = []
    for node in found.model.graph.node:
        if node.op_type == "Add":
            (reader,) = (user for user in found.model.graph.node if node.output[0] in user.input)
            sums.append([reader.output[0], *(file.makers[name].input[0] for name in node.input)])
    names = sorted({name for each in sums for name in each} - set(file.constants))
    model = with_outputs(form(found.model), names)
    session = open_session(model.SerializeToString(), optimises=optimises)
    random = np.random.default_rng(3)
    for reach_of in (1, 1e3):
        sample = {"x": random.normal(0, reach_of, (1, TOKENS, WIDTH)).astype(np.float32)}
        values = {**file.constants, **dict(zip(names, session.run(names, sample), strict=True))}
        for total, one, other in sums:
            assert values[total].dtype == np.int16
            np.testing.assert_array_equal(values[one].astype(int) + values[other], values[total])


@both
def test_outputs_are_nearer_to_float_than_with_sums_of_8_bits(build: Callable[[], onnx.ModelProto]) -> None:
    noises = []
    for text in ("integer-sums int32-last", SCHEME):
        graph, found = quantised(build(), text)
        drawn = np.random.default_rng(5).standard_normal((8, 1, TOKENS, WIDTH), np.float32)
        samples: list[Sample] = [{"x": value} for value in drawn]
        noises.append(Comparison(graph).quality(found.model, samples))
    assert noises[1].worst > max(noises[0].worst, 30)
    assert noises[1].engine == RUNTIME


def test_networks_without_streams_are_those_of_integer_sums() -> None:
    model = residual()
    files = [quantise(model, samples_of(model), Scheme.parse(text)) for text in ("integer-sums", "int16-sums")]
    for file in files:
        assert [entry.key for entry in file.metadata_props] == [METADATA]
        del file.metadata_props[:]
    assert files[0] == files[1]


@both
@pytest.mark.parametrize("text", ["", "integer-sums", "power-of-two integer-sums"])
def test_other_schemes_have_no_16_bits(build: Callable[[], onnx.ModelProto], text: str) -> None:
    _, found = quantised(build(), text)
    assert not found.plan.streams
    assert File(found.model).scales() == set()
    assert all(value.dtype != np.int16 for value in File(found.model).constants.values())


@pytest.mark.parametrize("text", ["symmetric-uint8", "symmetric", "power-of-two minmax"])
def test_all_kinds_of_branches(text: str) -> None:
    graph, found = quantised(post_norm(), f"{text} int16-sums")
    assert len(File(found.model).scales()) == 1
    assert Comparison(graph).quality(found.model, samples_of(graph.model)).worst > 20


# What belongs to a stream --------------------------------------------------------------------------


def nodes_of(net: Net, y: str, *kept: str) -> list[list[str]]:
    """Operators of the nodes of each stream."""
    return [[node.op_type for node in stream.nodes] for stream in streams(FloatGraph(net.model(y)), kept)]


def test_sums_that_no_norm_reads_are_no_streams() -> None:
    net = Net(1, TOKENS, WIDTH)
    x = layer(net, "x")
    total = net.op("Add", x, layer(net, x))
    assert nodes_of(net, norm(net, layer(net, total))) == []


def test_later_sums_belong_to_a_stream_and_what_they_add() -> None:
    """The last one has no norm behind it. Positions are added to the normalised tokens for this layer alone."""
    net = Net(1, TOKENS, WIDTH)
    x = norm(net, net.op("Add", "x", layer(net, "x")))
    x = net.op("Add", x, layer(net, net.op("Add", net.op("Identity", x), net.weights(TOKENS, WIDTH))))
    x = net.op("Add", x, layer(net, norm(net, x)))
    assert nodes_of(net, x) == [["Add", "LayerNormalization", "Identity", "Add", "Add", "Add"]]


def test_streams_apart_have_their_own_steps() -> None:
    """The layer between them ends the first; the second has the first's norm as a branch's layer, and a wider range."""
    net = Net(1, TOKENS, WIDTH)
    one = norm(net, net.op("Add", "x", layer(net, "x")))
    large = net.op("MatMul", one, net.constant(100 * np.eye(WIDTH, dtype=np.float32)))
    other = norm(net, net.op("Add", large, "x"))
    model = net.model(layer(net, other))
    _, found = quantised(model)
    file = File(found.model)
    assert [[node.op_type for node in stream.nodes] for stream in found.plan.streams] == [["Add"], ["Add"]]
    small, wide = sorted(file.scales())
    assert wide > 10 * small
    assert file.ways()[1] == ("Add", "DQ16 Q16 DQ8 Q8 input", "DQ16 Q16 DQ8 Q8 MatMul")


def test_a_norm_in_a_stream_reads_16_bits() -> None:
    """As the accelerator has none of 8 bits with a result of 16."""
    net = Net(1, TOKENS, WIDTH)
    x = norm(net, layer(net, "x"))
    x = norm(net, net.op("Add", x, layer(net, x)))
    _, found = quantised(net.model(layer(net, x)))
    assert File(found.model).ways()[1] == ("LayerNormalization", BRANCH)


def test_what_leaves_the_network_has_8_bits() -> None:
    net = Net(1, TOKENS, WIDTH)
    total = net.op("Add", "x", layer(net, "x"))
    normal = norm(net, total)
    y = net.op("Add", total, layer(net, normal))
    _, found = quantised(net.model(y))
    assert File(found.model).way("y") == "DQ8 Q8 DQ16 Q16 Add"


def test_nodes_that_stay_float_belong_to_no_stream() -> None:
    net = Net(1, TOKENS, WIDTH)
    total = net.op("Add", "x", layer(net, "x"))
    y = layer(net, norm(net, total))
    assert nodes_of(net, y) == [["Add"]]
    model = net.model("y")
    assert streams(FloatGraph(model), {"LayerNormalization_2"}) == []
    assert streams(FloatGraph(model), {"Add_1"}) == []
    _, found = quantised(model, "int16-sums float=Add_1")
    assert File(found.model).scales() == set()


def test_all_parts_of_a_split_belong_to_a_stream() -> None:
    net = Net(1, TOKENS, WIDTH)
    total = net.op("Add", "x", layer(net, "x"))
    one = net.op("Split", total, numbers(net, 2, 4), outputs=2, axis=1)
    other = net.nodes[-1].output[1]
    y = net.op("Concat", layer(net, norm(net, one)), layer(net, other), axis=1)
    graph, found = quantised(net.model(y))
    assert [[node.op_type for node in stream.nodes] for stream in found.plan.streams] == [["Add", "Split"]]
    assert ("MatMul", "DQ8 Q8 DQ16 Q16 Split", "DQ8 int8") in File(found.model).ways()
    assert Comparison(graph).quality(found.model, samples_of(graph.model)).worst > 30


# What its integers reach ---------------------------------------------------------------------------


def test_intervals() -> None:
    step = np.float32(0.25)
    assert of_reals(-1.1, 0.4, step) == Interval(-4, 2)
    assert of_norm(np.array([1, -3, 2, 0], np.float32), np.array([0, 0, 0, 0.3], np.float32), step) == Interval(-25, 25)
    assert of_norm(np.ones(4, np.float32), np.zeros(1, np.float32), np.float32(1)) == Interval(-3, 3)
    joins = [Join("sum", ["a", "b"], True), Join("moved", ["sum"], False), Join("both", ["moved", "c"], False)]
    found = intervals(joins, {"a": Interval(-5, 7), "b": Interval(1, 2), "c": Interval(-9, 3)})
    assert [found[name] for name in ("sum", "moved", "both")] == [Interval(-4, 9), Interval(-4, 9), Interval(-9, 9)]
    assert Interval(-32768, 32767).fits
    assert not Interval(-32769, 0).fits and not Interval(0, 32768).fits


@pytest.mark.parametrize("kind", ["LayerNormalization", "RMSNormalization"])
def test_no_row_exceeds_the_interval_of_a_norm(kind: str) -> None:
    """One element much larger than the others comes closest to the bound."""
    random = np.random.default_rng(0)
    gain, offset = (random.normal(0, 1, WIDTH).astype(np.float32) for _ in range(2))
    rows: Array = np.concatenate([random.normal(0, 1, (100, WIDTH)), 1e4 * np.eye(WIDTH), -1e4 * np.eye(WIDTH)])
    centred = rows - rows.mean(axis=1, keepdims=True) * (kind == "LayerNormalization")
    results = centred / np.sqrt((centred**2).mean(axis=1, keepdims=True) + 1e-5) * gain + offset
    step = np.float32(2**-10)
    found = of_norm(gain, offset, step)
    largest = np.abs(np.rint(results / step)).max()
    assert 0.9 * found.high < largest <= found.high
