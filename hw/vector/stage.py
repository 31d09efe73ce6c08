"""The border between the vector unit and its stages, each of which makes the results of some operations."""

from typing import ClassVar

from amaranth.lib import data, wiring
from amaranth.lib.wiring import In, Out

from dovetail.hw.vector.registers import KIND, VECTOR_REGISTERS
from dovetail.isa.common.sizes import INT32_BYTES
from dovetail.isa.config.resolved import Config
from dovetail.isa.instructions.checks import offers
from dovetail.isa.instructions.table import MAX_PASSES


def row_layout(config: Config) -> data.StructLayout:
    """What a step is of an operation with passes: of which pass, with results, the first or the last step of its row in
    this pass, the lane that a serial pass is at, and which lanes are elements that count."""
    flags = dict.fromkeys(("valid", "results", "first", "last"), 1)
    return data.StructLayout({**flags, "number": range(MAX_PASSES), "lane": 4, "counts": config.vector_lanes})


class VectorStage(wiring.Component):
    """Results of ``vector_lanes`` channels per cycle, a pipeline without stalls: a subclass elaborates it.

    Parameters
    ----------
    config
        The accelerator.

    Members
    -------
    regs, operation, kind
        Registers, opcode and kind of the operation; constant while it runs and from two cycles before the first operand
        on. A stage may be given operands of operations that are not its own; nobody looks at those results.
    fill
        ``a`` holds the next ``table_lanes`` bytes of the table. A whole table comes at once.
    a, b
        int8 per lane, lane 0 lowest: the first operand, or of a window's taps the largest; the second operand.
    sum
        int32 per lane: SUM_BIAS (less the zero point where an operation rescales one operand) and all operands.
    row
        `row_layout` of the step whose operands come, where an accelerator has operations with passes; ``valid`` only of
        these. A result with the last step of a block in the last pass is written. A stage may keep what it made of a
        row.
    result
        The bytes to write: int8 per lane, or int32.

    Latency
    -------
    ``LATENCY`` cycles, that of the operations' rows (``isa.instructions.table.Stage``).
    """

    LATENCY: ClassVar[int]

    def __init__(self, config: Config) -> None:
        self.config = config
        lanes = config.vector_lanes
        super().__init__(
            {
                "regs": In(VECTOR_REGISTERS),
                "operation": In(8),
                "kind": In(KIND),
                "fill": In(1),
                "a": In(8 * lanes),
                "b": In(8 * lanes),
                "sum": In(32 * lanes),
                **({"row": In(row_layout(config))} if offers(config, "passes") else {}),
                "result": Out(8 * lanes * (INT32_BYTES if offers(config, "int32_output") else 1)),
            }
        )
