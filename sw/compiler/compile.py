"""The compiler's driver: partition, segments, system memory, words."""

from collections import Counter
from collections.abc import Collection, Hashable, Iterable, Iterator, Sequence
from copy import copy
from dataclasses import dataclass, replace
from functools import cached_property, partial
from operator import itemgetter

import numpy as np
from numpy.typing import NDArray

from dovetail.isa.common.sizes import ceil_div
from dovetail.isa.config.resolved import Config
from dovetail.isa.instructions.table import WORD_BYTES
from dovetail.sw.compiler import memory
from dovetail.sw.compiler.emit.lower import Packer, Segment
from dovetail.sw.compiler.emit.words import Emitter
from dovetail.sw.compiler.options import Options
from dovetail.sw.compiler.partition.parts import Part, parts_of
from dovetail.sw.compiler.partition.segments import Step, host_reasons, is_accelerated, steps_of
from dovetail.sw.compiler.plan.smaller import smaller
from dovetail.sw.errors import CompileError
from dovetail.sw.network import ir

SURE = 0.003
"""By how much of it an estimate must exceed another one to be given up. Of 325 configurations for MobileNetV1 two take
more cycles than the better draft for it, 0.01 % and 0.11 %."""


NEAR = 1.01
"""By how much the estimate for a smaller SRAM may exceed that for all of it before its plans of more effort than 0 are
left out: a guess. Plans of effort 0 are written until it is sure that they take more cycles."""


@dataclass(frozen=True)
class Layer:
    """A layer on the accelerator, for reports.

    ``macs``; ``least_bytes``: input, weights, biases and output moved once; ``moved_bytes``: what the program moves;
    ``segment``: the program's part it is in; ``tiles``: a convolution's tiling in words.
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
    """Words of one segment, its address in system memory, and the layer of each operation's word index."""

    address: int
    words: list[int]
    layers: dict[int, int]


@dataclass(frozen=True)
class Code:
    """Everything a compilation produces; weights are packed on demand (`constants`).

    System memory holds constants, then tensors, then the instruction stream. ``least_activations``: bytes that tensors
    would need at least, however they were placed.

    ``where``: system memory address of each tensor the accelerator touches; ``pitches``: bytes between the pixels of
    those that lie inside another tensor; ``steps`` as executed,
    ``segments`` in order.
    """

    config: Config
    options: Options
    graph: ir.Graph
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

    def __repr__(self) -> str:
        return f"<Code {self.graph.name}: {len(self.segments)} segments, {len(self.layers)} layers>"

    def constants(self) -> bytes:
        """The constant image: every layer's weight streams at its place."""
        image = np.zeros(self.constants_bytes, np.uint8)
        for address, packer in self.packers:
            packed = packer()
            image[address : address + len(packed)] = packed
        return image.tobytes()


def generate(graph: ir.Graph, config: Config, options: Options) -> Code:
    """Compile a graph.

    The best schedule of each layer need not be the best for the network, so there is a draft of it for every effort up
    to the wanted one, and one without anything that stays in SRAM; and the same for smaller memories, so that more SRAM
    never costs cycles. Of those worth trying the one with the fewest cycles wins.

    Raises
    ------
    CompileError
        A layer does not fit the configuration; names layer, rule and way out.
    """
    outline = _outline_of(graph, config, options)
    drafts = [_Draft(outline, effort, resident) for effort, resident in _ways(options)]
    best, least = _best(_worth_trying(drafts), None)
    assert best
    # A plan takes the same cycles on every memory that is large enough, so it is priced on its own.
    better, limit = list[tuple[_Draft, int]](), least
    for smaller_drafts in _on_less(outline, drafts):
        plan, cycles = _best(smaller_drafts, limit - 1)
        if plan:
            better.append((plan, cycles))
            limit = cycles
    for plan, cycles in reversed(better):
        if cycles < least:  # else another one has fewer on the larger memory
            best, least = min((best, least), plan.on(outline, cycles), key=itemgetter(1))
    return best.code()


def _best(drafts: Sequence["_Draft"], limit: int | None) -> tuple["_Draft | None", int]:
    """The draft with the fewest cycles, if it takes at most ``limit``."""
    best, known = None, dict[Hashable, int]()
    # Of equally fast drafts the first one. The last one is usually the best, so the others need not be finished.
    for draft in reversed(drafts):
        cycles = draft.cycles(known, limit)
        if cycles is not None:
            best, limit = draft, cycles
    return best, limit or 0


