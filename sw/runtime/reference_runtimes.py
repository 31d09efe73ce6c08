"""What the reference runtime computes, tensor by tensor, for the tensors of a network's graph."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import numpy as np

from dovetail.sw.errors import NetworkError, first_line
from dovetail.sw.files.inputs import read_arrays
from dovetail.sw.frontend.parsed_file import ParsedFile
from dovetail.sw.frontend.tflite.file import TfliteFile
from dovetail.sw.frontend.tflite.parsed import ParsedTflite
from dovetail.sw.network.ir import Graph, Tensor
from dovetail.sw.network.layout import Array, Sample, as_signed, as_unsigned

if TYPE_CHECKING:
    from dovetail.sw.frontend.onnx.parsed import ParsedOnnx
    from dovetail.sw.frontend.onnx.values import Value

_TOTAL = 1 << 20
"""Bytes of memory that TFLite Micro gets for its own records."""


@dataclass(frozen=True)
class Reference:
    """A run of a reference.

    Parameters
    ----------
    runtime: who computed it, for people.
    tensors: by the name of the graph's tensor, with its elements in its order.
    notes: what a reader should know, a sentence each.
    """

    runtime: str
    tensors: dict[str, Array]
    notes: tuple[str, ...] = ()


def run(graph: Graph, source: ParsedFile, sample: Sample, before: Sequence[Sample] = ()) -> Reference:
    """A network file in the runtime that defines its numbers.

    Parameters
    ----------
    graph
        The network's graph.
    source
        The network file that the graph was made from.
    sample
        Inputs by name, as the file declares them.
    before
        Samples that a network with variables has seen already, in order.

    Raises
    ------
    NetworkError
        The runtime cannot run the file.
    """
    if isinstance(source, ParsedTflite):
        return _run_tflite(graph, source.tflite, [*before, sample])
    return _run_onnx(graph, cast("ParsedOnnx", source), [*before, sample])


def read(graph: Graph, path: Path) -> Reference:
    """Tensors from an .npz by the name of a tensor or of the node that makes it, uint8 as int8 + 128.

    Raises
    ------
    NetworkError
        Nothing in the file is a tensor of the network, or one has another size; the text names it.
    OSError
        The file cannot be read.
    """
    made = {node.name: node.outputs[0] for node in graph.nodes if len(node.outputs) == 1}
    made |= {port.name: port.tensor for port in (*graph.inputs, *graph.outputs)}
    found: dict[str, Array] = {}
    unknown = []
    for name, value in read_arrays(path).items():
        tensor = graph.tensors.get(name) or graph.tensors.get(made.get(name, ""))
        if tensor is None:
            unknown.append(name)
            continue
        if value.size != tensor.size:
            raise NetworkError(f"{path}: {name!r} must have {tensor.size} elements, not {value.size}")
        found[tensor.name] = _as(tensor, value)
    if not found:
        raise NetworkError(f"{path}: some array must have the name of a tensor or node of {graph.name}, none has")
    notes = (f"{path}: no tensor or node of the network is named {', '.join(unknown)}",) if unknown else ()
    return Reference(str(path), found, notes)


def _as(tensor: Tensor, value: Array) -> Array:
    """What a runtime computed, with the tensor's elements."""
    return value if value.dtype == tensor.dtype else _signed(value)


def _signed(value: Array) -> Array:
    return as_signed(value) if value.dtype == np.uint8 else value


# TFLite ----------------------------------------------------------------------------------------


def _run_tflite(graph: Graph, file: TfliteFile, samples: Sequence[Sample]) -> Reference:
    """TFLite Micro if it is installed and knows the network's operators, else LiteRT's reference kernels."""
    inputs = [[sample[port.name] for port in graph.inputs] for sample in samples]
    wanted = [i for i, info in enumerate(file.infos) if info.value is None and info.tensor.name in graph.tensors]
    notes: tuple[str, ...] = ()
    with suppress(ImportError):
        micro = import_module("tflite_micro").runtime
        try:
            tensors = _micro(micro, file, inputs, wanted)
            return Reference("TFLite Micro", _named(graph, file, tensors))
        except RuntimeError as error:
            notes = (f"TFLite Micro cannot run the network: {first_line(error)}",)
    tensors = _litert(file.data, inputs, wanted)
    notes += ("LiteRT rounds FULLY_CONNECTED in another way than TFLite Micro, by which the accelerator goes",)
    return Reference("LiteRT, reference kernels", _named(graph, file, tensors), notes)


