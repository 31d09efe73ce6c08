"""Recurrent networks for keyword spotting, with seeded random weights: features of one step in, logits out.

What they keep are inputs and outputs that Dovetail takes as variables. A run is a step.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from onnx import TensorProto, helper

from dovetail.sw.zoo.onnx_builder import LINEAR, UNIT, Act, Builder, Range, in_range

OPSET, _IR = 13, 8

TANH = Range("", -1.0, 127 / 128, 0.5, 0.5)
CELL = Range("", -6.0, 6.0, 1.0, 1.0)
"""Beyond it tanh is 1 but for 1e-5."""


class RecurrentBuilder(Builder):
    """With variables of one row, and what a step makes of them.

    Parameters
    ----------
    name, seed: of the network.
    width: features of a step.
    units: of the layer.
    """

    def __init__(self, name: str, seed: int, width: int, units: int) -> None:
        super().__init__(name, seed)
        self.units = units
        self.source = self.start((1, width), 1 / 128, 0)
        self.inputs, self.outputs = [self.input], list[Any]()

    def past(self, name: str, result: Range) -> Act:
        """What the run before has left."""
        scale, zero = result.quant
        self.inputs.append(helper.make_tensor_value_info(f"past_{name}", TensorProto.INT8, (1, self.units)))
        return Act(f"past_{name}", (1, self.units), float(np.float32(scale)), zero, result.rms)

    def present(self, name: str, act: Act) -> Act:
        """What the next run is to find; the last operator made it."""
        self.nodes[-1].output[0] = f"present_{name}"
        self.outputs.append(helper.make_tensor_value_info(f"present_{name}", TensorProto.INT8, act.shape))
        return Act(f"present_{name}", act.shape, act.scale, act.zero, act.rms)

    def gates(self, act: Act, count: int) -> list[Act]:
        """Sigmoids of one product."""
        product = self.dense("gates", act, count * self.units, LINEAR)
        return self.parts("gates_split", self.function("gates_sigmoid", "Sigmoid", product, UNIT), count)

    def complement(self, name: str, act: Act) -> Act:
        """1 - act"""
        inputs = [self.constant(f"{name}_one", np.ones((), np.float32)), self.dequantised(act)]
        self.nodes.append(helper.make_node("Sub", inputs, [f"{name}_float"], name))
        return self.activated(name, act.shape, UNIT)

    def classified(self, act: Act, classes: int) -> bytes:
        """The file."""
        logits = self.dense("logits", act, classes, LINEAR)
        self.nodes[-1].output[0] = "logits"
        outputs = [helper.make_tensor_value_info("logits", TensorProto.INT8, logits.shape), *self.outputs]
        return self.written(self.inputs, outputs, OPSET, _IR)


def lstm(width: int = 10, units: int = 128, classes: int = 12, seed: int = 18) -> bytes:
    """LSTM for keyword spotting, a step in each run; input (1, width)."""
    _check(width, units, classes)
    build = RecurrentBuilder("lstm", seed, width, units)
    scale, zero = CELL.quant
    product = Act("", (1, units), float(np.float32(scale)), zero, CELL.rms)
    added = Act("", (1, units), 1 / 128, 0, TANH.rms)
    cells = build.exact_sum(product, added, CELL)
    hidden, cell = build.past("h", TANH), build.past("c", cells)
    both = build.concat("joined", build.source, hidden)
    enter, leave, keep = build.gates(both, 3)
    new = build.function("new_tanh", "Tanh", build.dense("new", both, units, LINEAR), TANH)
    held = build.multiply("held", keep, cell, CELL)
    cell = build.present("c", build.add("cell", held, build.multiply("added", enter, new, TANH), cells))
    hidden = build.multiply("hidden", leave, build.function("cell_tanh", "Tanh", cell, TANH), TANH)
    return build.classified(build.present("h", hidden), classes)


def gru(width: int = 10, units: int = 128, classes: int = 12, seed: int = 19) -> bytes:
    """GRU for keyword spotting, a step in each run; its reset gate is behind the product; input (1, width)."""
    _check(width, units, classes)
    build = RecurrentBuilder("gru", seed, width, units)
    before = build.past("h", TANH)
    update, reset = build.gates(build.concat("joined", build.source, before), 2)
    old = build.multiply("reset", reset, build.dense("old", before, units, LINEAR), LINEAR)
    fresh = build.dense("fresh", build.source, units, LINEAR)
    new = build.function("new_tanh", "Tanh", build.add("new", fresh, old, build.exact_sum(fresh, old, LINEAR)), TANH)
    moved = build.multiply("moved", build.complement("rest", update), new, TANH)
    held = build.multiply("held", update, before, TANH)
    return build.classified(build.present("h", build.add("hidden", held, moved, TANH)), classes)


def _check(width: int, units: int, classes: int) -> None:
    in_range("width", width, 1, 4096)
    in_range("units", units, 1, 4096)
    in_range("classes", classes, 1, 100_000)
