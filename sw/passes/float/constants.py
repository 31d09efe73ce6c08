"""Pass: constant folding."""

from __future__ import annotations

import onnx_ir as oir
import onnx_ir.passes.common as common
from onnxscript import optimizer

from dovetail.sw.frontend.onnx.limits import MOST_ELEMENTS, check_size
from dovetail.sw.passes.float.edit import constant, is_op, numbers, shape_of


def fold_constants(model: oir.Model) -> bool:
    """Compute what does not depend on the network's inputs: weights that are made by nodes, shapes, Constant nodes.

    Raises
    ------
    NetworkError: a constant would be larger than 2**27 elements.
    """
    common.LiftConstantsToInitializersPass(lift_all_constants=True, size_limit=0)(model)
    for node in model.graph:
        _check_size(node)
    folded = optimizer.fold_constants(
        model,
        onnx_shape_inference=True,
        input_size_limit=MOST_ELEMENTS,
        output_size_limit=MOST_ELEMENTS,
        should_fold=_should_fold,
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
    if sizes is not None:
        check_size(f"node {node.name!r} ({node.op_type})", sizes)
