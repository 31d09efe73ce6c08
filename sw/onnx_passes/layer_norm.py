"""Pass: layer normalisations that exporters spell out become LayerNormalization: one node for the host."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx_ir as oir
from onnxscript.rewriter import MatchResult, RewriteRuleSet
from onnxscript.rewriter.rules.fusion import _layer_norm as library

from dovetail.sw.onnx_passes.edit import Editor, constant, is_op, numbers, shape_of


class _Scaled(library.LayerNormFusion):
    """The library's pattern, where the factor is a constant of the last axis."""

    def check(self, context: Any, x: oir.Value, epsilon: oir.Value, scale: oir.Value, **_: Any) -> MatchResult:
        factor, shape = constant(scale), shape_of(x)
        if factor is None or shape is None or factor.shape != shape[-1:]:
            return MatchResult().fail("The factor must be a constant of the last axis.", scale)
        return super().check(context, x, epsilon)


class _Shifted(library.LayerNormBiasFusion):
    """The library's pattern, where the offset is a constant of the last axis."""

    def check(self, context: Any, x: oir.Value, bias: oir.Value, **_: Any) -> MatchResult:
        offset, shape = constant(bias), shape_of(x)
        result = MatchResult()
        if offset is None or shape is None or offset.shape != shape[-1:]:
            return result.fail("The offset must be a constant of the last axis.", bias)
        return result


_RULES = RewriteRuleSet([_Scaled.rule(), _Shifted.rule()], commute=True)


def fuse_layer_norms(model: oir.Model) -> bool:
    """Mean, difference, variance, root, factor and offset over the last axis become one node."""
    changed = False
    for node in list(model.graph):
        shape, axes = shape_of(node.inputs[0]) if node.inputs else None, numbers(node, 1, "axes")
        if is_op(node, "ReduceMean") and shape is not None and axes == [len(shape) - 1]:
            # The pattern wants the last axis counted from the back.
            node.replace_input_with(1, Editor(node).constant(np.array([-1]), "axes"))
            changed = True
    return bool(_RULES.apply_to_model(model)) or changed
