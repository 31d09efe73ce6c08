"""Post-training quantisation: schemes, calibration, the plan, exactness and accuracy of what comes out."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from numpy.typing import NDArray
from onnx import TensorProto, helper, numpy_helper

from dovetail.isa.config.resolved import Config
from dovetail.sw.errors import NetworkError
from dovetail.sw.frontend import load
from dovetail.sw.frontend.onnx.uint8_form import uint8_form
from dovetail.sw.frontend.parsed_file import NetworkFile
from dovetail.sw.host.onnx_session import open_session
from dovetail.sw.network import ir
from dovetail.sw.network.layout import Array, Sample
from dovetail.sw.quantise.automatic import Goal, search
from dovetail.sw.quantise.calibration import Calibration, channel_means, least_divergent
from dovetail.sw.quantise.float_network import FloatGraph, Input, read_float
from dovetail.sw.quantise.parameters import Level, Range, activation, weights
from dovetail.sw.quantise.plan import plan
from dovetail.sw.quantise.quality import INTERPRETER, RUNTIME, Comparison
from dovetail.sw.quantise.quantiser import METADATA, apply, quantise, rounding_shift
from dovetail.sw.quantise.samples import FileSamples, RandomSamples, labels_of
from dovetail.sw.quantise.scheme import Scheme
from dovetail.sw.runtime.compiled_network import compile_network
from tests.slow import slow

MODELS = Path(__file__).parents[3].parent / "shared" / "models"
needs_models = pytest.mark.skipif(not MODELS.exists(), reason="reference networks are not here")

SCHEMES = ("asymmetric", "asymmetric per-tensor", "symmetric", "symmetric-uint8", "power-of-two", "asymmetric kl")


class Net:
    """Builds a float network, NCHW, input `x` and output `y`."""

    def __init__(self, *shape: int) -> None:
        self.shape = shape
        self.random = np.random.default_rng(1)
        self.nodes: list[onnx.NodeProto] = []
        self.constants: dict[str, Array] = {}

    def constant(self, value: Array) -> str:
        name = f"c{len(self.constants)}"
        self.constants[name] = value
        return name

    def weights(self, *shape: int) -> str:
        return self.constant(self.random.normal(0, 1, shape).astype(np.float32))

    def op(self, kind: str, *inputs: str, outputs: int = 1, **attributes: Any) -> str:
        names = [f"t{len(self.nodes)}{'abc'[k]}" for k in range(outputs)]
        self.nodes.append(helper.make_node(kind, inputs, names, f"{kind}_{len(self.nodes)}", **attributes))
        return names[0]

    def conv(self, x: str, channels: int, depth: int, size: int = 3, **attributes: Any) -> str:
        attributes = {"pads": [size // 2] * 4} | attributes
        return self.op("Conv", x, self.weights(channels, depth, size, size), self.weights(channels), **attributes)

    def model(self, y: str, name: str = "net") -> onnx.ModelProto:
        self.nodes[-1].output[list(self.nodes[-1].output).index(y)] = "y"
        graph = helper.make_graph(
            self.nodes,
            name,
            [helper.make_tensor_value_info("x", TensorProto.FLOAT, self.shape)],
            [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)],
            [numpy_helper.from_array(value, key) for key, value in self.constants.items()],
        )
        return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=9)


def residual() -> onnx.ModelProto:
    """Every kind of layer: residual sum, pooling, branches that are joined, a table, a dense layer, a softmax."""
    net = Net(1, 3, 12, 12)
    a = net.op("Relu", net.conv("x", 8, 3))
    low, high = net.constant(np.array(0, np.float32)), net.constant(np.array(6, np.float32))
    b = net.op("Clip", net.conv(a, 8, 1, group=8), low, high)
    c = net.op("Relu", net.op("Add", net.conv(b, 8, 8, 1), a))
    d = net.op("MaxPool", c, kernel_shape=[2, 2], strides=[2, 2])
    e = net.op("AveragePool", c, kernel_shape=[2, 2], strides=[2, 2])
    f = net.op("Concat", d, e, axis=1)
    g = net.op("HardSwish", net.conv(f, 6, 16))
    h = net.op("Mul", g, net.op("Sigmoid", g))
    i = net.op("Flatten", net.op("GlobalAveragePool", h))
    return net.model(net.op("Softmax", net.op("Gemm", i, net.weights(6, 5), net.weights(5))))


def samples_of(model: onnx.ModelProto, count: int = 4) -> list[Sample]:
    return list(RandomSamples(FloatGraph(model).inputs, count))


def run(model: onnx.ModelProto, sample: Sample) -> Array:
    session = open_session(model.SerializeToString())
    return np.asarray(session.run(None, dict(sample))[0])


def scales_of(model: onnx.ModelProto) -> dict[str, tuple[float, int]]:
    """Scale and zero point of each activation, by the name of the float tensor."""
    constants = {tensor.name: numpy_helper.to_array(tensor) for tensor in model.graph.initializer}
    return {
        node.input[0]: (float(constants[node.input[1]]), int(constants[node.input[2]]))
        for node in model.graph.node
        if node.op_type == "QuantizeLinear"
    }


# Schemes -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "text",
    [
        "asymmetric per-channel minmax",
        "power-of-two per-tensor kl uncorrected integer-sums float-first float-last int32-last",
        "asymmetric per-channel minmax int16-sums int32-last",
        "symmetric-uint8 per-channel percentile=99.5 'float=a node' 'float=block;*'",
    ],
)
def test_a_scheme_is_its_text(text: str) -> None:
    assert str(Scheme.parse(text)) == text


def test_what_a_scheme_leaves_out_has_its_default() -> None:
    assert Scheme.parse("per-tensor") == Scheme("asymmetric", "per-tensor", "percentile", 99.99)
    assert Scheme.parse("percentile").percentile == 99.99


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("minmax percentile=99", "scheme must be either minmax or percentile, not both"),
        ("integer-sums int16-sums", "scheme must be either integer-sums or int16-sums, not both"),
        ("int4", "scheme must be made of asymmetric, symmetric, .* not 'int4'"),
        ("percentile=high", "percentile must be a number, not 'high'"),
        ("percentile=101", "percentile must be above 50 and at most 100, not 101"),
        ("'float=a", "scheme must be words with balanced quotes"),
    ],
)
def test_wrong_schemes(text: str, message: str) -> None:
    with pytest.raises(NetworkError, match=message):
        Scheme.parse(text)


@pytest.mark.parametrize(
    ("text", "seen", "level"),
    [
        ("asymmetric", Range(-1.0, 1.55), Level(np.float32(0.01), -28, -128, 127)),
        ("asymmetric", Range(2.0, 5.1), Level(np.float32(0.02), -128, -128, 127)),
        ("symmetric", Range(-2.54, 1.0), Level(np.float32(0.02), 0, -128, 127)),
        ("symmetric-uint8", Range(0.0, 2.54), Level(np.float32(0.02), 128, 0, 255)),
        ("power-of-two", Range(-1.0, 1.0), Level(np.float32(1 / 128), 0, -128, 127)),
        ("power-of-two", Range(-1.1, 1.0), Level(np.float32(1 / 64), 0, -128, 127)),
        ("asymmetric", Range(0.0, 0.0), Level(np.float32(1 / 256), -128, -128, 127)),
    ],
)
def test_levels(text: str, seen: Range, level: Level) -> None:
    assert activation(Scheme.parse(text), seen) == level


def test_weight_scales() -> None:
    values = np.array([[[1.27]], [[0.0]], [[-2.54]]], np.float32)
    one = np.float32(1)
    assert np.allclose(weights(Scheme(), values, 0, None, one), [0.01, 0.02, 0.02])
    assert np.allclose(weights(Scheme(weights="per-tensor"), values, 0, None, one), [0.02])
    assert weights(Scheme("power-of-two"), values, 0, None, one).tolist() == [1 / 64, 1 / 32, 1 / 32]
    # A bias fits the accumulator whatever the weights are.
    tiny = np.full((1, 1), 1e-9, np.float32)
    for scheme in (Scheme(), Scheme("power-of-two")):
        (scale,) = weights(scheme, tiny, 0, np.array([100.0], np.float32), np.float32(0.01))
        assert 2**28 <= 100 / (0.01 * float(scale)) <= 2**30 * 1.001


# Samples -----------------------------------------------------------------------------------------

INPUTS = (Input("x", (1, 3, 2, 2), "float32"),)


def read(path: Path, inputs: tuple[Input, ...] = INPUTS) -> list[Sample]:
    return list(FileSamples(path, inputs))


def save(path: Path, **arrays: Array) -> Path:
    np.savez(path, **arrays)  # type: ignore[arg-type]
    return path


def test_samples_of_files_and_folders(tmp_path: Path) -> None:
    values = np.arange(36, dtype=np.float32).reshape(3, 3, 2, 2)
    np.save(tmp_path / "a.npy", values)
    save(tmp_path / "b.npz", x=values[:1], y=np.array([7]))
    save(tmp_path / "c.npz", anything=values[2].astype(np.float64))
    assert np.array_equal([s["x"] for s in read(tmp_path / "a.npy")], values[:, None])
    assert np.array_equal([s["x"] for s in read(tmp_path)], values[[0, 1, 2, 0, 2], None])
    assert {s["x"].dtype for s in read(tmp_path)} == {np.dtype(np.float32)}
    assert labels_of(tmp_path / "b.npz").tolist() == [7]
    two = (Input("x", (2,), "float32"), Input("n", (2,), "int64"))
    file = save(tmp_path / "two.npz", x=np.zeros((4, 2), np.float32), n=np.ones((4, 2), np.int64))
    assert len(read(file, two)) == 4


@pytest.mark.parametrize(
    ("arrays", "message"),
    [
        ({"a": np.zeros((1, 3, 2, 2)), "b": np.zeros(1)}, r"must hold the input\(s\) x, not a, b"),
        ({"x": np.zeros((4, 2, 2), np.float32)}, r"input 'x' must have shape \(1, 3, 2, 2\), or .*, not \(4, 2, 2\)"),
        ({"x": np.zeros((0, 3, 2, 2), np.float32)}, r"not \(0, 3, 2, 2\)"),
        ({"x": np.zeros((5, 3, 2, 2), np.uint8)}, "sample 0: input 'x' must be float32, not uint8; scale it"),
        ({"x": np.full((2, 3, 2, 2), np.nan)}, "sample 0: input 'x' must be finite"),
        ({}, "must be an .npy or .npz file of plain arrays, not an empty one"),
    ],
)
def test_samples_that_do_not_fit(tmp_path: Path, arrays: dict[str, Array], message: str) -> None:
    with pytest.raises(NetworkError, match=message):
        read(save(tmp_path / "x.npz", **arrays))


def test_damaged_files_and_empty_folders(tmp_path: Path) -> None:
    with pytest.raises(NetworkError, match=r"must hold \.npy or \.npz files, not none"):
        read(tmp_path)
    (tmp_path / "x.npy").write_bytes(b"\x93NUMPY")
    with pytest.raises(NetworkError, match=r"must be an \.npy or \.npz file of plain arrays"):
        read(tmp_path)
    with pytest.raises(NetworkError, match="labels must be array 'y', not among x"):
        labels_of(save(tmp_path / "l.npz", x=np.zeros(3)))
    with pytest.raises(NetworkError, match=r"labels must be one integer per sample, not float64 \(3,\)"):
        labels_of(save(tmp_path / "l.npz", y=np.zeros(3)))


def test_random_samples_are_the_same_each_time() -> None:
    random = RandomSamples(INPUTS, 3)
    assert np.array_equal([s["x"] for s in random], [s["x"] for s in random])
    with pytest.raises(NetworkError, match="at least 1, not 0"):
        RandomSamples(INPUTS, 0)


# Calibration -------------------------------------------------------------------------------------


def spread(clipping: str) -> Range:
    """Range of 10,000 normal values and one of 50."""
    net = Net(1, 1, 100, 100)
    model = net.model(net.op("Relu", net.conv("x", 1, 1, 1)))
    value = np.random.default_rng(0).normal(0, 1, (1, 1, 100, 100)).astype(np.float32)
    value[0, 0, 3, 3] = 50
    return Calibration(FloatGraph(model), [{"x": value}]).ranges(Scheme.parse(clipping))["x"]


def test_clipping() -> None:
    assert spread("minmax").high == 50
    assert 3 < spread("percentile=99.9").high < 4.5
    assert spread("percentile=100").high == 50
    assert 3 < spread("kl").high < 50


def test_divergence_keeps_what_is_even() -> None:
    edges = np.linspace(-4, 4, 2049, dtype=np.float32)
    even = np.full(2048, 100)
    assert least_divergent(even, edges, Range(-4, 4)) == Range(-4, 4)
    lonely = (1e6 * np.exp(-((edges[:-1] / 0.5) ** 2))).astype(np.int64)
    lonely[-1] = 1
    assert 1 < least_divergent(lonely, edges, Range(-4, 4)).high < 3
    rectified = np.where(np.arange(2048) < 1024, 0, 100)
    rectified[1024] = rectified[-1] = 100_000
    assert least_divergent(rectified, edges, Range(0, 4)) == Range(0, 4)
    with np.errstate(all="raise"):
        assert least_divergent(np.eye(1, 2048, 2047, dtype=np.int64)[0], edges, Range(0, 4)) == Range(0, 4)


def test_ranges_join_all_samples_whatever_their_order() -> None:
    model = residual()
    samples = samples_of(model, 3)
    for text in ("minmax", "percentile=99", "kl"):
        scheme = Scheme.parse(text)
        ranges = [Calibration(FloatGraph(model), order).ranges(scheme) for order in (samples, samples[::-1])]
        assert ranges[0] == ranges[1]
    scheme = Scheme(clipping="minmax")
    one = Calibration(FloatGraph(model), samples[:1]).ranges(scheme)
    assert one["x"].low > Calibration(FloatGraph(model), samples).ranges(scheme)["x"].low


def test_calibration_refuses(tmp_path: Path) -> None:
    model = residual()
    with pytest.raises(NetworkError, match="calibration must have at least one sample"):
        quantise(model, [])
    with pytest.raises(NetworkError, match=r"calibration sample 0: must hold the input\(s\) x, not only z"):
        quantise(model, [{"z": np.zeros(1)}])
    with pytest.raises(NetworkError, match="calibration sample 1: input 'x' must be finite"):
        quantise(model, [*samples_of(model, 1), {"x": np.full((1, 3, 12, 12), np.inf, np.float32)}])
    net = Net(1, 3, 4, 4)
    broken = net.model(net.conv(net.op("Log", "x"), 2, 3))
    with pytest.raises(NetworkError, match="tensor 't0a' must be finite on the calibration samples"):
        quantise(broken, [{"x": np.zeros((1, 3, 4, 4), np.float32)}])
    with pytest.raises(NetworkError, match="network must be float, not quantised already"):
        quantise(quantise(model, samples_of(model)), samples_of(model))


# The plan ----------------------------------------------------------------------------------------


def planned(model: onnx.ModelProto, text: str = "") -> tuple[list[str], list[str]]:
    """Operators behind which there is a quantisation, and those that stay float."""
    graph = FloatGraph(model)
    found = plan(graph, Scheme.parse(text))
    made = [graph.producers[name].op_type for name in found.tensors if name in graph.producers]
    return made, [node.op_type for node in graph.nodes if node.name in found.floating]


def test_activations_are_fused_and_functions_one_table() -> None:
    made, floating = planned(residual())
    expected = ["Relu", "Clip", "Conv", "Relu", "MaxPool", "AveragePool", "Concat", "Conv", "Mul"]
    assert made == [*expected, "GlobalAveragePool", "Flatten", "Gemm"]
    assert floating == ["Softmax"]


def test_equal_quantisation_where_elements_are_only_picked() -> None:
    model = residual()
    graph = FloatGraph(model)
    shared = plan(graph, Scheme()).tensors
    groups: dict[str, set[str]] = {}
    for name, representative in shared.items():
        groups.setdefault(representative, set()).add(graph.producers[name].op_type if name != "x" else "x")
    assert {"Relu", "MaxPool", "AveragePool", "Concat"} in groups.values()
    scales = scales_of(quantise(model, samples_of(model)))
    assert len({scales[name] for name in shared if shared[name] == shared["t6a"]}) == 1


def test_layers_stay_float_on_wish() -> None:
    model = residual()
    assert planned(model, "float-first")[1] == ["Conv", "Relu", "Softmax"]
    assert planned(model, "float-last")[1] == ["Gemm", "Softmax"]
    assert planned(model, "float=Conv_2 float=Gemm*")[1] == ["Conv", "Clip", "Gemm", "Softmax"]
    with pytest.raises(NetworkError, match="float=Conv_77 must name a node, such as Conv_"):
        planned(model, "float=Conv_77")
    with pytest.raises(NetworkError, match="network must have something to quantise"):
        planned(model, "float=*")


def test_sums_of_the_last_layer_are_not_rounded() -> None:
    """Its operands are integers; nothing quantises its result, as far as it is a matrix product."""
    model = residual()
    made, floating = planned(model, "int32-last")
    assert made == planned(model)[0][:-1] and floating == ["Softmax"]
    (sample, *_) = samples = samples_of(model)
    results = [run(quantise(model, samples, Scheme.parse(text)), sample) for text in ("", "int32-last")]
    rounded, exact = (float(np.abs(result - run(model, sample)).max()) for result in results)
    assert exact < rounded
    quantised = quantise(model, samples, Scheme.parse("int32-last")).SerializeToString()
    compiled = compile_network(load(NetworkFile("net", quantised)), Config())
    np.testing.assert_array_equal(compiled.run(sample["x"]).outputs["y"], results[1])
    tensors = compiled.graph.tensors
    assert [tensors[node.outputs[0]].dtype for node in compiled.graph.nodes if node.op == "dense"] == ["int32"]


def test_normalisation_between_host_nodes_stays_float() -> None:
    net = Net(1, 4, 8)
    x = net.op("Add", net.op("MatMul", "x", net.weights(8, 8)), "x")
    mean = net.op("ReduceMean", x, net.constant(np.array([-1])))
    scaled = net.op("Mul", net.op("Sub", x, mean), net.weights(8))
    model = net.model(net.op("MatMul", scaled, net.weights(8, 8)))
    assert planned(model) == (["MatMul", "Mul", "MatMul"], ["Add", "ReduceMean", "Sub", "Mul"])


def test_both_operands_of_attention_are_quantised_and_its_softmax_has_a_scale_of_a_power_of_two() -> None:
    net = Net(1, 4, 8)
    keys = net.op("Transpose", net.op("MatMul", "x", net.weights(8, 8)), perm=[0, 2, 1])
    soft = net.op("Softmax", net.op("MatMul", "x", keys), axis=-1)
    model = net.model(net.op("MatMul", soft, net.op("MatMul", "x", net.weights(8, 8))))
    graph = load_of(quantise(model, samples_of(model)))
    assert [node.op for node in graph.nodes if not isinstance(node, ir.Host | ir.Reshape)].count("matmul") == 2
    scale, zero = scales_of(quantise(model, samples_of(model)))[soft]
    assert np.log2(scale) in (-8, -9, -10, -11, -12)
    assert zero == -128


def test_one_constant_may_serve_two_layers() -> None:
    net = Net(1, 4, 8, 8)
    shared, bias = net.weights(4, 4, 1, 1), net.weights(4)
    a = net.op("Relu", net.op("Conv", "x", shared, bias))
    model = net.model(net.op("Conv", a, shared, bias))
    exact(model, "asymmetric")


# Outcome -----------------------------------------------------------------------------------------


def load_of(model: onnx.ModelProto) -> ir.Graph:
    return load(NetworkFile("net", model.SerializeToString()))


def exact(model: onnx.ModelProto, text: str) -> ir.Graph:
    """Quantise, compile, and compare the engine with ONNX Runtime's integer kernels, byte for byte."""
    quantised = quantise(model, samples_of(model), Scheme.parse(text))
    onnx.checker.check_model(quantised, full_check=True)
    graph = load_of(quantised)
    compiled = compile_network(graph, Config())
    for sample in RandomSamples(FloatGraph(model).inputs, 3, seed=5):
        (ours,) = compiled.run(sample).outputs.values()
        assert np.array_equal(ours, run(uint8_form(quantised), sample))
    return graph


