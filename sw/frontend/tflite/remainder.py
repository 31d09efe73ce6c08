"""A TFLite file in two: what Dovetail and LiteRT know, and the rest."""

from __future__ import annotations

from dataclasses import dataclass

from dovetail.sw.errors import NetworkError
from dovetail.sw.frontend.parsed_file import Remainder
from dovetail.sw.frontend.tflite.file import MEDIAPIPE_TRANSPOSE_CONV, Operator, TfliteFile, is_float
from dovetail.sw.frontend.tflite.variables import CONTROL_FLOW, RESOURCE_OPERATORS
from dovetail.sw.host.kernels import TfliteOp
from dovetail.sw.host.tflite_extract import extract


@dataclass(frozen=True)
class Cut:
    """Operators of both sides, by index, and tensors that go over."""

    kept: tuple[Operator, ...]
    left: tuple[Operator, ...]
    crossing: tuple[int, ...]
    reason: str

    @property
    def remainder(self) -> Remainder:
        """What of the rest its user should know."""
        return Remainder(tuple(f"{op.name} ({op.kind})" for op in self.left), self.reason)


def custom_op(file: TfliteFile, op: Operator) -> TfliteOp:
    """A custom operator as LiteRT runs it."""
    dynamic = tuple(index for index in op.inputs if index >= 0 and file.infos[index].value is None)
    return TfliteOp(file.data, op.index, dynamic, op.outputs)


def _unknown(file: TfliteFile, op: Operator) -> str:
    """Why Dovetail leaves an operator to others; empty if it does not."""
    if op.kind in CONTROL_FLOW:
        return "the network must be free of control flow up to where Dovetail's part ends"
    if op.kind.startswith("operator "):
        return "it is newer than the runtime"
    if op.kind.startswith("CUSTOM ") and is_float(file):
        return "" if op.kind == MEDIAPIPE_TRANSPOSE_CONV else "a custom operator without a counterpart in ONNX"
    if op.kind.startswith("CUSTOM "):
        try:
            custom_op(file, op).shapes()
        except NetworkError:
            return "a custom operator that LiteRT does not have, or not for these types"
    return ""


def cut(file: TfliteFile) -> Cut | None:
    """A file in two; None if all of its operators are known.

    Raises
    ------
    NetworkError: nothing is left before the first unknown operator, or a variable goes over to it.
    """
    reasons: list[str] = []
    after: set[int] = set()
    kept: list[Operator] = []
    left: list[Operator] = []
    for op in file.operators:
        reason = "" if after.intersection(op.inputs) else _unknown(file, op)
        if not reason and not after.intersection(op.inputs):
            kept.append(op)
            continue
        reasons += [reason] if reason else []
        left.append(op)
        after.update(op.outputs)
    if not left:
        return None
    for op in left:
        if op.kind in RESOURCE_OPERATORS or any(index >= 0 and file.infos[index].variable for index in op.inputs):
            raise NetworkError(
                f"{op.name}: variables must be of the part that Dovetail does, not behind {left[0].name},"
                f" {reasons[0]}; replace that on export"
            )
    made = {index for op in kept for index in op.outputs}
    wanted = {index for op in left for index in op.inputs}
    crossing = tuple(sorted(made & wanted))
    if not crossing and not made.intersection(file.outputs):
        raise NetworkError(f"{left[0].name}: {reasons[0]}, and nothing comes before it; replace it on export")
    return Cut(tuple(kept), tuple(left), crossing, reasons[0])


def head_of(file: TfliteFile, parts: Cut) -> bytes:
    """The file of what is before the cut."""
    made = {index for op in parts.kept for index in op.outputs}
    read = {index for op in parts.kept for index in op.inputs}
    outputs = [index for index in file.outputs if index in made]
    outputs += [index for index in parts.crossing if index not in outputs]
    inputs = [index for index in file.inputs if index in read]
    return extract(file.data, [op.index for op in parts.kept], inputs, outputs, others=file.subgraphs > 1).data


def rest_of(file: TfliteFile, parts: Cut) -> bytes:
    """The file of what is behind the cut."""
    made = {index for op in parts.left for index in op.outputs}
    read = {index for op in parts.left for index in op.inputs}
    inputs = [*parts.crossing, *(index for index in file.inputs if index in read)]
    outputs = [index for index in file.outputs if index in made]
    return extract(file.data, [op.index for op in parts.left], inputs, outputs, others=file.subgraphs > 1).data
