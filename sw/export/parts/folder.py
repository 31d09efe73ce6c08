"""Writes every part of a compiled network as a file that a reference runtime takes, with a manifest; and runs them.

Parts of the accelerator, and of the host in ONNX networks, are ONNX files; host operators of TFLite networks are TFLite
files. ``docs/export.md`` describes the manifest.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from io import BytesIO
from pathlib import Path
from typing import Any

import numpy as np
import yaml
from ai_edge_litert.interpreter import Interpreter, OpResolverType

import dovetail
from dovetail.isa.common.files import write_atomically, written_whole
from dovetail.sw.compiler.partition.integer_forms import Forms
from dovetail.sw.compiler.partition.segments import border_of
from dovetail.sw.errors import NetworkError, first_line
from dovetail.sw.export.parts.nodes import write
from dovetail.sw.export.parts.part import Part
from dovetail.sw.files.manifest import parse_yaml
from dovetail.sw.files.portable import sha256
from dovetail.sw.host.kernels import OnnxOp, Permute, TfliteOp
from dovetail.sw.host.onnx_session import open_session
from dovetail.sw.host.step import can_join
from dovetail.sw.network import ir
from dovetail.sw.network.layout import Array, Layout, as_signed, as_unsigned
from dovetail.sw.runtime.compiled_network import CompiledNetwork

FORMAT, VERSION = "dovetail-partition", 1
MANIFEST, PROGRAM = "manifest.yaml", "network.dvt"


@dataclass(frozen=True)
class _Piece:
    """Nodes that become one file.

    ``segment``: of the program, None on the host; ``fuses``: ONNX Runtime must fuse what is between DequantizeLinear
    and QuantizeLinear to integer kernels, else it must leave every operator as it is.
    """

    nodes: tuple[ir.Node, ...]
    segment: int | None = None
    fuses: bool = True
    is_alone: bool = False

    @property
    def operator(self) -> TfliteOp | None:
        """The operator of a TFLite file that the piece is."""
        payload = self.nodes[0].payload if self.nodes and isinstance(self.nodes[0], ir.Host) else None
        return payload if isinstance(payload, TfliteOp) else None


@dataclass(frozen=True)
class _Border:
    """A value between pieces, or the network's: then ``port`` says how its file has the tensor."""

    name: str
    tensor: str
    port: ir.Port | None = None


def export(compiled: CompiledNetwork, folder: Path) -> dict[str, Any]:
    """Write the parts, the program and the manifest into a folder, which is made; returns the manifest.

    Raises
    ------
    NetworkError
        A node has no form in ONNX, or keeps a state of its own.
    OSError
        The folder cannot be written to.
    """
    _check_layers(compiled.graph)
    with written_whole(folder) as place:
        return _export(compiled, place)


def _export(compiled: CompiledNetwork, folder: Path) -> dict[str, Any]:
    graph = compiled.graph
    pieces = _pieces(compiled)
    parts = [_write(compiled, piece, number, folder) for number, piece in enumerate(pieces)]
    compiled.save(folder / PROGRAM)
    manifest = {
        "format": FORMAT,
        "version": VERSION,
        "made_by": f"dovetail {dovetail.__version__}",
        "network": graph.name,
        "source_sha256": sha256(compiled.source.data) if compiled.source else None,
        "rounding": graph.source,
        "configuration": {"hash": f"{compiled.config.hash:016x}", **compiled.config.to_dict()},
        "program": {"file": PROGRAM, "sha256": sha256((folder / PROGRAM).read_bytes())},
        "inputs": [_described(compiled, _of_port(port)) for port in graph.inputs],
        "outputs": [_described(compiled, _of_port(port)) for port in graph.outputs],
        **({"states": _write_states(compiled, folder)} if graph.states else {}),
        "parts": parts,
        **({"rest": _write_rest(compiled, folder)} if graph.left and compiled.source else {}),
    }
    write_atomically(folder / MANIFEST, yaml.safe_dump(manifest, sort_keys=False))
    return manifest


