"""Float networks as Deeploy writes them: an RMS norm that neither ONNX nor a runtime knows, and operators of later sets
than the file names, with attributes that only their integer forms have."""

from __future__ import annotations

import onnx
from onnx import helper

from dovetail.sw.frontend.onnx.contrib import RMS_NORM
from dovetail.sw.passes.float.model_proto import opset_of

NAME = "RMSNorm"
"""The norm, in the standard's own domain."""
EPSILON = 1e-6
"""What the norm adds to the mean of squares where the file does not say."""


def as_standard(model: onnx.ModelProto) -> bool:
    """Bring such a network to the standard in place, its norms to ONNX Runtime's form; returns whether it is one.

    It gets the first operator set that has all of its operators. So Softmax is along the last axis.
    """
    nodes = model.graph.node
    norms = [node for node in nodes if (node.domain, node.op_type) == ("", NAME)]
    if not norms:
        return False
    for norm in norms:
        norm.op_type = RMS_NORM
        if not any(attribute.name == "epsilon" for attribute in norm.attribute):
            norm.attribute.append(helper.make_attribute("epsilon", EPSILON))
    first: dict[str, int] = {}
    for schema in onnx.defs.get_all_schemas_with_history():
        if not schema.domain:
            first[schema.name] = min(schema.since_version, first.get(schema.name, schema.since_version))
    version = max(
        [opset_of(model), *(first[node.op_type] for node in nodes if not node.domain and node.op_type in first)]
    )
    for opset in model.opset_import:
        if opset.domain in ("", "ai.onnx"):
            opset.version = version
    for node in nodes:
        if not node.domain and node.op_type in first:
            known = onnx.defs.get_schema(node.op_type, version).attributes
            kept = [attribute for attribute in node.attribute if attribute.name in known]
            del node.attribute[:]
            node.attribute.extend(kept)
    return True
