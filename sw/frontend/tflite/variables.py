"""Variables of TFLite files: what a run leaves for the next one becomes a state of the graph.

There are two kinds. A tensor marked `is_variable` is read and written by one operator: an LSTM, an SVDF. Resources are
read and assigned by operators of their own, and CALL_ONCE runs a subgraph before the first run that assigns them.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
from ai_edge_litert import schema_py_generated as schema

from dovetail.sw.errors import NetworkError
from dovetail.sw.frontend.tflite.file import Info, Operator, TfliteFile
from dovetail.sw.host.kernels import Permute, TfliteOp
from dovetail.sw.network import ir
from dovetail.sw.network.layout import Array, Layout, as_signed
from dovetail.sw.network.names import unused

if TYPE_CHECKING:
    from dovetail.sw.frontend.tflite.importer import Reader


@dataclass
class _Resource:
    """A resource while the operators are walked: its tensors in the graph, and its value before the first run."""

    name: str
    read: str = ""
    held: str = ""
    initial: Array | None = None


class Variables:
    """The variables of a file, and how far the walk over its operators has come with them."""

    def __init__(self, reader: Reader) -> None:
        self.reader = reader
        self.current: dict[int, str] = {}
        """By the index of an `is_variable` tensor: the tensor that holds it now."""
        self._handles: dict[int, str] = {}
        self._resources: dict[str, _Resource] = {}
        self._initial = _initial_values(reader.file)
        self._order: list[tuple[str, int | str]] = []

    def states(self) -> tuple[ir.State, ...]:
        """Every variable that a run reads before it writes it."""
        found = []
        for kind, key in self._order:
            if kind == "resource":
                resource = self._resources[str(key)]
                assert resource.initial is not None
                found.append(ir.State(resource.name, resource.read, resource.held, resource.initial))
                continue
            info = self.reader.file.infos[int(key)]
            initial = cleared(info)
            if self.reader.unsigned and info.tensor.dtype == "uint8":
                initial = as_signed(initial)
            found.append(ir.State(info.tensor.name, info.tensor.name, self.current[int(key)], initial))
        return tuple(found)

    def read(self, index: int) -> str:
        """The tensor that holds an `is_variable` tensor now."""
        if index not in self.current:
            self.current[index] = self.reader.declare(index)
            self._order.append(("tensor", index))
        return self.current[index]

    def write(self, index: int) -> str:
        """A new tensor for what an operator leaves in an `is_variable` tensor."""
        reader, tensor = self.reader, self.reader.infos[index].tensor
        name = unused(f"{tensor.name}/next", {*reader.tensors, *(info.tensor.name for info in reader.infos)})
        reader.tensors[name] = replace(tensor, name=name)
        self.current[index] = name
        return name

    # Resources ---------------------------------------------------------------------------------

    def handle(self, op: Operator) -> None:
        """VAR_HANDLE"""
        name = _name_of(op)
        self._handles[op.outputs[0]] = name
        self._resources.setdefault(name, _Resource(name, initial=self._initial.get(name)))

    def _resource(self, op: Operator) -> _Resource:
        name = self._handles.get(op.inputs[0])
        if name is None:
            raise NetworkError(f"{op.name}: variable must come from VAR_HANDLE in the same subgraph, not otherwise")
        return self._resources[name]

    def read_resource(self, op: Operator) -> None:
        """READ_VARIABLE: the first result is the state's own tensor."""
        resource, reader = self._resource(op), self.reader
        name = reader.declare(op.outputs[0])
        tensor = reader.tensors[name]
        if resource.held:
            _check_like(op, reader.tensors[resource.held], tensor)
            reader.nodes.append(_copy(op.name, reader.tensors[resource.held], tensor))
            return
        resource.read = resource.held = name
        if resource.initial is None:
            resource.initial = self._cleared(reader.file, op)
        resource.initial = resource.initial.reshape(tensor.shape) if resource.initial.size == tensor.size else None
        if resource.initial is None or str(resource.initial.dtype) != reader.file.infos[op.outputs[0]].tensor.dtype:
            raise NetworkError(f"{op.name}: variable {resource.name!r} must be {tensor}, as it is read")
        if reader.unsigned and resource.initial.dtype == np.uint8:
            resource.initial = as_signed(resource.initial)
        self._order.append(("resource", resource.name))

    def _cleared(self, file: TfliteFile, op: Operator) -> Array:
        """Of a resource that no subgraph initialises: TFLite Micro fills it with the zero point of what is assigned."""
        handles = {other.outputs[0] for other in file.operators if self._is_handle(other, op)}
        for other in file.operators:
            if other.kind == "ASSIGN_VARIABLE" and other.inputs[0] in handles:
                return cleared(file.infos[other.inputs[1]], every=True)
        return cleared(file.infos[op.outputs[0]], every=True)

    def _is_handle(self, other: Operator, op: Operator) -> bool:
        return other.kind == "VAR_HANDLE" and _name_of(other) == self._handles[op.inputs[0]]

    def assign(self, op: Operator) -> None:
        """ASSIGN_VARIABLE: what is read afterwards, by this run or the next, is another tensor."""
        resource, reader, index = self._resource(op), self.reader, op.inputs[1]
        name = reader.operand(op, index) if reader.infos[index].value is not None else reader.names((index,))[0]
        if name is None:
            raise NetworkError(f"{op.name}: a constant that is assigned must be int8, not {reader.infos[index].tensor}")
        if resource.held:
            _check_like(op, reader.tensors[resource.held], reader.tensors[name])
        resource.held = name


