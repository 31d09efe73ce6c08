"""Arrays in untrusted .npy and .npz files: their shapes are checked before anything is unpacked."""

from __future__ import annotations

import zipfile
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from io import BytesIO
from math import prod
from pathlib import Path
from typing import IO, Any

import numpy as np

from dovetail.sw.errors import NetworkError
from dovetail.sw.network.layout import Array, Shape

MOST_BYTES = 1 << 30
"""Of the arrays that are taken from one .npz; an .npy stays on disk and may be larger."""
_ENDING = ".npy"
_KINDS = "biuf"
"""Of element types: truth values, integers, floats."""


@dataclass(frozen=True)
class Form:
    """Shape and element type of an array in a file."""

    shape: Shape
    dtype: np.dtype[Any]

    @property
    def bytes(self) -> int:
        """Of the array in memory."""
        return prod(self.shape) * self.dtype.itemsize


@dataclass(frozen=True)
class ArrayFile:
    """An open file. ``forms``: by array; "" is that of an .npy file."""

    path: Path
    forms: Mapping[str, Form]
    _archive: zipfile.ZipFile | None

    def check_together(self, names: Iterable[str]) -> None:
        """Raise NetworkError where arrays would take too much memory."""
        size = sum(self.forms[name].bytes for name in set(names)) if self._archive else 0
        if size > MOST_BYTES:
            raise NetworkError(
                f"{self.path}: arrays of an .npz must take at most {MOST_BYTES >> 20} MiB, not {size >> 20} MiB; give"
                " fewer samples, or an .npy, which stays on disk (`dovetail docs limits`)"
            )

    def load(self, name: str) -> Array:
        """An array; that of an .npy stays on disk until it is read. Raises NetworkError or OSError."""
        with _damage(self.path):
            if self._archive is None:
                return np.asanyarray(np.load(self.path, allow_pickle=False, mmap_mode="r"))
            with self._archive.open(name + _ENDING) as member:
                return np.asarray(np.lib.format.read_array(member, allow_pickle=False))


@contextmanager
def open_arrays(path: Path) -> Iterator[ArrayFile]:
    """Open an .npy or .npz file and read what its arrays are. Raises NetworkError or OSError."""
    with open(path, "rb") as file:
        if file.read(2) != b"PK":
            file.seek(0)
            with _damage(path):
                found = {"": _form(file)}
                if found[""].bytes > path.stat().st_size:
                    raise ValueError("the array must be whole")
            yield ArrayFile(path, found, None)
            return
        with _damage(path):
            archive = zipfile.ZipFile(file)
            found = {info.filename.removesuffix(_ENDING): _member(archive, info) for info in archive.infolist()}
        if not found:
            raise NetworkError(f"{path}: must be an .npy or .npz file of plain arrays, not an empty one")
        yield ArrayFile(path, found, archive)


def parse_array(data: bytes) -> Array:
    """The array of an .npy file's bytes. Raises ValueError."""
    try:
        if _form(BytesIO(data)).bytes <= len(data):
            return np.asarray(np.lib.format.read_array(BytesIO(data), allow_pickle=False))
    except Exception as error:  # NumPy's reader of headers raises errors of Python's parser, too
        raise ValueError(f"an array must be whole and plain, not damaged ({type(error).__name__})") from None
    raise ValueError("an array must be whole, not cut off")


@contextmanager
def _damage(path: Path) -> Iterator[None]:
    """Every error but those of the system becomes one line: a damaged file fails anywhere in its reader, and what NumPy
    says then is advice to load it unsafely."""
    try:
        yield
    except (OSError, NetworkError):
        raise
    except Exception:
        raise NetworkError(
            f"{path}: must be an .npy or .npz file of plain arrays, not damaged or of another kind"
        ) from None


def _member(archive: zipfile.ZipFile, info: zipfile.ZipInfo) -> Form:
    """Of a member, from its first bytes."""
    with archive.open(info) as member:
        form = _form(member)
    if not info.filename.endswith(_ENDING) or form.bytes > info.file_size:
        raise ValueError("a member must be a whole array")
    return form


def _form(file: IO[bytes]) -> Form:
    version = np.lib.format.read_magic(file)
    read = np.lib.format.read_array_header_1_0 if version == (1, 0) else np.lib.format.read_array_header_2_0
    shape, _, dtype = read(file)
    if dtype.kind not in _KINDS or min(shape, default=0) < 0:
        raise ValueError("elements must be plain numbers")
    return Form(tuple(shape), dtype)
