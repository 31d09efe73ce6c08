"""Pass: remove nodes that change nothing, and those whose results are not used."""

from __future__ import annotations

import onnx_ir as oir
import onnx_ir.passes.common as common
from onnxscript import rewriter
from onnxscript.rewriter.rules import common as rules

from dovetail.sw.passes.float.edit import constant, is_op, numbers, redirect, shape_of

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
"""Of the library: neutral operands, casts to the same type, inverse transpositions, minima and maxima as one Clip."""


def tidy(model: oir.Model) -> bool:
    """Drop nodes without effect, join transpositions and clamps, remove dead code."""
    changed = False
    for node in list(model.graph):
        source = node.inputs[0] if node.inputs else None
        if source is not None and _does_nothing(node):
            redirect(node.outputs[0], source)
            model.graph.remove(node, safe=True)
            changed = True
    changed |= bool(_RULES.apply_to_model(model))
    for clean in (common.IdentityEliminationPass(), common.RemoveUnusedNodesPass()):
        changed |= clean(model).modified
    return changed


def _does_nothing(node: oir.Node) -> bool:
    if any(out.uses() or out.is_graph_output() for out in node.outputs[1:]):
        return False
    if is_op(node, "Dropout"):
        training = node.inputs[2] if len(node.inputs) > 2 else None
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
