"""ONNX Runtime's operators of transformers, spelled out: the same numbers, in the runtime itself."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import pytest
from onnx import helper, numpy_helper

from dovetail.sw.errors import NetworkError
from dovetail.sw.frontend.onnx.parsed import ParsedOnnx
from dovetail.sw.frontend.parsed_file import NetworkFile
from dovetail.sw.host.onnx_session import open_session
from dovetail.sw.network.layout import Array
from dovetail.sw.passes.float.normalise import normalise

TOKENS, CHANNELS, HEADS, GROUPS = 5, 64, 4, 2
DEPTH = CHANNELS // HEADS


def reals(*shape: int, seed: int = 0) -> Array:
    return np.random.default_rng([seed, *shape]).normal(0, 1, shape).astype(np.float32)


def model(
    kind: str,
    inputs: dict[str, Array | None],
    outputs: list[str],
    constants: dict[str, Array],
    opset: int = 17,
    **attributes: Any,
) -> onnx.ModelProto:
    """One node; ``inputs``: values by name in order, None for a constant or one that is left out ("")."""
    names = ["" if name.startswith("-") else name for name in inputs]
    domain = "" if kind == "SimplifiedLayerNormalization" else "com.microsoft"
    node = helper.make_node(kind, names, outputs, "it", domain=domain, **attributes)
    values = [
        helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(value.dtype), value.shape)
        for name, value in inputs.items()
        if value is not None
    ]
    tensors = [numpy_helper.from_array(value, name) for name, value in constants.items()]
    ends = [helper.make_tensor_value_info(name, 1, None) for name in outputs if name]
    graph = helper.make_graph([node], "g", values, ends, tensors)
    opsets = [helper.make_opsetid("", opset), helper.make_opsetid("com.microsoft", 1)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=9)


def ran(proto: onnx.ModelProto, inputs: dict[str, Array | None]) -> dict[str, Array]:
    session = open_session(proto.SerializeToString())
    wanted = {value.name for value in session.get_inputs()}
    names = [value.name for value in session.get_outputs()]
    given = {name: value for name, value in inputs.items() if name in wanted}
    return dict(zip(names, session.run(names, given), strict=True))


def spelled(proto: onnx.ModelProto) -> onnx.ModelProto:
    return ParsedOnnx(NetworkFile("net", proto.SerializeToString(), states={})).as_onnx()


def same(proto: onnx.ModelProto, inputs: dict[str, Array | None]) -> onnx.ModelProto:
    """Check that what is spelled out gives the operator's results, normalised too."""
    expected, plain = ran(proto, inputs), spelled(proto)
    assert not [node.op_type for node in plain.graph.node if node.domain]
    for form in (plain, normalise(plain)):
        found = ran(form, inputs)
        assert found.keys() == expected.keys()
        for name, value in expected.items():
            np.testing.assert_allclose(found[name], value, rtol=1e-4, atol=1e-5, err_msg=name)
    return normalise(plain)


X = reals(1, TOKENS, CHANNELS)
GAIN, OFFSET, BIAS = reals(CHANNELS, seed=1), reals(CHANNELS, seed=2), reals(CHANNELS, seed=3)


@pytest.mark.parametrize("opset", [17, 20])
def test_rms_norm(opset: int) -> None:
    inputs = {"x": X, "gain": None}
    found = same(model("SimplifiedLayerNormalization", inputs, ["y"], {"gain": GAIN}, opset, epsilon=1e-3), inputs)
    assert [node.op_type for node in found.graph.node] == ["RMSNormalization"]


@pytest.mark.parametrize("biased", [False, True])
@pytest.mark.parametrize("outputs", [["y"], ["y", "", "", "sum"]])
@pytest.mark.parametrize("kind", ["SkipSimplifiedLayerNormalization", "SkipLayerNormalization"])
def test_norms_of_sums(kind: str, outputs: list[str], biased: bool) -> None:
    inputs: dict[str, Array | None] = {"x": X, "skip": reals(1, TOKENS, CHANNELS, seed=4), "gain": None}
    if kind == "SkipLayerNormalization":
        inputs["offset"] = None
    if biased:
        inputs["bias"] = None
    constants = {"gain": GAIN, "offset": OFFSET, "bias": BIAS}
    constants = {name: value for name, value in constants.items() if name in inputs}
    found = same(model(kind, inputs, outputs, constants, epsilon=1e-5), inputs)
    norms = {"SkipLayerNormalization": "LayerNormalization"}.get(kind, "RMSNormalization")
    assert [node.op_type for node in found.graph.node].count(norms) == 1


