"""Inputs of networks in .npy and .npz files: one sample, or a batch of them."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Protocol

from dovetail.sw.errors import NetworkError
from dovetail.sw.files.arrays import open_arrays
from dovetail.sw.network.layout import Array, Shape


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
    with open_arrays(path) as file:
        file.check_together(file.forms)
        return {name: file.load(name) for name in file.forms}


def read_inputs(path: Path, inputs: Sequence[Input]) -> tuple[dict[str, Array], bool]:
    """Arrays [samples, *shape] by the inputs' names, equally long, and whether the file holds a batch.

    An .npz holds arrays by input name; for a network with one input it may also be called ``x`` or be the only one. A
    batch may lie along the first axis of the input, if that is 1, or along one before it; a sample may lack it.

    Raises
    ------
    NetworkError: names or shapes do not fit.
    OSError: the file cannot be read.
    """
    with open_arrays(path) as file:
        names = _named(path, file.forms, [value.name for value in inputs])
        shapes = {value.name: _batch(path, file.forms[names[value.name]].shape, value) for value in inputs}
        file.check_together(names.values())
        batches = {name: (file.load(names[name]).reshape(shape), several) for name, (shape, several) in shapes.items()}
    counts = {name: len(samples) for name, (samples, _) in batches.items()}
    if len(set(counts.values())) != 1:
        raise NetworkError(f"{path}: every input must have as many samples, not {counts}")
    return {name: samples for name, (samples, _) in batches.items()}, any(several for _, several in batches.values())


def _named(path: Path, held: Collection[str], names: Sequence[str]) -> Mapping[str, str]:
    """The file's name of each input."""
    if set(names) <= set(held):
        return {name: name for name in names}
    if len(names) == 1:
        found = next((key for key in ("x", "") if key in held), next(iter(held)) if len(held) == 1 else None)
        if found is not None:
            return {names[0]: found}
    shown = "one array without a name" if "" in held else ", ".join(held)
    raise NetworkError(f"{path}: must hold the input(s) {', '.join(names)}, not {shown}")


def _batch(path: Path, found: Shape, value: Input) -> tuple[Shape, bool]:
    """The shape [samples, *shape] that an array of shape ``found`` gets, and whether it was given as a batch."""
    shape = tuple(value.shape)
    if found == shape or (shape[:1] == (1,) and found == shape[1:]):
        return (1, *shape), False
    if found[1:] == shape and found[:1] != (0,):
        return found, True
    if shape[:1] == (1,) and len(found) == len(shape) and found[1:] == shape[1:] and found[0]:
        return (found[0], *shape), True
    batch = ", ".join(map(str, shape[1:] if shape[:1] == (1,) else shape))
    wanted = f"{shape}, or (N, {batch}) for a batch"
    raise NetworkError(f"{path}: input {value.name!r} must have shape {wanted}, not {found}")
