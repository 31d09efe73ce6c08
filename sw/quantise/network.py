"""A float network of any form becomes a quantised one, in one call."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from dovetail.sw import frontend
from dovetail.sw.errors import NetworkError
from dovetail.sw.frontend.onnx.parsed import ParsedOnnx
from dovetail.sw.frontend.onnx.states import note
from dovetail.sw.frontend.parsed_file import NetworkFile, Shapes
from dovetail.sw.quantise import ends
from dovetail.sw.quantise.calibration import Calibration
from dovetail.sw.quantise.float_network import FloatGraph, Input, float_model
from dovetail.sw.quantise.quantiser import apply
from dovetail.sw.quantise.samples import FileSamples, GivenSamples, Steps, without_states
from dovetail.sw.quantise.scheme import Scheme


def quantise_network(
    network: frontend.Network,
    samples: Iterable[Any] | str | Path,
    scheme: str = "",
    *,
    integer_ends: bool = False,
    shapes: Shapes | None = None,
    states: Mapping[str, str] | None = None,
    example_inputs: Any = None,
) -> NetworkFile:
    """Quantise a float network to int8, as `dovetail quantise` does.

    Parameters
    ----------
    network: a float ONNX or TFLite file, a `torch.nn.Module` or a `torch.export.ExportedProgram`.
    samples: calibration inputs, each as the float network takes it: the array of the only input, a tuple of arrays, or
        arrays by input name. NumPy's arrays or tensors; a first axis of 1 may be left out. In order where the network
        has variables. Or an .npz or .npy file, or a folder of them.
    scheme: the words of `dovetail quantise --scheme`.
    integer_ends: whether inputs and outputs are the network's 8-bit integers instead of floats; variables stay.
    shapes, states, example_inputs: as of `dovetail.compile`.

    Returns
    -------
    A QDQ ONNX file in memory: `dovetail.compile` takes it, its `data` are the bytes of the file.

    Raises
    ------
    NetworkError: the network cannot be read or is quantised already, or a sample does not fit; one line.
    """
    source = frontend.parse(frontend.read(network, states, example_inputs), shapes)
    if source.remainder:
        raise NetworkError(
            f"{source.name}: every operator must be known, not {source.remainder.text}; `dovetail quantise` takes the"
            " part before it"
        )
    kept = source.states if isinstance(source, ParsedOnnx) else {}
    graph = FloatGraph(float_model(source), kept)
    given = _samples(samples, without_states(graph.inputs, kept))
    model = apply(Calibration(graph, Steps(graph, kept, given) if kept else given), Scheme.parse(scheme)).model
    if kept or states is not None:
        note(model, kept)
    if integer_ends:
        ends.integer_ends(model, {*kept, *kept.values()})
    return NetworkFile(source.name, bytes(model.SerializeToString(deterministic=True)))


def _samples(given: Iterable[Any] | str | Path, inputs: tuple[Input, ...]) -> FileSamples | GivenSamples:
    """Samples that can be gone through more than once."""
    if isinstance(given, str | Path):
        return FileSamples(Path(given), inputs)
    if not isinstance(given, Iterable):
        raise NetworkError(f"samples must be a sequence of calibration inputs, not {type(given).__name__}")
    return GivenSamples(list(given), inputs)
