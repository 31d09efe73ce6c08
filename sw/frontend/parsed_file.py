"""A network file before and after it is parsed: the types between reading a file and building its graph."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

from dovetail.sw.errors import NetworkError
from dovetail.sw.network.ir import Graph
from dovetail.sw.network.layout import Shape

if TYPE_CHECKING:
    import onnx

    from dovetail.sw.files.portable import Sample

Shapes = Mapping[str, Sequence[int]]
"""Input name -> sizes."""

Forms = Mapping[str, tuple[str, Shape]]
"""Element type and shape of tensors, by name."""


@dataclass(frozen=True)
class NetworkFile:
    """A network file in memory.

    Parameters
    ----------
    name: what the network is called.
    data: the bytes of an ONNX or TFLite file.
    folder: where an ONNX file's external data lie; None where it has none.
    sample: an input with its output, which a portable network file may carry.
    states: input -> output of each variable of an ONNX file; None: as the file says.
    """

    name: str
    data: bytes
    folder: Path | None = None
    sample: Sample | None = None
    states: Mapping[str, str] | None = None


@dataclass(frozen=True)
class FileNode:
    """A node of a network file: its name, operator, and the tensors that it reads and makes, by name."""

    name: str
    op: str
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]

    def __str__(self) -> str:
        return f"{self.op} {self.name}"


@dataclass(frozen=True)
class Remainder:
    """What Dovetail leaves to the user: operators that neither accelerator nor runtime knows, and all behind them.

    Custom operators, control flow and operators newer than the runtimes are such.

    Parameters
    ----------
    left: the operators, in order, as "name (operator)".
    reason: why the first one of them is left.
    """

    left: tuple[str, ...]
    reason: str

    @property
    def text(self) -> str:
        """What is left and why, for people."""
        more = f" and {len(self.left) - 1} behind it" if len(self.left) > 1 else ""
        return f"{self.left[0]}{more}: {self.reason}"


class ParsedFile(ABC):
    """A network file that is parsed, once, and cut where the first unknown operator is.

    What is asked of it concerns the part before the cut; `rest` is the part behind it. The tensors that go over are
    outputs of the one and inputs of the other.
    """

    file: NetworkFile
    remainder: Remainder | None
    """What is behind the cut; None if all operators are known."""

    @property
    def name(self) -> str:
        """What the network is called."""
        return self.file.name

    @property
    def data(self) -> bytes:
        """The whole file, with nothing left open and nothing outside of it."""
        return self.file.data

    @property
    def notes(self) -> Mapping[str, str]:
        """What the file's maker noted in it, by key."""
        return {}

    @property
    @abstractmethod
    def is_float(self) -> bool:
        """Whether the network has to be quantised first."""

    @property
    @abstractmethod
    def nodes(self) -> list[FileNode]:
        """The nodes, in the file's order."""

    @cached_property
    @abstractmethod
    def graph(self) -> Graph:
        """The graph, before any pass.

        Raises
        ------
        NetworkError: the file is malformed or not quantised, or a node is outside what Dovetail runs.
        """

    @abstractmethod
    def as_onnx(self) -> onnx.ModelProto:
        """The network in ONNX, as the passes over float networks take it. Raises NetworkError."""

    @abstractmethod
    def rest(self, forms: Forms) -> bytes:
        """The file of the rest; ``forms``: of the tensors that go over."""


@contextmanager
def well_formed(name: str, kind: str) -> Iterator[None]:
    """Every error becomes a line about a file of this kind: a damaged one fails anywhere, in lookups and accessors."""
    try:
        yield
    except NetworkError:
        raise
    except RecursionError as error:
        raise NetworkError(f"{name}: float parts must be short, not hundreds of nodes deep; quantise them") from error
    except Exception as error:
        raise NetworkError(f"{name}: {kind} file must be well formed, not damaged ({error!r})") from error
