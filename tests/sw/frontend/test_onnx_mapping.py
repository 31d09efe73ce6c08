"""What the front end makes of operators for which an extension has an instruction, with instructions that every
accelerator has in the place of an extension's."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import helper

from dovetail.isa import extensions
from dovetail.isa.config.resolved import Config
from dovetail.isa.instructions.table import Op
from dovetail.isa.numerics.add import onnx_sum
from dovetail.isa.numerics.rounding import Rounding
from dovetail.isa.numerics.vector import VectorOperation, VectorParameters
from dovetail.sw import frontend
from dovetail.sw.compiler.options import Options
from dovetail.sw.compiler.partition.segments import host_reasons
from dovetail.sw.frontend.onnx.mapping import OnnxMapping
from dovetail.sw.frontend.onnx.values import Quant
from dovetail.sw.frontend.parsed_file import NetworkFile
from dovetail.sw.host.onnx_session import open_session
from dovetail.sw.network import ir, reference
from tests.sw.frontend.test_onnx_operators import Qdq

DOMAIN = "tests.own"
A, B, Y = (0.0517, -7), (0.0303, 11), (0.0639, 3)


def difference(a: Quant, b: Quant, target: Quant, attributes: Mapping[str, Any]) -> VectorParameters | None:
    za, zb, zy = (quant.zero_point for quant in (a, b, target))
    sa, sb, sy = (float(quant.scale) for quant in (a, b, target))
    return onnx_sum(sa, za, sb, zb, sy, zy, operation=VectorOperation.SUBTRACT)


def network(dtype: type[np.int8] | type[np.uint8] = np.int8) -> bytes:
    """A function of a domain of its own, which the file holds: a - b, of an image and a value per channel."""
    net = Qdq(dtype)
    a = net.input((1, 8, 5, 6), A)
    b = net.dequantised(np.arange(-60, 60, 15, dtype=np.int8).reshape(8, 1, 1), B)
    net.output(net.op("Sub", a, b), Y)
    model = onnx.load_model_from_string(net.model())
    (node,) = (node for node in model.graph.node if node.op_type == "Sub")
    node.op_type, node.domain = "Less", DOMAIN
    body = [helper.make_node("Sub", ["a", "b"], ["y"])]
    opsets = [helper.make_opsetid("", net.opset)]
    model.functions.append(helper.make_function(DOMAIN, "Less", ["a", "b"], ["y"], body, opsets))
    model.opset_import.append(helper.make_opsetid(DOMAIN, 1))
    return bytes(model.SerializeToString())


@pytest.fixture
def share(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Lets an extension have mappings."""

    def put(*mappings: OnnxMapping) -> None:
        monkeypatch.setattr(extensions, "shares", lambda group: {"own": mappings} if group == "dovetail.onnx" else {})

    return put


def check(data: bytes, graph: ir.Graph) -> None:
    """The network's output is ONNX Runtime's; that is named by the file, other outputs are not compared."""
    session = open_session(data)
    random = np.random.default_rng(3)
    for _ in range(4):
        inputs = {port.name: random.integers(0, 100, port.shape).astype(port.dtype) for port in graph.inputs}
        (wanted,) = session.run(None, inputs)
        assert np.array_equal(reference.run(graph, inputs)[graph.outputs[0].name], wanted)


@pytest.mark.parametrize("dtype", [np.int8, np.uint8])
def test_an_operator_becomes_an_instruction(share: Any, dtype: type[np.int8] | type[np.uint8]) -> None:
    data = network(dtype)
    inlined = frontend.load(NetworkFile("net", data))
    assert [node.op for node in inlined.nodes if isinstance(node, ir.Elementwise)] == ["sub"]
    share(OnnxMapping("Less", Op.E_ADD, difference, domain=DOMAIN))
    graph = frontend.load(NetworkFile("net", data))
    (node,) = (node for node in graph.nodes if isinstance(node, ir.Elementwise))
    assert (node.instruction, node.op) == (Op.E_ADD, "e_add")
    assert not any(isinstance(node, ir.Host) for node in graph.nodes)
    check(data, graph)


def test_what_is_not_exact_runs_on_the_host(share: Any) -> None:
    """However wrong an extension is: outputs are the runtime's."""

    def wrong(*given: Any) -> VectorParameters | None:
        params = difference(*given)
        return None if params is None else replace(params, zy=params.zy + 1)

    data = network()
    share(OnnxMapping("Less", Op.E_ADD, wrong, domain=DOMAIN))
    graph = frontend.load(NetworkFile("net", data))
    reasons = host_reasons(Config(), Options(), graph)
    (reason,) = (text for text in reasons.values() if "E_ADD" in text)
    assert reason.startswith("E_ADD is not ONNX Runtime's Less for ") and reason.endswith(" of 65536 pairs of bytes")
    check(data, graph)
    share(OnnxMapping("Less", Op.E_ADD, lambda *given: None, domain=DOMAIN))
    graph = frontend.load(NetworkFile("net", data))
    assert "E_ADD cannot be told to do this" in host_reasons(Config(), Options(), graph).values()
    check(data, graph)


@pytest.mark.parametrize("dtype", [np.int8, np.uint8])
def test_an_operator_on_integers(share: Any, dtype: type[np.int8] | type[np.uint8]) -> None:
    """The maximum of the bytes themselves, which in uint8 files is that of int8 inside; their product is not."""

    def wrapping(a: Quant, b: Quant, target: Quant, attributes: Mapping[str, Any]) -> VectorParameters | None:
        return VectorParameters(rounding=Rounding.ONNX, za=0, zb=0, zy=0)

    net = Qdq(dtype)
    a, b = (net.op("QuantizeLinear", net.input((1, 8, 5, 6), A), *net.scales(B)) for _ in range(2))
    net.output(net.op("DequantizeLinear", net.op("Max", a, b), *net.scales(B)), Y)
    data = net.model()
    graph = frontend.load(NetworkFile("net", data))
    assert [node.op for node in graph.nodes if isinstance(node, ir.Elementwise | ir.Host)] == ["c_max"]
    check(data, graph)
    share(OnnxMapping("Max", Op.E_MUL, wrapping, integers=True))
    graph = frontend.load(NetworkFile("net", data))
    assert [node.op for node in graph.nodes if isinstance(node, ir.Elementwise | ir.Host)] == ["max"]
    check(data, graph)
