"""Passes for any network: element types, constants, shapes and names; nodes without effect are removed."""

from __future__ import annotations

import numpy as np
import onnx
import onnx_ir as oir
import onnx_ir.passes.common as common
from onnxscript import optimizer, rewriter
from onnxscript.rewriter.rules import common as rules

from dovetail.sw.errors import NetworkError
from dovetail.sw.frontend.onnx.limits import MOST_ELEMENTS, check_size
from dovetail.sw.host.onnx_session import open_session
from dovetail.sw.passes.float.edit import Editor, constant, is_op, numbers, operand, shape_of

_RULES = rewriter.RewriteRuleSet(
    [
        rules.add_0_rule,
        rules.sub_0_rule,
        rules.mul_by_1_rule,
        rules.div_by_1_rule,
        rules.no_op_cast_rule,
        rules.no_op_expand_rule,
        rules.no_op_transpose_rule,
        rules.transpose_transpose_rule,
        rules.min_min_rule,
        rules.max_max_rule,
        rules.min_max_rule,
        rules.max_min_rule,
        rules.successive_relu_rule,
        rules.successive_relu_clip_rule,
        rules.successive_clip_relu_rule,
        rules.successive_clip_rule,
    ]
)
"""Rules of the library: neutral operands, casts to the same type, pairs of transpositions, clamps."""
_OTHER_FLOATS = (oir.DataType.FLOAT16, oir.DataType.BFLOAT16, oir.DataType.DOUBLE)


def tidy(model: oir.Model) -> bool:
    """Drop nodes without effect, join transpositions and clamps, remove dead code."""
    changed = False
    for node in list(model.graph):
        source = operand(node, 0)
        if source is not None and _does_nothing(node):
            changed = Editor(node).replace(source)
    changed |= bool(_RULES.apply_to_model(model))
    for clean in (common.IdentityEliminationPass(), common.RemoveUnusedNodesPass()):
        changed |= clean(model).modified
    return changed


def _does_nothing(node: oir.Node) -> bool:
    if any(out.uses() or out.is_graph_output() for out in node.outputs[1:]):
        return False
    if is_op(node, "Dropout"):
        training = operand(node, 2)
        switch = constant(training)
        return training is None or (switch is not None and not switch.any())
    if is_op(node, "Concat", "Sum", "Max", "Min"):
        return len(node.inputs) == 1
    if is_op(node, "Pad"):
        pads = numbers(node, 1)
        return pads is not None and not any(pads)
    if is_op(node, "Slice"):
        steps = numbers(node, 4) if len(node.inputs) > 4 else [1]
        known = shape_of(node.inputs[0])
        return known is not None and known == shape_of(node.outputs[0]) and steps is not None and min(steps) > 0
    return False


# Element types ---------------------------------------------------------------------------------


def to_float32(model: oir.Model) -> None:
    """Tensors of other float types become float32, including inputs, outputs and results of Cast."""
    graph = model.graph
    for value in [*graph.inputs, *graph.initializers.values(), *(out for node in graph for out in node.outputs)]:
        if value.const_value is not None and value.const_value.dtype in _OTHER_FLOATS:
            value.const_value = oir.tensor(value.const_value.numpy().astype(np.float32), name=value.name)
        if value.dtype in _OTHER_FLOATS:
            value.dtype = oir.DataType.FLOAT
    for node in graph:
        for name, attribute in list(node.attributes.items()):
            if node.op_type == "Cast" and name == "to" and oir.DataType(attribute.as_int()) in _OTHER_FLOATS:
                node.attributes["to"] = oir.AttrInt64("to", int(oir.DataType.FLOAT))
            elif attribute.type == oir.AttributeType.TENSOR and attribute.as_tensor().dtype in _OTHER_FLOATS:
                array = attribute.as_tensor().numpy().astype(np.float32)
                node.attributes[name] = oir.AttrTensor(name, oir.tensor(array))


