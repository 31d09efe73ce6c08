"""How a network is quantised: one value, with a text form for command lines and manifests."""

from __future__ import annotations

import shlex
from dataclasses import dataclass

from dovetail.sw.errors import NetworkError

ACTIVATIONS = ("asymmetric", "symmetric", "symmetric-uint8", "power-of-two")
"""int8 with any zero point; int8 with zero point 0; uint8 with zero point 128; int8 with zero point 0 and scales that
are powers of two, of weights too."""

WEIGHTS = ("per-channel", "per-tensor")
"""One scale for each output channel, or one for all. Weights are int8 with zero point 0."""

CLIPPING = ("percentile", "minmax", "kl")
"""The range of a tensor: without the outermost values of calibration; all of them; the least loss of information."""

_WORDS = {"activations": ACTIVATIONS, "weights": WEIGHTS, "clipping": CLIPPING}
_FLAGS = ("integer-sums", "int16-sums", "float-first", "float-last", "int32-last")
_DEFAULT_PERCENTILE = 99.99


@dataclass(frozen=True)
class Scheme:
    """What the quantiser is to do.

    Parameters
    ----------
    activations, weights, clipping: one of `ACTIVATIONS`, `WEIGHTS`, `CLIPPING`.
    percentile: per cent of a tensor's elements that clipping "percentile" keeps.
    keep_float: names of nodes that stay float on the host; `*`, `?` and `[...]` as in file names.
    float_first, float_last: keep the first or the last layer that has weights float.
    int32_last: the last layer that has weights is integer, but its result is not rounded to 8 bits, if it is a matrix
        product: the host multiplies its int32 sums by their step.
    corrected: biases make up for the mean error that rounding the weights causes.
    integer_sums: sums, products and concatenations are integer wherever their operands are, though only the host may
        read them.
    int16_sums: the same, and the residual streams of transformers have 16 bits.

    Raises
    ------
    NetworkError: a value that is not among these, a percentile outside 50..100, or two kinds of sums.
    """

    activations: str = "asymmetric"
    weights: str = "per-channel"
    clipping: str = "percentile"
    percentile: float = _DEFAULT_PERCENTILE
    keep_float: tuple[str, ...] = ()
    float_first: bool = False
    float_last: bool = False
    int32_last: bool = False
    corrected: bool = True
    integer_sums: bool = False
    int16_sums: bool = False

    def __post_init__(self) -> None:
        for name, known in _WORDS.items():
            if getattr(self, name) not in known:
                raise NetworkError(f"{name} must be one of {', '.join(known)}, not {getattr(self, name)!r}")
        if not 50 < self.percentile <= 100:
            raise NetworkError(f"percentile must be above 50 and at most 100, not {self.percentile}")
        if self.integer_sums and self.int16_sums:
            raise NetworkError("scheme must be either integer-sums or int16-sums, not both")

    @property
    def unsigned(self) -> bool:
        """Whether activations are uint8 in the file."""
        return self.activations == "symmetric-uint8"

    @property
    def per_channel(self) -> bool:
        """Whether every output channel has its own weight scale."""
        return self.weights == "per-channel"

    def __str__(self) -> str:
        """Words that `parse` understands."""
        clipping = f"percentile={self.percentile:g}" if self.clipping == "percentile" else self.clipping
        words = [self.activations, self.weights, clipping]
        words += ["uncorrected"] * (not self.corrected)
        words += [word for word in _FLAGS if getattr(self, word.replace("-", "_"))]
        return shlex.join([*words, *(f"float={name}" for name in self.keep_float)])

    @classmethod
    def parse(cls, text: str) -> Scheme:
        """A scheme from words in any order, such as ``symmetric per-tensor percentile=99.9 float-last``.

        What is left out has its default. Raises NetworkError.
        """
        values: dict[str, object] = {}
        names: list[str] = []
        try:
            words = shlex.split(text)
        except ValueError as error:
            raise NetworkError(f"scheme must be words with balanced quotes, not {text!r}") from error
        for word in words:
            key, _, value = word.partition("=")
            if word in _FLAGS:
                values[word.replace("-", "_")] = True
            elif word == "uncorrected":
                values["corrected"] = False
            elif key == "float" and value:
                names.append(value)
            elif key == "percentile":
                _choose(values, key)
                values["percentile"] = _percentile(value)
            else:
                _choose(values, word)
        return cls(**values, keep_float=tuple(names))  # type: ignore[arg-type]


DEFAULT = Scheme()
"""Asymmetric int8 activations, a weight scale for each channel, all but 0.01 % of what calibration saw."""


def _choose(values: dict[str, object], word: str) -> None:
    field = next((name for name, known in _WORDS.items() if word in known), "")
    if not field:
        others = ("percentile=VALUE", "uncorrected", *_FLAGS, "float=NODE")
        words = ", ".join([*ACTIVATIONS, *WEIGHTS, *CLIPPING, *others])
        raise NetworkError(f"scheme must be made of {words}, not {word!r}")
    if values.setdefault(field, word) != word:
        raise NetworkError(f"scheme must be either {values[field]} or {word}, not both")


def _percentile(text: str) -> float:
    try:
        return float(text) if text else _DEFAULT_PERCENTILE
    except ValueError:
        raise NetworkError(f"percentile must be a number, not {text!r}") from None