@pytest.mark.parametrize("text", SCHEMES)
def test_outputs_equal_the_integer_kernels(text: str) -> None:
    graph = exact(residual(), text)
    hosts = [node.op for node in graph.nodes if isinstance(node, ir.Host)]
    assert hosts == ["quantize", "dequantize", "softmax"]


def test_the_file_says_how_it_was_made() -> None:
    model = residual()
    quantised = quantise(model, samples_of(model), Scheme.parse("symmetric kl"))
    assert {p.key: p.value for p in quantised.metadata_props} == {METADATA: "symmetric per-channel kl"}


def test_zero_points() -> None:
    model = residual()
    for text, zeros, kind in (("symmetric", {0}, "int8"), ("symmetric-uint8", {128}, "uint8")):
        quantised = quantise(model, samples_of(model), Scheme.parse(text))
        assert {zero for _, zero in scales_of(quantised).values()} == zeros
        types = {t.data_type for t in quantised.graph.initializer if t.name.endswith("zero_point")}
        assert (TensorProto.UINT8 in types) == (kind == "uint8")


@pytest.mark.parametrize("kind", ["per-channel", "per-tensor"])
def test_power_of_two_needs_only_shifts(kind: str) -> None:
    model = residual()
    quantised = quantise(model, samples_of(model), Scheme.parse(f"power-of-two {kind}"))
    assert all(np.frexp(scale)[0] == 0.5 and zero == 0 for scale, zero in scales_of(quantised).values())
    layers = [node for node in load_of(quantised).nodes if isinstance(node, ir.Conv | ir.Depthwise)]
    assert len(layers) == 5
    assert {mult for node in layers for mult in np.unique(node.requant.mult)} == {1 << 23}


