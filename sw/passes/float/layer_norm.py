"""Pass: layer normalisations that exporters spell out become LayerNormalization: one node for the host."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx_ir as oir
from onnxscript.rewriter import MatchResult, RewriteRuleSet
from onnxscript.rewriter.rules.fusion import _layer_norm as library

from dovetail.sw.passes.float.edit import Editor, constant, is_op, numbers, shape_of


class _Scaled(library.LayerNormFusion):  # type: ignore[misc]
    """The library's pattern, where the factor is a constant of the last axis."""

    def check(self, context: Any, x: oir.Value, epsilon: oir.Value, scale: oir.Value, **_: Any) -> Any:
        if not _of_last_axis(scale, x):
            return MatchResult().fail("The factor must be a constant of the last axis.", scale)
        return super().check(context, x, epsilon)


class _Shifted(library.LayerNormBiasFusion):  # type: ignore[misc]
    """The library's pattern, where the offset is a constant of the last axis."""

    def check(self, context: Any, x: oir.Value, bias: oir.Value, **_: Any) -> Any:
        result = MatchResult()
        return result if _of_last_axis(bias, x) else result.fail("The offset must be a constant of the last axis.")


def _of_last_axis(value: oir.Value, data: oir.Value) -> bool:
    array, shape = constant(value), shape_of(data)
    return array is not None and shape is not None and array.shape == shape[-1:]


_RULES = RewriteRuleSet([_Scaled.rule(), _Shifted.rule()], commute=True)


def fuse_layer_norms(model: oir.Model) -> bool:
    """Mean, difference, variance, root, factor and offset over the last axis become one node."""
    changed = False
    # The pattern wants the last axis counted from the back, and no attribute left out.
    for node in list(model.graph):
        shape = shape_of(node.inputs[0]) if is_op(node, "ReduceMean") else None
        if shape is not None and numbers(node, 1, "axes") == [len(shape) - 1]:
            node.replace_input_with(1, Editor(node).constant(np.array([-1]), "axes"))
            changed = True
        if shape is not None and "keepdims" not in node.attributes:
            node.attributes["keepdims"] = oir.AttrInt64("keepdims", 1)
            changed = True
    return bool(_RULES.apply_to_model(model)) or changed
