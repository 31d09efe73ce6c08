"""What was compiled, as a program container: a file that `saved_program` reads."""

from __future__ import annotations

from dataclasses import asdict

from dovetail.isa.instructions.table import to_bytes
from dovetail.isa.program import Program, Segment, TensorDescriptor
from dovetail.isa.program import Step as ProgramStep
from dovetail.sw.compiler.compile import Code
from dovetail.sw.compiler.emit.reach import bound_of
from dovetail.sw.compiler.partition.segments import HOST, border_of
from dovetail.sw.frontend.parsed_file import ParsedFile

NETWORK_STEP = "network"
"""Label of the step that carries the network file, from which host nodes are rebuilt on loading."""


def program_of(code: Code, source: ParsedFile | None) -> Program:
    """The container of what was compiled; ``source``: the network's file, from which loading rebuilds host nodes."""
    graph = code.graph
    steps = []
    for step, number in code.walk:
        if step.device == HOST:
            inputs, outputs = border_of(graph, step.nodes)
            steps.append(
                ProgramStep(
                    label="host: " + ", ".join(f"{node.op} {node.name}" for node in step.nodes),
                    inputs=tuple(_descriptor(code, name) for name in inputs),
                    outputs=tuple(_descriptor(code, name) for name in outputs),
                )
            )
        elif number is not None:
            steps.append(ProgramStep(label=f"segment {number}", segment=number))
    if source:
        steps.append(ProgramStep(label=f"{NETWORK_STEP}: {source.name}", payload=source.data))
    stream = b"".join(to_bytes(segment.words) for segment in code.segments)
    return Program(
        config=code.config,
        stream=stream,
        constants=code.constants(),
        stream_offset=code.stream_offset,
        memory_bytes=code.memory_bytes,
        segments=tuple(
            Segment(
                s.address,
                s.pages,
                f"segment {i}",
                bound_of(code.config, s.words, code.parameters),
                s.entry,
            )
            for i, s in enumerate(code.segments)
        ),
        inputs=tuple(_descriptor(code, port.tensor) for port in graph.inputs),
        outputs=tuple(_descriptor(code, port.tensor) for port in graph.outputs),
        steps=tuple(steps),
        parameters=code.parameters,
        metadata={
            "network": graph.name,
            "options": asdict(code.options),
            "addresses": code.where,
            "pitches": code.pitches,
            "least_activations": code.least_activations,
            "layers": [asdict(layer) for layer in code.layers],
            "operations": [sorted(segment.layers.items()) for segment in code.segments],
            "host": code.host_reasons,
        },
    )


def _descriptor(code: Code, name: str) -> TensorDescriptor:
    tensor = code.graph.tensors[name]
    scale = None if tensor.scale is None else float(tensor.scale)
    return TensorDescriptor(
        name=name,
        offset=code.where.get(name),
        shape=tensor.shape,
        strides=_strides(code, name),
        dtype=tensor.dtype,
        scale=scale,
        zero_point=tensor.zero_point,
    )


def _strides(code: Code, name: str) -> tuple[int, ...] | None:
    """Of a tensor that is some channels of a wider one."""
    if name not in code.pitches:
        return None
    strides = [1, code.pitches[name] // code.graph.tensors[name].item_bytes]
    for size in code.graph.tensors[name].shape[-2:0:-1]:
        strides.append(strides[-1] * size)
    return tuple(reversed(strides[: len(code.graph.tensors[name].shape)]))