def test_channels_without_weights_keep_their_bias() -> None:
    net = Net(1, 3, 4, 4)
    values = net.random.normal(0, 1, (4, 3, 1, 1)).astype(np.float32)
    values[1] = 0
    bias = np.array([0.1, 0.3, -20, 0.7], np.float32)
    model = net.model(net.op("Conv", "x", net.constant(values), net.constant(bias)))
    quantised = quantise(model, samples_of(model))
    (scale, _) = scales_of(quantised)["y_QuantizeLinear_Input"]
    out = run(uint8_form(quantised), samples_of(model)[0])
    assert np.abs(out[0, 1] - 0.3).max() <= scale
    exact(model, "asymmetric")


def test_biases_take_back_what_rounding_shifts() -> None:
    random = np.random.default_rng(2)
    means = np.array([5.0, 1.0, 2.0, 4.0])
    image = random.normal(means.reshape(1, 4, 1, 1), 1, (1, 4, 40, 40))
    values = random.normal(0, 1, (6, 2, 1, 1)).astype(np.float32)
    scales = np.full(6, 0.3, np.float32)
    rounded = np.rint(values / np.float32(0.3)) * np.float32(0.3)
    found = rounding_shift(values, scales, 0, channel_means(image))
    for channel in range(6):
        seen = image[0, :2] if channel < 3 else image[0, 2:]
        missing = np.sum((values - rounded)[channel] * seen, axis=0)
        assert found[channel] == pytest.approx(missing.mean())
    matrix = values.reshape(6, 2).T
    assert np.allclose(
        rounding_shift(matrix, scales, 1, np.array([5.0, 1.0]))[:3], rounding_shift(values, scales, 0, means)[:3]
    )
    model = residual()
    samples = samples_of(model, 8)
    plain, corrected = (
        Comparison(FloatGraph(model)).quality(
            quantise(model, samples, Scheme.parse(f"power-of-two {word}")), samples, layers=True
        )
        for word in ("uncorrected", "")
    )
    (before,), (after,) = ([x.sqnr for x in q.layers if x.node == "Gemm_16"] for q in (plain, corrected))
    assert after > before


