"""The list of operators is complete, and the committed one is what the tables say."""

from __future__ import annotations

from pathlib import Path

from dovetail.isa.instructions.table import INSTRUCTIONS, Op, Unit
from dovetail.sw.analysis.operator_list import ROWS, text
from dovetail.sw.frontend.onnx import importer
from dovetail.sw.frontend.tflite import importer as tflite
from dovetail.sw.host.norm import NORMS

COMMITTED = Path(__file__).parents[3] / "docs" / "operators.md"
FOR_PROGRAMS = {Op.CONV, Op.E32_SHIFT}
"""Instructions that no operator needs: CONV_RELU clamps to any range."""


def test_the_committed_list_is_up_to_date() -> None:
    assert COMMITTED.read_text() == text(), "run: python -m dovetail.sw.analysis.operator_list docs/operators.md"


def test_every_operator_of_the_front_ends_is_listed() -> None:
    assert {op for row in ROWS for op in row.tflite} == {*tflite.BUILDERS, "SOFTMAX"}
    known = {*importer.NODES, *importer.WAITING, "QuantizeLinear", "DequantizeLinear"}
    listed = {op for row in ROWS for op in row.onnx}
    others = {"Shape", "ScatterElements"}  # a constant; on the host
    assert listed == {*known, *NORMS, "QLinearSoftmax"} - others


def test_every_instruction_has_an_operator() -> None:
    used = {op for row in ROWS for op in row.instructions}
    operations = {op for op, row in INSTRUCTIONS.items() if row.unit in set(Unit)}
    assert operations - used == FOR_PROGRAMS
