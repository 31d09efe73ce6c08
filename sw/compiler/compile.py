"""The compiler: partition, plan, emit, each a function of the one before; and what comes of them."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import count

import numpy as np

from dovetail.isa.config.resolved import Config
from dovetail.isa.instructions.table import PAGE_WORDS, WORD_BYTES
from dovetail.isa.parameters import Parameters
from dovetail.sw.compiler import memory
from dovetail.sw.compiler.draft import Draft
from dovetail.sw.compiler.emit.entry import entry_words
from dovetail.sw.compiler.emit.segment import Packer, Segment
from dovetail.sw.compiler.emit.words import Emitter
from dovetail.sw.compiler.options import Options
from dovetail.sw.compiler.partition.in_place import parameters_of
from dovetail.sw.compiler.partition.outline import partition
from dovetail.sw.compiler.partition.segments import Step
from dovetail.sw.compiler.place import Given
from dovetail.sw.compiler.search import plan
from dovetail.sw.network import ir


@dataclass(frozen=True)
class Layer:
    """A layer on the accelerator, for reports.

    ``macs``; ``least_bytes``: input, weights, biases and output moved once; ``moved_bytes``: what the program moves;
    ``segment``: the program's part it is in; ``tiles``: a convolution's tiling in words, and the bands of a layer that
    runs band by band.
    """

    name: str
    kind: str
    output: str
    segment: int
    macs: int
    least_bytes: int
    moved_bytes: int
    tiles: str


@dataclass(frozen=True)
class SegmentCode:
    """Words of one segment, its address in system memory, and the layer of each operation's word index.

    ``entry``: pages at its beginning that a run may leave out that finds SRAM as the last run left it.
    """

    address: int
    words: Sequence[int]
    layers: dict[int, int]
    entry: int = 0

    @property
    def body(self) -> Sequence[int]:
        """The words behind the entry."""
        return self.words[self.entry * PAGE_WORDS :]

    @property
    def pages(self) -> int:
        """Of instructions; a segment's last page is full."""
        return len(self.words) // PAGE_WORDS


@dataclass(frozen=True)
class Code:
    """Everything a compilation produces; weights are packed on demand (`constants`).

    System memory holds constants, then tensors, then the instruction stream. ``least_activations``: bytes that tensors
    would need at least, however they were placed.

    ``network``: what was compiled, before nodes took forms that suit the configuration: ``graph`` has these.
    ``parameters``: what the programs' parameters are made of.
    ``where``: system memory address of each tensor the accelerator touches; ``pitches``: bytes between the pixels of
    those that lie inside another tensor; ``steps`` as executed,
    ``segments`` in order.
    """

    config: Config
    options: Options
    graph: ir.Graph
    network: ir.Graph
    steps: tuple[Step, ...]
    segments: tuple[SegmentCode, ...]
    layers: tuple[Layer, ...]
    where: dict[str, int]
    pitches: dict[str, int]
    packers: tuple[tuple[int, Packer], ...]
    constants_bytes: int
    least_activations: int
    stream_offset: int
    memory_bytes: int
    host_reasons: dict[str, str]
    parameters: Parameters

    def __repr__(self) -> str:
        return f"<Code {self.graph.name}: {len(self.segments)} segments, {len(self.layers)} layers>"

    @property
    def walk(self) -> Iterator[tuple[Step, int | None]]:
        """The steps as executed, each with the number of its segment; None of a step that executes no program."""
        numbers = count()
        return ((step, next(numbers) if step.is_program else None) for step in self.steps)

    @property
    def keeps(self) -> bool:
        """Whether something stays in SRAM from run to run, which the first run loads."""
        return any(segment.entry for segment in self.segments)

    def in_place(self, state: ir.State) -> bool:
        """Whether a run leaves a variable's next value where it found the present one, in system memory."""
        place = self.where.get(state.read)
        return place is not None and place == self.where.get(state.written)

    def nodes_on(self, device: str) -> Iterator[ir.Node]:
        """The nodes of the steps that run on a device, in order."""
        return (node for step in self.steps if step.device == device for node in step.nodes)

    def constants(self) -> bytes:
        """The constant image: every layer's weight streams at its place."""
        image = np.zeros(self.constants_bytes, np.uint8)
        for address, packer in self.packers:
            packed = packer()
            image[address : address + len(packed)] = packed
        return image.tobytes()