# Quality and search ------------------------------------------------------------------------------


def test_quality() -> None:
    model = residual()
    samples = samples_of(model)
    labels = np.array([int(np.argmax(run(model, sample))) for sample in samples])
    found = Comparison(FloatGraph(model)).quality(quantise(model, samples), samples, labels, layers=True)
    assert (found.samples, found.float_accuracy, found.engine) == (4, 1.0, RUNTIME)
    quantised = quantise(model, samples)
    wanted, ours = (np.array([run(m, s) for s in samples]) for m in (model, uint8_form(quantised)))
    noise = np.sum((wanted.astype(np.float64) - ours) ** 2)
    expected = 10 * np.log10(np.sum(wanted.astype(np.float64) ** 2) / noise)
    assert found.sqnr == {"y": pytest.approx(expected, abs=0.01)}  # the float network's last digits depend on fusions
    assert found.accuracy == np.mean([int(np.argmax(y)) == label for y, label in zip(ours, labels, strict=True)])
    assert [layer.sqnr for layer in found.layers] == sorted(layer.sqnr for layer in found.layers)
    assert "Gemm_16" in {layer.node for layer in found.layers}


def test_quality_uses_the_interpreter_where_the_runtime_differs(monkeypatch: pytest.MonkeyPatch) -> None:
    model = residual()
    quantised = quantise(model, samples_of(model))
    expected = Comparison(FloatGraph(model)).quality(quantised, samples_of(model), layers=True)
    other = quantise(model, samples_of(model), Scheme("power-of-two"))
    monkeypatch.setattr("dovetail.sw.quantise.quality.uint8_form", lambda _: uint8_form(other))
    found = Comparison(FloatGraph(model)).quality(quantised, samples_of(model), layers=True)
    assert (found.engine, found.sqnr) == (INTERPRETER, expected.sqnr)
    assert found.layers == expected.layers


