"""Checks: operators that a float network may have."""

from __future__ import annotations

import onnx_ir as oir

from dovetail.sw.errors import NetworkError
from dovetail.sw.frontend.onnx import file


def check_operators(model: oir.Model) -> None:
    """Raises NetworkError for unknown operators, and for networks that are quantised already."""
    for node in model.graph:
        file.check_known(node.op_type, node.domain, _label(node))
        if file.is_quantised([node.op_type]):
            raise NetworkError(f"node {_label(node)}: the network must be float, not quantised already")


def check_control_flow(model: oir.Model) -> None:
    """Raises NetworkError for branches and loops; constant folding has taken those that the shapes decide."""
    for node in model.graph:
        file.check_control_flow(node.op_type, node.domain, _label(node))


def _label(node: oir.Node) -> str:
    return f"{node.name!r} ({node.op_type})"
