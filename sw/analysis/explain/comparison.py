"""Why a larger configuration is not faster in proportion, exact to the cycle."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

from dovetail.sw.analysis.explain.causes import CAUSES
from dovetail.sw.analysis.explain.explanation import Explanation, LayerExplanation, Shares

Losses = Mapping[str, Fraction]
"""Cycles lost by the name of the cause, in the order of `CAUSES`; negative where cycles are won."""


@dataclass(frozen=True)
class LayerDifference:
    """A layer on two configurations.

    ``cycles``: on the first and on the second, 0 where the layer is not on the accelerator; ``losses``: cycles on the
    second above those on the first over the ideal speed-up, by cause; they add up to ``lost``.
    """

    name: str
    kind: str
    cycles: tuple[int, int]
    losses: Losses

    @property
    def lost(self) -> Fraction:
        """Cycles above the ideal."""
        return sum(self.losses.values(), Fraction())

    def to_dict(self) -> dict[str, Any]:
        """What JSON can express."""
        return {
            "name": self.name,
            "kind": self.kind,
            "cycles": list(self.cycles),
            "lost": float(self.lost),
            "losses": _floats(self.losses),
        }


@dataclass(frozen=True)
class Comparison:
    """A network on two configurations, ``lost = cycles[1] - cycles[0] / ratio``.

    Parameters
    ----------
    network: its name.
    resource: what there is more of on the second, as a person says it, such as "PEs"; empty if there is nothing to
        compare by, and then the ratio is 1.
    amounts: of the resource on the first and on the second.
    ratio: the ideal speed-up, the second amount over the first.
    cycles: of an inference on the first and on the second.
    host_macs: left to the host on the first and on the second.
    host_cycles: what the host takes beside ``cycles`` on the first and on the second, estimated.
    configs: all parameters of the first and of the second, those of the memory by their own names.
    losses: cycles lost by cause; those of the layers add up to them, cause by cause, and all of them to ``lost``.
    layers: every layer of either, in the order of the network.
    """

    network: str
    resource: str
    amounts: tuple[Fraction, Fraction]
    ratio: Fraction
    cycles: tuple[int, int]
    host_macs: tuple[int, int]
    host_cycles: tuple[int, int]
    configs: tuple[Mapping[str, Any], Mapping[str, Any]]
    losses: Losses
    layers: tuple[LayerDifference, ...]

    def __repr__(self) -> str:
        return f"<Comparison {self.network}: {self.cycles[0]:,} and {self.cycles[1]:,} cycles>"

    @property
    def changes(self) -> dict[str, tuple[Any, Any]]:
        """Parameters that differ: name -> values on the first and on the second; what one has not is 0."""
        first, second = self.configs
        pairs = {name: (first.get(name, 0), second.get(name, 0)) for name in {**first, **second}}
        return {name: (a, b) for name, (a, b) in pairs.items() if a != b}

    @property
    def speedup(self) -> float:
        """Cycles on the first over those on the second."""
        return self.cycles[0] / self.cycles[1] if self.cycles[1] else 1.0

    @property
    def lost(self) -> Fraction:
        """Cycles on the second above the ideal; negative if it is faster than that."""
        return self.cycles[1] - self.cycles[0] / self.ratio

    def to_dict(self) -> dict[str, Any]:
        """What JSON can express; ``ideal`` is the ratio."""
        return {
            "network": self.network,
            "resource": self.resource,
            "amounts": [float(amount) for amount in self.amounts],
            "ideal": float(self.ratio),
            "speedup": self.speedup,
            "cycles": list(self.cycles),
            "host_macs": list(self.host_macs),
            "host_cycles": list(self.host_cycles),
            "changes": {name: list(values) for name, values in self.changes.items()},
            "lost": float(self.lost),
            "losses": _floats(self.losses),
            "layers": [layer.to_dict() for layer in self.layers],
        }


def _floats(losses: Losses) -> dict[str, float]:
    return {name: float(value) for name, value in losses.items()}


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
    own = {name: value for name, value in config.items() if name != "memory"}
    return {**own, "pixel_lanes": own.get("pixel_lanes", 1), **config["memory"]}


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