def _check_layers(graph: ir.Graph) -> None:
    """Raises NetworkError for a layer whose state no file of a part could take from, and give to, the others, and for
    rows that an accelerator picks, which no part passes on."""
    if picked := next((node.name for node in graph.nodes if isinstance(node, ir.Pick)), None):
        raise NetworkError(
            f"{picked!r}: a row that the accelerator picks must be the host's to be exported; compile with"
            " parameters = 0"
        )
    held = {state.read for state in graph.states}
    for node in graph.nodes:
        if isinstance(node, ir.Host) and not isinstance(node.payload, OnnxOp | Permute) and held & {*node.inputs}:
            raise NetworkError(
                f"{node.name!r}: {node.op} must be a layer without a state of its own to be exported; `dovetail run`"
                " and saved programs keep it"
            )


def _write_states(compiled: CompiledNetwork, folder: Path) -> list[dict[str, Any]]:
    """The network's variables: what parts read in a run is what parts wrote in the one before."""
    graph, found = compiled.graph, []
    for number, state in enumerate(graph.states):
        buffer = BytesIO()
        np.save(buffer, state.initial, allow_pickle=False)
        file = f"state_{number:02d}.npy"
        write_atomically(folder / file, buffer.getvalue())
        found.append(
            {
                "name": state.name,
                "reads": _outer(graph, state.read).name,
                "writes": _outer(graph, state.written).name,
                "initial": file,
                "sha256": sha256(buffer.getvalue()),
            }
        )
    return found


def _write_rest(compiled: CompiledNetwork, folder: Path) -> dict[str, Any]:
    """What is behind the network's last part, as the file has it."""
    graph = compiled.graph
    assert compiled.source is not None
    forms = {port.name: (port.dtype, port.shape) for port in graph.outputs}
    data = compiled.source.rest(forms)
    file = f"rest.{graph.source}"
    write_atomically(folder / file, data)
    return {"file": file, "sha256": sha256(data), "operators": list(graph.left), "reason": graph.why_left}


def _outer(graph: ir.Graph, tensor: str) -> _Border:
    """A tensor between runs: the network's input, where that is what is kept."""
    sources = {port.tensor: port for port in reversed(graph.inputs)}
    return _of_port(sources[tensor]) if tensor in sources else _inner(graph, tensor)


def _pieces(compiled: CompiledNetwork) -> list[_Piece]:
    """The files to be, in order. Constants belong to the part that reads them."""
    graph = compiled.graph
    pieces: list[_Piece] = []
    for step, number in compiled.code.walk:
        nodes = tuple(node for node in step.nodes if not isinstance(node, ir.Constant))
        pieces += _host_pieces(nodes) if number is None else [_Piece(nodes, number)]
    made = {name for piece in pieces for node in piece.nodes for name in node.outputs}
    if any(port.tensor not in made for port in graph.outputs):
        pieces.append(_Piece(()))  # outputs that are inputs or constants
    return pieces


def _host_pieces(nodes: Sequence[ir.Node]) -> list[_Piece]:
    """Neighbours that one session computes as `CompiledNetwork.run` does."""
    pieces: list[_Piece] = []
    for node in nodes:
        payload = node.payload if isinstance(node, ir.Host) else None
        alone = isinstance(payload, TfliteOp) or (isinstance(payload, OnnxOp) and not can_join(payload))
        fuses = alone or payload is None
        last = pieces[-1] if pieces else None
        if last is None or alone or last.is_alone or (last.fuses != fuses and not isinstance(node, ir.Reshape)):
            pieces.append(_Piece((node,), fuses=fuses, is_alone=alone))
        else:
            pieces[-1] = replace(last, nodes=(*last.nodes, node))
    return pieces