def _ways(options: Options) -> list[tuple[int, bool]]:
    """(effort, whether tensors may stay in SRAM) of the programs to choose from."""
    if options.tiling == "channels":
        return [(0, False)]
    efforts = range(options.effort + 1)
    if options.keep_tensors:
        return [(effort, False) for effort in efforts]
    return [(0, False), *((effort, True) for effort in efforts)]


@dataclass(frozen=True)
class _Outline:
    """What all programs of a graph have in common. ``roots``: the tensor whose bytes each tensor shares; ``parts``: the
    tensors inside another one."""

    graph: ir.Graph
    config: Config
    options: Options
    reasons: dict[str, str]
    steps: tuple[Step, ...]
    parts: dict[str, Part]
    roots: dict[str, str]


def _outline_of(graph: ir.Graph, config: Config, options: Options) -> _Outline:
    reasons = host_reasons(config, options, graph)
    steps = tuple(steps_of(graph, reasons))
    parts = parts_of(config, graph, steps)
    return _Outline(graph, config, options, reasons, steps, parts, roots_of(graph, parts))


class _Draft:
    """One way to compile a graph: segments with their schedules. Their words are written on demand.

    ``price``: the sum of what its layers' schedules cost; ``unpriced``: cycles of all transfers of the other layers'
    operands; ``fused``: whether there are nodes that follow tile by tile.
    """

    def __init__(self, outline: _Outline, effort: int, resident: bool) -> None:
        graph, steps, parts, roots = outline.graph, outline.steps, outline.parts, outline.roots
        options = replace(outline.options, effort=effort)
        self.outline, self.effort = outline, effort
        self.segments = [
            Segment(outline.config, options, graph, executed(step, parts), roots, parts, wanted, resident=resident)
            for step, wanted in zip(steps, outside(graph, steps, roots), strict=True)
            if is_accelerated(step)
        ]
        self.price = sum(tiling.price for segment in self.segments for tiling in segment.tilings.values())
        self.unpriced = sum(
            _transfer(outline, node)
            for segment in self.segments
            for node in segment.nodes
            if node.name not in segment.tilings
        )
        self.fused = any(stage.tail for segment in self.segments for stage in segment.stages)
        self._emitters: dict[int, Emitter] = {}
        self._inner: _Draft | None = None
        self._later: dict[str, int] = {}

    def on(self, outline: _Outline, cycles: int) -> tuple["_Draft", int]:
        """The same draft, which takes ``cycles``, on a larger SRAM, and its cycles there. If there are additional
        waits, tensors near them are tried at other places within their banks, one after the other.
        """
        best = self._moved(outline, {})
        least = best.cycles({}, None)
        assert least is not None
        for name, later in self._places(best) if least > cycles else ():
            other = self._moved(outline, {**best._later, name: later})
            if (found := other.cycles({}, least - 1)) is not None:
                best, least = other, found
                if least == cycles:
                    break
        return best, least

    def _moved(self, outline: _Outline, later: dict[str, int]) -> "_Draft":
        moved = copy(self)
        moved.outline, moved._inner, moved._later, moved._emitters = outline, self, later, {}
        return moved

    def _places(self, moved: "_Draft") -> Iterator[tuple[str, int]]:
        """Other places of tensors near the layers that wait: by how many banks they start later."""
        banks = moved.outline.config.bank_bytes
        for number, segment in enumerate(self.segments):
            emitter = moved._emitted(number)
            assert emitter
            late, layer = set(), sum(len(before.nodes) for before in self.segments[:number])
            for step, stage in enumerate(segment.stages):
                if emitter.late & set(range(layer, layer + len(stage.nodes))):
                    late |= {step - 1, step, step + 1}
                layer += len(stage.nodes)
            for name, resident in segment.plan.residents.items():
                if late & set(range(resident.begin, resident.end + 1)):
                    needed = ceil_div(self.outline.graph.tensors[name].size, banks)
                    yield from ((name, later) for later in range(1, resident.banks - needed + 1))

    def cycles(self, known: dict[Hashable, int], limit: int | None) -> int | None:
        """Cycles of the program, None if these are more than ``limit``.

        ``known``: segments' cycles by their schedules, of other drafts as well: only addresses in system memory differ.
        """
        total = 0
        if limit is not None and self._inner is None and self._busy > limit:
            return None
        for number, segment in enumerate(self.segments):
            key = number, _schedule(segment)
            if key not in known:
                emitter = self._emitted(number, None if limit is None else limit - total)
                if emitter is None:
                    return None
                known[key] = emitter.cycles
            total += known[key]
        return total if limit is None or total <= limit else None

    @property
    def _busy(self) -> int:
        """Cycles that the array computes, so that no program of the draft takes fewer."""
        return sum(sum(segment.array_cycles.values()) for segment in self.segments)

    def code(self) -> Code:
        """The whole program."""
        outline, constants, plan = self.outline, self._constants, self._plan
        address = plan.end
        segments: list[SegmentCode] = []
        layers: list[Layer] = []
        for number, segment in enumerate(self.segments):
            emitter = self._emitted(number)
            assert emitter
            layers += _layers(segment, emitter, number, len(layers))
            segments.append(SegmentCode(address, emitter.words, emitter.layers))
            address += len(emitter.words) * WORD_BYTES
        return Code(
            config=outline.config,
            options=outline.options,
            graph=outline.graph,
            steps=outline.steps,
            segments=tuple(segments),
            layers=tuple(layers),
            where=self._where,
            pitches={name: part.pitch for name, part in outline.parts.items()},
            packers=tuple(constants.packers),
            constants_bytes=constants.end,
            least_activations=plan.least,
            stream_offset=plan.end,
            memory_bytes=max(memory.align(address), memory.ALIGN),
            host_reasons=outline.reasons,
        )

    @cached_property
    def _constants(self) -> "_Constants":
        return _Constants(self.outline.steps, self.segments)

    @cached_property
    def _plan(self) -> memory.Plan:
        outline = self.outline
        stored = {root for segment in self.segments for root in segment.stored}
        follows = {stage.tail.name: stage.head for segment in self.segments for stage in segment.stages if stage.tail}
        keep = outline.options.keep_tensors
        base = self._constants.end
        return memory.plan(outline.graph, outline.steps, outline.roots, stored, base, keep=keep, follows=follows)

    @cached_property
    def _where(self) -> dict[str, int]:
        outline = self.outline
        places = self._plan.where | {
            node.outputs[0]: self._constants.where[node.name]
            for node in outline.graph.nodes
            if isinstance(node, ir.Constant)
        }
        offsets = {name: part.offset for name, part in outline.parts.items()}
        return {name: places[root] + offsets.get(name, 0) for name, root in outline.roots.items() if root in places}

    def _emitted(self, number: int, limit: int | None = None) -> Emitter | None:
        """What has written the words of a segment; None if that takes more cycles than ``limit``."""
        emitter = self._emitters.get(number)
        if emitter is None:
            emitter = Emitter(self.outline.config, self._inner._emitted(number) if self._inner else None)
            first = sum(len(segment.nodes) for segment in self.segments[:number])
            where, constants = self._where, self._constants.where
            if not self.segments[number].emit(emitter, first, where, constants, self._later, limit):
                return None
            self._emitters[number] = emitter
        return emitter


