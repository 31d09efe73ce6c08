"""Inputs of a float network, from files or given: checked, one sample at a time, so that memory stays bounded."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np

from dovetail.sw.errors import NetworkError, first_line
from dovetail.sw.files.inputs import read_arrays, read_inputs
from dovetail.sw.network.layout import Array, Sample
from dovetail.sw.quantise.float_network import FloatGraph, Input


@dataclass(frozen=True)
class FileSamples:
    """Samples of an .npy or .npz file, or of all such files of a folder, in the order of their names.

    `dovetail.sw.files.inputs.read_inputs` says what a file holds. Every pass over this object reads the files anew.

    Parameters
    ----------
    path: the file or folder.
    inputs: the network's inputs.

    Raises
    ------
    NetworkError: names, shapes or element types do not fit, or a value is not finite.
    OSError: a file cannot be read.
    """

    path: Path
    inputs: tuple[Input, ...]

    def __iter__(self) -> Iterator[Sample]:
        return chain.from_iterable(self.sequences())

    def sequences(self) -> Iterator[Iterator[Sample]]:
        """The samples of each file."""
        return map(self._of_file, self._files())

    def _of_file(self, file: Path) -> Iterator[Sample]:
        batches, _ = read_inputs(file, self.inputs)
        for number in range(len(next(iter(batches.values())))):
            sample = {name: batch[number] for name, batch in batches.items()}
            yield checked(sample, self.inputs, f"{file}: sample {number}")

    def _files(self) -> Sequence[Path]:
        if not self.path.is_dir():
            return [self.path]
        found = sorted(file for file in self.path.iterdir() if file.suffix in (".npy", ".npz"))
        if not found:
            raise NetworkError(f"{self.path}: must hold .npy or .npz files, not none")
        return found


@dataclass(frozen=True)
class RandomSamples:
    """Standard normal inputs, the same in every pass: for networks without data.

    Parameters
    ----------
    inputs: the network's inputs; integer ones are 0.
    count: how many samples, at least 1.
    seed: of the random numbers.
    """

    inputs: tuple[Input, ...]
    count: int
    seed: int = 0

    def __post_init__(self) -> None:
        if self.count < 1:
            raise NetworkError(f"random samples must be at least 1, not {self.count}")

    def sequences(self) -> Iterator[Iterator[Sample]]:
        """All of them, one after another."""
        yield iter(self)

    def __iter__(self) -> Iterator[Sample]:
        random = np.random.default_rng(self.seed)
        for _ in range(self.count):
            yield {value.name: _random(value, random) for value in self.inputs}


@dataclass(frozen=True)
class Steps:
    """Samples of a network with variables: each gets what the network leaves in them after the one before. In a folder
    every file is a sequence of its own, which begins with zeros.

    Parameters
    ----------
    graph: the float network.
    states: input -> output of its variables.
    samples: its other inputs.

    Raises
    ------
    NetworkError: a sample does not fit, or ONNX Runtime cannot run the network.
    """

    graph: FloatGraph
    states: Mapping[str, str]
    samples: FileSamples | RandomSamples | GivenSamples

    def __iter__(self) -> Iterator[Sample]:
        # Imported late: networks without variables are not run here.
        from dovetail.sw.host.onnx_session import Session

        session = Session(self.graph.model)
        kept = [value for value in self.graph.inputs if value.name in self.states]
        for sequence in self.samples.sequences():
            state = {value.name: np.zeros(value.shape, value.dtype) for value in kept}
            for number, sample in enumerate(sequence):
                whole = {**sample, **state}
                yield whole
                try:
                    results = session.run(whole)
                except Exception as error:  # the runtime raises its own classes
                    raise NetworkError(f"step {number}: ONNX Runtime must run it, not: {first_line(error)}") from error
                state = {name: results[output] for name, output in self.states.items()}


@dataclass(frozen=True)
class GivenSamples:
    """Samples that the caller of the library holds.

    Parameters
    ----------
    given: of each sample the array of the only input, a tuple of arrays in the order of the inputs, or arrays by name;
        arrays are whatever NumPy takes for one. A sample may lack a first axis of 1, so a batch is samples, too.
    inputs: the network's inputs.

    Raises
    ------
    NetworkError: a sample does not fit.
    """

    given: Sequence[Any]
    inputs: tuple[Input, ...]

    def __iter__(self) -> Iterator[Sample]:
        for number, sample in enumerate(self.given):
            where = f"sample {number}"
            yield checked(self._named(sample, where), self.inputs, where)

    def sequences(self) -> Iterator[Iterator[Sample]]:
        """All of them, one after another."""
        yield iter(self)

    def _named(self, sample: Any, where: str) -> Sample:
        if not isinstance(sample, Mapping):
            parts = sample if isinstance(sample, tuple | list) else (sample,)
            if len(parts) != len(self.inputs):
                names = ", ".join(value.name for value in self.inputs)
                raise NetworkError(f"{where}: must hold the input(s) {names}, not {len(parts)} arrays")
            sample = {value.name: part for value, part in zip(self.inputs, parts, strict=True)}
        try:
            arrays = {name: np.asarray(value) for name, value in sample.items()}
        except Exception as error:  # whatever holds arrays raises its own classes
            raise NetworkError(f"{where}: must be arrays, not: {first_line(error)}") from error
        lacking = [each for each in self.inputs if each.name in arrays and arrays[each.name].shape == each.shape[1:]]
        return arrays | {each.name: arrays[each.name][None] for each in lacking if each.shape[:1] == (1,)}


def without_states(inputs: Sequence[Input], states: Mapping[str, str]) -> tuple[Input, ...]:
    """The inputs that a user gives."""
    return tuple(value for value in inputs if value.name not in states)


def checked(sample: Sample, inputs: Sequence[Input], where: str) -> Sample:
    """The sample as the network takes it; ``where`` names it in messages. Raises NetworkError."""
    missing = [value.name for value in inputs if value.name not in sample]
    if missing:
        raise NetworkError(f"{where}: must hold the input(s) {', '.join(missing)}, not only {', '.join(sample)}")
    return {value.name: _checked(np.asarray(sample[value.name]), value, where) for value in inputs}


def labels_of(path: Path, key: str = "y") -> Array:
    """Class numbers, one per sample, from an .npy file, or from array `key` of an .npz.

    Raises NetworkError or OSError.
    """
    arrays = read_arrays(path)
    if "" not in arrays and key not in arrays:
        raise NetworkError(f"{path}: labels must be array {key!r}, not among {', '.join(arrays)}")
    labels = arrays.get("", arrays.get(key, np.empty(0)))
    if labels.ndim != 1 or labels.dtype.kind not in "iu" or not labels.size:
        raise NetworkError(f"{path}: labels must be one integer per sample, not {labels.dtype} {labels.shape}")
    return labels


def _random(value: Input, random: np.random.Generator) -> Array:
    floating = value.dtype.startswith("float")
    return random.standard_normal(value.shape).astype(value.dtype) if floating else np.zeros(value.shape, value.dtype)


def _checked(array: Array, value: Input, where: str) -> Array:
    if array.shape != value.shape:
        raise NetworkError(f"{where}: input {value.name!r} must have shape {value.shape}, not {array.shape}")
    if array.dtype.kind != np.dtype(value.dtype).kind:
        hint = "; scale it as for the float network" if value.dtype.startswith("float") else ""
        raise NetworkError(f"{where}: input {value.name!r} must be {value.dtype}, not {array.dtype}{hint}")
    result = array.astype(value.dtype)
    if not np.all(np.isfinite(result)):
        raise NetworkError(f"{where}: input {value.name!r} must be finite, not NaN or infinite")
    return result
