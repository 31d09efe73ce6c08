"""Post-training quantisation of trained float networks, scheme by scheme.

    python benchmarks/quantisation.py MODELS [docs/quantisation.md]

MODELS is the folder with the reference data. Prints the table, or puts it into the page, between its two marks. Takes
minutes. The transformer's weights are random (`keyword_transformer.py`).
"""

import argparse
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import chain
from pathlib import Path

import numpy as np
import onnx
from keyword_transformer import keyword_transformer, spectra
from numpy.typing import NDArray
from page_table import make_table

from dovetail.sw.frontend import load
from dovetail.sw.frontend.onnx.uint8_form import uint8_form
from dovetail.sw.host.onnx_session import open_session
from dovetail.sw.network.layout import Array, Sample
from dovetail.sw.passes.float.normalise import normalise
from dovetail.sw.quantise.automatic import Goal, search
from dovetail.sw.quantise.calibration import Calibration
from dovetail.sw.quantise.float_network import FloatGraph, read_float
from dovetail.sw.quantise.quality import Comparison, Quality
from dovetail.sw.quantise.quantiser import apply
from dovetail.sw.quantise.scheme import Scheme

BEGIN, END = "<!-- table: python benchmarks/quantisation.py -->", "<!-- end of table -->"
COLUMNS = ("network", "scheme", "float layers", "output SNR", "samples", "float", "int8", "points below float")
PRODUCTS = ("MatMul", "Gemm", "Reshape", "Transpose")
"""Operators of matrix products, and what lies between them without computing."""
SCHEMES = (
    "power-of-two",
    "symmetric",
    "asymmetric per-tensor",
    "asymmetric minmax",
    "asymmetric kl",
    "asymmetric uncorrected",
    "asymmetric",
)
TRANSFORMER_SCHEMES = (*SCHEMES, "integer-sums")

Reals = NDArray[np.float32]


@dataclass(frozen=True)
class Network:
    """A network of the reference data.

    Parameters
    ----------
    stem: its files, without the ending.
    calibration: file and array of unlabelled inputs; "" for the labelled inputs themselves.
    first_class: number of the output that stands for class 0.
    classifies: whether its outputs are classes; otherwise they rebuild the input.
    """

    stem: str
    calibration: str = ""
    first_class: int = 0
    classifies: bool = True


NETWORKS = (
    Network("mlperf_tiny/ic_resnet8/resnet8", "cifar10_train_200.npz:u8"),
    Network("mlperf_tiny/vww_mobilenet_v1_025/vww"),
    Network("mlperf_tiny/kws_dscnn/kws", "kws_mfcc_100.npz:x_int8"),
    Network("mlperf_tiny/ad_autoencoder/ad", classifies=False),
    Network("imagenet/mobilenet_v1_0.25_128/mobilenet_v1_0.25_128", "imagenet_224_16.npz:u8", 1),
    Network("imagenet/mobilenet_v1_1.0_224/mobilenet_v1_1.0_224", "imagenet_224_16.npz:u8", 1),
)


def rows(models: Path, network: Network) -> Iterator[str]:
    """Lines of the table."""
    stem = models / network.stem
    graph = FloatGraph(read_float(f"{stem}_float.onnx"))
    inputs, labels, calibration = data(models, network)
    name = graph.inputs[0].name
    calibrated = Calibration(graph, samples(name, calibration))
    comparison = Comparison(graph)
    given = labels if network.classifies else None
    for text in SCHEMES:
        scheme = Scheme.parse(text)
        quantised = apply(calibrated, scheme)
        quality = comparison.quality(quantised.model, samples(name, inputs), given)
        yield row(network, str(scheme), 0, quality, scores(graph.model, quantised.model, name, inputs))
    goal = Goal("accuracy", 1.0) if network.classifies else Goal("sqnr", 30.0)
    found = search(calibrated, goal, samples(name, inputs), given)
    said = f"**auto, {goal}{'' if found.met else ', not met'}**: {found.best.scheme}"
    figures = scores(graph.model, found.quantised.model, name, inputs)
    yield row(network, said, found.best.float_layers, found.best.quality, figures)


