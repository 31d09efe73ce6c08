"""Pass on recurrent layers: LSTM, GRU and RNN become products, functions and sums, step by step.

A gate of a step is one product of its input beside the last output with all weights of the gate. Gates of one function
are one product. The steps of a sequence follow each other; their weights are the same constants.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import onnx_ir as oir

from dovetail.sw.network.layout import Array
from dovetail.sw.passes.float.edit import Editor, constant, each, operand, redirect, shape_of

MOST_STEPS = 128
"""Of a sequence, both directions together. Longer ones stay a node for the host: each step is some ten nodes."""

_GATES = {"LSTM": 4, "GRU": 3, "RNN": 1}
_ACTIVATIONS = {"LSTM": ("Sigmoid", "Tanh", "Tanh"), "GRU": ("Sigmoid", "Tanh"), "RNN": ("Tanh",)}
_OPTIONS = {"activations", "direction", "hidden_size", "layout", "linear_before_reset"}
_State = tuple[oir.Value, ...]
"""What a step leaves: output, and an LSTM's cell."""


@dataclass(frozen=True)
class Part:
    """Weights of some gates: a product of what is [rows, inputs] beside what is [rows, units].

    Parameters
    ----------
    matrix: [inputs + units, outputs], or without one of the two.
    bias: [outputs].
    """

    matrix: oir.Value
    bias: oir.Value

    @property
    def outputs(self) -> int:
        """Columns of the result."""
        shape = shape_of(self.bias)
        assert shape is not None
        return shape[0]


@each("LSTM", "GRU", "RNN")
def spell_out_recurrent(node: oir.Node) -> bool:
    """LSTM, GRU and RNN become products, functions and sums, step by step.

    Only with constant weights, the usual activations and at most `MOST_STEPS` steps; without peepholes, clipped gates,
    coupled gates and lengths of their own for the sequences of a batch.
    """
    layer = _layer(node)
    if layer is None:
        return False
    layer.spell_out()
    return True


def _layer(node: oir.Node) -> _Layer | None:
    """What a node is made of; None where it has something that is not spelled out."""
    weights = [constant(operand(node, index)) for index in (1, 2, 3)]
    shape, kind = shape_of(node.inputs[0]), node.op_type
    if shape is None or weights[0] is None or weights[1] is None or (weights[2] is None and operand(node, 3)):
        return None
    turned = node.attributes.get_int("layout", 0) == 1
    batch, steps = shape[:2] if turned else shape[1::-1]
    directions, units = weights[1].shape[0], weights[1].shape[2]
    usual, given = _ACTIVATIONS[kind], node.attributes.get_strings("activations", ())
    lengths, peepholes = operand(node, 4), operand(node, 7)
    seen = constant(lengths)
    if set(node.attributes) - _OPTIONS or tuple(given or usual * directions) != usual * directions:
        return None
    if lengths is not None and (seen is None or np.any(seen != steps)):
        return None
    hollow = constant(peepholes)
    if steps * directions > MOST_STEPS or (peepholes is not None and (hollow is None or np.any(hollow))):
        return None
    bias = np.zeros((directions, 2 * _GATES[kind] * units), np.float32) if weights[2] is None else weights[2]
    return _Layer(node, weights[0], weights[1], bias, steps, batch, units, turned)


