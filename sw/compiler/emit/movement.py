"""Code for data movement: strided copies by DMA, and by MOV where the order of bytes changes.

DMA alone can do it all, but takes about as long for one byte as for a burst.
"""

from collections.abc import Iterator
from itertools import pairwise, product
from math import isqrt, prod
from typing import NamedTuple

from dovetail.isa.common.sizes import ceil_div, round_up
from dovetail.isa.config.resolved import Config
from dovetail.isa.instructions.table import Op
from dovetail.sw.compiler.emit.arena import Arena, Room
from dovetail.sw.compiler.emit.elementwise import Operation, Walk, instruction
from dovetail.sw.compiler.emit.operations import Compute, Task, Transfer
from dovetail.sw.compiler.place import Place
from dovetail.sw.compiler.plan.schedule import Space
from dovetail.sw.network import ir

MIN_TILE = 4096
"""Bytes below which a copy is not cut further to overlap its transfers."""
MOST_BANDS = 4
"""Into how many boxes, at most, a copy is cut so that others run beside it."""
OVERHEAD = 40
"""Cycles of one more box. For estimates only."""
MAX_COUNT = 65535
"""Rows, planes, pixels and blocks that the registers can hold."""
MOV = Operation(Op.MOV, {})
"""Copies bytes within SRAM."""


class Axis(NamedTuple):
    """A loop of a copy: ``size`` steps of ``source`` bytes here and ``target`` bytes there."""

    size: int
    source: int
    target: int


def _merged(axes: list[Axis]) -> list[Axis]:
    """The same loops, outermost first by target, neighbours joined that run on in both places."""
    found: list[Axis] = []
    for axis in sorted((axis for axis in axes if axis.size > 1), key=lambda a: (-a.target, -a.source)):
        outer = found[-1] if found else None
        joined = outer and (outer.source, outer.target) == (axis.size * axis.source, axis.size * axis.target)
        if outer and joined and (axis[1:] == (1, 1) or outer.size * axis.size <= MAX_COUNT):
            found[-1] = Axis(outer.size * axis.size, axis.source, axis.target)
        else:
            found.append(axis)
    return found


def _run(axes: list[Axis]) -> tuple[list[Axis], int]:
    """(the outer loops, bytes that are contiguous in both places)."""
    if axes and axes[-1][1:] == (1, 1):
        return axes[:-1], axes[-1].size
    return axes, 1


def axes_of(copy: ir.Copy) -> list[Axis]:
    """The loops of a copy, as few as possible."""
    return _merged([Axis(*axis) for axis in zip(copy.sizes, copy.source_steps, copy.target_steps, strict=True)])


def in_bytes(copy: ir.Copy, item: int) -> ir.Copy:
    """A copy of elements of so many bytes, byte by byte."""
    if item == 1:
        return copy
    source, target = ([item * step for step in steps] for steps in (copy.source_steps, copy.target_steps))
    return ir.Copy((*copy.sizes, item), item * copy.source, (*source, 1), item * copy.target, (*target, 1))


def changes_order(copy: ir.Copy) -> bool:
    """Whether bytes change their order."""
    axes = axes_of(copy)
    return any(inner.source > outer.source for outer, inner in pairwise(axes))