def _named(graph: Graph, file: TfliteFile, tensors: Mapping[int, Array]) -> dict[str, Array]:
    """The file's tensors as the graph has them; what a run leaves in a variable is a tensor of its own there."""
    after = {state.read: state.written for state in graph.states}
    found = {}
    for i, value in tensors.items():
        name = file.infos[i].tensor.name
        found[after[name] if file.infos[i].variable else name] = value
    return {name: _as(graph.tensors[name], value) for name, value in found.items()}


def _micro(runtime: Any, file: TfliteFile, runs: list[list[Array]], wanted: list[int]) -> dict[int, Array]:
    room = sum(8 * info.tensor.size for info in file.infos if info.value is None)
    interpreter = runtime.Interpreter.from_bytes(
        file.data,
        arena_size=_TOTAL + len(file.data) + room,
        intrepreter_config=runtime.InterpreterConfig.kPreserveAllTensors,
    )
    for inputs in runs:
        for index, value in enumerate(inputs):
            interpreter.set_input(value, index)
        interpreter.invoke()
    return {index: np.array(interpreter.GetTensor(index, 0)["tensor_data"]) for index in wanted}


def _litert(data: bytes, runs: list[list[Array]], wanted: list[int]) -> dict[int, Array]:
    from ai_edge_litert.interpreter import Interpreter, OpResolverType

    try:
        interpreter = Interpreter(
            model_content=data,
            experimental_op_resolver_type=OpResolverType.BUILTIN_REF,
            experimental_preserve_all_tensors=True,
        )
        interpreter.allocate_tensors()
        for inputs in runs:
            for detail, value in zip(interpreter.get_input_details(), inputs, strict=True):
                interpreter.set_tensor(detail["index"], value)
            interpreter.invoke()
    except (ValueError, RuntimeError) as error:
        raise NetworkError(f"LiteRT's reference kernels must run the network, not fail: {first_line(error)}") from error
    return {index: interpreter.get_tensor(index) for index in wanted}


# ONNX ------------------------------------------------------------------------------------------


def _run_onnx(graph: Graph, source: ParsedOnnx, samples: Sequence[Sample]) -> Reference:
    """ONNX Runtime on the uint8 form of the file, every tensor of the graph as an additional output."""
    from onnx import TensorProto

    from dovetail.sw.frontend.onnx.uint8_form import uint8_form

    values = source.values
    form = uint8_form(source.model)
    chosen = _names(form, values)
    unsigned = {port.name for port in form.graph.input if port.type.tensor_type.elem_type == TensorProto.UINT8}

    def fed(arrays: Sample) -> dict[str, Array]:
        return {
            name: as_unsigned(value) if name in unsigned and value.dtype == np.int8 else value
            for name, value in arrays.items()
        }

    state = {state.name: values[state.name].layout.outside(state.initial) for state in graph.states}
    for sample in samples[:-1]:
        kept = _onnx_outputs(form, fed({**sample, **state}))
        state = {name: kept[output] for name, output in source.states.items()}
    feed = fed({**samples[-1], **state})
    plain = _onnx_outputs(form, feed)
    found = _onnx_outputs(form, feed, chosen.values())
    notes = tuple(
        f"{name}: ONNX Runtime computes it differently when other tensors are outputs, too"
        for name, value in plain.items()
        if not np.array_equal(value, found[name])
    )
    tensors = {tensor: values[name].layout.inside(_signed(found[name])) for tensor, name in chosen.items()}
    return Reference("ONNX Runtime" if form is source.model else "ONNX Runtime on the uint8 form", tensors, notes)


def _names(model: Any, values: Mapping[str, Value]) -> dict[str, str]:
    """For each tensor of the graph, the name in the file to ask the runtime for. A quantised result lies between
    what the runtime fuses, so asking for it changes nothing."""
    makers = {output: node.op_type for node in model.graph.node for output in node.output}
    chosen: dict[str, str] = {}
    for name, value in values.items():
        if name in makers and (makers[name].startswith("Q") or value.tensor not in chosen):
            chosen[value.tensor] = name
    return chosen


def _onnx_outputs(model: Any, feed: Sample, more: Iterable[str] = ()) -> dict[str, Array]:
    """A model's outputs by name, and ``more`` of its tensors."""
    from dovetail.sw.host.onnx_session import Session

    try:
        return Session(model, more).run(feed)
    except Exception as error:  # the runtime raises its own classes, undocumented
        raise NetworkError(f"ONNX Runtime must run the network, not fail: {first_line(error)}") from error
