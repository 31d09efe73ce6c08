"""Operators on two tensors, element by element: one row for each, which every layer of the software reads."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from dovetail.isa.instructions.table import Op
from dovetail.isa.numerics.vector import VectorOperation


@dataclass(frozen=True)
class PairOperator:
    """An operator on two tensors: its instruction, what it is called in reports and in both kinds of files, and the
    function on reals that it rounds."""

    operation: VectorOperation
    instruction: Op
    name: str
    onnx: str
    tflite: str
    real: Callable[[Any, Any], Any]


PAIR_OPERATORS = {
    row.operation: row
    for row in (
        PairOperator(VectorOperation.ADD, Op.E_ADD, "add", "Add", "ADD", np.add),
        PairOperator(VectorOperation.SUBTRACT, Op.E_ADD, "sub", "Sub", "SUB", np.subtract),
        PairOperator(VectorOperation.MINIMUM, Op.C_MIN, "min", "Min", "MINIMUM", np.minimum),
        PairOperator(VectorOperation.MAXIMUM, Op.C_MAX, "max", "Max", "MAXIMUM", np.maximum),
        PairOperator(VectorOperation.MULTIPLY, Op.E_MUL, "mul", "Mul", "MUL", np.multiply),
    )
}

BYTES = np.arange(-128, 128).astype(np.int8)
"""Every byte; and every pair of bytes:"""
LEFT, RIGHT = (side.ravel() for side in np.meshgrid(BYTES, BYTES, indexing="ij"))