@pytest.mark.parametrize("labels", [[1], [1, 2, 3, 4, 5]])
def test_labels_fit_the_samples(labels: list[int]) -> None:
    model = residual()
    with pytest.raises(NetworkError, match="labels"):
        Comparison(FloatGraph(model)).quality(quantise(model, samples_of(model)), samples_of(model), np.array(labels))


def test_goals() -> None:
    assert Goal.parse("accuracy=1.0pt") == Goal("accuracy", 1.0)
    assert Goal.parse("sqnr=30dB") == Goal("sqnr", 30.0)
    for text in ("accuracy", "sqnr=30pt", "loss=3"):
        with pytest.raises(NetworkError, match="goal must be accuracy=POINTSpt or sqnr=DECIBELdB"):
            Goal.parse(text)
    with pytest.raises(NetworkError, match="goal accuracy must come with labels"):
        model = residual()
        search(Calibration(FloatGraph(model), samples_of(model)), Goal("accuracy", 1), samples_of(model))


def test_search_stops_at_the_first_scheme_that_does() -> None:
    model = residual()
    calibration = Calibration(FloatGraph(model), samples_of(model))
    found = search(calibration, Goal("sqnr", 1.0), samples_of(model))
    assert found.met
    assert [str(trial.scheme) for trial in found.trials] == ["power-of-two per-tensor minmax"]
    assert found.best is found.trials[-1]


