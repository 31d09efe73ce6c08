"""Operators on two tensors that become one instruction each: a few of Dovetail's own, and those of extensions.

An extension names an `OnnxMapping` per operator under the entry point group ``dovetail.onnx``. Whatever it says, a node
runs on the accelerator only if that gives ONNX Runtime's result for every pair of bytes.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from dovetail.isa import extensions
from dovetail.isa.instructions.table import Op
from dovetail.isa.numerics.add import onnx_sum
from dovetail.isa.numerics.vector import VectorOperation, VectorParameters
from dovetail.sw.frontend.onnx.values import Quant


@dataclass(frozen=True)
class OnnxMapping:
    """An ONNX operator on two tensors, element by element, and the instruction that performs it.

    Parameters
    ----------
    operator, domain: of the node. In a domain of its own the model must hold the operator's function, for ONNX Runtime
        to run.
    op: the instruction.
    parameters: (quantisation of the first operand, of the second, of the result, the node's attributes) -> what the
        instruction's registers hold, None if it cannot. Multipliers may be off by some units of their last bit: the
        exact ones are searched for.
    integers: the operator works on the 8-bit integers themselves, without quantisation; otherwise it stands between
        DequantizeLinear and QuantizeLinear. The quantisations are those of plain integers then: scale 1, zero point 0.
    """

    operator: str
    op: Op
    parameters: Callable[[Quant, Quant, Quant, Mapping[str, Any]], VectorParameters | None]
    domain: str = ""
    integers: bool = False


def _plain(operation: VectorOperation) -> Callable[..., VectorParameters]:
    """Of integers that have one scale and zero point."""
    return lambda *given: onnx_sum(1, 0, 1, 0, 1, 0, operation=operation)


BUILT_IN = (
    OnnxMapping("Min", Op.C_MIN, _plain(VectorOperation.MINIMUM), integers=True),
    OnnxMapping("Max", Op.C_MAX, _plain(VectorOperation.MAXIMUM), integers=True),
)


def mappings() -> dict[tuple[str, str], OnnxMapping]:
    """Dovetail's own and those of all extensions that are loaded, by domain and operator."""
    found = [BUILT_IN, *extensions.shares("dovetail.onnx").values()]
    return {(mapping.domain, mapping.operator): mapping for share in found for mapping in share}