def bands_of(config: Config, copy: ir.Copy) -> int:
    """Into how many boxes a copy is cut, so that others run beside it."""
    *outer, last = copy.sizes
    return min(max(isqrt(prod(outer) * ceil_div(last, config.vector_lanes) // OVERHEAD), 1), MOST_BANDS)


def copy_tasks(
    config: Config,
    index: int,
    copy: ir.Copy,
    source: Place,
    target: Place,
    space: Space,
    arena: Arena,
    bands: int = 0,
) -> Iterator[Task]:
    """Tasks of one copy between two tensors, cut into boxes, into ``bands`` at least; residents on both sides need
    MOV."""
    inside = source.sram is not None and target.sram is not None
    turns = inside or (config.vector and changes_order(copy))
    operands = source.sram is None and (turns or target.sram is None)
    results = target.sram is None and turns
    room = Room(config, arena, space.free, operands=operands, results=results)
    axes = axes_of(copy)
    sizes = [axis.size if axis[1:] == (1, 1) else min(axis.size, MAX_COUNT) for axis in axes]
    limits = [room.operands // 2] * operands + [room.results // 2] * results
    largest = min([*limits, ceil_div(prod(sizes), bands) if bands else max(MIN_TILE, ceil_div(prod(sizes), 4))])
    slowest = sorted(range(len(axes)), key=lambda k: -axes[k].source)
    for k in slowest:
        while sizes[k] > 1 and prod(sizes) > largest:
            sizes[k] = ceil_div(sizes[k], 2)
    size = round_up(prod(sizes), config.word_bytes)
    first, second = room.place(2 * size * operands, 2 * size * results)
    starts = [range(0, axis.size, step) for axis, step in zip(axes, sizes, strict=True)]
    for number, corner in enumerate(product(*starts)):
        box = [min(step, axis.size - at) for axis, step, at in zip(axes, sizes, corner, strict=True)]
        read = copy.source + sum(at * axis.source for at, axis in zip(corner, axes, strict=True))
        write = copy.target + sum(at * axis.target for at, axis in zip(corner, axes, strict=True))
        turn = number % 2 * size
        # Where the box is in SRAM when it is read, and when it is written.
        out = second + turn, _dense(box, [axis.target for axis in axes])
        if target.sram is not None:
            out = target.sram + write, [axis.target for axis in axes]
        held = (first + turn, _dense(box, [axis.source for axis in axes])) if turns else out
        if source.sram is not None:
            held = source.sram + read, [axis.source for axis in axes]
        elif not turns and target.sram is None:
            held = first + turn, out[1]
        if not turns:
            out = held
        task = Task(index)
        if source.sram is None:
            assert source.memory is not None
            inward = [Axis(n, axis.source, step) for n, axis, step in zip(box, axes, held[1], strict=True)]
            task.loads = list(_transfers(source.memory + read, held[0], inward))
        if turns:
            loops = [Axis(*axis) for axis in zip(box, held[1], out[1], strict=True)]
            task.computes = list(_moves(config, held[0], out[0], loops))
        if target.memory is not None:
            outward = [Axis(n, axis.target, step) for n, axis, step in zip(box, axes, out[1], strict=True)]
            task.stores = list(_transfers(target.memory + write, out[0], outward))
        yield task


def _dense(box: list[int], steps: list[int]) -> list[int]:
    """Steps of a box that is stored without gaps, in the order of ``steps``."""
    dense, size = [0] * len(box), 1
    for k in sorted(range(len(box)), key=lambda k: steps[k]):
        dense[k] = size
        size *= box[k]
    return dense


def _transfers(memory: int, sram: int, axes: list[Axis]) -> Iterator[Transfer]:
    """DMA between system memory (``source`` of the axes) and SRAM (``target``); three loops each."""
    outer, length = _run(_merged(axes))
    split = max(len(outer) - 2, 0)
    unrolled, (planes, rows) = outer[:split], ([Axis(1, 0, 0)] * 2 + outer[split:])[-2:]
    for place in product(*(range(axis.size) for axis in unrolled)):
        yield Transfer(
            memory + sum(at * axis.source for at, axis in zip(place, unrolled, strict=True)),
            sram + sum(at * axis.target for at, axis in zip(place, unrolled, strict=True)),
            length,
            rows=rows.size,
            planes=planes.size,
            memory_row=rows.source,
            memory_plane=planes.source,
            sram_row=rows.target,
            sram_plane=planes.target,
        )


def _moves(config: Config, source: int, target: int, axes: list[Axis]) -> Iterator[Compute]:
    """MOVs within SRAM: the two longest loops are the instruction's, others are unrolled."""
    outer, channels = _run(_merged(axes))
    outer = sorted(outer, key=lambda axis: axis.size)
    split = max(len(outer) - 2, 0)
    unrolled, (y, x) = outer[:split], ([Axis(1, 0, 0)] * 2 + outer[split:])[-2:]
    span_in = (y.size - 1) * y.source + (x.size - 1) * x.source + channels
    span_out = (y.size - 1) * y.target + (x.size - 1) * x.target + channels
    for place in product(*(range(axis.size) for axis in unrolled)):
        read = source + sum(at * axis.source for at, axis in zip(place, unrolled, strict=True))
        written = target + sum(at * axis.target for at, axis in zip(place, unrolled, strict=True))
        operand, result = Walk(read, span_in, y.source, x.source), Walk(written, span_out, y.target, x.target)
        yield instruction(config, MOV, (y.size, x.size, channels), [operand], result)
