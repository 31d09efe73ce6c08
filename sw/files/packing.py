"""Writes portable network files (see `dovetail.sw.files.portable`). Equal networks and samples give equal bytes."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from io import BytesIO
from typing import Any

import numpy as np
import yaml

import dovetail
from dovetail.sw.files.archive import archive
from dovetail.sw.files.portable import FORMAT, MANIFEST, VERSION, Sample, sha256
from dovetail.sw.frontend.parsed_file import ParsedFile
from dovetail.sw.network import ir, reference
from dovetail.sw.network.layout import Array
from dovetail.sw.passes.integer.simplify import simplify


def pack(network: ParsedFile, sample: Mapping[str, Array] | None = None) -> bytes:
    """The portable file of a network.

    Parameters
    ----------
    network
        A quantised network's file; its external data and the shapes of its inputs go in.
    sample
        An input by name; its output, by the graph interpreter, goes in with it.

    Raises
    ------
    NetworkError
        The network is malformed, or the sample does not fit it.
    """
    graph, data = simplify(network.graph), network.data
    file = f"network.{graph.source}"
    members = {file: data}
    manifest: dict[str, Any] = {
        "format": FORMAT,
        "version": VERSION,
        "made_by": f"dovetail {dovetail.__version__}",
        "name": network.name,
        "source_sha256": sha256(network.file.data),
        "network": {"file": file, "kind": graph.source, "bytes": len(data), "sha256": sha256(data)},
        "quantisation": _quantisation(network),
        "inputs": [_port(port) for port in graph.inputs],
        "outputs": [_port(port) for port in graph.outputs],
        **({"states": [_state(graph, state) for state in graph.states]} if graph.states else {}),
        "macs": graph.total_macs,
        "operators": dict(sorted(Counter(node.op for node in graph.nodes).items())),
    }
    if sample is not None:
        held = Sample(dict(sample), reference.run(graph, sample))
        manifest["sample"] = _put_sample(held, members)
    return archive({MANIFEST: yaml.safe_dump(manifest, sort_keys=False).encode(), **members})


def _quantisation(network: ParsedFile) -> dict[str, Any]:
    """Whose roundings the network follows, and what its quantiser noted in the file."""
    return {"rounding": network.graph.source, **({"noted": network.notes} if network.notes else {})}


def _port(port: ir.Port) -> dict[str, Any]:
    scale = None if port.scale is None else float(port.scale)
    shape = list(port.shape)
    return {"name": port.name, "dtype": port.dtype, "shape": shape, "scale": scale, "zero_point": port.zero_point}


def _state(graph: ir.Graph, state: ir.State) -> dict[str, Any]:
    tensor = graph.tensors[state.read]
    return {"name": state.name, "dtype": tensor.dtype, "shape": list(tensor.shape)}


def _put_sample(sample: Sample, members: dict[str, bytes]) -> dict[str, dict[str, str]]:
    """Write the arrays as members; their names by port."""
    entries: dict[str, dict[str, str]] = {}
    for side, arrays in (("inputs", sample.inputs), ("outputs", sample.outputs)):
        entries[side] = {}
        for number, (name, value) in enumerate(arrays.items()):
            buffer = BytesIO()
            np.save(buffer, np.ascontiguousarray(value), allow_pickle=False)
            entries[side][name] = f"sample/{side}/{number}.npy"
            members[entries[side][name]] = buffer.getvalue()
    return entries