def test_search_that_fails_names_the_best() -> None:
    model = residual()
    calibration = Calibration(FloatGraph(model), samples_of(model))
    seen: list[str] = []
    found = search(
        calibration, Goal("sqnr", 99.0), samples_of(model), progress=lambda trial: seen.append(str(trial.scheme))
    )
    assert not found.met
    assert seen[:3] == ["power-of-two per-tensor minmax", "symmetric per-tensor minmax", "asymmetric per-tensor minmax"]
    assert [trial.float_layers for trial in found.trials] == [0, 0, 0, 0, 0, 0, 0, 1, 1, 2, 1, 2]
    assert [trial.scheme.int32_last for trial in found.trials].index(True) == 6
    assert found.best.quality.worst == max(trial.quality.worst for trial in found.trials)
    assert str(found.best.scheme) in {p.value for p in found.quantised.model.metadata_props}


# Trained networks --------------------------------------------------------------------------------


def trained(stem: str, first_class: int = 0) -> tuple[onnx.ModelProto, list[Sample], Array]:
    """(float network, labelled inputs as it takes them, labels) of the reference data."""
    path = MODELS / stem
    model = read_float(f"{path}_float.onnx")
    held = np.load(path.parent / "samples.npz")
    return model, samples_from(stem, model, held["x"]), held["y"] + first_class