@dataclass
class _Layer:
    node: oir.Node
    inputs: Array
    """[directions, gates * units, inputs]"""
    outputs: Array
    """[directions, gates * units, units]"""
    bias: Array
    """[directions, 2 * gates * units]"""
    steps: int
    batch: int
    units: int
    turned: bool
    """The batch is the first axis."""

    def __post_init__(self) -> None:
        self.edit = Editor(self.node)

    def spell_out(self) -> None:
        """Replace the node."""
        direction = self.node.attributes.get_string("direction", "forward")
        sequence = self._sequence()
        found: list[list[_State]] = []
        for number in range(len(self.inputs)):
            backwards = direction == "reverse" or number == 1
            states = [*self._walk(number, sequence[::-1] if backwards else sequence)]
            found.append(states)
        results = [self._whole(found, direction), *(self._last(found, index) for index in range(len(found[0][0])))]
        for old, new in zip(self.node.outputs, results, strict=False):
            redirect(old, new)
        assert self.node.graph is not None
        self.node.graph.remove(self.node, safe=True)

    def _sequence(self) -> list[oir.Value]:
        """The input of each step, [batch, inputs]."""
        source, axis, form = self.node.inputs[0], 1 if self.turned else 0, (self.batch, self.inputs.shape[2])
        assert source is not None
        if self.steps == 1:
            return [self.edit.reshape(source, form)]
        cuts = [self.edit.cut(source, [axis], [step], [step + 1]) for step in range(self.steps)]
        return [self.edit.reshape(cut, form) for cut in cuts]

    def _walk(self, number: int, sequence: Sequence[oir.Value]) -> Iterator[_State]:
        """What each step of a direction leaves, in the order of the walk."""
        step = {"LSTM": self._lstm, "GRU": self._gru, "RNN": self._rnn}[self.node.op_type](number)
        state = tuple(self._initial(number, index) for index in range(2 if self.node.op_type == "LSTM" else 1))
        for value in sequence:
            state = step(value, state)
            yield state

    def _initial(self, number: int, index: int) -> oir.Value:
        """What the first step begins with, [batch, units]."""
        given, form = operand(self.node, 5 + index), (self.batch, self.units)
        if given is None:
            return self.edit.constant(np.zeros(form, np.float32), "initial")
        if len(self.inputs) > 1:
            given = self.edit.cut(given, [1 if self.turned else 0], [number], [number + 1])
        return self.edit.reshape(given, form)

    def _whole(self, found: list[list[_State]], direction: str) -> oir.Value:
        """Outputs of all steps, [steps, directions, batch, units]; [batch, steps, directions, units] if turned."""
        lines = [[state[0] for state in states] for states in found]
        for number, line in enumerate(lines):
            if direction == "reverse" or number == 1:
                line.reverse()
        form = (self.batch, 1, 1, self.units) if self.turned else (1, 1, self.batch, self.units)
        along, across = (1, 2) if self.turned else (0, 1)
        rows = [[self.edit.reshape(value, form) for value in row] for row in zip(*lines, strict=True)]
        return self._joined([self._joined(row, across) for row in rows], along)

    def _last(self, found: list[list[_State]], index: int) -> oir.Value:
        """What the last steps leave, [directions, batch, units]; [batch, directions, units] if turned."""
        form = (self.batch, 1, self.units) if self.turned else (1, self.batch, self.units)
        ends = [self.edit.reshape(states[-1][index], form) for states in found]
        return self._joined(ends, 1 if self.turned else 0)

    def _joined(self, parts: Sequence[oir.Value], axis: int) -> oir.Value:
        if len(parts) == 1:
            return parts[0]
        shape = list(shape_of(parts[0]) or ())
        shape[axis] = sum((shape_of(part) or ())[axis] for part in parts)
        return self.edit.add("Concat", parts, tuple(shape), {"axis": axis})

    # Pieces ----------------------------------------------------------------------------------------

    def _part(self, number: int, gates: Sequence[int], *, inputs: bool = True, outputs: bool = True) -> Part:
        """Weights of some gates, for the input, for the last output, or for one beside the other."""
        rows = np.concatenate([np.arange(gate * self.units, (gate + 1) * self.units) for gate in gates])
        sides = [self.inputs[number][rows]] * inputs + [self.outputs[number][rows]] * outputs
        biases = np.split(self.bias[number], 2)
        bias = sum([biases[0][rows]] * inputs + [biases[1][rows]] * outputs, np.zeros(len(rows), np.float32))
        matrix = np.concatenate(sides, axis=1).T
        return Part(self.edit.constant(matrix, "weights"), self.edit.constant(bias, "bias"))

    def _product(self, value: oir.Value, part: Part) -> oir.Value:
        return self.edit.add("Gemm", [value, part.matrix, part.bias], (self.batch, part.outputs))

    def _gates(self, function: str, value: oir.Value, part: Part) -> list[oir.Value]:
        """Gates of one function, each [batch, units]."""
        whole = self.edit.add(function, [self._product(value, part)], (self.batch, part.outputs))
        count = part.outputs // self.units
        if count == 1:
            return [whole]
        ends = [index * self.units for index in range(count + 1)]
        return [self.edit.cut(whole, [1], [start], [end]) for start, end in pairwise(ends)]

    def _two(self, operator: str, left: oir.Value, right: oir.Value) -> oir.Value:
        return self.edit.add(operator, [left, right], (self.batch, self.units))

    def _scaled(self, gate: oir.Value, value: oir.Value) -> oir.Value:
        """A gate times a value; zeros stay, which most layers begin with."""
        return value if _is_zero(value) else self._two("Mul", gate, value)

    def _sum(self, left: oir.Value, right: oir.Value) -> oir.Value:
        return right if _is_zero(left) else self._two("Add", left, right)

    # Steps -----------------------------------------------------------------------------------------

    def _lstm(self, number: int) -> Callable[[oir.Value, _State], _State]:
        """Gates of the file: input, output, forget, cell."""
        sigmoids, tanh = self._part(number, (0, 1, 2)), self._part(number, (3,))

        def step(value: oir.Value, state: _State) -> _State:
            both = self._joined([value, state[0]], 1)
            enter, leave, keep = self._gates("Sigmoid", both, sigmoids)
            (new,) = self._gates("Tanh", both, tanh)
            cell = self._sum(self._scaled(keep, state[1]), self._two("Mul", enter, new))
            bent = self.edit.add("Tanh", [cell], (self.batch, self.units))
            return self._two("Mul", leave, bent), cell

        return step

    def _gru(self, number: int) -> Callable[[oir.Value, _State], _State]:
        """Gates of the file: update, reset, hidden. The reset is in front of the product or behind it."""
        behind = self.node.attributes.get_int("linear_before_reset", 0) != 0
        gates = self._part(number, (0, 1))
        hidden = [self._part(number, (2,), outputs=False), self._part(number, (2,), inputs=False)] if behind else []
        joined = None if behind else self._part(number, (2,))
        one = self.edit.constant(np.ones((), np.float32), "one")

        def step(value: oir.Value, state: _State) -> _State:
            update, reset = self._gates("Sigmoid", self._joined([value, *state], 1), gates)
            if joined is None:
                new, old = (self._product(side, part) for side, part in zip((value, *state), hidden, strict=True))
                total = self._two("Add", new, self._two("Mul", reset, old))
                bent = self.edit.add("Tanh", [total], (self.batch, self.units))
            else:
                both = self._joined([value, self._scaled(reset, *state)], 1)
                (bent,) = self._gates("Tanh", both, joined)
            rest = self._two("Sub", one, update)
            return (self._sum(self._scaled(update, *state), self._two("Mul", rest, bent)),)

        return step

    def _rnn(self, number: int) -> Callable[[oir.Value, _State], _State]:
        part = self._part(number, (0,))
        return lambda value, state: (self._gates("Tanh", self._joined([value, *state], 1), part)[0],)


def _is_zero(value: oir.Value) -> bool:
    array = constant(value)
    return array is not None and not np.any(array)
