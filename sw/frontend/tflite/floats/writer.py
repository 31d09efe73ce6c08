"""Collects the ONNX network of a float TFLite file.

An image is NHWC in the file and NCHW in ONNX's operators. The writer keeps track of both forms of a tensor. A Transpose
makes one from the other only where an operator asks for it, so chains of convolutions have none.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import onnx
from numpy.typing import ArrayLike
from onnx import helper, numpy_helper

from dovetail.sw.errors import NetworkError
from dovetail.sw.frontend.tflite.file import Info, Operator, TfliteFile
from dovetail.sw.network.layout import Array
from dovetail.sw.network.names import unused

OPSET = 20
TO_IMAGE, FROM_IMAGE = (0, 3, 1, 2), (0, 2, 3, 1)
"""Axes of NHWC in the order of NCHW, and back."""


class Writer:
    """Collects ONNX nodes and constants.

    Operators ask for their operands by tensor index, with `value` or `image`, and hand over results with `result`.
    """

    def __init__(self, file: TfliteFile) -> None:
        self.file = file
        self._nodes: list[onnx.NodeProto] = []
        self._constants: dict[str, Array] = {}
        self._real: dict[int, Array] = {}
        self._values: dict[int, str] = {index: file.infos[index].tensor.name for index in file.inputs}
        self._images: dict[int, str] = {}
        self._names = {info.tensor.name for info in file.infos}

    def model(self, name: str) -> onnx.ModelProto:
        """The whole network, when all operators are written."""
        for index in self.file.outputs:
            if self.constant(index) is not None:
                raise NetworkError(f"{self.info(index).tensor.name!r}: output must be computed, not a constant")
            self.value(index)
        graph = helper.make_graph(
            self._nodes,
            name,
            [self._port(index) for index in self.file.inputs],
            [self._port(index) for index in self.file.outputs],
            [numpy_helper.from_array(value, key) for key, value in self._constants.items()],
        )
        opset = helper.make_opsetid("", OPSET)
        return helper.make_model(graph, opset_imports=[opset], ir_version=9, producer_name="dovetail")

    def _port(self, index: int) -> onnx.ValueInfoProto:
        tensor = self.info(index).tensor
        kind = helper.np_dtype_to_tensor_dtype(np.dtype(tensor.dtype))
        return helper.make_tensor_value_info(tensor.name, kind, tensor.shape)

    # What operators ask for --------------------------------------------------------------------

    def info(self, index: int) -> Info:
        """The file's tensor."""
        return self.file.infos[index]

    def shape(self, index: int) -> tuple[int, ...]:
        """Its shape in the file."""
        return self.info(index).tensor.shape

    def constant(self, index: int) -> Array | None:
        """The value of a constant, real if the file holds it in 8 bits or float16; None if it is computed."""
        if index not in self._real:
            info = self.info(index)
            if info.value is None:
                return None
            self._real[index] = _real(info)
        return self._real[index]

    def numbers(self, op: Operator, place: int) -> list[int]:
        """An operand that must be a constant: axes, sizes, shapes."""
        value = self.constant(op.inputs[place])
        if value is None:
            raise NetworkError(f"{op.name}: operand {place} must be a constant, not computed by the network")
        return [int(n) for n in value.ravel()]

    def value(self, index: int) -> str:
        """ONNX name of a tensor in the file's order."""
        if index not in self._values:
            name, value = self.info(index).tensor.name, self.constant(index)
            if value is not None:
                self._constants[name] = value
            elif index in self._images:
                self._append("Transpose", [self._images[index]], [name], {"perm": FROM_IMAGE})
            else:
                raise NetworkError(f"{name!r} must be computed before its use")
            self._values[index] = name
        return self._values[index]

    def image(self, index: int) -> str:
        """ONNX name of a tensor of four axes, or a constant of at most four, in the order NCHW."""
        if index not in self._images:
            info, value = self.info(index), self.constant(index)
            name = self._unused(f"{info.tensor.name}/nchw")
            if value is not None:
                full = value.reshape((1,) * (4 - value.ndim) + value.shape)
                self._constants[name] = np.ascontiguousarray(full.transpose(TO_IMAGE))
            else:
                self._append("Transpose", [self.value(index)], [name], {"perm": TO_IMAGE})
            self._images[index] = name
        return self._images[index]

    def only_image(self, index: int) -> bool:
        """Whether a tensor exists as NCHW only."""
        return index in self._images and index not in self._values

    def is_image(self, op: Operator, inputs: Sequence[int]) -> bool:
        """Whether an operator is best computed in NCHW: an operand exists only so, and all others can."""
        wanted = any(self.only_image(index) for index in inputs)
        able = all(len(self.shape(i)) == 4 or (self.constant(i) is not None and len(self.shape(i)) < 4) for i in inputs)
        return wanted and able and all(len(self.shape(index)) == 4 for index in op.outputs)

    def axis(self, op: Operator, axis: int, rank: int, image: bool) -> int:
        """Where an axis of the file, of `rank`, is counted from the front: in NCHW or in the file's order."""
        if not -rank <= axis < rank:
            raise NetworkError(f"{op.name}: axis must be within {rank} axes, not {axis}")
        return TO_IMAGE.index(axis % rank) if image else axis % rank

    def operands(self, inputs: Sequence[int], image: bool) -> list[str]:
        """ONNX names of operands, all in one order."""
        return [self.image(index) if image else self.value(index) for index in inputs]

    def map(self, op: Operator, kind: str, extra: Sequence[str] = (), **attributes: Any) -> None:
        """The node of an element-wise operator, in the order of axes in which its operands exist."""
        image = self.is_image(op, op.inputs)
        operands = [*self.operands(op.inputs, image), *extra]
        self.result(op.outputs[0], kind, operands, image=image, **attributes)

    def require_float(self, op: Operator) -> None:
        """Raises NetworkError if an operator's activations are not float32."""
        for index in (*op.inputs[:1], *op.outputs):
            dtype = self.info(index).tensor.dtype
            if self.constant(index) is None and dtype != "float32":
                raise NetworkError(f"{op.name}: activations must be float32, not {dtype}")

    # What operators make -----------------------------------------------------------------------

    def keep(self, index: int, value: Array) -> None:
        """The value of a result that is known now: it becomes a constant."""
        self._real[index] = value

    def add_constant(self, name: str, value: ArrayLike) -> str:
        """A constant that the file does not have as such; its name."""
        result = self._unused(name)
        self._constants[result] = np.asarray(value)
        return result

    def integers(self, name: str, values: Sequence[int]) -> str:
        """A constant vector of int64: a shape, axes, sizes."""
        return self.add_constant(name, np.array(values, np.int64))

    def node(self, name: str, kind: str, inputs: Sequence[str], **attributes: Any) -> str:
        """A node with an intermediate result; the result's name."""
        result = self._unused(name)
        self._append(kind, inputs, [result], attributes)
        return result

    def result(self, index: int, kind: str, inputs: Sequence[str], *, image: bool = False, **attributes: Any) -> None:
        """A node whose result is a tensor of the file, in the file's order or as NCHW."""
        self.results([index], kind, inputs, image=image, **attributes)

    def results(
        self, indices: Sequence[int], kind: str, inputs: Sequence[str], *, image: bool = False, **attributes: Any
    ) -> None:
        """A node whose results are tensors of the file."""
        names = [self.info(index).tensor.name for index in indices]
        if image:
            names = [self._unused(f"{name}/nchw") for name in names]
        self._append(kind, inputs, names, attributes)
        (self._images if image else self._values).update(zip(indices, names, strict=True))

    def _append(self, kind: str, inputs: Sequence[str], outputs: Sequence[str], attributes: Mapping[str, Any]) -> None:
        self._nodes.append(helper.make_node(kind, inputs, outputs, name=f"{outputs[0]}/{kind}", **attributes))

    def _unused(self, wanted: str) -> str:
        name = unused(wanted, self._names)
        self._names.add(name)
        return name


def _real(info: Info) -> Array:
    """A constant as ONNX gets it."""
    value = info.value
    assert value is not None
    if value.dtype == np.float16:
        return value.astype(np.float32)
    if value.dtype not in (np.int8, np.uint8) or not info.scales.size:
        return value
    along = [1] * value.ndim
    if info.scales.size > 1:
        along[info.axis] = info.scales.size
    zeros = info.zero_points if info.zero_points.size else np.zeros(1, np.int64)
    centred = value.astype(np.int64) - zeros.reshape(along if zeros.size > 1 else [1] * value.ndim)
    real: Array = centred.astype(np.float32) * info.scales.reshape(along)
    return real


Write = Callable[[Writer, Operator], None]
"""Writes the nodes of one operator."""
