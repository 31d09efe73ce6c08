"""Why a larger configuration is not faster in proportion: dataclasses of a comparison."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

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
