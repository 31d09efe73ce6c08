"""`normalise` runs all passes on float networks. Every pass keeps the function of the network, up to rounding."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager

import onnx
import onnx_ir as oir
import onnx_ir.passes.common as common
from onnx import inliner

from dovetail.sw.errors import NetworkError, first_line
from dovetail.sw.frontend.onnx import file
from dovetail.sw.frontend.onnx.limits import check_functions
from dovetail.sw.passes.float import (
    elementwise,
    linear,
    model_proto,
    movement,
    norms,
    recurrent,
    rotations,
    tidy,
    windows,
)
from dovetail.sw.passes.float.edit import Pass

_ROUNDS = 12
"""More than any network needs. A pass may open work for another, which is done in the next round."""

PASSES: tuple[Pass, ...] = (
    tidy.tidy,
    recurrent.spell_out_recurrent,
    movement.slice_gathers,
    movement.unify_views,
    elementwise.split_sums,
    elementwise.shrink_operands,
    norms.fuse_layer_norms,
    norms.fuse_rms_norms,
    rotations.join_rotations,
    elementwise.name_activations,
    elementwise.spell_out_prelus,
    linear.fold_affine,
    windows.unfold_bilinear,
    windows.unfold_transposed_convolutions,
    windows.spell_out_pads,
    windows.fuse_pads,
    windows.lift_one_dimensional,
    windows.unify_pooling,
    linear.unify_dense,
    movement.sink_views,
    movement.sink_transposes,
    tidy.fold_constants,
    tidy.tidy,
)
"""Run in this order until none changes anything."""


def normalise(model: onnx.ModelProto, *, shapes: Mapping[str, Sequence[int]] | None = None) -> onnx.ModelProto:
    """A float network in one form: operator set 21 or newer, fixed shapes, constants folded, operators fused.

    Parameters
    ----------
    model: any float network, operator set 6 or newer; it is left as it is.
    shapes: input name -> sizes, for axes that the file leaves open. The batch is 1 where nothing is said.

    Returns
    -------
    onnx.ModelProto: inputs and outputs keep names and order. Every tensor has a shape, every node a unique name,
        weights are initialisers. Normalising it again changes nothing.

    Raises
    ------
    NetworkError: the network is malformed or quantised already, or a shape stays open; names input or node.
    """
    with well_formed():
        network = prepare(model, shapes or {})
        for _ in steps(network, PASSES):
            pass
        common.TopologicalSortPass()(network)
        tidy.name_everything(network)
        tidy.order_constants(network)
        result: onnx.ModelProto = oir.serde.serialize_model(network)
    result.ir_version = model_proto.IR_VERSION
    return result


def steps(network: oir.Model, passes: Sequence[Pass]) -> Iterator[tuple[int, Pass, bool]]:
    """Round, pass, and whether it changed the network, for every pass that runs."""
    for number in range(_ROUNDS):
        settled = True
        for change in passes:
            changed = change(network)
            settled &= not changed
            yield number, change, changed
        if settled:
            break


@contextmanager
def well_formed() -> Iterator[None]:
    """Every error becomes a line about the network: a damaged one fails anywhere, in lookups, shapes, accessors."""
    logging.getLogger("onnx_ir").setLevel(logging.CRITICAL)  # it logs the traces of exceptions that are handled here
    try:
        yield
    except NetworkError:
        raise
    except RecursionError as error:
        raise NetworkError("float network must be less deeply nested") from error
    except Exception as error:
        reason = first_line(error)
        raise NetworkError(
            f"float network must be well formed, not damaged ({type(error).__name__}: {reason})"
        ) from error


def prepare(model: onnx.ModelProto, shapes: Mapping[str, Sequence[int]]) -> oir.Model:
    """A copy of a network as the passes take it: one operator set, float32, known shapes, names, constants folded."""
    copy = onnx.ModelProto()
    copy.CopyFrom(model)
    if copy.functions:
        check_functions(copy)
        copy = inliner.inline_local_functions(copy)
    model_proto.fix_inputs(copy, shapes)
    network = oir.serde.deserialize_model(model_proto.upgrade(copy))
    tidy.name_nodes(network)
    _check_operators(network)
    elementwise.standardise(network)
    tidy.to_float32(network)
    tidy.infer_shapes(network)
    tidy.fold_constants(network)
    tidy.name_nodes(network)
    for node in network.graph:  # constant folding has removed branches that depend on shapes alone
        file.check_control_flow(node.op_type, node.domain, _label(node))
    tidy.infer_shapes(network)
    tidy.check_shapes(network)
    return network


def _check_operators(model: oir.Model) -> None:
    """Raises NetworkError for unknown operators, and for networks that are quantised already."""
    for node in model.graph:
        file.check_known(node.op_type, node.domain, _label(node))
        if file.is_quantised([node.op_type]):
            raise NetworkError(f"node {_label(node)}: the network must be float, not quantised already")


def _label(node: oir.Node) -> str:
    return f"{node.name!r} ({node.op_type})"