# Constants -------------------------------------------------------------------------------------


def fold_constants(model: oir.Model) -> bool:
    """Compute what does not depend on the network's inputs: Constant nodes, shapes, weights that nodes compute.

    Raises
    ------
    NetworkError: a constant would be larger than 2**27 elements.
    """
    common.LiftConstantsToInitializersPass(lift_all_constants=True, size_limit=0)(model)
    for node in model.graph:
        sizes = shape_of(node.outputs[0]) if node.outputs else None
        if is_op(node, "ConstantOfShape") and constant(node.inputs[0]) is not None:
            sizes = tuple(numbers(node, 0) or ())
        if sizes is not None:
            check_size(f"node {node.name!r} ({node.op_type})", sizes)
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
    # Fold all that can be: by default the library keeps large and generated constants as nodes.
    return node.op_type not in ("QuantizeLinear", "DequantizeLinear")


# Shapes ----------------------------------------------------------------------------------------


def infer_shapes(model: oir.Model) -> None:
    """Set shape and element type of every value that the standard's rules determine."""
    common.ShapeInferencePass(check_type=False, strict_mode=False)(model)


def check_shapes(model: oir.Model) -> None:
    """Raises NetworkError for the first node whose result has no known shape, with the reason."""
    read = [value for node in model.graph for value in node.outputs if value.uses() or value.is_graph_output()]
    missing = [value for value in read if shape_of(value) is None or value.dtype is None]
    if not missing:
        return
    _ask_runtime(model, missing)
    for value in missing:
        node = value.producer()
        if shape_of(value) is None and node is not None:
            raise NetworkError(f"node {node.name!r} ({node.op_type}): {_reason(model)}")


def _ask_runtime(model: oir.Model, values: list[oir.Value]) -> None:
    """Ask ONNX Runtime for the shapes of operators that only it knows."""
    proto = oir.serde.serialize_model(model)
    del proto.graph.output[:]
    proto.graph.output.extend(onnx.ValueInfoProto(name=value.name) for value in values)
    try:
        session = open_session(proto.SerializeToString(), optimises=False)
    except Exception:  # the runtime raises its own classes; the caller names the node
        return
    for value, found in zip(values, session.get_outputs(), strict=True):
        if all(isinstance(size, int) for size in found.shape):
            value.shape = oir.Shape(found.shape)
            if found.type == "tensor(float)":
                value.dtype = oir.DataType.FLOAT


def _reason(model: oir.Model) -> str:
    try:
        onnx.shape_inference.infer_shapes(oir.serde.serialize_model(model), strict_mode=True, data_prop=True)
    except onnx.shape_inference.InferenceError as error:
        return f"shapes must fit, not: {' '.join(str(error).split())}"
    return "result must have a shape that follows from the inputs' shapes, not from their values"


# Names -----------------------------------------------------------------------------------------


def name_nodes(model: oir.Model) -> None:
    """A node without a name is named after its result."""
    for node in model.graph:
        node.name = node.name or node.outputs[0].name


def name_everything(model: oir.Model) -> None:
    """Unique names for nodes and values.

    A bias that several convolutions share is copied for each: once quantised, it has the scale of one operator's data.
    """
    for node in model.graph:
        bias = operand(node, 2) if is_op(node, "Conv", "ConvTranspose", "Gemm") else None
        array = constant(bias)
        if bias is not None and array is not None and len(bias.uses()) > 1:
            node.replace_input_with(2, Editor(node).constant(array, "bias"))
    name_nodes(model)
    common.NameFixPass()(model)


def order_constants(model: oir.Model) -> None:
    """Initialisers in the order of their first use, so that equal networks are equal files."""
    graph = model.graph
    read = [value for node in graph for value in node.inputs if value is not None and value.is_initializer()]
    held = [value for value in graph.initializers.values() if value.is_graph_output()]
    graph.initializers.clear()
    for value in dict.fromkeys([*read, *held]):
        graph.register_initializer(value)
