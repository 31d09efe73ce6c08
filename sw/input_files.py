"""Inputs of networks in .npy and .npz files: one sample, or a batch of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Protocol

import numpy as np

from dovetail.sw.errors import NetworkError
from dovetail.sw.layout import Array, Shape


class Input(Protocol):
    """What a network says of an input."""

    @property
    def name(self) -> str: ...

    @property
    def shape(self) -> Shape: ...


def read_arrays(path: Path) -> dict[str, Array]:
    """Arrays by name; "" is that of an .npy file, which stays on disk until it is read.

    Raises NetworkError or OSError.
    """
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


def read_inputs(path: Path, inputs: Sequence[Input]) -> tuple[dict[str, Array], bool]:
    """Arrays [samples, *shape] by the inputs' names, equally long, and whether the file holds a batch.

    An .npz holds arrays by input name; for a network with one input it may also be called ``x`` or be the only one. A
    batch may lie along the first axis of the input, if that is 1, or along one before it; a sample may lack it.

    Raises
    ------
    NetworkError: names or shapes do not fit.
    OSError: the file cannot be read.
    """
    arrays = _named(path, read_arrays(path), [value.name for value in inputs])
    batches = {value.name: _batch(path, arrays[value.name], value) for value in inputs}
    counts = {name: len(samples) for name, (samples, _) in batches.items()}
    if len(set(counts.values())) != 1:
        raise NetworkError(f"{path}: every input must have as many samples, not {counts}")
    return {name: samples for name, (samples, _) in batches.items()}, any(several for _, several in batches.values())


def _named(path: Path, arrays: Mapping[str, Array], names: Sequence[str]) -> Mapping[str, Array]:
    if set(names) <= set(arrays):
        return arrays
    if len(names) == 1:
        found = next((key for key in ("x", "") if key in arrays), next(iter(arrays)) if len(arrays) == 1 else None)
        if found is not None:
            return {names[0]: arrays[found]}
    held = "one array without a name" if "" in arrays else ", ".join(arrays)
    raise NetworkError(f"{path}: must hold the input(s) {', '.join(names)}, not {held}")


def _batch(path: Path, array: Array, value: Input) -> tuple[Array, bool]:
    """An array [samples, *shape], and whether it was given as a batch."""
    shape = tuple(value.shape)
    if array.shape == shape or (shape[:1] == (1,) and array.shape == shape[1:]):
        return array.reshape(1, *shape), False
    if array.shape[1:] == shape and len(array):
        return array, True
    if shape[:1] == (1,) and array.ndim == len(shape) and array.shape[1:] == shape[1:] and len(array):
        return array[:, None], True
    batch = ", ".join(map(str, shape[1:] if shape[:1] == (1,) else shape))
    wanted = f"{shape}, or (N, {batch}) for a batch"
    raise NetworkError(f"{path}: input {value.name!r} must have shape {wanted}, not {array.shape}")
