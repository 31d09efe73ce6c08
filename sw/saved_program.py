"""Reading a saved program: what its header says is held against the network, the configuration and the stream.

The checksum tells that a file is whole, not that it is true. All but the addresses of tensors follows from the network
in the file, the configuration and the instruction stream, so it is worked out again and must be the same.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from dovetail.isa.config import Config
from dovetail.isa.instructions import CFG_REG, CFG_VALUE, INSTRUCTIONS, PAGE_BYTES, REGISTERS, Op, Unit, from_bytes
from dovetail.isa.program import Program, ProgramError
from dovetail.sw import frontend
from dovetail.sw import graph as ir
from dovetail.sw.compiler import Code, Layer, Options, SegmentCode
from dovetail.sw.compiler.compile import executed, least_bytes, outside, roots_of
from dovetail.sw.compiler.memory import ALIGN, align
from dovetail.sw.compiler.partition import Step, host_reasons, is_accelerated, steps_of
from dovetail.sw.compiler.parts import parts_of
from dovetail.sw.errors import CompileError
from dovetail.sw.network import NETWORK_STEP, CompiledNetwork, RunError


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
    graph = frontend.parse(carried[0].payload, name, None)
    try:
        compiled = CompiledNetwork(_code_of(program, graph), (name, carried[0].payload))
        _check_header(json.loads(compiled.program.header()), json.loads(program.header()))
        compiled.report()
    except (_Unfit, CompileError, RunError) as error:
        raise ProgramError(f"{path}: header must fit the network and the stream, not {error}") from None
    except (LookupError, TypeError, AttributeError, ValueError) as error:  # metadata is what this version writes
        raise ProgramError(f"{path}: program must be of this version of the compiler; compile it again") from error
    return compiled


class _Unfit(ValueError):
    """Something that the header says does not follow from the rest; the text names it."""


def _code_of(program: Program, graph: ir.Graph) -> Code:
    """What the compiler made, from the container and the network in it. Raises ValueError and what reading a dictionary
    of another form raises."""
    data, config = program.metadata, program.config
    options = Options.from_dict(data["options"])
    reasons = host_reasons(config, options, graph)
    steps = tuple(steps_of(graph, reasons))
    parts = parts_of(config, graph, steps)
    roots = roots_of(graph, parts)
    accelerated = [step for step in steps if is_accelerated(step)]
    layers = tuple(Layer(**layer) for layer in data["layers"])
    _check("number of segments", len(program.segments), len(accelerated))
    _check("host", data["host"], reasons)
    _check("pitches", data["pitches"], {name: part.pitch for name, part in parts.items()})
    _check("memory_bytes", program.memory_bytes, max(align(program.stream_offset + len(program.stream)), ALIGN))
    if not 0 <= data["least_activations"] <= program.stream_offset:
        raise _Unfit(f"least_activations {data['least_activations']}")
    segments, moved = [], [0] * len(layers)
    for segment, operations in zip(program.segments, data["operations"], strict=True):
        first = segment.address - program.stream_offset
        words = list(from_bytes(program.stream[first : first + segment.pages * PAGE_BYTES]))
        numbers = [pc for pc, _ in operations]
        segments.append(SegmentCode(segment.address, words, dict(operations)))
        _check("operations", numbers, _operations(words))
        for layer, size in _transfers(words, segments[-1].layers):
            moved[layer] += size
    for number, (step, code) in enumerate(zip(accelerated, segments, strict=True)):
        mine = [index for index, layer in enumerate(layers) if layer.segment == number]
        if not set(code.layers.values()) <= set(mine):
            raise _Unfit(f"operations of segment {number}")
        _check_layers([layers[index] for index in mine], graph, executed(step, parts))
    _check("layers", [layer.segment for layer in layers], sorted(layer.segment for layer in layers))
    _check("moved_bytes", [layer.moved_bytes for layer in layers], moved)
    where = data["addresses"]
    _check_addresses(where, program, graph, steps, roots)
    constants = np.frombuffer(program.constants, np.uint8)
    return Code(
        config=config,
        options=options,
        graph=graph,
        steps=steps,
        segments=tuple(segments),
        layers=layers,
        where=where,
        pitches=data["pitches"],
        packers=((0, lambda: constants),),
        constants_bytes=len(constants),
        least_activations=data["least_activations"],
        stream_offset=program.stream_offset,
        memory_bytes=program.memory_bytes,
        host_reasons=reasons,
    )


def _check(what: str, found: Any, wanted: Any) -> None:
    if found != wanted:
        raise _Unfit(f"{what} {_short(found)} instead of {_short(wanted)}")


def _short(value: Any) -> str:
    text = str(value)
    return text if len(text) <= 60 else f"{text[:60]}..."


def _operations(words: Sequence[int]) -> list[int]:
    """The places of the words that a unit executes."""
    end = words.index(Op.END) if Op.END in words else len(words)
    return [pc for pc, word in enumerate(words[:end]) if _unit(word) is not None]


def _unit(word: int) -> Unit | None:
    """The unit that executes a word; None for what the front end does, and for no instruction."""
    code = word & 0xFF
    return INSTRUCTIONS[Op(code)].unit if code in INSTRUCTIONS else None


def _transfers(words: Sequence[int], layers: Mapping[int, int]) -> Iterable[tuple[int, int]]:
    """(layer, bytes) of each transfer."""
    values: dict[int, int] = {}
    for pc, word in enumerate(words):
        if word & 0xFF == Op.CFG:
            values[CFG_REG.get(word)] = CFG_VALUE.get(word)
        elif pc in layers and (unit := _unit(word)) in (Unit.LOAD, Unit.STORE):
            length, count = (REGISTERS[unit][name] for name in ("LENGTH", "COUNT"))
            size = values.get(length.number, 0)
            for field in count.fields:
                size *= field.get(values.get(count.number, 0))
            yield layers[pc], size


def _check_layers(layers: Sequence[Layer], graph: ir.Graph, nodes: Sequence[ir.Node]) -> None:
    """The layers of a segment are its nodes, in some order."""
    by_name = {node.name: node for node in nodes}
    _check("layers", sorted(layer.name for layer in layers), sorted(by_name))
    for layer in layers:
        node = by_name[layer.name]
        wanted = node.op, node.outputs[0], graph.macs(node), least_bytes(graph, node)
        _check(f"layer {node.name}", (layer.kind, layer.output, layer.macs, layer.least_bytes), wanted)
        if not isinstance(layer.tiles, str):
            raise _Unfit(f"tiles {_short(layer.tiles)}")


def _check_addresses(
    where: Mapping[str, Any], program: Program, graph: ir.Graph, steps: Sequence[Step], roots: dict[str, str]
) -> None:
    """Every tensor that passes between the accelerator and others has a place, constants or tensors hold it."""
    for name, address in where.items():
        if name not in graph.tensors or not isinstance(address, int) or isinstance(address, bool):
            raise _Unfit(f"address {_short(address)} of {name!r}")
        tensor = graph.tensors[name]
        last = address + _span(program, name, tensor)
        if address < 0 or last > program.stream_offset:
            raise _Unfit(f"address {address:#x} of {name!r}")
    for step, wanted in zip(steps, outside(graph, steps, roots), strict=True):
        if not is_accelerated(step):
            continue
        made = {name for node in step.nodes for name in node.outputs}
        read = {name for node in step.nodes for name in node.inputs} - made
        missing = [name for name in (*read, *made) if roots[name] in wanted and name not in where]
        if missing:
            raise _Unfit(f"no address of {min(missing)!r}")


def _span(program: Program, name: str, tensor: ir.Tensor) -> int:
    """Bytes from a tensor's first to its last, the pixels' pitch counted."""
    pitch = program.metadata["pitches"].get(name)
    channels = tensor.shape[-1] if tensor.shape else 1
    return tensor.size if pitch is None else (tensor.size // channels - 1) * pitch + channels


def _check_header(wanted: Mapping[str, Any], found: Mapping[str, Any], within: str = "") -> None:
    """The header is the one that would be written."""
    if wanted.keys() != found.keys():
        raise _Unfit(f"entries {_short(sorted(found))} instead of {_short(sorted(wanted))}")
    for name, value in wanted.items():
        if isinstance(value, dict) and not within:
            _check_header(value, found[name], f"{name}.")
        _check(f"{within}{name}", found[name], value)
