"""Writes every tensor of a run into a folder, as .npy files with an index; all of them or none."""

from __future__ import annotations

import json
import os
import re
import shutil
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from errno import EEXIST
from pathlib import Path
from typing import Any

import numpy as np

from dovetail.isa.common.files import temporary_name
from dovetail.sw.compiler.partition.segments import HOST
from dovetail.sw.errors import NetworkError
from dovetail.sw.files.arrays import parse_array
from dovetail.sw.network.layout import Array, Shape
from dovetail.sw.runtime.compiled_network import CompiledNetwork, Result

INDEX = "index.json"
_LONGEST = 80
"""Characters of a tensor's name in its file's name."""


@dataclass(frozen=True)
class Entry:
    """A tensor of the dump.

    Parameters
    ----------
    order: of execution; network inputs come first.
    node, kind: who made it; for network inputs the port's name and "input".
    on: "accelerator" or "host".
    tensor: its name in the graph.
    shape, dtype: as in the file; images are (1, H, W, C).
    scale, zero_point: its quantisation; scale is None where there is none.
    file: name within the folder.
    """

    order: int
    node: str
    kind: str
    on: str
    tensor: str
    shape: Shape
    dtype: str
    scale: float | None
    zero_point: int
    file: str


def write_dump(folder: Path, compiled: CompiledNetwork, result: Result) -> list[Entry]:
    """Write every tensor of a run, in order of execution, and the index; the index's entries.

    Parameters
    ----------
    folder
        Where to; must be absent or empty.
    compiled
        The network, compiled with ``keep_tensors``.

    Raises
    ------
    NetworkError
        The network was compiled without ``keep_tensors``: its tensors overwrite each other.
    OSError
        The folder is in use or cannot be written; nothing is left behind.
    """
    if not compiled.code.options.keep_tensors:
        raise NetworkError(f"{compiled.graph.name}: a dump must be of a network compiled with keep_tensors")
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise FileExistsError(EEXIST, "a dump's folder must be empty or absent", str(folder))
    entries = _entries(compiled, result.tensors)
    temporary = temporary_name(folder)
    temporary.mkdir(parents=True)
    try:
        for entry in entries:
            np.save(temporary / entry.file, result.tensors[entry.tensor])
        index = {"network": compiled.graph.name, "config_hash": f"{compiled.config.hash:016x}"}
        text = json.dumps({**index, "tensors": [asdict(entry) for entry in entries]}, indent=1)
        (temporary / INDEX).write_text(text + "\n")
        os.replace(temporary, folder)
    except BaseException:
        shutil.rmtree(temporary, ignore_errors=True)
        raise
    return entries


def read_dump(folder: Path) -> dict[str, Array]:
    """The tensors of a dump by name. Raises NetworkError or OSError."""
    try:
        index: dict[str, Any] = json.loads((folder / INDEX).read_text())
        return {entry["tensor"]: parse_array(_file(folder, entry["file"]).read_bytes()) for entry in index["tensors"]}
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise NetworkError(f"{folder}: must be a dump with its index, not damaged ({type(error).__name__})") from error


def _file(folder: Path, name: str) -> Path:
    if Path(name).name != name:
        raise ValueError("files of a dump must lie in its folder")
    return folder / name


def _entries(compiled: CompiledNetwork, tensors: Mapping[str, Array]) -> list[Entry]:
    graph = compiled.graph
    made = [(port.name, "input", HOST, port.tensor) for port in graph.inputs]
    made += [(state.name, "state", HOST, state.read) for state in graph.states]
    for step in compiled.code.steps:
        made += [(node.name, node.op, step.device, name) for node in step.nodes for name in node.outputs]
    entries = []
    for order, (node, kind, on, name) in enumerate(made):
        tensor, value = graph.tensors[name], tensors[name]
        scale = None if tensor.scale is None else float(tensor.scale)
        quant = scale, tensor.zero_point
        file = f"{order:03d}_{re.sub(r'[^A-Za-z0-9.-]+', '_', name)[:_LONGEST]}.npy"
        entries.append(Entry(order, node, kind, on, name, value.shape, str(value.dtype), *quant, file))
    return entries
