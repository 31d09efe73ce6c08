"""An ONNX file, parsed: its part that Dovetail and ONNX Runtime know, and the rest."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from functools import cached_property

import onnx

from dovetail.sw.errors import NetworkError, first_line
from dovetail.sw.frontend.onnx.contrib import spell_out
from dovetail.sw.frontend.onnx.deeploy import as_standard
from dovetail.sw.frontend.onnx.file import OnnxFile, is_quantised, parse_model
from dovetail.sw.frontend.onnx.growing import settle
from dovetail.sw.frontend.onnx.importer import Importer
from dovetail.sw.frontend.onnx.remainder import cut, head_of, rest_of
from dovetail.sw.frontend.onnx.states import States, hold_quantised, named, note, pairs
from dovetail.sw.frontend.onnx.values import Value
from dovetail.sw.frontend.parsed_file import FileNode, Forms, NetworkFile, ParsedFile, Shapes, well_formed
from dovetail.sw.network import ir


class ParsedOnnx(ParsedFile):
    """``model``: the network before the cut, without local functions, with external data and all shapes of inputs.
    ``states``: input -> output of each of its variables."""

    def __init__(self, file: NetworkFile, shapes: Shapes | None = None) -> None:
        self.file = file
        self._whole, self._changed = parse_model(file.data, file.name, file.folder, shapes)
        if file.states is not None:
            note(self._whole, file.states)
            self._changed = True
        with well_formed(self.name, "ONNX"), self._named():
            if not is_quantised(node.op_type for node in self._whole.graph.node):
                self._changed |= as_standard(self._whole)
                self._changed |= spell_out(self._whole)
            self._changed |= settle(self._whole, named(self._whole, None))
        self._take_head(None)

    @classmethod
    def of_model(cls, model: onnx.ModelProto, name: str, states: States | None = None) -> ParsedOnnx:
        """A network that was never a file: one that a quantiser has made, with fixed inputs and without functions.

        ``states``: input -> output of its variables; without, it has none.
        """
        parsed = cls.__new__(cls)
        parsed.file, parsed._whole, parsed._changed = NetworkFile(name, b""), model, True
        parsed._take_head(states or {})
        return parsed

    def _take_head(self, states: States | None) -> None:
        with well_formed(self.name, "ONNX"):
            self._cut = cut(self._whole)
            self.remainder = self._cut.remainder if self._cut else None
            self.model = head_of(self._whole, self._cut) if self._cut else self._whole
            with self._named():
                found = pairs(self.model, states)
            self.model, self.states = hold_quantised(self.model, found)

    @contextmanager
    def _named(self) -> Iterator[None]:
        """Errors name the network."""
        try:
            yield
        except NetworkError as error:
            raise NetworkError(f"{self.name}: {error}") from None

    @cached_property
    def data(self) -> bytes:
        """The whole file, with nothing left open and nothing outside of it. Raises NetworkError if it is too large."""
        if not self._changed:
            return self.file.data
        try:
            return bytes(self._whole.SerializeToString(deterministic=True))
        except Exception as error:  # protobuf raises several classes, none of them public
            reason = first_line(error)
            raise NetworkError(f"{self.name}: file must be below 2 GB with its external data, not: {reason}") from error

    @property
    def notes(self) -> Mapping[str, str]:
        """What the file's maker noted in it, by key."""
        return {entry.key: entry.value for entry in self.model.metadata_props}

    @property
    def is_float(self) -> bool:
        """Whether the network has to be quantised first."""
        return not is_quantised(node.op_type for node in self.model.graph.node)

    @property
    def nodes(self) -> list[FileNode]:
        """The nodes, in the file's order."""
        return [
            FileNode(node.name or next(iter(node.output), ""), node.op_type, tuple(node.input), tuple(node.output))
            for node in self.model.graph.node
        ]

    @cached_property
    def graph(self) -> ir.Graph:
        """The graph, before any pass. Raises NetworkError."""
        return self._built[0]

    @property
    def values(self) -> Mapping[str, Value]:
        """The file's names that are tensors of the graph, and how the file sees them. Raises as `graph`."""
        return self._built[1]

    @cached_property
    def _built(self) -> tuple[ir.Graph, Mapping[str, Value]]:
        with well_formed(self.name, "ONNX"):
            importer = Importer(OnnxFile(self.model, self.name), self.states)
            graph = importer.read().check()
        if self.remainder:
            graph = replace(graph, left=self.remainder.left, why_left=self.remainder.reason)
        return graph, importer.scope.values

    def as_onnx(self) -> onnx.ModelProto:
        """The network, as it is."""
        return self.model

    def rest(self, forms: Forms) -> bytes:
        """The file of the rest; ``forms``: of the tensors that go over."""
        assert self._cut
        return rest_of(self._whole, self._cut, forms)
