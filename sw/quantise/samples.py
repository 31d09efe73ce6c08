"""Inputs of a float network from files: checked, one sample at a time, so that memory stays bounded."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from dovetail.sw.errors import NetworkError
from dovetail.sw.layout import Array
from dovetail.sw.quantise.float_graph import Input

Sample = Mapping[str, Array]
_LABELS = "y"


@dataclass(frozen=True)
class FileSamples:
    """Samples of an .npy or .npz file, or of all such files of a folder, in the order of their names.

    An .npz holds arrays by input name; for a network with one input it may also be called ``x`` or be the only one.
    An array is one sample, or a batch along its first axis. Every pass over this object reads the files anew.

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
        for file in self._files():
            yield from _of_file(file, self.inputs)

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

    def __iter__(self) -> Iterator[Sample]:
        random = np.random.default_rng(self.seed)
        for _ in range(self.count):
            yield {value.name: _random(value, random) for value in self.inputs}


def checked(sample: Sample, inputs: Sequence[Input], where: str) -> Sample:
    """The sample as the network takes it; ``where`` names it in messages. Raises NetworkError."""
    missing = [value.name for value in inputs if value.name not in sample]
    if missing:
        raise NetworkError(f"{where}: must hold the input(s) {', '.join(missing)}, not only {', '.join(sample)}")
    return {value.name: _checked(np.asarray(sample[value.name]), value, where) for value in inputs}


def labels_of(path: Path, key: str = _LABELS) -> Array:
    """Class numbers, one per sample, from an .npy file, or from array `key` of an .npz.

    Raises NetworkError or OSError.
    """
    arrays = _arrays(path)
    if "" not in arrays and key not in arrays:
        raise NetworkError(f"{path}: labels must be array {key!r}, not among {', '.join(arrays)}")
    labels = arrays.get("", arrays.get(key, np.empty(0)))
    if labels.ndim != 1 or labels.dtype.kind not in "iu" or not labels.size:
        raise NetworkError(f"{path}: labels must be one integer per sample, not {labels.dtype} {labels.shape}")
    return labels


def _random(value: Input, random: np.random.Generator) -> Array:
    floating = value.dtype.startswith("float")
    return random.standard_normal(value.shape).astype(value.dtype) if floating else np.zeros(value.shape, value.dtype)


def _of_file(path: Path, inputs: Sequence[Input]) -> Iterator[Sample]:
    arrays = _named(path, _arrays(path), inputs)
    batches = {value.name: _batch(arrays[value.name], value, path) for value in inputs}
    counts = {name: len(batch) for name, batch in batches.items()}
    if len(set(counts.values())) != 1:
        raise NetworkError(f"{path}: every input must have as many samples, not {counts}")
    for number in range(next(iter(counts.values()))):
        sample = {name: batch[number] for name, batch in batches.items()}
        yield checked(sample, inputs, f"{path}: sample {number}")


def _arrays(path: Path) -> dict[str, Array]:
    """Arrays by name; "" is that of an .npy file, which stays on disk until it is read."""
    wrong = f"{path}: must be an .npy or .npz file of plain arrays"
    try:
        content = np.load(path, allow_pickle=False, mmap_mode="r")
        arrays = {"": content} if isinstance(content, np.ndarray) else {name: content[name] for name in content}
    except OSError:
        raise
    except Exception:  # a damaged file fails anywhere; what NumPy says is advice to load it unsafely
        raise NetworkError(f"{wrong}, not damaged or of another kind") from None
    if not arrays:
        raise NetworkError(f"{wrong}, not an empty one")
    return arrays


def _named(path: Path, arrays: dict[str, Array], inputs: Sequence[Input]) -> dict[str, Array]:
    names = [value.name for value in inputs]
    if set(names) <= set(arrays):
        return arrays
    if len(names) == 1:
        found = next((key for key in ("x", "") if key in arrays), next(iter(arrays)) if len(arrays) == 1 else None)
        if found is not None:
            return {names[0]: arrays[found]}
    held = "one array without a name" if "" in arrays else ", ".join(arrays)
    raise NetworkError(f"{path}: must hold the input(s) {', '.join(names)}, not {held}")


def _batch(array: Array, value: Input, path: Path) -> Array:
    """An array [samples, *shape]."""
    shape = value.shape
    if array.shape == shape:
        return array[None]
    if array.shape[1:] == shape and len(array):
        return array
    if shape[:1] == (1,):
        if array.shape == shape[1:]:
            return array[None, None]
        if array.ndim == len(shape) and array.shape[1:] == shape[1:] and len(array):
            return array[:, None]
    wanted = f"{shape}" + (f" or (N, {', '.join(map(str, shape[1:]))})" if shape[:1] == (1,) else f" or (N, *{shape})")
    raise NetworkError(f"{path}: input {value.name!r} must have shape {wanted}, not {array.shape}")


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
