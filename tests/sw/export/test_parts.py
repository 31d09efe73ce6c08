"""Exported parts are valid ONNX, and one after the other they give what the compiled network gives."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
import yaml
from onnx import TensorProto, helper, numpy_helper

from dovetail.flows.cli import main
from dovetail.isa.config.resolved import Config
from dovetail.isa.numerics.rounding import Rounding
from dovetail.isa.program import Program
from dovetail.sw.compiler.compile import generate
from dovetail.sw.compiler.options import Options
from dovetail.sw.compiler.partition.host_cost import default_host
from dovetail.sw.errors import NetworkError
from dovetail.sw.export.parts.folder import MANIFEST, PROGRAM, export, run_parts
from dovetail.sw.files.portable import sha256
from dovetail.sw.network import ir
from dovetail.sw.network.layout import Array
from dovetail.sw.random.networks import RandomNet, random_network
from dovetail.sw.runtime.compiled_network import CompiledNetwork, compile_network
from tests.slow import slow
from tests.sw.frontend.test_float_products import CHANNELS, DEPTH, Product
from tests.sw.streams import post_norm, pre_norm, sums_only

MODELS = Path(__file__).parents[4] / "shared" / "models" / "mlperf_tiny"
CONFIG = Config(ic_lanes=8, oc_lanes=8, sram="128 KiB")
BARE = Config(ic_lanes=4, oc_lanes=4, depthwise="none", matmul=False, pooling=False)


def inputs_of(graph: ir.Graph, seed: int = 0) -> dict[str, Array]:
    rng = np.random.default_rng(seed)
    found: dict[str, Array] = {}
    for port in graph.inputs:
        if port.dtype == "float32":
            found[port.name] = rng.standard_normal(port.shape).astype(np.float32)
        else:
            info = np.iinfo(port.dtype)
            found[port.name] = rng.integers(info.min, info.max, port.shape, np.dtype(port.dtype), endpoint=True)
    return found


def exported(compiled: CompiledNetwork, folder: Path) -> dict[str, Any]:
    """Export; every file is as the manifest says, and valid."""
    manifest = export(compiled, folder)
    assert yaml.safe_load((folder / MANIFEST).read_text()) == manifest
    for part in manifest["parts"]:
        data = (folder / part["file"]).read_bytes()
        assert sha256(data) == part["sha256"]
        if part["file"].endswith(".onnx"):
            model = onnx.load_model_from_string(data)
            onnx.checker.check_model(model, full_check=True)
            assert [port.name for port in model.graph.input] == [port["name"] for port in part["inputs"]]
            for port, declared in zip(model.graph.output, part["outputs"], strict=True):
                assert port.name == declared["name"]
                assert [dim.dim_value for dim in port.type.tensor_type.shape.dim] == declared["shape"]
    return manifest


def differing(compiled: CompiledNetwork, folder: Path, seed: int = 0) -> int:
    inputs = inputs_of(compiled.graph, seed)
    wanted, found = compiled.run(inputs).outputs, run_parts(folder, inputs)
    assert list(wanted) == list(found)
    for name, value in wanted.items():
        assert (value.shape, value.dtype) == (found[name].shape, found[name].dtype)
    return sum(int(np.sum(value != found[name])) for name, value in wanted.items())


@pytest.mark.parametrize("config", [CONFIG, BARE], ids=["all", "bare"])
@pytest.mark.parametrize(
    "name",
    ["attention_block", "hard_swish_block", "inception_block", "shuffle_block", "mobilenet_v2_block", "bert_tiny"],
)
def test_parts_one_after_the_other_equal_the_program(name: str, config: Config, tmp_path: Path) -> None:
    compiled = compile_network(f"zoo:{name}", config)
    manifest = exported(compiled, tmp_path)
    assert all(part["exact"] for part in manifest["parts"])
    assert differing(compiled, tmp_path) == 0


def test_instructions_in_the_place_of_host_nodes_are_written_as_in_the_file(tmp_path: Path) -> None:
    """A norm is one step off ONNX Runtime's at most, and the manifest says so; softmax is exact."""
    config = replace(CONFIG, softmax=1, norm=1)
    block = compile_network("zoo:attention_block", config)
    (part,) = exported(block, tmp_path / "block")["parts"]
    assert part["exact"] and differing(block, tmp_path / "block") == 0
    for name, norms in (("bert_tiny?depth=1&tokens=6&channels=16", 2), ("cct?depth=1&channels=16&resolution=16", 3)):
        folder = tmp_path / name.partition("?")[0]
        (part,) = exported(compile_network(f"zoo:{name}", config), folder)["parts"]
        assert not part["exact"]
        model = onnx.load_model(folder / part["file"])
        assert [node.op_type for node in model.graph.node].count("LayerNormalization") == norms