def samples_from(stem: str, model: onnx.ModelProto, levels: Array) -> list[Sample]:
    """Inputs of the float network for input levels of the int8 one."""
    port = load(f"{MODELS / stem}_int8_qdq.onnx").inputs[0]
    assert port.scale is not None
    reals: NDArray[np.float32] = (levels.astype(np.float32) - np.float32(port.zero_point)) * port.scale
    return [{model.graph.input[0].name: value[None]} for value in reals]


def calibration_of(stem: str, model: onnx.ModelProto, samples: list[Sample]) -> list[Sample]:
    """What there is to calibrate with; the labelled inputs themselves where there is nothing else."""
    folder = MODELS / "calibration"
    if "resnet8" in stem:
        images = np.load(folder / "cifar10_train_200.npz")["u8"]
        return samples_from(stem, model, images.astype(np.int16) - 128)
    if "kws" in stem:
        return samples_from(stem, model, np.load(folder / "kws_mfcc_100.npz")["x_int8"])
    if "1.0_224" in stem:
        images = np.load(folder / "imagenet_224_16.npz")["u8"]
        return samples_from(stem, model, images.astype(np.int16) - 128)
    return samples


@needs_models
@pytest.mark.parametrize(
    ("stem", "hits"),
    [
        slow("mlperf_tiny/ic_resnet8/resnet8", 87),
        ("mlperf_tiny/vww_mobilenet_v1_025/vww", 53),
        ("mlperf_tiny/kws_dscnn/kws", 94),
    ],
)
def test_trained_networks_keep_their_accuracy(stem: str, hits: int) -> None:
    model, samples, labels = trained(stem)
    quantised = quantise(model, calibration_of(stem, model, samples))
    found = Comparison(FloatGraph(model)).quality(quantised, samples, labels)
    assert found.float_accuracy == hits / len(labels)
    assert found.drop is not None and found.drop <= 1
    assert found.engine == RUNTIME
    compiled = compile_network(load_of(quantised), Config())
    for sample in samples[:2]:
        (ours,) = compiled.run(sample).outputs.values()
        assert np.array_equal(ours, run(uint8_form(quantised), sample))


