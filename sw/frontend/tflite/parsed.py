"""A TFLite file, parsed: its part that Dovetail and LiteRT know, and the rest."""

from __future__ import annotations

from dataclasses import replace
from functools import cached_property
from typing import TYPE_CHECKING

from dovetail.sw.errors import NetworkError, not_quantised
from dovetail.sw.frontend.parsed_file import FileNode, Forms, NetworkFile, ParsedFile, Shapes, well_formed
from dovetail.sw.frontend.tflite.file import TfliteFile, is_float, settle
from dovetail.sw.frontend.tflite.importer import Importer
from dovetail.sw.frontend.tflite.operators.convolution import WAY_OUT
from dovetail.sw.frontend.tflite.remainder import cut, head_of, rest_of
from dovetail.sw.network import ir

if TYPE_CHECKING:
    import onnx


class ParsedTflite(ParsedFile):
    """``tflite``: tensors and operators before the cut, with all shapes."""

    def __init__(self, file: NetworkFile, shapes: Shapes | None = None) -> None:
        self.file, self._shapes = file, shapes
        with well_formed(file.name, "TFLite"):
            self._whole = TfliteFile(file.data)
            self._cut = cut(self._whole)
            self.remainder = self._cut.remainder if self._cut else None
            self.tflite = TfliteFile(head_of(self._whole, self._cut)) if self._cut else self._whole
            settle(self.tflite)

    @property
    def is_float(self) -> bool:
        """Whether the network has to be quantised first."""
        return is_float(self.tflite)

    @property
    def nodes(self) -> list[FileNode]:
        """The nodes, in the file's order."""
        names = [info.tensor.name for info in self.tflite.infos]
        with well_formed(self.name, "TFLite"):
            return [
                FileNode(
                    op.name, op.kind, *(tuple(names[i] for i in ends if i >= 0) for ends in (op.inputs, op.outputs))
                )
                for op in self.tflite.operators
            ]

    @cached_property
    def graph(self) -> ir.Graph:
        """The graph of an int8 network, or of a uint8 one, whose tensors are int8 (value - 128) in it; before any pass.

        Raises NetworkError.
        """
        if self._shapes:
            raise NetworkError(f"{self.name}: shapes must be of an ONNX file's inputs; a TFLite file fixes its own")
        if self.is_float:
            raise not_quantised(self.name)
        with well_formed(self.name, "TFLite"):
            graph = Importer(self.tflite).read(self.name)
        if not any(tensor.dtype == "int8" for tensor in graph.tensors.values()):
            raise NetworkError(f"{self.name}: activations must be int8 or uint8, not of other types; {WAY_OUT}")
        if self.remainder:
            graph = replace(graph, left=self.remainder.left, why_left=self.remainder.reason)
        return graph.check()

    def as_onnx(self) -> onnx.ModelProto:
        """A float network in ONNX."""
        from dovetail.sw.frontend.tflite.floats.convert import to_onnx
        from dovetail.sw.passes.float.model_proto import fix_inputs

        with well_formed(self.name, "TFLite"):
            model = to_onnx(self.tflite, self.name)
            fix_inputs(model, self._shapes or {})
        return model

    def rest(self, forms: Forms) -> bytes:
        """The file of the rest; it says itself what the tensors are that go over."""
        assert self._cut
        return rest_of(self._whole, self._cut)