def generate(graph: ir.Graph, config: Config, options: Options, given: Given | None = None) -> Code:
    """Compile a graph; ``given``: what is settled about system memory.

    Raises
    ------
    CompileError
        A layer does not fit the configuration; names layer, rule and way out.
    """
    return emit(plan(partition(graph, config, options, given)))


def emit(draft: Draft) -> Code:
    """The whole program of a draft."""
    placed, band_of = draft.memory, draft.partition.band_of
    divided = draft.partition.whole or draft.partition
    address = placed.end
    segments: list[SegmentCode] = []
    layers: list[Layer] = []
    order = {node.name: number for number, node in enumerate(divided.graph.nodes)}
    first = 0
    for number, segment in enumerate(draft.segments):
        emitter = draft.emitted(number)
        assert emitter
        bands: dict[str, list[int]] = {}  # the numbers of a layer's nodes
        for index, node in enumerate(segment.nodes):
            bands.setdefault(band_of.get(node.name, node.name), []).append(index)
        bands = dict(sorted(bands.items(), key=lambda item: order[item[0]]))
        places = {first + index: len(layers) + n for n, parts in enumerate(bands.values()) for index in parts}
        layers += _layers(divided.graph, segment, emitter, number, first, bands)
        before, loads = entry_words(draft.partition.config, draft.kept(number, first))
        words = {len(before) + word: places[layer] for word, layer in emitter.layers.items()}
        words |= {word: places[layer] for word, layer in loads.items()}
        whole = before + emitter.words if before else emitter.words
        segments.append(SegmentCode(address, whole, dict(sorted(words.items())), len(before) // PAGE_WORDS))
        address += len(whole) * WORD_BYTES
        first += len(segment.nodes)
    return Code(
        config=draft.partition.config,
        options=divided.options,
        graph=divided.graph,
        network=divided.network,
        steps=divided.steps,
        segments=tuple(segments),
        layers=tuple(layers),
        where={name: address for name, address in draft.where.items() if name in divided.graph.tensors},
        pitches={name: part.pitch for name, part in divided.parts.items()},
        packers=tuple(draft.constants.packers),
        constants_bytes=draft.constants.end,
        least_activations=placed.least,
        stream_offset=placed.end,
        memory_bytes=max(memory.align(address), memory.ALIGN),
        host_reasons=divided.reasons,
        parameters=parameters_of(divided.graph, divided.reasons),
    )


def _layers(
    graph: ir.Graph, segment: Segment, emitter: Emitter, number: int, first: int, bands: Mapping[str, list[int]]
) -> Iterator[Layer]:
    """The layers of segment ``number``, whose first node has the number ``first``; ``bands``: by name the places of
    their nodes."""
    nodes = {node.name: node for node in graph.nodes}
    for name, parts in bands.items():
        node, tiling = nodes[name], segment.tilings.get(segment.nodes[parts[0]].name)
        yield Layer(
            name=name,
            kind=node.op,
            output=node.outputs[0],
            segment=number,
            macs=graph.macs(node),
            least_bytes=least_bytes(graph, node),
            moved_bytes=sum(emitter.moved.get(first + part, 0) for part in parts),
            tiles=", ".join([f"{tiling}"] * (tiling is not None) + [f"{len(parts)} bands"] * (len(parts) > 1)),
        )


def least_bytes(graph: ir.Graph, node: ir.Node) -> int:
    """Bytes of a layer's operands and results, weights and biases, each once."""
    if isinstance(node, ir.Update):
        return 2 * graph.tensors[node.inputs[1]].bytes
    return sum(graph.tensors[name].bytes for name in (*node.inputs, *node.outputs)) + node.weight_bytes