@pytest.mark.parametrize("norm_bits", [8, 16])
def test_streams_of_16_bits(norm_bits: int, tmp_path: Path) -> None:
    for make in (pre_norm, post_norm, sums_only):
        onnx.save(make(), tmp_path / "streams.onnx")
        config = replace(CONFIG, softmax=1, norm=1, norm_bits=norm_bits)
        compiled = compile_network(tmp_path / "streams.onnx", config, effort=0)
        parts = exported(compiled, tmp_path / make.__name__)["parts"]
        exact = make is sums_only or norm_bits == 8
        assert all(part["exact"] for part in parts) == exact
        if exact:
            assert differing(compiled, tmp_path / make.__name__) == 0


@pytest.mark.parametrize("seed", [slow(seed) if seed > 8 else seed for seed in range(1, 25, 2)])
def test_random_networks(seed: int, tmp_path: Path) -> None:
    graph = random_network(seed, 8)
    for number, config in enumerate((CONFIG, BARE)):
        compiled = CompiledNetwork(generate(graph, config, Options(host=replace(default_host(), round_trip=0))))
        manifest = exported(compiled, tmp_path / str(number))
        assert all(part["exact"] for part in manifest["parts"])
        assert differing(compiled, tmp_path / str(number)) == 0


@pytest.mark.parametrize("config", [CONFIG, BARE], ids=["all", "bare"])
def test_sums_that_the_host_scales(config: Config, tmp_path: Path) -> None:
    """Of weights, of two tensors, and around a zero point of the run."""
    net = Product(np.uint8, per_channel=False)
    x = net.input((1, 5, DEPTH), (0.04, 3))
    net.done(net.op("MatMul", x, net.op("Transpose", net.input((1, 5, DEPTH), (0.03, -9)), perm=[0, 2, 1])))
    levels, _, zero = net.op("DynamicQuantizeLinear", net.op("MatMul", x, net.weights()), outputs=3)
    weights = np.random.default_rng(1).integers(-128, 128, (CHANNELS, 6)).astype(np.int8)
    net.done(net.op("MatMulInteger", levels, net.constant(weights), zero))
    path = tmp_path / "net.onnx"
    path.write_bytes(net.model())
    compiled = compile_network(path, config, host=replace(default_host(), round_trip=0))
    exported(compiled, tmp_path)
    assert differing(compiled, tmp_path) == 0


def test_host_operators_in_one_part_and_a_convolution_alone(norm_network: bytes, tmp_path: Path) -> None:
    path = tmp_path / "net.onnx"
    path.write_bytes(norm_network)
    compiled = compile_network(path, CONFIG)
    manifest = exported(compiled, tmp_path)
    kinds = [[node["kind"] for node in part["nodes"]] for part in manifest["parts"]]
    assert ["conv"] in kinds
    assert ["dequantize", "reducemean", "sub", "pow", "reducemean", "add", "sqrt", "div", "mul", "reshape"] in kinds
    assert [differing(compiled, tmp_path, seed) for seed in range(3)] == [0, 0, 0]


def test_the_manifest_names_program_segments_borders_and_reasons(tmp_path: Path) -> None:
    compiled = compile_network("zoo:attention_block", CONFIG)
    manifest = exported(compiled, tmp_path)
    parts = manifest["parts"]
    assert [(part["runs_on"], part.get("segment")) for part in parts] == [
        ("accelerator", 0),
        ("host", None),
        ("accelerator", 1),
    ]
    program = Program.load(tmp_path / PROGRAM)
    assert program.config.hash == int(manifest["configuration"]["hash"], 16)
    assert len(program.segments) == 2
    (scores,) = parts[1]["inputs"]
    tensor = compiled.graph.tensors[scores["name"]]
    assert tuple(scores["shape"]) == tensor.shape
    assert scores["scale"] == float(np.float32(tensor.scale))
    assert scores["address"] == compiled.code.where[scores["name"]]
    assert {node["name"]: node.get("reason") for node in parts[1]["nodes"]}["softmax"] == (
        "the configuration has softmax = 0"
    )
    assert manifest["inputs"][0]["shape"] == [1, 16, 32]


@pytest.mark.skipif(not MODELS.is_dir(), reason="the trained networks are not beside the project")
@pytest.mark.parametrize("stem", ["ic_resnet8/resnet8", "kws_dscnn/kws"])
def test_a_trained_network(stem: str, tmp_path: Path) -> None:
    compiled = compile_network(MODELS / f"{stem}_int8_qdq.onnx", CONFIG)
    manifest = exported(compiled, tmp_path)
    assert manifest["rounding"] == "onnx"
    assert differing(compiled, tmp_path) == 0


@pytest.mark.skipif(not MODELS.is_dir(), reason="the trained networks are not beside the project")
def test_a_tflite_network_says_that_its_roundings_are_others(tmp_path: Path) -> None:
    compiled = compile_network(MODELS / "kws_dscnn/kws_int8.tflite", CONFIG)
    manifest = exported(compiled, tmp_path)
    assert manifest["rounding"] == "tflite"
    files = [(part["file"], part["exact"]) for part in manifest["parts"]]
    assert files == [("00_accelerator.onnx", False), ("01_host.tflite", True)]
    inputs = inputs_of(compiled.graph)
    wanted, found = compiled.run(inputs).outputs, run_parts(tmp_path, inputs)
    for name, value in wanted.items():
        assert np.abs(value.astype(int) - found[name]).max() <= 2