def _on_less(outline: _Outline, drafts: Sequence[_Draft]) -> Iterator[list[_Draft]]:
    """The drafts worth trying for smaller memories, the largest first."""
    ways, price = _ways(outline.options), _price(drafts)
    for config in smaller(outline.config) if outline.options.tiling == "free" else ():
        inner = replace(outline, config=config)
        try:
            found = [_Draft(inner, effort, resident) for effort, resident in ways if not effort]
            if _price(found) <= NEAR * price:
                found += [_Draft(inner, effort, resident) for effort, resident in ways if effort]
        except CompileError:
            return
        yield _worth_trying(found)


def _price(drafts: Iterable[_Draft]) -> int:
    """The least estimate of effort 0."""
    return min(draft.price + draft.unpriced for draft in drafts if not draft.effort)


def _worth_trying(drafts: list[_Draft]) -> list[_Draft]:
    """Those that may have the fewest cycles.

    Of effort 0, where prices are estimates, a draft that is far from the best one is left out. Prices are of layers
    alone, so drafts in which nodes follow tile by tile are not compared by them; layers without a price cost what they
    cost in one draft or in the other, but for the transfers of their operands.
    """
    if any(draft.fused for draft in drafts):
        return drafts
    least = min(draft.price for draft in drafts if not draft.effort)
    limit = (1 + SURE) * least + max(draft.unpriced for draft in drafts)
    return [draft for draft in drafts if draft.effort or draft.price <= limit]


