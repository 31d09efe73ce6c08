"""The static schedule of one inference: conversions of the ports, kernels, segments of the accelerator."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from math import prod

import numpy as np
from numpy.typing import NDArray

from dovetail.isa.instructions.table import PAGE_BYTES
from dovetail.isa.program import ITEM_BYTES
from dovetail.sw.compiler.compile import SegmentCode
from dovetail.sw.compiler.partition.segments import HOST, Step
from dovetail.sw.errors import NetworkError
from dovetail.sw.export.codegen.c_text import Constants, comment, identifier
from dovetail.sw.export.codegen.host_nodes import write_host
from dovetail.sw.export.codegen.movement import write_places
from dovetail.sw.export.codegen.nodes import WRITERS
from dovetail.sw.export.codegen.run_inputs import RunInputs
from dovetail.sw.export.codegen.states import handed_on, kept_states, reset_lines
from dovetail.sw.export.codegen.writer import Pointer, Storage, Writer
from dovetail.sw.network import ir
from dovetail.sw.runtime.compiled_network import CompiledNetwork

C_TYPES = {
    "int8": "int8_t",
    "uint8": "uint8_t",
    "int32": "int32_t",
    "int64": "int64_t",
    "float32": "float",
}
"""Element types of inputs and outputs."""


@dataclass(frozen=True)
class Array:
    """An input or output in the generated code: ``member`` of the struct of inputs or outputs."""

    port: ir.Port
    member: str

    @property
    def elements(self) -> int:
        """Number of elements."""
        return prod(self.port.shape)

    @property
    def item_bytes(self) -> int:
        """Bytes of an element."""
        return ITEM_BYTES[self.port.dtype]


@dataclass(frozen=True)
class Inference:
    """What one inference does.

    ``lines``: C statements of inference_run(), in order; ``reset``: those of inference_reset(), none without variables;
    ``state_bytes``: of the variables; ``steps``: what it does, in order, by the numbers that it
    passes to STEP(); ``constants``: definitions that they need; ``functions``: the
    kernels that they call; ``scratch_bytes``: memory between them that the accelerator does not see; ``inexact``: nodes
    in float whose kernel may round the last bit in another way than the runtime.
    """

    inputs: tuple[Array, ...]
    outputs: tuple[Array, ...]
    lines: tuple[str, ...]
    reset: tuple[str, ...]
    state_bytes: int
    steps: tuple[str, ...]
    constants: str
    functions: frozenset[str]
    scratch_bytes: int
    inexact: tuple[str, ...]


def inference_of(compiled: CompiledNetwork) -> Inference:
    """Write the schedule.

    Raises
    ------
    NetworkError
        A node of the host has no kernel, or an input or output has an element type that C has not; names it.
    """
    return _InferenceWriter(compiled).inference()


class _InferenceWriter:
    def __init__(self, compiled: CompiledNetwork) -> None:
        self.code, self.graph = compiled.code, compiled.graph
        arrays = _arrays((*self.graph.inputs, *self.graph.outputs))
        self.inputs, self.outputs = arrays[: len(self.graph.inputs)], arrays[len(self.graph.inputs) :]
        self.storage = Storage(self.graph, self.code.where)
        self.states = kept_states(self.code, self.storage)
        self.direct = {array for array in self.inputs if self._is_tensor(array, "inputs")}
        self.direct |= {array for array in self.outputs if self._is_tensor(array, "outputs")}
        """Inputs and outputs that are tensors in the caller's arrays."""
        self.constants = Constants()
        self.writer = Writer(self.graph, self.storage, self.constants)
        self.run_inputs = RunInputs(self.code.parameters, self.writer)
        self.makers = {
            self.storage.root(name): index
            for index, step in enumerate(self.code.steps)
            for node in step.nodes
            if not isinstance(node, ir.Reshape)
            for name in node.outputs
        }
        """Of each tensor the step that makes it; inputs are not among them."""
        self.given: set[str] = set()
        """Tensors that segments have read of the host's."""
        self.steps: list[str] = []

    def inference(self) -> Inference:
        given = {array.port.tensor: f"inputs->{array.member}" for array in self.inputs}
        self.run_inputs.check(given, given.__getitem__)
        for array in self.inputs:
            self._take(array)
        for one in self.states:
            if one.target is not None:
                size = self.storage.bytes_of(one.state.read)
                self._begin(f"state {one.state.name}")
                self.writer.call("memcpy", one.target, one.place, size)
        for index, (step, number) in enumerate(self.code.walk):
            if number is not None:
                segment = self.code.segments[number]
                self._step(f"segment {number}")
                self.run_inputs.set()
                self._start(segment, *self._borders(index, step))
            elif step.device == HOST:
                for node in step.nodes:
                    self._compute(node)
                    self.run_inputs.check(node.outputs, self.storage.pointer)
        for array in self.outputs:
            self._give(array)
        if any(not one.in_place for one in self.states):
            self.storage.next_step()
        for name, source, target, size in handed_on(self.states, self.storage):
            self._step(f"state {name}")
            self.writer.call("memcpy", target, source, size)
        self.writer.write(f"STEP({len(self.steps)});")
        scratch = self.storage.lay_out()
        reset = reset_lines(self.states, self.storage, self.constants, self.code.where)
        if self.code.keeps:
            reset = ["inference->keeps = 0;", *reset]
        return Inference(
            self.inputs,
            self.outputs,
            tuple(self.writer.lines()),
            tuple(reset),
            sum(self.storage.bytes_of(state.read) for state in self.graph.states),
            tuple(self.steps),
            self.constants.text,
            frozenset(self.writer.functions),
            scratch,
            tuple(self.writer.inexact),
        )

    def _start(self, segment: SegmentCode, read: Sequence[tuple[int, int]], made: Sequence[tuple[int, int]]) -> None:
        """A run of the accelerator; (offset, bytes) of what the host made for it, and of what it makes for the host.
        A segment's entry is left out if SRAM has what it loads."""
        device = "&inference->device, &inference->memory"
        entry, program, pages = segment.entry, f"{segment.address:#x}", f"{segment.pages}"
        if entry:
            self.writer.write(f"skipped = inference->keeps ? {entry} : 0;", "inference->keeps = 0;")
            program, pages = f"{program} + {PAGE_BYTES} * skipped", f"{pages} - skipped"
        self.writer.write(
            *(f"dovetail_flush({device}, {offset:#x}, {size});" for offset, size in read),
            f"status = run_segment(inference, {program}, {pages});",
            "if (status)",
            "    return status;",
            *(["inference->keeps = 1;"] if entry else []),
            *(f"dovetail_invalidate({device}, {offset:#x}, {size});" for offset, size in made),
        )

    def _is_tensor(self, array: Array, struct: str) -> bool:
        """Whether the caller's array can be the tensor's place; then it is."""
        port = array.port
        fits = not port.offset and port.layout.is_plain and port.tensor not in self.code.where
        return fits and self.storage.claim(port.tensor, f"{struct}->{array.member}")

    def _begin(self, text: str) -> None:
        self.storage.next_step()
        self._step(text)

    def _step(self, text: str) -> None:
        self.writer.write(comment(text), f"STEP({len(self.steps)});")
        self.steps.append(text)

    def _compute(self, node: ir.Node) -> None:
        if isinstance(node, ir.FREE):
            return
        self._begin(f"{node.op} {node.name}")
        if isinstance(node, ir.Host):
            write_host(self.writer, node)
        else:
            WRITERS[type(node)](self.writer, node)

    def _borders(self, index: int, step: Step) -> tuple[list[tuple[int, int]], list[tuple[int, int]]]:
        """What a segment is the first to read of the host's, and what it makes for it."""
        root, steps = self.storage.root, self.code.steps
        host = {number for number, other in enumerate(steps) if other.device == HOST}
        read = {root(name) for node in step.nodes for name in node.inputs}
        wanted = {root(name) for number in host for node in steps[number].nodes for name in node.inputs}
        wanted |= {root(array.port.tensor) for array in self.outputs}
        # What the host finds in a variable, it may look at in the next run only.
        wanted |= {root(one.state.written) for one in self.states if not one.in_place or root(one.state.read) in wanted}
        made = {name for name in wanted if self.makers.get(name) == index}
        given = {name for name in read if name not in self.makers or self.makers[name] in host} - self.given
        # What an earlier run of the accelerator has left there, the host has not written.
        given -= {
            root(one.state.read)
            for one in self.states
            if one.in_place and self.makers.get(root(one.state.written), -1) not in {*host, -1}
        }
        self.given |= given
        return self._extents(given), self._extents(made)

    def _extents(self, tensors: Iterable[str]) -> list[tuple[int, int]]:
        where = self.code.where
        return sorted({(where[name], self.storage.bytes_of(name)) for name in tensors if name in where})

    def _take(self, array: Array) -> None:
        if array in self.direct:
            return
        port, source = array.port, f"inputs->{array.member}"
        self._begin(f"input {port.name}")
        target = self.storage.pointer(port.tensor)
        order = port.layout.inside(np.arange(array.elements).reshape(port.shape)).ravel()
        self._convert(array, source, target, order)

    def _give(self, array: Array) -> None:
        if array in self.direct:
            return
        port = array.port
        self._begin(f"output {port.name}")
        self._convert(array, self.storage.pointer(port.tensor), f"outputs->{array.member}", port.layout.order())

    def _convert(self, array: Array, source: str | Pointer, target: str | Pointer, order: NDArray[np.int64]) -> None:
        """Copy between the file's order and the tensor's; uint8 is 128 higher in the file."""
        if not array.port.offset:
            write_places(self.writer, source, target, order, array.item_bytes, array.member)
        elif array.port.layout.is_plain:
            self.writer.call("dovetail_flip", array.elements, source, target)
        else:
            write_places(self.writer, source, target, order, array.item_bytes, array.member)
            self.writer.call("dovetail_flip", array.elements, target, target)


def _arrays(ports: Sequence[ir.Port]) -> tuple[Array, ...]:
    found: list[Array] = []
    for port in ports:
        if port.dtype not in C_TYPES:
            raise NetworkError(
                f"{port.name!r}: generated C takes and makes {', '.join(C_TYPES)}, not {port.dtype}; convert it in the"
                " network"
            )
        found.append(Array(port, identifier(port.name, [array.member for array in found])))
    return tuple(found)
