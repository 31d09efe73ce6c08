"""Graph passes on float ONNX networks: from what exporters write to what a quantiser and the front end take well.

`normalise` runs them all. Every pass keeps the function that the network computes, up to rounding, is in a file of its
own, and says whether it changed something.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from dovetail.sw.errors import NetworkError, first_line

if TYPE_CHECKING:
    import onnx

_ROUNDS = 12
"""More than any network needs: each round settles what the one before it uncovered."""


def normalise(model: onnx.ModelProto, *, shapes: Mapping[str, Sequence[int]] | None = None) -> onnx.ModelProto:
    """A float network in one form: operator set 21 or newer, fixed shapes, constants folded, operators fused.

    Parameters
    ----------
    model: any float network, operator set 9 or newer; it is left as it is.
    shapes: input name -> sizes, for axes that the file leaves open. The batch is 1 where nothing is said.

    Returns
    -------
    onnx.ModelProto: inputs and outputs keep names and order. Every tensor has a shape, every node a unique name,
        weights are initialisers. Normalising it again changes nothing.

    Raises
    ------
    NetworkError: the network is malformed or quantised already, or a shape stays open; names input or node.
    """
    logging.getLogger("onnx_ir").setLevel(logging.CRITICAL)  # it logs traces of what is raised here
    try:
        return _normalised(model, shapes or {})
    except NetworkError:
        raise
    except RecursionError as error:
        raise NetworkError("float network must be less deeply nested") from error
    except Exception as error:  # a damaged file fails anywhere: in lookups, shapes, protobuf accessors
        reason = first_line(error)
        raise NetworkError(
            f"float network must be well formed, not damaged ({type(error).__name__}: {reason})"
        ) from error


def _normalised(model: onnx.ModelProto, shapes: Mapping[str, Sequence[int]]) -> onnx.ModelProto:
    # Imported late: only float networks need these libraries.
    import onnx
    import onnx_ir as oir
    import onnx_ir.passes.common as common
    from onnx import inliner

    from dovetail.sw.frontend.onnx.limits import check_functions
    from dovetail.sw.passes.float import (
        borders,
        constants,
        fixed_inputs,
        float32,
        infer,
        names,
        opset,
        runtime_operators,
    )

    copy = onnx.ModelProto()
    copy.CopyFrom(model)
    if copy.functions:
        check_functions(copy)
        copy = inliner.inline_local_functions(copy)
    fixed_inputs.fix_inputs(copy, shapes)
    network = oir.serde.deserialize_model(opset.upgrade(copy))
    names.name_nodes(network)
    borders.check_operators(network)
    runtime_operators.standardise(network)
    float32.to_float32(network)
    infer.infer_shapes(network)
    constants.fold_constants(network)
    names.name_nodes(network)
    borders.check_control_flow(network)
    infer.infer_shapes(network)
    infer.check_shapes(network)
    run = _passes()
    for _ in range(_ROUNDS):
        changes = [change(network) for change in run]
        if not any(changes):
            break
    common.TopologicalSortPass()(network)
    names.name_everything(network)
    names.order_constants(network)
    result: onnx.ModelProto = oir.serde.serialize_model(network)
    result.ir_version = opset.IR_VERSION
    return result


def _passes() -> tuple[Callable[[Any], bool], ...]:
    from dovetail.sw.passes.float import (
        activations,
        affine,
        broadcasts,
        constants,
        dense,
        gathers,
        layer_norm,
        one_dimensional,
        pads,
        pooling,
        prelu,
        resizing,
        sums,
        tidy,
        transposed,
        views,
    )

    return (
        tidy.tidy,
        gathers.slice_gathers,
        views.unify_views,
        sums.split_sums,
        broadcasts.shrink_operands,
        layer_norm.fuse_layer_norms,
        activations.name_activations,
        prelu.spell_out_prelus,
        affine.fold_affine,
        resizing.unfold_bilinear,
        transposed.unfold_transposed_convolutions,
        pads.spell_out_pads,
        pads.fuse_pads,
        one_dimensional.lift_one_dimensional,
        pooling.unify_pooling,
        dense.unify_dense,
        views.sink_views,
        views.sink_transposes,
        constants.fold_constants,
        tidy.tidy,
    )