def _transfer(outline: _Outline, node: ir.Node) -> int:
    """Cycles on the bus of all operands of a node, without latencies."""
    size = sum(outline.graph.tensors[name].size for name in (*node.inputs, *node.outputs))
    return ceil_div(size, outline.config.bus_bytes) * outline.config.memory.beat_cycles


def _schedule(segment: Segment) -> Hashable:
    """All that a segment's words depend on but addresses in system memory."""
    stages = tuple(tuple(node.name for node in stage.nodes) for stage in segment.stages)
    return stages, tuple(segment.plan.residents.items()), tuple(segment.tilings.items())


class _Constants:
    """The constants of a graph and of its segments' nodes: addresses by node, what makes them, where they end."""

    def __init__(self, steps: Iterable[Step], segments: Iterable[Segment]) -> None:
        self.where: dict[str, int] = {}
        self.packers: list[tuple[int, Packer]] = []
        self.end = 0
        for step in steps:
            for node in step.nodes:
                if isinstance(node, ir.Constant) and not step.host:
                    self._add(node, node.value.size, partial(_bytes, node.value))
        for segment in segments:
            for node in segment.nodes:
                if needed := segment.constants(node):
                    self._add(node, *needed)

    def _add(self, node: ir.Node, size: int, packer: Packer) -> None:
        self.where[node.name] = self.end
        self.packers.append((self.end, packer))
        self.end += memory.align(size)


def _layers(segment: Segment, emitter: Emitter, number: int, first: int) -> Iterator[Layer]:
    """The layers of segment ``number``, from the network's layer ``first`` on."""
    for index, node in enumerate(segment.nodes, first):
        yield Layer(
            name=node.name,
            kind=node.op,
            output=node.outputs[0],
            segment=number,
            macs=segment.graph.macs(node),
            least_bytes=least_bytes(segment.graph, node),
            moved_bytes=emitter.moved.get(index, 0),
            tiles=str(segment.tilings.get(node.name, "")),
        )


def executed(step: Step, parts: Collection[str]) -> list[ir.Node]:
    """The nodes of a step that need instructions."""
    return [node for node in step.nodes if not isinstance(node, ir.FREE) and not _is_placed(node, parts)]


def outside(graph: ir.Graph, steps: Sequence[Step], roots: dict[str, str]) -> list[set[str]]:
    """Per step the roots that are read outside it: by other steps, or by the network's user."""
    outputs = {roots[name] for name in graph.wanted}
    reads = [{roots[name] for node in step.nodes for name in node.inputs} for step in steps]
    readers = Counter(name for names in reads for name in names)
    return [outputs | {name for name, count in readers.items() if count > (name in own)} for own in reads]


def _bytes(values: NDArray[np.int8]) -> NDArray[np.uint8]:
    return np.ascontiguousarray(values).view(np.uint8).ravel()


def _is_placed(node: ir.Node, parts: Collection[str]) -> bool:
    """Whether all that a node copies is there already, or read where it is."""
    return isinstance(node, ir.Move) and (node.outputs[0] in parts or all(name in parts for name in node.inputs))


def roots_of(graph: ir.Graph, parts: dict[str, Part]) -> dict[str, str]:
    """The tensor whose bytes each tensor shares: itself, what its reshapes lead back to, or what it is a part of."""
    roots = {name: parts[name].whole if name in parts else name for name in graph.tensors}
    for node in graph.nodes:
        if isinstance(node, ir.Reshape):
            roots[node.outputs[0]] = roots[node.inputs[0]]
    return roots


def least_bytes(graph: ir.Graph, node: ir.Node) -> int:
    """Bytes of a layer's int8 operands, weights and int32 biases, each once."""
    size = sum(graph.tensors[name].size for name in (*node.inputs, *node.outputs))
    if isinstance(node, ir.Conv | ir.Depthwise):
        size += node.weights.size + 4 * node.bias.size
    return size
