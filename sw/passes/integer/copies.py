"""Strided copies: joined, composed, compared. All positions are flat, so reshapes between copies do not matter."""

from __future__ import annotations

from itertools import pairwise
from math import prod
from typing import NamedTuple

from dovetail.sw.network import ir

MAX_LOOPS = 4
"""The most loops of a copy that replaces two, unless one of these had more. Further loops are unrolled into
instructions."""
ENOUGH = 64
"""Rows of this many bytes are transferred about as fast as longer ones."""


class Axis(NamedTuple):
    """A loop: ``size`` steps of ``step`` elements here and of ``other`` elements on the copy's other side."""

    size: int
    step: int
    other: int


def reading(copy: ir.Copy) -> list[Axis]:
    """The loops as the source sees them, those of one step left out."""
    axes = zip(copy.sizes, copy.source_steps, copy.target_steps, strict=True)
    return [Axis(*axis) for axis in axes if axis[0] > 1]


def writing(copy: ir.Copy) -> list[Axis]:
    """The loops as the target sees them, those of one step left out."""
    return [Axis(size, target, source) for size, source, target in reading(copy)]


def joined(axes: list[Axis], source: int, target: int) -> ir.Copy:
    """The copy with as few loops as possible, outermost first by target; ``axes`` as the source sees them."""
    found: list[Axis] = []
    for axis in sorted(axes, key=lambda axis: (-axis.other, -axis.step)):
        if found and (found[-1].step, found[-1].other) == (axis.size * axis.step, axis.size * axis.other):
            axis = Axis(found.pop().size * axis.size, axis.step, axis.other)
        found.append(axis)
    sizes, steps, others = zip(*(found or [Axis(1, 0, 0)]), strict=True)
    return ir.Copy(sizes, source, steps, target, others)


def simplest(copy: ir.Copy) -> ir.Copy:
    """The same copy in a form that is equal for equal copies."""
    return joined(reading(copy), copy.source, copy.target)


def in_place(copy: ir.Copy) -> bool:
    """Whether every element keeps its position."""
    return copy.source == copy.target and all(axis.step == axis.other for axis in reading(copy))


def composed(first: ir.Copy, second: ir.Copy) -> ir.Copy | None:
    """One copy from the source of ``first`` to the target of ``second``, which reads the target of ``first``.

    None if neither reads only what the other wrote nor writes only what the other reads, or no strided copy does both.
    """
    inner = _rebased(second.source, reading(second), first.target, writing(first), first.source)
    if inner is not None:
        start, axes = inner
        return joined(axes, start, second.target)
    outer = _rebased(first.target, writing(first), second.source, reading(second), second.target)
    if outer is not None:
        start, axes = outer
        return joined([Axis(size, source, target) for size, target, source in axes], first.source, start)
    return None


def worth(copy: ir.Copy, first: ir.Copy, second: ir.Copy) -> bool:
    """Whether one copy takes no more loops, and no shorter transfers, than the two that it replaces."""
    if len(simplest(copy).sizes) > max(MAX_LOOPS, *(len(simplest(part).sizes) for part in (first, second))):
        return False
    return all(_run(side(copy)) >= min(ENOUGH, _run(side(first)), _run(side(second))) for side in (reading, writing))


def _run(axes: list[Axis]) -> int:
    """Bytes in a row on one side of a copy."""
    length = 1
    for axis in sorted(axes, key=lambda axis: axis.step):
        if axis.step != length:
            break
        length *= axis.size
    return length


def size(copy: ir.Copy) -> int:
    """Elements that are copied."""
    return prod(copy.sizes)


def _rebased(start: int, axes: list[Axis], base: int, digits: list[Axis], other: int) -> tuple[int, list[Axis]] | None:
    """Loops over one side of a copy as loops over its other side.

    The copy's loops are a number system of positions: a position is ``base`` and digits times their steps. Loops from
    ``start`` on can be followed on the other side if none of their steps carries from one digit to the next.

    Returns
    -------
    Start and loops on the other side, each loop's ``other`` kept; None if a position is not the copy's, or a step
    carries.
    """
    digits = sorted(digits, key=lambda digit: -digit.step)
    if any(a.step < b.size * b.step for a, b in pairwise(digits)):
        return None
    highest, rest = [], start - base
    if rest < 0:
        return None
    for digit in digits:
        count = min(rest // digit.step, digit.size - 1)
        highest.append(count)
        other += count * digit.other
        rest -= count * digit.step
    if rest:
        return None
    found: list[Axis] = []
    for size, step, kept in axes:
        while size > 1:
            place = next((k for k, digit in enumerate(digits) if digit.step <= step), None)
            if place is None or step % digits[place].step:
                return None
            digit, count = digits[place], step // digits[place].step
            part = size if highest[place] + count * (size - 1) < digit.size else digit.size // count
            highest[place] += count * (part - 1)
            if part < 2 or size % part or highest[place] >= digit.size:
                return None
            if part < size and part * count != digit.size:
                return None
            found.append(Axis(part, count * digit.other, kept))
            size, step, kept = size // part, step * part, kept * part
    return other, found
