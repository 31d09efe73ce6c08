"""Code for nodes that compute each row of a tensor from all of it: softmax and norms."""

from collections.abc import Iterator
from dataclasses import dataclass
from math import prod

import numpy as np
from numpy.typing import NDArray

from dovetail.isa.common.sizes import INT32_BYTES, ceil_div, round_up
from dovetail.isa.config.resolved import Config
from dovetail.isa.instructions.table import INSTRUCTIONS, Op, Unit, pack
from dovetail.isa.numerics.rounding import Rounding
from dovetail.sw.compiler.emit.arena import Arena, Room
from dovetail.sw.compiler.emit.elementwise import Operation, Walk, instruction, mode_of
from dovetail.sw.compiler.emit.operations import Task, Transfer
from dovetail.sw.compiler.emit.slab import Slab, operand_of, result_of, store
from dovetail.sw.compiler.place import Place
from dovetail.sw.compiler.plan.schedule import Space
from dovetail.sw.errors import CompileError
from dovetail.sw.network import ir
from dovetail.sw.network.layout import Shape

MAX_ROWS = 65535
"""Rows that an instruction can have."""
MAX_COUNT = (1 << 15) - 1
"""The most elements that are told to count."""
PARTS = 4
"""Into how many tiles rows are cut at least where they are loaded or stored, so that transfers are hidden."""


@dataclass(frozen=True)
class RowTasks:
    """The tasks of a node on ``matrices`` of ``rows`` of ``channels`` each.

    Parameters
    ----------
    config: the accelerator.
    index: the layer's number.
    node: what is computed.
    shape: matrices, rows of each, channels of a row.
    source, target: where operand and result lie.
    table: system memory address of what :func:`constants_of` gives.
    """

    config: Config
    index: int
    node: ir.Rows
    shape: tuple[int, int, int]
    source: Place
    target: Place
    table: int

    def tasks(self, space: Space, arena: Arena, bands: int, most: int = 0, *, tapers: bool = False) -> Iterator[Task]:
        """Cut in rows, into ``bands`` at least, or if given, of each matrix ``most`` at a time; what is not resident
        has two buffers, operands behind the table. With ``tapers`` the first tile has half the rows, so that it can
        begin early, and the last one the other half.

        Raises
        ------
        CompileError
            Two rows, and the table, do not fit.
        """
        matrices, rows, channels = self.shape
        one_by_one = most > 0 or (isinstance(self.node, ir.Softmax) and self.node.valid is not None)
        total = rows if one_by_one else matrices * rows
        size = table_bytes(self.config, self.node)
        base = round_up(size, self.config.word_bytes)
        room = Room(self.config, arena, space.free, operands=True, results=self.target.sram is None)
        limits, lengths = [MAX_ROWS], row_bytes(self.node, channels)
        row, result = (round_up(length, self.config.word_bytes) for length in lengths)
        if self.source.sram is None:
            limits.append((room.operands - base) // (2 * row))
        if self.target.sram is None:
            limits.append(room.results // (2 * result))
        if min(limits) < 1 or room.operands < base:
            raise CompileError(
                f"two rows of {channels} elements, as operand and as result, and {size} bytes of table must fit in half"
                f" of {room.sram}: give more SRAM"
            )
        parts = PARTS if len(limits) > 1 else 1
        count = min(*limits, most or max(1, ceil_div(total, max(bands, parts)))) if total > 1 else 1
        start, results = room.place(
            base + 2 * count * row * (self.source.sram is None), 2 * count * result * (self.target.sram is None)
        )
        number, early = 0, count // 2 if tapers and count < total else 0
        for matrix in range(matrices if one_by_one else 1):
            for first in (*range(min(early, 1)), *range(early, total, count)):
                last = early if first < early else min(first + count, total)
                task = Task(self.index)
                if number == 0:
                    task.loads.append(Transfer(self.table, start, size))
                read, written = (Slab(matrix * rows + first, last - first, 1, 0, length) for length in lengths)
                turn = number % 2 * count
                view = operand_of(task, read, self.source, start + base + turn * row)
                out = result_of(written, self.target, results + turn * result)
                walks = [Walk(one.at, one.bytes, 0, one.pitch) for one in (view, out)]
                operation = operation_of(self.config, self.node, channels, first)
                tile = 1, read.rows, channels
                task.computes = [instruction(self.config, operation, tile, walks[:1], walks[1], (start, size))]
                store(task, written, out, self.target)
                yield task
                number += 1


def cycles_of(config: Config, node: ir.Rows, shape: Shape) -> int:
    """Cycles of an instruction on all rows of a tensor."""
    channels, count = shape[-1], prod(shape[:-1])
    before, after = (Walk(0, count * length, 0, length) for length in row_bytes(node, channels))
    cycles = 0
    for first in range(0, count, MAX_ROWS):
        tile = 1, min(MAX_ROWS, count - first), channels
        one = instruction(
            config, operation_of(config, node, channels), tile, [before], after, (0, table_bytes(config, node))
        )
        cycles += one.form.cycles(config, ())
    return cycles


def op_of(node: ir.Rows) -> Op:
    """The instruction."""
    return Op.SOFTMAX if isinstance(node, ir.Softmax) else node.instruction


def row_bytes(node: ir.Rows, channels: int) -> tuple[int, int]:
    """Bytes of an operand's row and of a result's."""
    row = INSTRUCTIONS[op_of(node)]
    return channels * row.input_bytes, channels * row.output_bytes


def table_bytes(config: Config, node: ir.Rows) -> int:
    """Bytes of what an instruction reads beside the rows."""
    if isinstance(node, ir.Softmax):
        return INSTRUCTIONS[Op.SOFTMAX].table_bytes
    return 2 * INT32_BYTES * round_up(node.records.mult.size, config.vector_lanes)


def constants_of(config: Config, node: ir.Rows) -> NDArray[np.uint8]:
    """What an instruction reads beside the rows."""
    if isinstance(node, ir.Norm):
        return np.frombuffer(node.records.pack(config.vector_lanes), np.uint8)
    kind = "<f4" if node.form == Rounding.ONNX else "<i4"
    return np.frombuffer(node.exponentials.astype(kind).tobytes(), np.uint8)


def operation_of(config: Config, node: ir.Rows, channels: int, first: int = 0) -> Operation:
    """The instruction on rows of so many ``channels``, from row ``first`` of a matrix on."""
    zero_in = node.zero_in if isinstance(node, ir.Norm) else 0
    quant = pack(Unit.VECTOR, "QUANT", zero_in=zero_in, zero_out=node.zero_out, lo=-128, hi=127)
    if isinstance(node, ir.Norm):
        registers = {
            "MODE": mode_of(Rounding.ONNX, subtract=not node.rms),
            "SUM_BIAS": node.epsilon & 0xFFFF_FFFF,
            "B_MULT": node.epsilon >> 32,
        }
    else:
        count, step = (channels, 0) if node.valid is None else node.valid
        registers = {
            "MODE": mode_of(node.form),
            "OUT_MULT": node.levels if node.form == Rounding.ONNX else 0,
            "POOL_COUNT": min(count + first * step, MAX_COUNT),
            "B_X_STEP": step,
            "B_Y_STEP": 0,
        }
    return Operation(op_of(node), registers | {"QUANT": quant}, table=table_bytes(config, node))
