"""Pass: constant folding."""

from __future__ import annotations

from math import prod

import onnx_ir as oir
import onnx_ir.passes.common as common
from onnxscript import optimizer

from dovetail.sw.errors import NetworkError
from dovetail.sw.onnx_passes.edit import constant, is_op, numbers, shape_of

_MOST = 1 << 28
"""Elements of the largest constant that is made: 1 GiB of float32."""


def fold_constants(model: oir.Model) -> bool:
    """Compute what does not depend on the network's inputs: weights that are made by nodes, shapes, Constant nodes.

    Raises
    ------
    NetworkError: a constant would be larger than 2**28 elements.
    """
    common.LiftConstantsToInitializersPass(lift_all_constants=True, size_limit=0)(model)
    for node in model.graph:
        _check_size(node)
    folded = optimizer.fold_constants(
        model, onnx_shape_inference=True, input_size_limit=_MOST, output_size_limit=_MOST, should_fold=_should_fold
    )
    lifted = common.LiftConstantsToInitializersPass(lift_all_constants=True, size_limit=0)(model)
    return bool(folded.modified or lifted.modified)


def _should_fold(node: oir.Node) -> bool | None:
    # Everything in reach: the library by itself would keep large and made-up constants as nodes.
    return node.op_type not in ("QuantizeLinear", "DequantizeLinear")


def _check_size(node: oir.Node) -> None:
    sizes = shape_of(node.outputs[0]) if node.outputs else None
    if is_op(node, "ConstantOfShape") and constant(node.inputs[0]) is not None:
        given = numbers(node, 0)
        sizes = tuple(given) if given is not None else sizes
    if sizes is not None and prod(sizes) > _MOST:
        raise NetworkError(
            f"node {node.name!r} ({node.op_type}): a tensor must have at most 2**28 elements, not {sizes}"
        )
