"""Why a larger configuration is not faster in proportion, exact to the cycle."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from fractions import Fraction
from typing import Any

from dovetail.sw.analysis.explain.causes import CAUSES
from dovetail.sw.analysis.explain.comparison import Comparison, LayerDifference, Losses
from dovetail.sw.analysis.explain.explanation import Explanation, LayerExplanation, Shares


def compare(first: Explanation, second: Explanation) -> Comparison:
    """The same network on two configurations: what the second one loses against the ideal, by layer and cause.

    The ideal is the first one's cycles over the ratio of multipliers; if there are as many, over that of bytes per
    cycle on the bus. Where neither differs, as with SRAM or the lanes of one unit, the ratio is 1.

    Raises ValueError if the networks differ.
    """
    if first.network != second.network:
        raise ValueError(f"networks must be the same, not {first.network} and {second.network}")
    resource, amounts = _resource(first, second)
    ratio = Fraction(amounts[1], amounts[0])
    layers = tuple(_layer(a, b, ratio) for a, b in _matched(first.layers, second.layers))
    return Comparison(
        network=first.network,
        resource=resource,
        amounts=amounts,
        ratio=ratio,
        cycles=(first.cycles, second.cycles),
        host_macs=(first.host_macs, second.host_macs),
        host_cycles=(first.host.cycles, second.host.cycles),
        configs=(_flat(first.config), _flat(second.config)),
        losses=_losses(first.shares, second.shares, ratio),
        layers=layers,
    )


def _flat(config: Mapping[str, Any]) -> dict[str, Any]:
    return {**{name: value for name, value in config.items() if name != "memory"}, **config["memory"]}


def _resource(first: Explanation, second: Explanation) -> tuple[str, tuple[Fraction, Fraction]]:
    """What the ideal speed-up is the ratio of, and how much of it there is."""
    if first.peak != second.peak:
        return "PEs", (Fraction(first.peak), Fraction(second.peak))
    if first.bandwidth != second.bandwidth:
        return "bytes per cycle on the bus", (first.bandwidth, second.bandwidth)
    return "", (Fraction(1), Fraction(1))


def _layer(first: LayerExplanation | None, second: LayerExplanation | None, ratio: Fraction) -> LayerDifference:
    known = second or first
    assert known is not None
    return LayerDifference(
        name=known.name,
        kind=known.kind,
        cycles=(first.cycles if first else 0, second.cycles if second else 0),
        losses=_losses(first.shares if first else {}, second.shares if second else {}, ratio),
    )


def _losses(first: Shares, second: Shares, ratio: Fraction) -> Losses:
    losses = {name: second.get(name, 0) - first.get(name, 0) / ratio for name in CAUSES}
    return {name: lost for name, lost in losses.items() if lost}


def _matched(
    first: Sequence[LayerExplanation], second: Sequence[LayerExplanation]
) -> list[tuple[LayerExplanation | None, LayerExplanation | None]]:
    """Layers of the same name; one that the second has alone comes behind the one before it there."""
    left, right = ({layer.name: layer for layer in layers} for layers in (first, second))
    names = list(left)
    at = 0
    for name in right:
        if name in left:
            at = names.index(name) + 1
        else:
            names.insert(at, name)
            at += 1
    return [(left.get(name), right.get(name)) for name in names]
