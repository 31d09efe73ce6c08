"""What transformers lose and what the host gains where sums are integers: ``integer-sums`` and ``int16-sums`` beside
the default.

    python benchmarks/integer_sums.py [docs/quantisation.md]

Prints the table, or puts it into the page, between its two marks. Takes minutes. Weights are random: the keyword
transformer is that of `keyword_transformer.py`, the others are networks of the zoo without their quantisation. Ranges
come from 8 random inputs, the signal-to-noise ratio from 8 others.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Mapping
from pathlib import Path

import numpy as np
import onnx
from keyword_transformer import keyword_transformer, spectra
from numpy.typing import NDArray
from onnx import TensorProto, helper, numpy_helper
from page_table import make_table

from dovetail.isa.config.resolved import Config
from dovetail.sw.frontend import load
from dovetail.sw.frontend.parsed_file import NetworkFile
from dovetail.sw.passes.float.normalise import normalise
from dovetail.sw.quantise.calibration import Calibration
from dovetail.sw.quantise.float_network import FloatGraph
from dovetail.sw.quantise.quality import Comparison
from dovetail.sw.quantise.quantiser import apply
from dovetail.sw.quantise.scheme import Scheme
from dovetail.sw.runtime.compiled_network import compile_network
from dovetail.sw.zoo import catalogue

BEGIN, END = "<!-- table: python benchmarks/integer_sums.py -->", "<!-- end of table of integer sums -->"
SMALL = {"64 KiB": Config(ic_lanes=8, oc_lanes=8, sram="64 KiB")}
NORMS = {"1 MiB, `softmax = 1`, `norm = 1`": Config(ic_lanes=8, oc_lanes=8, sram="1 MiB", softmax=1, norm=1)}
WIDE = {f"{said}, `norm_bits = 16`": config.replace(norm_bits=16) for said, config in NORMS.items()}
SCHEMES = {
    "default": (Scheme(), SMALL | NORMS),
    "`integer-sums`": (Scheme(integer_sums=True), SMALL | NORMS),
    "`int16-sums`": (Scheme(int16_sums=True), WIDE),
}
"""And the accelerators that they are for."""
COLUMNS = ("network, as float", "scheme", "output SNR", "8 x 8 with", "programs", "cycles", "host's cycles, estimated")
ZOO = ("bert_tiny", "vit_tiny")
SAMPLES = 8

Reals = NDArray[np.float32]
Samples = list[dict[str, Reals]]


def networks() -> Iterator[tuple[str, onnx.ModelProto, Samples, Samples]]:
    """(name, float network, samples for ranges, samples that are measured)"""
    for learnt, said in ((1.0, "large"), (0.02, "small")):
        network = normalise(keyword_transformer(learnt=learnt))
        yield f"keyword transformer, {said} positions", network, spectra(SAMPLES), spectra(SAMPLES, 1000)
    for name in ZOO:
        network = as_float(onnx.load_from_string(catalogue.model_bytes(name)))
        (port,) = network.graph.input
        shape = [axis.dim_value for axis in port.type.tensor_type.shape.dim]
        drawn = np.random.default_rng(0).standard_normal((2 * SAMPLES, *shape), np.float32)
        samples = [{port.name: value} for value in drawn]
        yield name, normalise(network), samples[:SAMPLES], samples[SAMPLES:]


def as_float(quantised: onnx.ModelProto) -> onnx.ModelProto:
    """A network without its quantisation: constants as the reals that they stand for, everything else in float."""
    values = {tensor.name: numpy_helper.to_array(tensor) for tensor in quantised.graph.initializer}
    same: dict[str, str] = {}
    nodes, constants = [], []
    for node in quantised.graph.node:
        source = same.get(node.input[0], node.input[0])
        if node.op_type == "DequantizeLinear" and source in values:
            constants.append(numpy_helper.from_array(_real(node, values), node.output[0]))
        elif node.op_type in ("QuantizeLinear", "DequantizeLinear"):
            same[node.output[0]] = source
        else:
            kept = onnx.NodeProto()
            kept.CopyFrom(node)
            kept.input[:] = [same.get(name, name) for name in node.input]
            nodes.append(kept)
    constants += [tensor for tensor in quantised.graph.initializer if tensor.data_type != TensorProto.INT8]
    inputs, outputs = (
        [
            helper.make_tensor_value_info(same.get(port.name, port.name), TensorProto.FLOAT, _shape(port))
            for port in ports
        ]
        for ports in (quantised.graph.input, quantised.graph.output)
    )
    graph = helper.make_graph(nodes, quantised.graph.name, inputs, outputs, constants)
    return helper.make_model(graph, opset_imports=quantised.opset_import, ir_version=quantised.ir_version)


def _real(node: onnx.NodeProto, values: Mapping[str, NDArray[np.generic]]) -> Reals:
    levels, scale, zero = (values[name].astype(np.float32) for name in node.input)
    if scale.size > 1:
        axis = next((one.i for one in node.attribute if one.name == "axis"), 1)
        along = [-1 if each == axis % levels.ndim else 1 for each in range(levels.ndim)]
        scale, zero = scale.reshape(along), zero.reshape(along)
    result: Reals = (levels - zero) * scale
    return result


def _shape(port: onnx.ValueInfoProto) -> list[int]:
    return [axis.dim_value for axis in port.type.tensor_type.shape.dim]


def rows() -> Iterator[str]:
    """Lines of the table."""
    for name, network, ranges, measured in networks():
        graph = FloatGraph(network)
        calibrated, comparison = Calibration(graph, ranges), Comparison(graph)
        for words, (scheme, configs) in SCHEMES.items():
            model = apply(calibrated, scheme).model
            noise = f"{comparison.quality(model, measured).worst:.1f} dB"
            for said, config in configs.items():
                compiled = compile_network(load(NetworkFile("network", model.SerializeToString())), config)
                report, programs = compiled.report(), len(compiled.code.segments)
                cells = name, words, noise, said, f"{programs}", f"{report.cycles:,}", f"{report.host_work.cycles:,}"
                yield f"| {' | '.join(cells)} |"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("page", nargs="?", type=Path, help="the page whose table is replaced")
    arguments = parser.parse_args()
    make_table(COLUMNS, "|---|---|---:|---|---:|---:|---:|", rows(), arguments.page, BEGIN, END)


if __name__ == "__main__":
    main()
