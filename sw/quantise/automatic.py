"""Finds the cheapest scheme that keeps a wanted accuracy or signal-to-noise."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace

from dovetail.sw.errors import NetworkError
from dovetail.sw.network.layout import Array, Sample
from dovetail.sw.quantise.calibration import Calibration
from dovetail.sw.quantise.float_network import FloatGraph
from dovetail.sw.quantise.plan import leaves_sums
from dovetail.sw.quantise.quality import Comparison, Quality
from dovetail.sw.quantise.quantiser import Quantised, apply
from dovetail.sw.quantise.scheme import Scheme

LADDER = tuple(
    Scheme.parse(text)
    for text in (
        "power-of-two per-tensor minmax",
        "symmetric per-tensor minmax",
        "asymmetric per-tensor minmax",
        "asymmetric per-channel minmax",
        "asymmetric per-channel percentile=99.99",
        "asymmetric per-channel kl",
    )
)
"""What is tried first, in this order: schemes with cheaper requantisation come earlier."""

_MOST_FLOAT = 8
"""At most this many layers stay float in the last steps."""


@dataclass(frozen=True)
class Goal:
    """What a search is to reach.

    Parameters
    ----------
    kind: "accuracy", points below float on labelled inputs, or "sqnr", dB of the worst output.
    value: at most that many points, or at least that many dB.
    """

    kind: str
    value: float

    @classmethod
    def parse(cls, text: str) -> Goal:
        """``accuracy=1.0pt`` or ``sqnr=30dB``. Raises NetworkError."""
        found = re.fullmatch(r"(accuracy|sqnr)=(\d+(?:\.\d*)?)(pt|dB)?", text)
        if not found or found[3] not in (None, "pt" if found[1] == "accuracy" else "dB"):
            raise NetworkError(f"goal must be accuracy=POINTSpt or sqnr=DECIBELdB, not {text!r}")
        return cls(found[1], float(found[2]))

    def margin(self, quality: Quality) -> float:
        """How far a network is above the goal; negative where it misses it."""
        if self.kind == "sqnr":
            return quality.worst - self.value
        assert quality.drop is not None
        return self.value - quality.drop

    def __str__(self) -> str:
        return f"at most {self.value:g} pt below float" if self.kind == "accuracy" else f"at least {self.value:g} dB"


@dataclass(frozen=True)
class Trial:
    """One scheme and what came of it."""

    scheme: Scheme
    quality: Quality
    float_layers: int


@dataclass(frozen=True)
class Search:
    """Outcome of `search`.

    Parameters
    ----------
    trials: what was tried, in order.
    best: the last trial if the goal is met, otherwise the one that came closest.
    quantised: the network of `best`.
    met: whether it meets the goal.
    """

    trials: tuple[Trial, ...]
    best: Trial
    quantised: Quantised
    met: bool


def search(
    calibration: Calibration,
    goal: Goal,
    samples: Iterable[Sample],
    labels: Array | None = None,
    keep_float: tuple[str, ...] = (),
    progress: Callable[[Trial], None] = lambda trial: None,
) -> Search:
    """Try `LADDER`, then the best of it with more and more layers float, until the goal is met.

    Before that the last layer's result stays what its sums are, if it is a matrix product. The later steps keep float:
    the last layer, the first, both, and then the 1, 2, 4 and 8 layers that lose most signal-to-noise from their
    operands to their results.

    Parameters
    ----------
    calibration: the float network and its ranges.
    goal: accuracy needs labels.
    samples, labels: inputs to compare on, gone through once for each trial.
    keep_float: nodes that every scheme keeps float.
    progress: called after each trial.

    Raises
    ------
    NetworkError: samples or labels do not fit.
    """
    if goal.kind == "accuracy" and labels is None:
        raise NetworkError("goal accuracy must come with labels; give them, or ask for sqnr")
    given = samples if iter(samples) is not samples else list(samples)
    comparison = Comparison(calibration.graph)
    trials: list[Trial] = []
    best: tuple[tuple[float, float], Trial, Quantised] | None = None

    def attempt(scheme: Scheme) -> bool:
        nonlocal best
        quantised = apply(calibration, scheme)
        quality = comparison.quality(quantised.model, given, labels, layers=True)
        trial = Trial(scheme, quality, len(quantised.plan.layers) - len(quantised.plan.weights))
        trials.append(trial)
        progress(trial)
        rank = (goal.margin(quality), quality.worst)
        if best is None or rank > best[0]:
            best = (rank, trial, quantised)
        return goal.margin(quality) >= 0

    met = any(attempt(replace(scheme, keep_float=keep_float)) for scheme in LADDER)
    if not met:
        assert best is not None
        met = any(attempt(scheme) for scheme in _with_float(calibration.graph, best[1], best[2]))
    assert best is not None
    return Search(tuple(trials), best[1], best[2], met)


def _with_float(graph: FloatGraph, base: Trial, quantised: Quantised) -> Iterator[Scheme]:
    """A scheme with ever more in float."""
    scheme, layers = base.scheme, quantised.plan.results
    if leaves_sums(graph, quantised.plan.layers[-1:]) & layers.keys():
        yield replace(scheme, int32_last=True)
    if len(layers) < 2:
        return
    yield replace(scheme, float_last=True)
    yield replace(scheme, float_first=True)
    yield replace(scheme, float_first=True, float_last=True)
    losses = {layer.tensor: layer.loss for layer in base.quality.layers}
    worst = sorted(layers, key=lambda node: losses.get(layers[node], 0.0), reverse=True)
    count = 1
    while count <= min(_MOST_FLOAT, len(worst) // 2):
        yield replace(scheme, keep_float=(*scheme.keep_float, *(_literal(node) for node in worst[:count])))
        count *= 2


def _literal(name: str) -> str:
    """A pattern that only this name fits."""
    return re.sub(r"([\[*?])", r"[\1]", name)