@needs_models
def test_the_anomaly_score_stays() -> None:
    stem = "mlperf_tiny/ad_autoencoder/ad"
    model, _, _ = trained(stem)
    windows = np.load(MODELS / "mlperf_tiny/ad_autoencoder/samples.npz")["x_float"]
    samples: list[Sample] = [{"input_1": window[None]} for window in windows]
    quantised = quantise(model, samples)
    assert Comparison(FloatGraph(model)).quality(quantised, samples).worst > 40
    scores = [
        np.mean([np.mean((s["input_1"] - run(m, s)) ** 2) for s in samples]) for m in (model, uint8_form(quantised))
    ]
    assert scores[1] == pytest.approx(scores[0], rel=0.01)


@needs_models
@pytest.mark.slow
@pytest.mark.parametrize("name", ["mobilenet_v1_0.25_128", "mobilenet_v1_1.0_224"])
def test_imagenet_networks_keep_their_accuracy(name: str) -> None:
    stem = f"imagenet/{name}/{name}"
    model, samples, labels = trained(stem, 1)
    found = Comparison(FloatGraph(model)).quality(
        quantise(model, calibration_of(stem, model, samples)), samples, labels
    )
    assert found.drop is not None and found.drop <= 1
    assert found.engine == RUNTIME


@needs_models
@pytest.mark.slow
def test_search_finds_the_accuracy_of_a_difficult_network() -> None:
    model, samples, labels = trained("imagenet/mobilenet_v1_0.25_128/mobilenet_v1_0.25_128", 1)
    found = search(Calibration(FloatGraph(model), samples), Goal("accuracy", 1.0), samples, labels)
    assert found.met and len(found.trials) > 1
    assert found.best.quality.drop is not None and found.best.quality.drop <= 1


@needs_models
@pytest.mark.slow
@pytest.mark.parametrize("name", ["cct_1_32_32_32", "tinyvit_demo"])
def test_transformers_run_all_their_products_on_the_accelerator(name: str) -> None:
    model = read_float(MODELS / f"architectures_only/{name}.onnx")
    calibration = Calibration(FloatGraph(model), samples_of(model, 2))
    quantised = apply(calibration, Scheme())
    assert len(quantised.plan.results) == len(quantised.plan.layers)
    assert Comparison(FloatGraph(model)).quality(quantised.model, samples_of(model, 2)).worst > 25
