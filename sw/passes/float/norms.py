"""Passes on normalisations over the last axis: what exporters spell out becomes one node."""

from __future__ import annotations

from typing import Any

import onnx_ir as oir
from onnxscript.rewriter import MatchResult, RewriteRuleClassBase, RewriteRuleSet, pattern

from dovetail.sw.passes.float.edit import constant, numbers, shape_of

RMS_OPSET = 23
"""The first operator set with RMSNormalization."""


class _Scaled(RewriteRuleClassBase):  # type: ignore[misc]
    """Mean, difference, variance, root and a constant factor for each entry of the last axis."""

    def pattern(self, op: Any, x: Any, scale: Any, epsilon: Any) -> Any:
        free = {"_allow_other_inputs": True, "_allow_other_attributes": True}
        difference = op.Sub(x, op.ReduceMean(x, **free, _outputs=["mean"]))
        square = pattern.OrValue([op.Mul(difference, difference), op.Pow(difference, 2)])
        root = op.Sqrt(op.Add(op.ReduceMean(square, **free, _outputs=["variance"]), epsilon))
        quotient = pattern.OrValue([op.Mul(difference, op.Reciprocal(root)), op.Div(difference, root)])
        return op.Mul(quotient, scale)

    def check(self, context: Any, x: oir.Value, scale: oir.Value, epsilon: oir.Value, **means: oir.Value) -> Any:
        added = constant(epsilon)
        if x.dtype != oir.DataType.FLOAT or added is None or added.size != 1 or not _of_last_axis(scale, x):
            return MatchResult().fail("Epsilon must be one constant, the factor a constant of the last axis.")
        if not all(_over_last_axis(mean.producer(), x) for mean in means.values()):
            return MatchResult().fail("Means must be over the last axis and keep it.")
        return MatchResult()

    def rewrite(self, op: Any, x: oir.Value, scale: oir.Value, epsilon: oir.Value, **_: Any) -> Any:
        added = constant(epsilon)
        assert added is not None
        return op.LayerNormalization(x, scale, axis=-1, epsilon=float(added.item()), stash_type=x.dtype)


class _Shifted(RewriteRuleClassBase):  # type: ignore[misc]
    """A layer normalisation and a constant offset for each entry of the last axis."""

    def pattern(self, op: Any, x: Any, scale: Any, offset: Any) -> Any:
        return op.Add(op.LayerNormalization(x, scale, _allow_other_attributes=True, _outputs=["normalised"]), offset)

    def check(self, context: Any, x: oir.Value, offset: oir.Value, **_: Any) -> Any:
        result = MatchResult()
        return result if _of_last_axis(offset, x) else result.fail("The offset must be a constant of the last axis.")

    def rewrite(self, op: Any, x: oir.Value, scale: oir.Value, offset: oir.Value, normalised: oir.Value) -> Any:
        node = normalised.producer()
        assert node is not None
        return op.LayerNormalization(x, scale, offset, _outputs=len(node.outputs), **node.attributes)


def _of_last_axis(value: oir.Value, data: oir.Value) -> bool:
    array, shape = constant(value), shape_of(data)
    return array is not None and shape is not None and array.shape == shape[-1:]


def _over_last_axis(mean: oir.Node | None, data: oir.Value) -> bool:
    if mean is None or mean.attributes.get_int("keepdims", 1) != 1:
        return False
    return numbers(mean, 1, "axes") in ([-1], [len(data.shape or ()) - 1])


class _RootMeanSquare(RewriteRuleClassBase):  # type: ignore[misc]
    """Mean of squares, root and a constant factor for each entry of the last axis."""

    def pattern(self, op: Any, x: Any, scale: Any, epsilon: Any) -> Any:
        square = pattern.OrValue([op.Mul(x, x), op.Pow(x, 2)])
        free = {"_allow_other_inputs": True, "_allow_other_attributes": True}
        root = op.Sqrt(op.Add(op.ReduceMean(square, **free, _outputs=["mean"]), epsilon))
        inverse = pattern.OrValue([op.Reciprocal(root), op.Div(1.0, root)])
        return op.Mul(pattern.OrValue([op.Mul(x, inverse), op.Div(x, root)]), scale)

    check = _Scaled.check

    def rewrite(self, op: Any, x: oir.Value, scale: oir.Value, epsilon: oir.Value, **_: Any) -> Any:
        added = constant(epsilon)
        assert added is not None
        return op.RMSNormalization(x, scale, axis=-1, epsilon=float(added.item()), stash_type=x.dtype)


_LAYER_NORMS = RewriteRuleSet([_Scaled.rule(), _Shifted.rule()], commute=True)
_RMS_NORMS = RewriteRuleSet([_RootMeanSquare.rule()], commute=True)


def fuse_layer_norms(model: oir.Model) -> bool:
    """A layer normalisation that an exporter spelled out becomes one node."""
    return bool(_LAYER_NORMS.apply_to_model(model))


def fuse_rms_norms(model: oir.Model) -> bool:
    """An RMS normalisation that an exporter spelled out becomes one node."""
    changed = bool(_RMS_NORMS.apply_to_model(model))
    if changed:
        model.opset_imports[""] = max(model.opset_imports[""], RMS_OPSET)
    return changed
