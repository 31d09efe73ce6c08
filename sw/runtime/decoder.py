"""A language model, token by token: makes the inputs of each run, and takes the likeliest token from its logits."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from dovetail.sw.errors import NetworkError
from dovetail.sw.network.ir import Graph, Port
from dovetail.sw.network.layout import Array, Sample
from dovetail.sw.runtime.compiled_network import CompiledNetwork, Result
from dovetail.sw.runtime.engine import Engine

_HIDDEN = -1e9


@dataclass(frozen=True)
class Step:
    """A run: the token that went in, the likeliest next one, and the run's result."""

    token: int
    next: int
    result: Result


class Decoder:
    """A network with a cache that takes one token in each run.

    Its inputs are told by their names and forms: one integer with ``pos`` in its name is the token's position, the
    other one is the token. A row of as many values as the cache has rows is a mask if ``mask`` is in its name (float: 0
    up to the position, -1e9 behind it; integer: 1 and 0), and marks the position with 1 if ``onehot`` or ``one_hot``
    is.

    Parameters
    ----------
    network: compiled; its variables are reset.
    engine: what runs it.

    Raises
    ------
    NetworkError: the network has no variables, or an input or its logits cannot be told.
    """

    def __init__(self, network: CompiledNetwork, engine: Engine) -> None:
        graph = network.graph
        if not graph.states:
            raise NetworkError(
                f"{graph.name}: network must keep a cache between runs, it has none; name it: --state INPUT=OUTPUT"
            )
        self.network, self.engine = network, engine
        self.roles = {port.name: _role(port) for port in graph.inputs}
        for name, count in (("token", 1), ("position", 0)):
            found = [port for port, role in self.roles.items() if role == name]
            if not count <= len(found) <= 1:
                raise NetworkError(
                    f"{graph.name}: one input must be the {name}, an integer, not {', '.join(found) or 'none'}"
                )
        logits = [port for port in graph.outputs if len(graph.outputs) == 1 or port.name == "logits"]
        if not logits:
            names = ", ".join(port.name for port in graph.outputs)
            raise NetworkError(f"{graph.name}: an output must be named logits, not only {names}")
        self.logits = logits[0]
        self.length = _length(graph, self.roles)
        network.reset()

    @property
    def words(self) -> int:
        """How many tokens the model knows."""
        return self.logits.shape[-1]

    def write(self, prompt: Sequence[int], count: int, stop: Collection[int] = ()) -> Iterator[Step]:
        """Runs on a prompt, and then on the likeliest tokens.

        Parameters
        ----------
        prompt: tokens, at least one.
        count: of tokens to be written at most.
        stop: tokens behind which nothing more is written.

        Raises
        ------
        NetworkError: a token that the model does not know, or a prompt longer than the cache.
        """
        unknown = [token for token in prompt if not 0 <= token < self.words]
        if unknown:
            raise NetworkError(f"tokens must be 0..{self.words - 1}, not {unknown[0]}")
        if not 1 <= len(prompt) <= self.length:
            raise NetworkError(f"prompt must have 1..{self.length} tokens, the cache's rows, not {len(prompt)}")
        pending = list(prompt)
        for position in range(min(len(prompt) + count - 1, self.length)):
            step = self.run(pending[position], position)
            yield step
            if position >= len(prompt) - 1:
                if step.next in stop:
                    return
                pending.append(step.next)

    def run(self, token: int, position: int) -> Step:
        """One token at its position. Raises NetworkError or RunError."""
        result = self.network.run(self._inputs(token, position), self.engine)
        logits = result.outputs[self.logits.name].reshape(-1, self.words)[-1]
        return Step(token, int(logits.argmax()), result)

    def _inputs(self, token: int, position: int) -> Sample:
        return {
            port.name: _values(self.roles[port.name], port, token, position).astype(port.dtype).reshape(port.shape)
            for port in self.network.graph.inputs
        }


def _role(port: Port) -> str:
    name, integer = port.name.lower(), port.dtype.startswith("int") and port.dtype != "int8"
    size = int(np.prod(port.shape))
    if integer and size == 1 and "mask" not in name:
        return "position" if "pos" in name else "token"
    if size == max(port.shape, default=0):
        if "mask" in name:
            return "mask" if integer else "scores"
        if "onehot" in name or "one_hot" in name:
            return "onehot"
    raise NetworkError(
        f"input {port.name!r} must be a token, its position, a mask or a one-hot row, not {port.dtype}"
        f"{list(port.shape)}; feed it with `dovetail run --input`"
    )


def _values(role: str, port: Port, token: int, position: int) -> Array:
    if role in ("token", "position"):
        return np.array(token if role == "token" else position)
    rows = np.arange(max(port.shape))
    if role == "scores":
        return np.where(rows <= position, 0, _HIDDEN)
    return rows == position if role == "onehot" else rows <= position


def _length(graph: Graph, roles: dict[str, str]) -> int:
    """Rows of the cache."""
    rows = [max(port.shape) for port in graph.inputs if roles[port.name] in ("mask", "scores", "onehot")]
    rows += [graph.tensors[state.read].shape[-2] for state in graph.states if state.initial.ndim == 4]
    return min(rows, default=1 << 31)