def _borders(graph: ir.Graph, piece: _Piece) -> tuple[list[_Border], list[_Border]]:
    """What a piece reads, and what it makes for others or for the user."""
    constants = {name for node in graph.nodes if isinstance(node, ir.Constant) for name in node.outputs}
    read, made = border_of(graph, piece.nodes)
    ports = [port for port in graph.outputs if port.tensor in made]
    if not piece.nodes:
        everywhere = {name for node in graph.nodes if not isinstance(node, ir.Constant) for name in node.outputs}
        ports = [port for port in graph.outputs if port.tensor not in everywhere]
        read = tuple(dict.fromkeys(port.tensor for port in ports))
    inputs = [_outer(graph, name) for name in read if name not in constants]
    names = {node.name for node in piece.nodes}
    used = {name for node in graph.nodes if node.name not in names for name in node.inputs}
    used |= {state.written for state in graph.states}
    outputs = [_inner(graph, name) for name in made if name in used]
    outputs += [border for border in map(_of_port, ports) if border.name not in {other.name for other in outputs}]
    return inputs, outputs


def _of_port(port: ir.Port) -> _Border:
    return _Border(port.name, port.tensor, port)


def _inner(graph: ir.Graph, tensor: str) -> _Border:
    """A tensor as the accelerator's memory has it. Its name is its own unless a port has that for another form."""
    for port in (*graph.inputs, *graph.outputs):
        if port.name == tensor and not (port.tensor == tensor and _is_same(graph, port)):
            return _Border(f"{tensor}/inside", tensor)
    return _Border(tensor, tensor)


def _is_same(graph: ir.Graph, port: ir.Port) -> bool:
    """Whether a port's array is its tensor."""
    tensor = graph.tensors[port.tensor]
    return port.dtype == tensor.dtype and port.shape == tensor.shape and port.layout == Layout.plain(port.shape)


def _write(compiled: CompiledNetwork, piece: _Piece, number: int, folder: Path) -> dict[str, Any]:
    """Write a piece; its entry in the manifest."""
    place = "host" if piece.segment is None else "accelerator"
    inputs, outputs = _borders(compiled.graph, piece)
    operator, exact = piece.operator, True
    if operator is not None:
        file, data = f"{number:02d}_{place}.tflite", operator.single()
        inputs = [_border_of_tflite(compiled.graph, inputs, name) for name in piece.nodes[0].inputs]
        outputs = [_border_of_tflite(compiled.graph, outputs, name) for name in piece.nodes[0].outputs]
    else:
        # Of what an instruction does in the place of the host's nodes, and of nodes of another form, the file's form is
        # written.
        network = compiled.code.network
        own = {node.name: node for node in network.nodes}
        forms = {form.node.name: form for form in Forms(network)}
        part = Part(network, f"part {number}", [border.name for border in (*inputs, *outputs)])
        for border in inputs:
            part.input(border.name, border.tensor, border.port)
        for node in piece.nodes:
            if isinstance(node, ir.Rows):
                part.exact &= node.distance is None
                for written in forms[node.name].nodes:
                    write(part, written)
                continue
            node = own.get(node.name, node)
            if network.tensors.keys() >= {*node.inputs, *node.outputs}:  # not what shows an instruction its rows
                write(part, node)
        for border in outputs:
            part.output(border.name, border.tensor, border.port)
        file, data = f"{number:02d}_{place}.onnx", part.model().SerializeToString(deterministic=True)
        exact = part.exact
    write_atomically(folder / file, data)
    entry: dict[str, Any] = {"file": file, "sha256": sha256(data), "runs_on": place, "exact": exact}
    if operator is None:
        entry["optimisation"] = "all" if piece.fuses else "none"
    if piece.segment is not None:
        entry |= {"program": PROGRAM, "segment": piece.segment}
    entry["inputs"] = [_described(compiled, border) for border in inputs]
    entry["outputs"] = [_described(compiled, border) for border in outputs]
    reasons = compiled.code.host_reasons
    entry["nodes"] = [
        {"name": node.name, "kind": node.op, **({"reason": reasons[node.name]} if node.name in reasons else {})}
        for node in piece.nodes
    ]
    return entry