def transformer_rows() -> Iterator[str]:
    """Lines of the table for the transformer; at last one with its matrix products alone in integers."""
    for learnt, said in ((1.0, "large"), (0.02, "small")):
        graph = FloatGraph(normalise(keyword_transformer(learnt=learnt)))
        calibrated, comparison = Calibration(graph, spectra(8)), Comparison(graph)
        named = {str(scheme): scheme for scheme in map(Scheme.parse, TRANSFORMER_SCHEMES)}
        for title, scheme in (named | {"matrix products alone": products_alone(graph)}).items():
            quality = comparison.quality(apply(calibrated, scheme).model, spectra(8, 1000))
            cells = [f"transformer, {said} positions", title, "0", f"{quality.worst:.1f} dB", str(quality.samples)]
            yield f"| {' | '.join([*cells, '', '', ''])} |"


def products_alone(graph: FloatGraph) -> Scheme:
    """A scheme by which all but matrix products stays float."""
    return Scheme(keep_float=tuple(node.name for node in graph.nodes if node.op_type not in PRODUCTS))


def data(models: Path, network: Network) -> tuple[Reals, Array, Reals]:
    """(labelled inputs, the number of the right output, calibration inputs), as the float network takes them."""
    stem = models / network.stem
    port = load(f"{stem}_int8_qdq.onnx").inputs[0]
    assert port.scale is not None
    scale, zero = port.scale, port.zero_point
    held = np.load(stem.parent / "samples.npz")
    inputs = held["x_float"] if "x_float" in held else real(held["x"], scale, zero)
    labels = held["y"] + network.first_class
    if not network.calibration:
        return inputs, labels, inputs
    file, key = network.calibration.split(":")
    levels = np.load(models / "calibration" / file)[key].astype(np.float32)
    shift = 128 if key == "u8" else 0
    size = port.shape[1]
    if levels.shape[1] > size:
        levels = smaller(levels, size)
    return inputs, labels, real(levels - shift, scale, zero)


def real(levels: Array, scale: np.float32, zero_point: int) -> Reals:
    """Reals of the int8 network's input levels."""
    result: Reals = (levels.astype(np.float32) - np.float32(zero_point)) * scale
    return result


def smaller(images: Reals, size: int) -> Reals:
    """Square images [N, H, W, C] reduced to a side of ``size`` pixels, by the mean of what each covers."""
    side = images.shape[1]
    edges = np.arange(size + 1) * side / size
    pixels = np.arange(side)
    overlap = np.minimum(edges[1:, None], pixels + 1) - np.maximum(edges[:-1, None], pixels)
    weights = (np.clip(overlap, 0, None) * size / side).astype(np.float32)
    result: Reals = np.einsum("yi,xj,nijc->nyxc", weights, weights, images, optimize=True)
    return result


def samples(name: str, inputs: Reals) -> list[Sample]:
    """One sample for each entry."""
    return [{name: value[None]} for value in inputs]


def scores(float_model: onnx.ModelProto, quantised_model: onnx.ModelProto, name: str, inputs: Reals) -> list[float]:
    """Mean squared difference of outputs and inputs, float and quantised: the anomaly score of an autoencoder."""
    found = []
    for model in (float_model, uint8_form(quantised_model)):
        session = open_session(model.SerializeToString())
        outputs = np.array([session.run(None, {name: value[None]})[0][0] for value in inputs])
        found.append(float(np.mean((outputs - inputs) ** 2)) if outputs.shape == inputs.shape else 0.0)
    return found


def row(network: Network, scheme: str, float_layers: int, quality: Quality, figures: list[float]) -> str:
    """A line of the table."""
    if quality.drop is None:
        columns = [f"score {figures[0]:.3f}", f"score {figures[1]:.3f}", ""]
    else:
        columns = [f"{quality.float_accuracy:.1%}", f"{quality.accuracy:.1%}", f"{quality.drop:.1f}"]
    title = network.stem.rpartition("/")[2]
    cells = [title, scheme, str(float_layers), f"{quality.worst:.1f} dB", str(quality.samples), *columns]
    return f"| {' | '.join(cells)} |"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("models", type=Path, help="the folder with the reference data")
    parser.add_argument("page", nargs="?", type=Path, help="the page whose table is replaced")
    arguments = parser.parse_args()
    lines = chain(*(rows(arguments.models, network) for network in NETWORKS), transformer_rows())
    make_table(COLUMNS, "|---" * len(COLUMNS) + "|", lines, arguments.page, BEGIN, END)


if __name__ == "__main__":
    main()