def test_tflite_roundings_of_one_convolution_are_a_step_apart_at_most(tmp_path: Path) -> None:
    net = RandomNet(3, Rounding.TFLITE)
    compiled = CompiledNetwork(generate(net.graph(net.conv(net.input(1, 20, 20, 8), 16)), CONFIG, Options()))
    (part,) = exported(compiled, tmp_path)["parts"]
    assert not part["exact"]
    inputs = inputs_of(compiled.graph)
    ((wanted,), (found,)) = compiled.run(inputs).outputs.values(), run_parts(tmp_path, inputs).values()
    assert np.abs(wanted.astype(int) - found).max() <= 1
    assert np.mean(wanted != found) < 0.01


def uint8_network() -> bytes:
    """uint8 in and out, the input an output too, and used twice."""
    constants = {"s": np.float32(0.1), "z": np.uint8(120), "w": np.ones((4, 3, 1, 1), np.int8), "zw": np.int8(0)}
    nodes = [
        helper.make_node("DequantizeLinear", ["x", "s", "z"], ["xr"]),
        helper.make_node("DequantizeLinear", ["w", "s", "zw"], ["wr"]),
        helper.make_node("Conv", ["xr", "wr"], ["c"]),
        helper.make_node("QuantizeLinear", ["c", "s", "z"], ["y"]),
        helper.make_node("DequantizeLinear", ["y", "s", "z"], ["yr"]),
        helper.make_node("Identity", ["x"], ["same"]),
    ]
    image, out = [1, 3, 5, 6], [1, 4, 5, 6]
    graph = helper.make_graph(
        nodes,
        "net",
        [helper.make_tensor_value_info("x", TensorProto.UINT8, image)],
        [
            helper.make_tensor_value_info("y", TensorProto.UINT8, out),
            helper.make_tensor_value_info("yr", TensorProto.FLOAT, out),
            helper.make_tensor_value_info("same", TensorProto.UINT8, image),
        ],
        [numpy_helper.from_array(np.asarray(value), name) for name, value in constants.items()],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)])
    model.ir_version = 8
    return bytes(model.SerializeToString())


def test_ports_are_as_the_file_has_them(tmp_path: Path) -> None:
    path = tmp_path / "net.onnx"
    path.write_bytes(uint8_network())
    compiled = compile_network(path, CONFIG)
    manifest = exported(compiled, tmp_path)
    assert differing(compiled, tmp_path) == 0
    first, second = manifest["parts"][:2]
    assert (first["inputs"][0]["dtype"], first["inputs"][0]["shape"]) == ("uint8", [1, 3, 5, 6])
    assert [(port["name"], port["dtype"], port["shape"]) for port in first["outputs"]] == [
        ("y/inside", "int8", [1, 5, 6, 4]),
        ("y", "uint8", [1, 4, 5, 6]),
    ]
    assert second["inputs"][0]["name"] == "y/inside"


def test_a_changed_part_is_refused(tmp_path: Path) -> None:
    compiled = compile_network("zoo:autoencoder", CONFIG)
    export(compiled, tmp_path)
    inputs = inputs_of(compiled.graph)
    path = tmp_path / "00_accelerator.onnx"
    path.write_bytes(path.read_bytes() + b" ")
    with pytest.raises(NetworkError, match=r"00_accelerator.onnx: file must be as the manifest says, not changed"):
        run_parts(tmp_path, inputs)
    (tmp_path / MANIFEST).unlink()
    with pytest.raises(NetworkError, match="must be a complete export"):
        run_parts(tmp_path, inputs)


def test_on_the_command_line(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    assert main(["export", "zoo:attention_block", "--output", str(tmp_path / "parts"), "--check"]) == 0
    out = capsys.readouterr().out
    assert "part         01_host.onnx: 1 node(s): qlinearsoftmax\n" in out
    assert "check        0 of 512 elements of the outputs differ from the program's\n" in out
    assert sorted(path.name for path in (tmp_path / "parts").iterdir()) == [
        "00_accelerator.onnx",
        "01_host.onnx",
        "02_accelerator.onnx",
        MANIFEST,
        PROGRAM,
    ]


def test_a_layer_of_another_form_is_written_as_in_the_file(tmp_path: Path) -> None:
    """The accelerator has its kernels as channels, behind im2col."""
    compiled = compile_network("zoo:cct?depth=1&channels=32&resolution=16", replace(CONFIG, softmax=1, norm=1))
    assert [node.op for node in compiled.graph.nodes][:2] == ["im2col", "conv"]
    (part,) = exported(compiled, tmp_path)["parts"]
    model = onnx.load_model(tmp_path / part["file"])
    (weights,) = [one for one in model.graph.initializer if one.dims == [32, 3, 7, 7]]
    assert weights.name.startswith("patches") and "Pad" not in {node.op_type for node in model.graph.node}
