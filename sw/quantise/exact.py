"""Scales with which the accelerator's sums and products of two tensors are ONNX Runtime's for every pair of bytes.

ONNX Runtime rounds a sum in float32 with its zero point, the accelerator without it: the two may differ at a tie or
next to one. Whether they do depends on the last bits of the scales (`sw.frontend.onnx.operators.fit`), so a
scale that is larger by a few millionths removes the difference.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace

import numpy as np
import onnx

from dovetail.isa.numerics.vector import VectorOperation
from dovetail.sw.frontend.onnx.operators.fit import is_exact
from dovetail.sw.frontend.onnx.values import Quant
from dovetail.sw.quantise.float_graph import FloatGraph
from dovetail.sw.quantise.parameters import Level
from dovetail.sw.quantise.plan import Plan

_KINDS = {"Add": VectorOperation.ADD, "Mul": VectorOperation.MULTIPLY}
_TRIES = 24
_ROUNDS = 4
"""Changing a scale may break a sum that was exact, so all sums are checked again."""


def make_exact(graph: FloatGraph, chosen: Plan, levels: Mapping[str, Level]) -> dict[str, Level]:
    """Levels in which results of sums and products have moved to a scale that makes them exact, where one is near."""
    found = dict(levels)
    nodes = [(node, target) for node in graph.nodes if (target := _target(graph, chosen, node)) is not None]
    for _ in range(_ROUNDS):
        moved = [_settle(node, target, chosen, found) for node, target in nodes]
        if not any(moved):
            break
    return found


def _target(graph: FloatGraph, chosen: Plan, node: onnx.NodeProto) -> str | None:
    """The quantised tensor behind an integer sum or product of two tensors; None for another node."""
    if node.op_type not in _KINDS or node.name in chosen.floating or len(node.input) != 2:
        return None
    name = str(node.output[0])
    if name in chosen.tensors:
        return name
    clamps = [chosen.clamps[user.name] for user in graph.consumers.get(name, ()) if user.name in chosen.clamps]
    return clamps[0] if clamps else None


def _settle(node: onnx.NodeProto, target: str, chosen: Plan, levels: dict[str, Level]) -> bool:
    """Move the scale of `target`, and of what shares it, until the node is exact; whether it has moved."""
    if any(name not in levels for name in (*node.input, target)):
        return False
    members = [name for name, first in chosen.tensors.items() if first == chosen.tensors[target]]
    before = {name: levels[name] for name in members}
    for scale in upwards(levels[target].scale):
        levels.update({name: replace(level, scale=scale) for name, level in before.items()})
        a, b, out = (_quant(levels[name]) for name in (*node.input, target))
        if is_exact(_KINDS[node.op_type], a, b, out):
            return bool(scale != before[target].scale)
    levels.update(before)
    return False


def upwards(scale: np.float32) -> Iterator[np.float32]:
    """A scale and those above it; one of 8 bits stays one (`parameters.activation`)."""
    short = float(np.frexp(scale)[0]) * 256 % 1 == 0
    for _ in range(_TRIES):
        yield scale
        mantissa, exponent = np.frexp(scale)
        scale = np.float32(np.ldexp(mantissa + 1 / 256, exponent)) if short else np.nextafter(scale, np.inf)


def _quant(level: Level) -> Quant:
    signed = level.lowest < 0
    return Quant(level.scale, level.zero_point - (0 if signed else 128), "int8" if signed else "uint8")
