"""A decoder's step with a cache of keys: rotations by position, and rows that are kept."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from dovetail.isa.config.resolved import Config
from dovetail.sw.frontend import load
from dovetail.sw.frontend.onnx.uint8_form import uint8_form
from dovetail.sw.frontend.parsed_file import NetworkFile
from dovetail.sw.host.onnx_session import open_session
from dovetail.sw.network.layout import Array, Sample
from dovetail.sw.quantise.calibration import Calibration
from dovetail.sw.quantise.float_network import FloatGraph
from dovetail.sw.quantise.plan import plan
from dovetail.sw.quantise.quantiser import Quantised, apply
from dovetail.sw.quantise.scheme import Scheme
from dovetail.sw.runtime.compiled_network import compile_network
from tests.sw.quantise.test_quantise import scales_of

HEADS, DEPTH, LENGTH = 2, 8, 8
CHANNELS = HEADS * DEPTH
CACHE = (1, HEADS, LENGTH, DEPTH)


class Step:
    """Builds the step; nodes by name."""

    def __init__(self, seed: int = 3) -> None:
        random = np.random.default_rng(seed)
        angles = np.outer(np.arange(LENGTH), 0.5 ** np.arange(DEPTH // 2))
        angles = np.concatenate([angles, angles], axis=1)
        self.constants: dict[str, Array] = {
            **{name: random.normal(0, 0.25, (CHANNELS, CHANNELS)) for name in ("wq", "wk", "wo")},
            "cos_table": np.cos(angles),
            "sin_table": np.sin(angles),
            "one": np.array(1.0),
        }
        self.constants = {name: value.astype(np.float32) for name, value in self.constants.items()}
        self.constants |= {"apart": np.array([1, 1, HEADS, DEPTH]), "together": np.array([1, 1, CHANNELS])}
        self.nodes: list[onnx.NodeProto] = []
        for name in ("cos", "sin"):
            self.op("Gather", name, f"{name}_table", "pos")
        self.op("Sub", "keep", "one", "onehot")
        for name in ("q", "k"):
            self.rotated(name)
        self.op("Mul", "kept", "cache", "keep")
        self.op("Mul", "added", "k_rotated", "onehot")
        self.op("Add", "cache_out", "kept", "added")
        self.op("Transpose", "keys", "cache_out", perm=[0, 1, 3, 2])
        self.op("MatMul", "scores", "q_rotated", "keys")
        self.op("Softmax", "shares", "scores")
        self.op("MatMul", "mixed", "shares", "cache_out")
        self.op("Transpose", "turned", "mixed", perm=[0, 2, 1, 3])
        self.op("Reshape", "joined", "turned", "together")
        self.op("MatMul", "y", "joined", "wo")

    def op(self, kind: str, result: str, *inputs: str, **attributes: object) -> None:
        self.nodes.append(helper.make_node(kind, inputs, [result], result, **attributes))

    def rotated(self, name: str) -> None:
        """x * cos + (-x2, x1) * sin, each head by itself."""
        self.op("MatMul", f"{name}_row", "x", f"w{name}")
        self.op("Reshape", f"{name}_apart", f"{name}_row", "apart")
        self.op("Transpose", f"{name}_heads", f"{name}_apart", perm=[0, 2, 1, 3])
        halves = [f"{name}_low", f"{name}_high"]
        self.nodes.append(helper.make_node("Split", [f"{name}_heads"], halves, f"{name}_split", axis=3, num_outputs=2))
        self.op("Neg", f"{name}_negated", halves[1])
        self.op("Concat", f"{name}_turned", f"{name}_negated", halves[0], axis=3)
        self.op("Mul", f"{name}_straight", f"{name}_heads", "cos")
        self.op("Mul", f"{name}_across", f"{name}_turned", "sin")
        self.op("Add", f"{name}_rotated", f"{name}_straight", f"{name}_across")

    def model(self) -> onnx.ModelProto:
        ends = {
            "inputs": {"x": (1, 1, CHANNELS), "pos": (1,), "onehot": (1, 1, LENGTH, 1), "cache": CACHE},
            "outputs": {"y": (1, 1, CHANNELS), "cache_out": CACHE},
        }
        inputs, outputs = (
            [
                helper.make_tensor_value_info(name, TensorProto.INT64 if name == "pos" else TensorProto.FLOAT, shape)
                for name, shape in ends[side].items()
            ]
            for side in ("inputs", "outputs")
        )
        tensors = [numpy_helper.from_array(value, name) for name, value in self.constants.items()]
        graph = helper.make_graph(self.nodes, "step", inputs, outputs, tensors)
        return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=9)


def walk(model: onnx.ModelProto, seed: int) -> Iterator[tuple[Sample, dict[str, Array]]]:
    """Inputs and results of each position in turn, the cache handed on."""
    session = open_session(model.SerializeToString())
    random, cache = np.random.default_rng(seed), np.zeros(CACHE, np.float32)
    names = [value.name for value in session.get_outputs()]
    for position in range(LENGTH):
        sample: Sample = {
            "x": random.normal(0, 1, (1, 1, CHANNELS)).astype(np.float32),
            "pos": np.array([position]),
            "onehot": (np.arange(LENGTH) == position).astype(np.float32).reshape(1, 1, LENGTH, 1),
            "cache": cache,
        }
        results = dict(zip(names, session.run(None, sample), strict=True))
        yield sample, results
        cache = results["cache_out"]


@pytest.fixture(scope="module")
def quantised() -> Quantised:
    model = Step().model()
    samples = [sample for seed in range(3) for sample, _ in walk(model, seed)]
    return apply(Calibration(FloatGraph(model), samples), Scheme())


def test_rotations_are_integer(quantised: Quantised) -> None:
    """Their factors come from a table, by position. Softmax and the table's rows are the host's."""
    assert sorted(quantised.plan.floating) == ["cos", "shares", "sin"]


def test_rotations_stay_float_on_wish() -> None:
    model = Step().model()
    scheme = Scheme(keep_float=("cos", "sin"))
    found = plan(FloatGraph(model), scheme)
    rotation = {f"{name}_{part}" for name in "qk" for part in ("straight", "across", "rotated")}
    assert rotation < set(found.floating)


def test_factors_have_the_range_of_the_whole_table(quantised: Quantised) -> None:
    """Not of the positions that calibration saw."""
    model = Step().model()
    samples = [sample for sample, _ in walk(model, 0)][:1]  # cos 1, sin 0
    scales = scales_of(apply(Calibration(FloatGraph(model), samples), Scheme()).model)
    for name, (scale, zero) in {name: scales[name] for name in ("cos", "sin")}.items():
        table = Step().constants[f"{name}_table"]
        assert (-129 - zero) * scale < table.min() and table.max() < (128 - zero) * scale


def test_a_cache_is_rounded_once(quantised: Quantised) -> None:
    """Every row stays what it was when it came in."""
    scales = {name.removesuffix("_QuantizeLinear_Input"): each for name, each in scales_of(quantised.model).items()}
    alike = ("cache", "kept", "added", "k_rotated", "cache_out")
    assert len({scales[name] for name in alike}) == 1
    caches = [results["cache_out"] for _, results in walk(quantised.model, 11)]
    for position, cache in enumerate(caches):
        np.testing.assert_array_equal(cache[:, :, : position + 1], caches[-1][:, :, : position + 1])
    exact = [results["cache_out"] for _, results in walk(Step().model(), 11)]
    assert np.median(np.abs(caches[-1] - exact[-1])) < scales["cache"][0]


def test_a_cache_stays_in_the_order_of_the_file(quantised: Quantised) -> None:
    """Products read its rows, not images: no byte moves but those of the new row's halves."""
    graph = load(NetworkFile("step", quantised.model.SerializeToString(), states={}))
    assert {port.name for port in graph.inputs if not port.layout.is_plain} == set()
    assert [node.name for node in graph.nodes if node.op == "transpose"] == []


def test_outputs_equal_the_integer_kernels(quantised: Quantised) -> None:
    compiled = compile_network(load(NetworkFile("step", quantised.model.SerializeToString(), states={})), Config())
    for sample, expected in walk(uint8_form(quantised.model), 12):
        outputs = compiled.run(sample).outputs
        for name, value in expected.items():
            np.testing.assert_array_equal(outputs[name], value)
