"""How well a quantised language model keeps to the float one: `python -m benchmarks.language_model --help`.

For each scheme the decoder is quantised on texts that the float model has written from other beginnings, and then reads
the given texts, token by token, with its own cache. Told are the share of positions at which it finds the same token
likeliest as the float model, mean over the texts and of all positions, the mean negative log likelihood of the texts'
tokens, and the mean Kullback-Leibler divergence of its next token from the float model's, which chance moves least. It
runs in ONNX Runtime without fusions: in float between the conversions. On x86 processors without VNNI the runtime's
fused products saturate in 16 bits, and figures would depend on the processor.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
import onnx
from numpy.typing import NDArray

from dovetail.sw.files.vocabulary import BEGIN, Vocabulary
from dovetail.sw.frontend import read
from dovetail.sw.frontend.onnx.parsed import ParsedOnnx
from dovetail.sw.frontend.onnx.states import States
from dovetail.sw.host.onnx_session import open_session
from dovetail.sw.network.layout import Array, Sample
from dovetail.sw.quantise.calibration import Calibration
from dovetail.sw.quantise.float_network import FloatGraph, float_model
from dovetail.sw.quantise.quantiser import apply
from dovetail.sw.quantise.scheme import Scheme
from dovetail.sw.quantise.smoothing import smooth

BEGINNINGS = ("One day", "Tom and his dog", "The sun was", "She wanted a cake. Her mom said", "Lily", "")
"""Of the texts of calibration."""
LENGTH = 240
SCHEMES = tuple(
    f"{clipping} {more}".strip()
    for more in ("", "integer-sums", "integer-sums int32-last", "int16-sums int32-last")
    for clipping in ("minmax", "percentile=99.99", "kl")
)


class Model:
    """A decoder in ONNX Runtime with inputs ``tokens`` and ``pos``, and its caches."""

    def __init__(self, model: onnx.ModelProto, states: States) -> None:
        self.session, self.states = open_session(model.SerializeToString(), optimises=False), states
        self.outputs = [value.name for value in model.graph.output]
        self.start: dict[str, Array] = {
            value.name: np.zeros([dim.dim_value for dim in value.type.tensor_type.shape.dim], np.float32)
            for value in model.graph.input
            if value.name in states
        }

    def walk(self, tokens: Sequence[int]) -> Iterator[tuple[Sample, NDArray[np.float32]]]:
        """Inputs and logits of each position; ``tokens`` may grow meanwhile."""
        state, position = self.start, 0
        while position < len(tokens):
            sample = {"tokens": np.array([[tokens[position]]]), "pos": np.array([position]), **state}
            results = dict(zip(self.outputs, self.session.run(self.outputs, sample), strict=True))
            yield sample, results["logits"].ravel()
            state = {name: results[output] for name, output in self.states.items()}
            position += 1

    def logits(self, tokens: Sequence[int]) -> NDArray[np.float32]:
        """Of all positions."""
        return np.array([logits for _, logits in self.walk(tokens)])


def written(model: Model, beginning: list[int], random: np.random.Generator) -> list[Sample]:
    """The steps of a text: the beginning, then tokens drawn by their likelihood."""
    tokens, samples = list(beginning), list[Sample]()
    for position, (sample, logits) in enumerate(model.walk(tokens)):
        samples.append(sample)
        if position == len(tokens) - 1 and len(tokens) < LENGTH:
            share = np.exp(logits.astype(np.float64) - logits.max())
            token = int(random.choice(len(share), p=share / share.sum()))
            if token == BEGIN:
                break
            tokens.append(token)
    return samples


def shares(logits: NDArray[np.float32]) -> NDArray[np.float64]:
    """Logarithms of the likelihoods of all tokens, position by position."""
    values = logits - logits.max(axis=1, keepdims=True).astype(np.float64)
    return np.asarray(values - np.log(np.exp(values).sum(axis=1, keepdims=True)))


def likelihood(logits: NDArray[np.float32], tokens: Sequence[int]) -> float:
    """Mean negative log likelihood of each token behind those before it."""
    return float(-shares(logits)[np.arange(len(tokens) - 1), list(tokens[1:])].mean())


def divergence(exact: NDArray[np.float32], found: NDArray[np.float32]) -> float:
    """Mean Kullback-Leibler divergence, position by position."""
    one, other = shares(exact), shares(found)
    return float((np.exp(one) * (one - other)).sum(axis=1).mean())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("model", type=Path, help="a float decoder of inputs tokens, pos and past_k_0, ...")
    parser.add_argument("--texts", type=Path, required=True, help="JSON: objects with tokens")
    parser.add_argument("--vocabulary", type=Path, required=True)
    parser.add_argument("--length", type=int, default=256, help="rows of the cache")
    parser.add_argument("--scheme", action="append", default=[], help="of `dovetail quantise`; default: several")
    parser.add_argument("--seed", type=int, default=1, help="with which the texts for calibration are drawn")
    parser.add_argument("--smooth", action="store_true", help="smooth channels first")
    args = parser.parse_args()
    shape = (1, 4, args.length, 8)
    source = ParsedOnnx(read(args.model), {"past_k_0": shape})
    graph = FloatGraph(float_model(source))
    exact, words = Model(graph.model, source.states), Vocabulary.read(args.vocabulary)
    random = np.random.default_rng(args.seed)
    samples = [sample for text in BEGINNINGS for sample in written(exact, words.encode(text), random)]
    calibration = Calibration(smooth(graph, samples) if args.smooth else graph, samples)
    texts = [story["tokens"][: args.length] for story in json.loads(args.texts.read_text())]
    wanted = [exact.logits(tokens) for tokens in texts]
    exact_logits = np.concatenate(wanted)
    means = [likelihood(logits, tokens) for logits, tokens in zip(wanted, texts, strict=True)]
    print(f"| float | 1 | 1 | {np.mean(means):.3f} | 0 |")
    for scheme in args.scheme or SCHEMES:
        model = Model(apply(calibration, Scheme.parse(scheme)).model, source.states)
        found = [model.logits(tokens) for tokens in texts]
        logits = np.concatenate(found)
        same = [(a.argmax(axis=1) == b.argmax(axis=1)).mean() for a, b in zip(found, wanted, strict=True)]
        of_all = (logits.argmax(axis=1) == exact_logits.argmax(axis=1)).mean()
        means = [likelihood(part, tokens) for part, tokens in zip(found, texts, strict=True)]
        apart = divergence(exact_logits, logits)
        figures = f"{np.mean(same):.4f} | {of_all:.4f} | {np.mean(means):.3f} | {apart:.4f}"
        print(f"| `{Scheme.parse(scheme)}` | {figures} |", flush=True)


if __name__ == "__main__":
    main()
