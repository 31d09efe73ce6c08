"""Inputs and outputs of a quantised network as the 8-bit integers that it computes with, instead of floats."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

import numpy as np
import onnx
from onnx import helper, numpy_helper

from dovetail.sw.network.names import unused


@dataclass(frozen=True)
class End:
    """An input or output that became integer: its reals are ``scale * (value - zero_point)``; ``dtype``: int8 or
    uint8."""

    name: str
    dtype: str
    scale: float
    zero_point: int


def integer_ends(model: onnx.ModelProto, floating: Collection[str] = ()) -> list[End]:
    """Drop QuantizeLinear right behind an input that nothing else reads, and DequantizeLinear right before an output,
    in place. The ends keep their names. Others, and those that are ``floating``, stay float.

    ``model``: QDQ ONNX; the values of its ends' tensors must have one scale each. Returns the ends that changed.
    """
    ends = _Ends(model)
    found = [ends.input(value) for value in model.graph.input if value.name not in floating]
    found += [ends.output(value) for value in model.graph.output if value.name not in floating]
    return [end for end in found if end]


class _Ends:
    def __init__(self, model: onnx.ModelProto) -> None:
        graph = self.graph = model.graph
        self.constants = {tensor.name: tensor for tensor in graph.initializer}
        self.names = {name for node in graph.node for name in (*node.input, *node.output)}
        self.outputs = {value.name for value in graph.output}

    def input(self, value: onnx.ValueInfoProto) -> End | None:
        readers = [node for node in self.graph.node if value.name in node.input]
        if len(readers) != 1 or value.name in self.outputs or not (end := self._end(value, readers[0], "Quantize")):
            return None
        (result,) = readers[0].output
        self.graph.node.remove(readers[0])
        self._rename(result, value.name)
        return end

    def output(self, value: onnx.ValueInfoProto) -> End | None:
        maker = next((node for node in self.graph.node if value.name in node.output), None)
        if maker is None or not (end := self._end(value, maker, "Dequantize")):
            return None
        source = maker.input[0]
        made = {name for node in self.graph.node for name in node.output}
        if source not in made or source in self.outputs:  # an input, or an output already
            return None
        if any(value.name in node.input for node in self.graph.node):
            real = unused(f"{value.name}/real", self.names)
            self.names.add(real)
            self._rename(value.name, real)
        else:
            self.graph.node.remove(maker)
        self._rename(source, value.name)
        return end

    def _end(self, value: onnx.ValueInfoProto, node: onnx.NodeProto, kind: str) -> End | None:
        """The end that a node at it makes, if that is what it is; the graph's record of it says so then."""
        if node.op_type != f"{kind}Linear" or not all(name in self.constants for name in node.input[1:3]):
            return None
        scale, zero = (numpy_helper.to_array(self.constants[name]) for name in node.input[1:3])
        if scale.size != 1 or zero.size != 1 or zero.dtype not in (np.int8, np.uint8):
            return None
        value.type.tensor_type.elem_type = helper.np_dtype_to_tensor_dtype(zero.dtype)
        return End(value.name, str(zero.dtype), float(scale), int(zero))

    def _rename(self, old: str, new: str) -> None:
        for node in self.graph.node:
            for ends in (node.input, node.output):
                for place, name in enumerate(ends):
                    if name == old:
                        ends[place] = new
        kept = [value for value in self.graph.value_info if value.name not in (old, new)]
        del self.graph.value_info[:]
        self.graph.value_info.extend(kept)
