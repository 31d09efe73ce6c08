"""Some operators of a TFLite file as a file of their own."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Extract:
    """A file, and where the tensors of the whole one are in it, by index."""

    data: bytes
    places: dict[int, int]


def extract(
    data: bytes,
    operators: Sequence[int],
    inputs: Sequence[int],
    outputs: Sequence[int],
    *,
    subgraph: int = 0,
    others: bool = False,
    shape: tuple[int, ...] = (),
) -> Extract:
    """The file of some operators alone.

    Parameters
    ----------
    operators: by index, in order.
    inputs, outputs: tensors by index, also those that no operator of them reads or makes.
    subgraph: of all these; it is the first in the result.
    others: keep the other subgraphs, too, which then must be those behind it.
    shape: of inputs and outputs, in place of their own.
    """
    import flatbuffers
    from ai_edge_litert import schema_py_generated as schema

    model = schema.ModelT.InitFromObj(schema.Model.GetRootAs(data, 0))
    graph = model.subgraphs[subgraph]
    graph.operators = [graph.operators[index] for index in operators]
    places = _keep_tensors(graph, [*inputs, *outputs])
    graph.inputs, graph.outputs = [places[index] for index in inputs], [places[index] for index in outputs]
    for index in (*graph.inputs, *graph.outputs) if shape else ():
        graph.tensors[index].shape, graph.tensors[index].shapeSignature = list(shape), None
    model.subgraphs = [graph, *(model.subgraphs[subgraph + 1 :] if others else [])]
    _keep_codes(model)
    _keep_buffers(model)
    model.metadata, model.metadataBuffer, model.signatureDefs = [], [], []
    builder = flatbuffers.Builder(1024)
    builder.Finish(model.Pack(builder), b"TFL3")
    return Extract(bytes(builder.Output()), places)


def _keep_tensors(graph: Any, more: Sequence[int]) -> dict[int, int]:
    """Drop unreferenced tensors; the new indices of the others."""
    found = {int(index) for op in graph.operators for ends in _ends(op) for index in ends} | set(more)
    places = {old: new for new, old in enumerate(sorted(index for index in found if index >= 0))}
    renamed = places | {-1: -1}
    for op in graph.operators:
        op.inputs, op.outputs, intermediates = ([renamed[int(index)] for index in ends] for ends in _ends(op))
        op.intermediates = intermediates or None
    graph.tensors = [graph.tensors[index] for index in places]
    return places


def _ends(op: Any) -> tuple[Sequence[int], Sequence[int], Sequence[int]]:
    return tuple(() if ends is None else ends for ends in (op.inputs, op.outputs, op.intermediates))  # type: ignore[return-value]


def _keep_codes(model: Any) -> None:
    """Drop unreferenced operator codes: a runtime may not know them."""
    operators = [op for graph in model.subgraphs for op in graph.operators or ()]
    used = sorted({op.opcodeIndex for op in operators})
    for op in operators:
        op.opcodeIndex = used.index(op.opcodeIndex)
    model.operatorCodes = [model.operatorCodes[index] for index in used]


def _keep_buffers(model: Any) -> None:
    """Drop unreferenced buffers; the format requires the first one to be empty."""
    tensors = [tensor for graph in model.subgraphs for tensor in graph.tensors or ()]
    used = sorted({0, *(tensor.buffer for tensor in tensors)})
    places = {old: new for new, old in enumerate(used)}
    for tensor in tensors:
        tensor.buffer = places[tensor.buffer]
    model.buffers = [model.buffers[index] for index in used]