def tables(rows: int = 12) -> dict[str, Array]:
    angles = np.outer(np.arange(rows), 0.3 ** np.arange(DEPTH // 2)).astype(np.float32)
    return {"cos": np.cos(angles), "sin": np.sin(angles)}


@pytest.mark.parametrize("places", [np.array([3]), np.array([[3, 4, 5, 6, 7]]), np.array([[7, 0, 2, 1, 11]])])
@pytest.mark.parametrize("apart", [False, True])
def test_rotary_positions(places: Array, apart: bool) -> None:
    x = reals(1, HEADS, TOKENS, DEPTH) if apart else X
    inputs = {"x": x, "places": places, "cos": None, "sin": None}
    more = {} if apart else {"num_heads": HEADS, "rotary_embedding_dim": 0}
    same(model("RotaryEmbedding", inputs, ["y"], tables(), **more), inputs)


@pytest.mark.parametrize("biased", [False, True])
@pytest.mark.parametrize("scale", [None, 0.7])
def test_multi_head_attention(biased: bool, scale: float | None) -> None:
    others = {name: reals(1, 7, CHANNELS, seed=seed) for seed, name in enumerate(("key", "value"), 5)}
    inputs: dict[str, Array | None] = {"query": X, **others}
    constants = {}
    if biased:
        inputs |= {"bias": None, "-mask": None, "scores": reals(1, HEADS, TOKENS, 7, seed=8)}
        constants["bias"] = reals(3 * CHANNELS, seed=9)
    more: dict[str, Any] = {} if scale is None else {"scale": scale}
    same(model("MultiHeadAttention", inputs, ["y"], constants, num_heads=HEADS, **more), inputs)


def test_multi_head_attention_with_a_cache() -> None:
    row = {name: reals(1, 1, CHANNELS, seed=seed) for seed, name in enumerate(("query", "key", "value"), 5)}
    past = {name: reals(1, HEADS, 6, DEPTH, seed=seed) for seed, name in enumerate(("past_k", "past_v"), 10)}
    inputs: dict[str, Array | None] = {**row, "-bias": None, "-mask": None, "-scores": None, **past}
    same(model("MultiHeadAttention", inputs, ["y", "present_k", "present_v"], {}, num_heads=HEADS), inputs)


@pytest.mark.parametrize("opset", [17, 20])
def test_attention(opset: int) -> None:
    inputs = {"x": X, "weights": None, "bias": None}
    constants = {"weights": reals(CHANNELS, 3 * CHANNELS), "bias": reals(3 * CHANNELS)}
    same(model("Attention", inputs, ["y"], constants, opset, num_heads=HEADS), inputs)


def grouped(past: int, **more: Any) -> tuple[onnx.ModelProto, dict[str, Array | None]]:
    wide = GROUPS * DEPTH
    inputs: dict[str, Array | None] = {
        "query": reals(1, 1, CHANNELS, seed=1),
        "key": reals(1, 1, wide, seed=2),
        "value": reals(1, 1, wide, seed=3),
        "past_k": reals(1, GROUPS, past, DEPTH, seed=4),
        "past_v": reals(1, GROUPS, past, DEPTH, seed=5),
        "seqlens_k": np.array([past], np.int32),
        "total": np.array(past + 1, np.int32),
        "cos": None,
        "sin": None,
    }
    attributes: dict[str, Any] = {"num_heads": HEADS, "kv_num_heads": GROUPS, "do_rotary": 1, **more}
    return model("GroupQueryAttention", inputs, ["y", "present_k", "present_v"], tables(), **attributes), inputs


@pytest.mark.parametrize("scale", [{}, {"scale": 0.4}])
def test_group_query_attention(scale: dict[str, float]) -> None:
    proto, inputs = grouped(6, **scale)
    found = same(proto, inputs)
    assert "total" not in {value.name for value in found.graph.input}


def test_a_grouped_cache_gets_a_fixed_length() -> None:
    """One that grows in the file; its position is the runtime's ``seqlens_k``."""
    proto, inputs = grouped(3)
    for value in proto.graph.input:
        if value.name.startswith("past"):
            value.type.tensor_type.shape.dim[2].dim_param = "past"
    file = NetworkFile("net", proto.SerializeToString())
    source = ParsedOnnx(file, {"past_k": (1, GROUPS, 8, DEPTH), "past_v": (1, GROUPS, 8, DEPTH)})
    assert source.states == {"past_k": "present_k", "past_v": "present_v"}
    padded = dict(inputs)
    for name in source.states:
        value = inputs[name]
        assert value is not None
        padded[name] = np.concatenate([value, np.full((1, GROUPS, 5, DEPTH), 9, np.float32)], axis=2)
    expected, found = ran(proto, inputs), ran(source.as_onnx(), padded)
    np.testing.assert_allclose(found["y"], expected["y"], atol=1e-5)
    np.testing.assert_allclose(found["present_k"][:, :, :4], expected["present_k"], atol=1e-5)


@pytest.mark.parametrize(
    ("proto", "message"),
    [
        (grouped(6, local_window_size=4)[0], "node 'it' (GroupQueryAttention): local_window_size must be -1, not 4"),
        (grouped(6, softcap=2.0)[0], "softcap must be 0, not 2.0; export without it"),
        (
            model("RotaryEmbedding", {"x": X, "p": X, "cos": None, "sin": None}, ["y"], tables(), interleaved=1),
            "node 'it' (RotaryEmbedding): interleaved must be 0, not 1; export without it",
        ),
        (
            model("Attention", {"x": X, "w": X, "b": X, "m": X}, ["y"], {}, num_heads=4),
            "node 'it' (Attention): input mask_index must be left out, not 'm'; export without it",
        ),
        (
            model("MultiHeadAttention", {"qkv": reals(1, 5, 4, 3, 4)}, ["y"], {}, num_heads=4),
            "node 'it' (MultiHeadAttention): query, key and value must be inputs of their own",
        ),
        (
            model("SkipLayerNormalization", {"x": X, "s": X, "gain": None}, ["y", "mean"], {"gain": GAIN}),
            "node 'it' (SkipLayerNormalization): mean and deviation must not be read; export for inference",
        ),
    ],
)
def test_what_is_not_spelled_out(proto: onnx.ModelProto, message: str) -> None:
    with pytest.raises(NetworkError) as caught:
        spelled(proto)
    assert f"net: {message}" in str(caught.value) or message in str(caught.value)


def test_a_prefill_of_grouped_queries_is_refused() -> None:
    proto, _ = grouped(6)
    proto.graph.input[0].type.tensor_type.shape.dim[1].dim_value = 3
    with pytest.raises(NetworkError, match=r"query must be of one token, \(1, 1, C\), not \(1, 3, 64\); export a step"):
        spelled(proto)
