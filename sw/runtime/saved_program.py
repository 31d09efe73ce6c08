"""Reads a saved program and checks its header against the network, the configuration and the stream.

The checksum shows that a file is complete, not that it is correct. Nearly all of the header follows from the network in
the file, the configuration and the instruction stream. So it is computed again and must be the same. Addresses of
tensors must be those that the stream loads from and stores to. The name of a schedule must fit its layer.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from dovetail.isa.config.resolved import Config
from dovetail.isa.instructions.checks import View
from dovetail.isa.instructions.table import PAGE_BYTES, PAGE_WORDS, Op, Unit, from_bytes
from dovetail.isa.program import Program, ProgramError
from dovetail.isa.timing.operations import Operations
from dovetail.isa.timing.sequencer import as_words
from dovetail.sw.compiler.compile import Code, Layer, SegmentCode, least_bytes
from dovetail.sw.compiler.emit.entry import entry_words
from dovetail.sw.compiler.emit.operations import Transfer as Load
from dovetail.sw.compiler.memory import ALIGN, align
from dovetail.sw.compiler.options import Options
from dovetail.sw.compiler.partition.in_place import parameters_of
from dovetail.sw.compiler.partition.outline import partition
from dovetail.sw.errors import CompileError
from dovetail.sw.frontend import parse
from dovetail.sw.frontend.parsed_file import NetworkFile
from dovetail.sw.network import ir
from dovetail.sw.passes.integer.simplify import simplify
from dovetail.sw.runtime.compiled_network import CompiledNetwork, RunError
from dovetail.sw.runtime.container import NETWORK_STEP
from dovetail.sw.runtime.saved_places import Places, Transfer, Unfit, transfers

_TILING = re.compile(
    r"(\d{1,9}) rows(?: x (\d{1,9}) columns)? x (\d{1,9}) of (\d{1,9}) channels, (?:rows|channels|passes) outer,"
    r" buffers \d{1,4}/\d{1,4}/\d{1,4}(?:, \d{1,9} bands)?"
)
_BANDS = re.compile(r"\d{1,9} bands")


def load_program(path: str | Path, config: Config | None = None) -> CompiledNetwork:
    """Read a saved program and make it runnable.

    ``config``: the accelerator it is meant to run on, when that is known; another one is refused.

    Raises
    ------
    ProgramError
        The file is damaged, of another version, for another configuration, or its header does not fit its content.
    """
    program = Program.load(path)
    if config is not None:
        program.check_config(config)
    carried = [step for step in program.steps if step.label.startswith(f"{NETWORK_STEP}: ")]
    if not carried:
        raise ProgramError(f"{path}: program must carry its network file; compile it from the file, not from a graph")
    name = carried[0].label.removeprefix(f"{NETWORK_STEP}: ")
    source = parse(NetworkFile(name, carried[0].payload))
    graph = simplify(source.graph)
    try:
        compiled = CompiledNetwork(_code_of(program, graph), source)
        _check_header(json.loads(compiled.program.header()), json.loads(program.header()))
        compiled.report()
    except (Unfit, CompileError, RunError) as error:
        raise ProgramError(f"{path}: header must fit the network and the stream, not {error}") from None
    except (LookupError, TypeError, AttributeError, ValueError) as error:  # metadata is what this version writes
        raise ProgramError(f"{path}: program must be of this version of the compiler; compile it again") from error
    return compiled


def _code_of(program: Program, network: ir.Graph) -> Code:
    """What the compiler made, from the container and the network in it. Raises ValueError and what reading a dictionary
    of another form raises."""
    data, config = program.metadata, program.config
    options = Options.from_dict(data["options"])
    layers = tuple(Layer(**layer) for layer in data["layers"])
    divided = partition(network, config, options)
    if not {layer.name for layer in layers} <= {node.name for node in divided.graph.nodes}:
        divided = divided.im2col or divided
    graph = divided.graph
    accelerated = [step for step in divided.steps if step.is_program]
    _check("number of segments", len(program.segments), len(accelerated))
    _check("host", data["host"], divided.reasons)
    _check("pitches", data["pitches"], {name: part.pitch for name, part in divided.parts.items()})
    _check("memory_bytes", program.memory_bytes, max(align(program.stream_offset + len(program.stream)), ALIGN))
    segments: list[SegmentCode] = []
    moved, sizes = list[Transfer](), [0] * len(layers)
    for number, (segment, operations, step) in enumerate(
        zip(program.segments, data["operations"], accelerated, strict=True)
    ):
        first = segment.address - program.stream_offset
        words = list(from_bytes(program.stream[first : first + segment.pages * PAGE_BYTES]))
        found = _operations(words)
        segments.append(SegmentCode(segment.address, words, dict(operations), segment.entry))
        _check("operations", [pc for pc, _ in operations], found.pcs.tolist())
        mine = [index for index, layer in enumerate(layers) if layer.segment == number]
        if any(type(layer) is not int or layer not in mine for _, layer in operations):
            raise Unfit(f"operations of segment {number}")
        _check_layers([layers[index] for index in mine], graph, divided.executed(step))
        _check_entry(config, segments[-1], found)
        for transfer in transfers(found, segments[-1].layers):
            moved.append(transfer)
            sizes[transfer.layer] += transfer.size * (transfer.pc >= segment.entry * PAGE_WORDS)
    _check("layers", [layer.segment for layer in layers], sorted(layer.segment for layer in layers))
    _check("moved_bytes", [layer.moved_bytes for layer in layers], sizes)
    constants = np.frombuffer(program.constants, np.uint8)
    nodes = {node.name: node for node in graph.nodes}
    banded = {layer.name for layer in layers if layer.tiles.endswith(" bands")}
    places = Places(divided, data["addresses"], len(constants), program.stream_offset, banded)
    order = [nodes[layer.name] for layer in layers]
    places.check(order, moved)
    least, most = places.least(order, keep=options.keep_tensors)
    if not least <= data["least_activations"] <= most:
        raise Unfit(f"least_activations {_short(data['least_activations'])} instead of {least}..{most}")
    return Code(
        config=config,
        options=options,
        graph=graph,
        network=network,
        steps=divided.steps,
        segments=tuple(segments),
        layers=layers,
        where=data["addresses"],
        pitches=data["pitches"],
        packers=((0, lambda: constants),),
        constants_bytes=len(constants),
        least_activations=data["least_activations"],
        stream_offset=program.stream_offset,
        memory_bytes=program.memory_bytes,
        host_reasons=divided.reasons,
        parameters=parameters_of(divided.graph, divided.reasons),
    )


def _check(what: str, found: Any, wanted: Any) -> None:
    if found != wanted:
        raise Unfit(f"{what} {_short(found)} instead of {_short(wanted)}")


def _short(value: Any) -> str:
    text = str(value)
    return text if len(text) <= 60 else f"{text[:60]}..."


def _operations(words: Sequence[int]) -> Operations:
    """Those up to the END."""
    end = words.index(Op.END) if Op.END in words else len(words)
    return Operations(as_words(words)[:end])


def _check_entry(config: Config, segment: SegmentCode, found: Operations) -> None:
    """The entry loads contiguous bytes and does nothing else."""
    end, loads = segment.entry * PAGE_WORDS, list[tuple[int, Load]]()
    for pc, registers in zip(found.pcs.tolist(), found.registers(), strict=True):
        if pc < end:
            view = View(Unit.LOAD, registers)
            loads.append((segment.layers[pc], Load(view["MEM_ADDR"], view["SRAM_ADDR"], view["LENGTH"])))
    _check(f"entry of {segment.entry} pages", list(segment.words[:end]), list(entry_words(config, loads)[0]))


def _check_layers(layers: Sequence[Layer], graph: ir.Graph, nodes: Sequence[ir.Node]) -> None:
    """The layers of a segment are its nodes, in some order."""
    by_name = {node.name: node for node in nodes}
    _check("layers", sorted(layer.name for layer in layers), sorted(by_name))
    for layer in layers:
        node = by_name[layer.name]
        wanted = node.op, node.outputs[0], graph.macs(node), least_bytes(graph, node)
        _check(f"layer {node.name}", (layer.kind, layer.output, layer.macs, layer.least_bytes), wanted)
        if not _is_tiling(layer.tiles, graph, node):
            raise Unfit(f"tiles {_short(layer.tiles)} of layer {node.name}")


def _is_tiling(text: Any, graph: ir.Graph, node: ir.Node) -> bool:
    """Whether a layer may be cut as a text says (`dovetail.sw.compiler.plan.schedule.Tiling`)."""
    if not isinstance(node, ir.Conv | ir.Depthwise | ir.MatMul):
        return bool(text == "" or _BANDS.fullmatch(text))
    found = _TILING.fullmatch(text)
    if found is None:
        return False
    _, height, width, channels = graph.tensors[node.outputs[0]].nhwc
    numbers = [int(number) for number in found.groups(default="1")]
    return all(1 <= n <= most for n, most in zip(numbers[:3], (height * width, width, channels), strict=True))


def _check_header(wanted: Mapping[str, Any], found: Mapping[str, Any], within: str = "") -> None:
    """The header is the one that would be written."""
    if wanted.keys() != found.keys():
        raise Unfit(f"entries {_short(sorted(found))} instead of {_short(sorted(wanted))}")
    for name, value in wanted.items():
        if isinstance(value, dict) and not within:
            _check_header(value, found[name], f"{name}.")
        _check(f"{within}{name}", found[name], value)
