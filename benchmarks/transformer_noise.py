"""Signal over noise of quantised transformers: ONNX Runtime's quantiser and `dovetail quantise` on the same nodes, the
matrix products, and what more in integers costs.

    python benchmarks/transformer_noise.py [docs/quantisation.md] [--cct FILE]

Prints the table, or puts it into the page, between its two marks. Takes minutes. The networks are those of
`integer_sums.py`, and CCT-2 if its ONNX FILE is given. What comes out depends on the inputs, by decibels. So these are
drawn several times, and the table has the mean, the least and the most.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import onnx
from integer_sums import Samples, networks
from onnxruntime.quantization import CalibrationDataReader, CalibrationMethod, QuantType, quantize_static
from page_table import make_table
from quantisation import products_alone

from dovetail.sw.passes.float.normalise import normalise
from dovetail.sw.quantise.calibration import Calibration
from dovetail.sw.quantise.float_network import FloatGraph
from dovetail.sw.quantise.quality import Comparison
from dovetail.sw.quantise.quantiser import apply
from dovetail.sw.quantise.scheme import DEFAULT, Scheme

BEGIN, END = "<!-- table: python benchmarks/transformer_noise.py -->", "<!-- end of table of noise -->"
COLUMNS = (
    "",
    "ONNX Runtime, matrix products",
    "matrix products",
    "default",
    "`integer-sums int32-last`",
    "`int16-sums int32-last`",
)
WHOLE = Scheme(integer_sums=True, int32_last=True), Scheme(int16_sums=True, int32_last=True)
DRAWS, MEASURED = 4, 2
"""How often inputs are drawn; how many are measured for each that ranges come from."""
RANGES = 8
CCT_RANGES = 64
"""Inputs that ranges come from."""


class Reader(CalibrationDataReader):  # type: ignore[misc]
    """Samples as ONNX Runtime's quantiser asks for them."""

    def __init__(self, samples: Samples) -> None:
        self.samples = iter(samples)

    def get_next(self) -> dict[str, np.ndarray] | None:
        return next(self.samples, None)


def by_onnx_runtime(model: onnx.ModelProto, samples: Samples) -> Iterator[onnx.ModelProto]:
    """Matrix products in int8 with a scale per channel of weights; activations with a zero point, and without."""
    with TemporaryDirectory() as folder:
        source, target = f"{folder}/float.onnx", f"{folder}/int8.onnx"
        onnx.save(model, source)
        for symmetric in (False, True):
            quantize_static(
                source,
                target,
                Reader(samples),
                op_types_to_quantize=["MatMul", "Gemm"],
                per_channel=True,
                activation_type=QuantType.QInt8,
                weight_type=QuantType.QInt8,
                calibrate_method=CalibrationMethod.MinMax,
                extra_options={"ActivationSymmetric": symmetric},
            )
            yield onnx.load(target)


def draw(model: onnx.ModelProto, seed: int, count: int) -> Samples:
    """Normally distributed inputs."""
    (port,) = model.graph.input
    shape = [axis.dim_value for axis in port.type.tensor_type.shape.dim]
    return [{port.name: value} for value in np.random.default_rng(seed).standard_normal((count, *shape), np.float32)]


def row(name: str, model: onnx.ModelProto, count: int, *, float_first: bool = False) -> str:
    """A line of the table: ranges come from so many inputs; the first layer may stay float, as for ONNX Runtime."""
    graph = FloatGraph(model)
    comparison, found = Comparison(graph), []
    for seed in range(DRAWS):
        ranges, measured = draw(model, seed, count), draw(model, DRAWS + seed, MEASURED * count)
        calibrated = Calibration(graph, ranges)
        theirs = max(comparison.quality(made, measured).worst for made in by_onnx_runtime(graph.model, ranges))
        schemes = [replace(each, float_first=float_first) for each in (products_alone(graph), DEFAULT, *WHOLE)]
        ours = [comparison.quality(apply(calibrated, scheme).model, measured).worst for scheme in schemes]
        found.append([theirs, *ours])
    cells = (f"{np.mean(noise):.1f} dB ({min(noise):.1f} to {max(noise):.1f})" for noise in zip(*found, strict=True))
    return f"| {' | '.join([name, *cells])} |"


def rows(cct: Path | None) -> Iterator[str]:
    """Lines of the table."""
    if cct:
        model = normalise(onnx.load(cct))
        yield row("CCT-2", model, CCT_RANGES)
        yield row("CCT-2, its convolution in float", model, CCT_RANGES, float_first=True)
    for name, model, *_ in networks():
        yield row(name, model, RANGES)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("page", nargs="?", type=Path, help="the page whose table is replaced")
    parser.add_argument("--cct", type=Path, metavar="FILE", help="CCT-2 as ONNX")
    arguments = parser.parse_args()
    make_table(COLUMNS, "|---|---:|---:|---:|---:|---:|", rows(arguments.cct), arguments.page, BEGIN, END)


if __name__ == "__main__":
    main()