def _border_of_tflite(graph: ir.Graph, borders: Sequence[_Border], tensor: str) -> _Border:
    return next((border for border in borders if border.tensor == tensor), _inner(graph, tensor))


def _described(compiled: CompiledNetwork, border: _Border) -> dict[str, Any]:
    tensor, port = compiled.graph.tensors[border.tensor], border.port
    source: ir.Port | ir.Tensor = tensor if port is None else port
    entry = {
        "name": border.name,
        "dtype": source.dtype,
        "shape": list(source.shape),
        "scale": None if source.scale is None else float(source.scale),
        "zero_point": source.zero_point,
    }
    address = compiled.code.where.get(border.tensor)
    return entry if address is None else entry | {"address": address}


# --- running ----------------------------------------------------------------------------------------------------


def run_parts(folder: Path, inputs: Mapping[str, Array], state: dict[str, Array] | None = None) -> dict[str, Array]:
    """The network's outputs by name, from its parts one after the other in ONNX Runtime and LiteRT.

    ``state``: of a network with variables, by what reads it: what the run before left here, and where this one leaves
    it for the next; empty at first.

    Raises
    ------
    NetworkError
        The folder is no complete export, a file in it has changed, or a runtime fails.
    """
    try:
        manifest = parse_yaml((folder / MANIFEST).read_bytes())
        values = {port["name"]: inputs[port["name"]] for port in manifest["inputs"]}
        kept = manifest.get("states", [])
        values |= {one["reads"]: np.load(folder / one["initial"], allow_pickle=False) for one in kept} | (state or {})
        for part in manifest["parts"]:
            data = (folder / part["file"]).read_bytes()
            if sha256(data) != part["sha256"]:
                raise NetworkError(f"{folder / part['file']}: file must be as the manifest says, not changed")
            feed = {port["name"]: values[port["name"]] for port in part["inputs"]}
            if part["file"].endswith(".tflite"):
                results = _run_tflite(data, feed, [port["dtype"] for port in part["outputs"]])
            else:
                results = _run_onnx(data, feed, part["optimisation"] == "all")
            values |= zip((port["name"] for port in part["outputs"]), results, strict=True)
        if state is not None:
            state |= {one["reads"]: values[one["writes"]].reshape(values[one["reads"]].shape) for one in kept}
        return {port["name"]: values[port["name"]] for port in manifest["outputs"]}
    except NetworkError:
        raise
    except Exception as error:  # a damaged manifest fails anywhere; the runtimes raise their own classes
        raise NetworkError(
            f"{folder}: must be a complete export that the runtimes take, not: {first_line(error)}"
        ) from error


def _run_onnx(data: bytes, feed: Mapping[str, Array], optimises: bool) -> list[Array]:
    return [np.asarray(value) for value in open_session(data, optimises=optimises).run(None, dict(feed))]


def _run_tflite(data: bytes, feed: Mapping[str, Array], dtypes: Sequence[str]) -> list[Array]:
    """Where the manifest has int8 and the file uint8, bytes are 128 higher in the file."""
    interpreter = Interpreter(model_content=data, experimental_op_resolver_type=OpResolverType.BUILTIN_REF)
    interpreter.allocate_tensors()
    for detail, value in zip(interpreter.get_input_details(), feed.values(), strict=True):
        outside = as_unsigned(value) if detail["dtype"] != value.dtype == np.int8 else value
        interpreter.set_tensor(detail["index"], outside.reshape(detail["shape"]))
    interpreter.invoke()
    results = [interpreter.get_tensor(detail["index"]) for detail in interpreter.get_output_details()]
    return [
        as_signed(value) if value.dtype != dtype == "int8" else value
        for value, dtype in zip(results, dtypes, strict=True)
    ]
