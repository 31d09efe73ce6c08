"""Compares a run of a network with a reference, layer by layer, to find the first layer that differs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np

from dovetail.isa.numerics.rounding import Rounding
from dovetail.sw.errors import NetworkError
from dovetail.sw.network import ir
from dovetail.sw.network.layout import Array
from dovetail.sw.network.reference import average_pool


@dataclass(frozen=True)
class Comparison:
    """One tensor on both sides.

    Parameters
    ----------
    layer, kind: the node that makes it.
    tensor: its name.
    elements, differing: how many there are, how many of them differ at all.
    largest: the largest absolute difference: in steps of the quantisation, for float tensors in reals.
    first: index of the first element that differs; None if all are equal.
    departs: whether the largest difference is above the tolerance.
    """

    layer: str
    kind: str
    tensor: str
    elements: int
    differing: int
    largest: float
    first: tuple[int, ...] | None
    departs: bool


@dataclass(frozen=True)
class Difference:
    """All comparisons in order of execution; ``missing``: layers whose tensors the reference does not have; ``notes``:
    why layers differ, where that is known."""

    comparisons: tuple[Comparison, ...]
    missing: tuple[str, ...]
    notes: tuple[str, ...] = ()

    @property
    def first(self) -> Comparison | None:
        """The first layer that differs."""
        return next((one for one in self.comparisons if one.departs), None)


def compare(
    graph: ir.Graph, ours: Mapping[str, Array], reference: Mapping[str, Array], tolerance: int = 0
) -> Difference:
    """Compare tensors by name.

    Parameters
    ----------
    ours, reference
        Tensors by the name of the graph's tensor; the reference may lack some, and have other shapes.
    tolerance
        Largest difference that is accepted: steps of the quantisation; millionths of the largest value for float
        tensors.

    Raises
    ------
    NetworkError
        The reference has no tensor that a layer makes, so nothing was compared.
    """
    found, missing, notes = [], [], []
    for node in graph.nodes:
        for name in node.outputs:
            if name in reference and name in ours:
                found.append(_compared(node, graph.tensors[name], ours[name], reference[name], tolerance))
                if found[-1].departs and isinstance(node, ir.AvgPool) and _departs_at_ties(node, ours, reference):
                    notes.append(
                        f"{node.name}: averages half way between two steps alone differ, {found[-1].differing} of them;"
                        " ONNX Runtime adds up reals, whose last bits decide these (`dovetail docs operators`)"
                    )
                if found[-1].departs and isinstance(node, ir.Rows) and _is_a_step_off(node, found[-1], ours, reference):
                    notes.append(
                        f"{node.name}: equal operands, and at most one step off the runtime's float kernel, as"
                        " `dovetail inspect` says; with --exact the host computes it with that kernel"
                    )
            elif not isinstance(node, ir.FREE):
                missing.append(node.name)
    if not found:
        raise NetworkError(f"{graph.name}: the reference must have some tensor that a layer makes, it has none")
    return Difference(tuple(found), tuple(missing), tuple(notes))


def _is_a_step_off(node: ir.Rows, found: Comparison, ours: Mapping[str, Array], reference: Mapping[str, Array]) -> bool:
    """Whether a node whose real is float in the file is one step off at most, for equal operands."""
    source = node.inputs[0]
    same = source in ours and source in reference and np.array_equal(ours[source].ravel(), reference[source].ravel())
    return node.distance is not None and same and found.largest <= 1


def _departs_at_ties(node: ir.AvgPool, ours: Mapping[str, Array], reference: Mapping[str, Array]) -> bool:
    """Whether an average of equal operands differs at ties only, and there by rounding to the other neighbour."""
    source, result = node.inputs[0], node.outputs[0]
    pixels = ours.get(source)
    if pixels is None or not np.array_equal(pixels.ravel(), np.ravel(reference.get(source, pixels))):
        return False
    up, down = (
        average_pool(replace(node, rounding=Rounding.TFLITE, origin=origin), pixels).ravel() for origin in (-128, 127)
    )
    theirs = np.ravel(reference[result])
    same = theirs == np.ravel(ours[result])
    return bool(np.all(same | ((up != down) & ((theirs == up) | (theirs == down)))))


def _compared(node: ir.Node, tensor: ir.Tensor, ours: Array, reference: Array, tolerance: int) -> Comparison:
    is_integer = np.issubdtype(tensor.dtype, np.integer)
    if reference.dtype.kind not in ("biu" if is_integer else "biuf") or reference.size != tensor.size:
        raise NetworkError(
            f"tensor {tensor.name!r} of the reference must be {tensor.size} numbers like {tensor.dtype}, not"
            f" {reference.size} of {reference.dtype}"
        )
    wanted = np.asarray(reference).reshape(tensor.shape)
    wide = np.int64 if is_integer else np.float64
    apart = np.abs(ours.reshape(tensor.shape).astype(wide) - wanted.astype(wide))
    differing = np.flatnonzero(apart)
    first = tuple(int(n) for n in np.unravel_index(differing[0], tensor.shape)) if differing.size else None
    allowed = tolerance if is_integer else tolerance * 1e-6 * float(np.abs(wanted).max(initial=0))
    largest = apart.max(initial=0).item()
    return Comparison(
        node.name, node.op, tensor.name, apart.size, differing.size, largest, first, bool(largest > allowed)
    )
