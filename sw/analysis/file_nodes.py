"""The nodes of a network file, as its user knows them, and what became of each."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import onnx

from dovetail.sw.frontend.tflite.file import TfliteFile, is_tflite


@dataclass(frozen=True)
class FileNode:
    """A node: its name, operator, and the tensors it reads and makes, by name."""

    name: str
    op: str
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]

    def __str__(self) -> str:
        return f"{self.op} {self.name}"


def nodes_of(data: bytes) -> list[FileNode]:
    """The nodes of a TFLite or ONNX file that its front end could read."""
    if not is_tflite(data):
        return nodes_of_model(onnx.load_model_from_string(data))
    file = TfliteFile(data)
    names = [info.tensor.name for info in file.infos]
    return [
        FileNode(op.name, op.kind, *(tuple(names[i] for i in side if i >= 0) for side in (op.inputs, op.outputs)))
        for op in file.operators
    ]


def nodes_of_model(model: onnx.ModelProto) -> list[FileNode]:
    """The nodes of an ONNX network."""
    return [
        FileNode(node.name or node.output[0], node.op_type, tuple(node.input), tuple(node.output))
        for node in model.graph.node
    ]


def destinations(nodes: Sequence[FileNode], made: Iterable[FileNode]) -> dict[str, str]:
    """Which of the nodes ``made`` of a file's holds each of them, by name; those that left nothing are missing.

    A node that is not there by name has gone where its result is made, under its name or one made of it ("name/form"),
    or else where it is used, or else where its operand is made.
    """
    names: set[str] = set()
    makers: dict[str, str] = {}
    forms: dict[str, str] = {}
    for new in made:
        names.add(new.name)
        makers |= dict.fromkeys(new.outputs, new.name)
        forms |= {stem: new.name for name in new.outputs if (stem := name.rpartition("/")[0]) not in forms}
    makers = forms | makers
    found: dict[str, str] = {}
    users: dict[str, str] = {}
    for node in reversed(nodes):
        places = [node.name] if node.name in names else [makers[name] for name in node.outputs if name in makers]
        places += [users[name] for name in node.outputs if name in users]
        if places:
            found[node.name] = places[0]
            users |= dict.fromkeys(node.inputs, places[0])
    sources: dict[str, str] = {}
    for node in nodes:
        places = [sources[name] for name in node.inputs if name in sources]
        place = found.setdefault(node.name, places[0]) if places else found.get(node.name)
        if place is not None:
            sources |= dict.fromkeys(node.outputs, place)
    return found
