"""Pass: one operator set, recent enough for every pass behind and for ONNX Runtime's quantiser."""

from __future__ import annotations

import onnx
from onnx import defs, version_converter

from dovetail.sw.errors import NetworkError, first_line

OPSET = 21
OLDEST = 6
"""Older ones describe operators that the converter does not follow."""
IR_VERSION = 10
_STANDARD = ("", "ai.onnx")
_PARKED = "dovetail.parked"


def upgrade(model: onnx.ModelProto) -> onnx.ModelProto:
    """The model in operator set `OPSET`; one that is newer stays as it is.

    Operators that ONNX Runtime knew before the standard did (LayerNormalization in operator set 12) are taken as those
    of the new set.

    Raises
    ------
    NetworkError: older than `OLDEST`, or an operator without a successor.
    """
    versions = [opset.version for opset in model.opset_import if opset.domain in _STANDARD]
    version = max(versions, default=OPSET)
    if version < OLDEST:
        raise NetworkError(f"operator set must be {OLDEST} or newer, not {version}; export again with a newer one")
    if version >= OPSET:
        return model
    model.ir_version = max(model.ir_version, 4)
    early = [node for node in model.graph.node if node.domain in _STANDARD and not _known(node.op_type, version)]
    for node in early:
        node.domain = _PARKED
    if early:
        model.opset_import.add(domain=_PARKED, version=1)
    try:
        model = version_converter.convert_version(model, OPSET)
    except Exception as error:  # the C++ converter raises classes of its own
        raise NetworkError(
            f"operator set {version} must convert to {OPSET}; export with that one ({first_line(error)})"
        ) from error
    for node in model.graph.node:
        if node.domain == _PARKED:
            node.domain = ""
    kept = [opset for opset in model.opset_import if opset.domain != _PARKED]
    del model.opset_import[:]
    model.opset_import.extend(kept)
    model.ir_version = IR_VERSION
    return model


def _known(operator: str, version: int) -> bool:
    try:
        defs.get_schema(operator, version)
    except defs.SchemaError:
        return False
    return True