def _check_like(op: Operator, held: ir.Tensor, tensor: ir.Tensor) -> None:
    if (held.size, held.dtype) != (tensor.size, tensor.dtype):
        raise NetworkError(f"{op.name}: variable must keep its size and element type, {held}, not be {tensor}")


def _copy(name: str, source: ir.Tensor, result: ir.Tensor) -> ir.Node:
    """The same bytes under another name."""
    wires: dict[str, Any] = {"name": name, "inputs": (source.name,), "outputs": (result.name,)}
    if result.dtype == "int8":
        return ir.Reshape(**wires, shape=result.shape)
    payload = Permute(Layout.plain(source.shape), Layout.plain(result.shape))
    return ir.Host(**wires, label="copy", payload=payload)


def cleared(info: Info, every: bool = False) -> Array:
    """A variable as the runtimes clear it: its zero point in int8 (``every``: in all types, byte by byte), else 0."""
    zero = info.zero_points[0] if info.zero_points.size and (every or info.tensor.dtype == "int8") else 0
    size = info.tensor.size * np.dtype(info.tensor.dtype).itemsize
    fill = np.full(size, np.int64(zero).astype(np.int8).view(np.uint8), np.uint8)
    return fill.view(info.tensor.dtype).reshape(info.tensor.shape)


def _name_of(op: Operator) -> str:
    name = op.options(schema.VarHandleOptions).SharedName()
    return (name or b"").decode(errors="replace")


def _initial_values(file: TfliteFile) -> dict[str, Array]:
    """What CALL_ONCE assigns before the first run, by the resource's name, as the file has it."""
    found: dict[str, Array] = {}
    for op in file.operators:
        if op.kind == "CALL_ONCE":
            found |= _assigned(TfliteFile(file.data, op.options(schema.CallOnceOptions).InitSubgraphIndex()))
    return found


def _assigned(file: TfliteFile) -> dict[str, Array]:
    """Every resource that a subgraph without inputs assigns; LiteRT computes what it assigns."""
    found: dict[str, Array] = {}
    handles: dict[int, str] = {}
    values = {index: info.value for index, info in enumerate(file.infos) if info.value is not None}
    for op in file.operators:
        if op.kind == "VAR_HANDLE":
            handles[op.outputs[0]] = _name_of(op)
        elif op.kind == "ASSIGN_VARIABLE":
            if op.inputs[0] not in handles or op.inputs[1] not in values:
                raise NetworkError(f"{op.name} of subgraph {file.subgraph}: must assign a constant to a variable")
            found[handles[op.inputs[0]]] = values[op.inputs[1]]
        elif op.kind in CONTROL or not all(index < 0 or index in values for index in op.inputs):
            raise NetworkError(f"{op.name} of subgraph {file.subgraph}: initialisation must be of constants")
        else:
            payload = TfliteOp(file.data, op.index, (), op.outputs, subgraph=file.subgraph)
            values |= dict(zip(op.outputs, payload.run([]), strict=True))
    return found


CONTROL = {"IF", "WHILE", "CALL", "CALL_ONCE", "READ_VARIABLE"}
"""Operators that depend on more than their operands."""


def _call_once(reader: Reader, op: Operator) -> None:
    """CALL_ONCE: done; see `_initial_values`."""


WALK: dict[str, Callable[[Reader, Operator], None]] = {
    "CALL_ONCE": _call_once,
    "VAR_HANDLE": lambda reader, op: reader.variables.handle(op),
    "READ_VARIABLE": lambda reader, op: reader.variables.read_resource(op),
    "ASSIGN_VARIABLE": lambda reader, op: reader.variables.assign(op),
}
"""Operators that become no node, or none of their own."""
