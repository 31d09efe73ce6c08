"""A compiled network: run it on an engine, time it, report on it, save it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dovetail.isa.common.html import html_table
from dovetail.isa.common.sizes import ceil_div, format_bytes
from dovetail.isa.config.memory import Memory
from dovetail.isa.config.resolved import Config
from dovetail.isa.instructions.table import PAGE_BYTES, WORD_BYTES, Unit, to_bytes
from dovetail.isa.parameters import ParameterError, whole_number
from dovetail.isa.program import Program
from dovetail.isa.timing.run import time_program
from dovetail.isa.timing.timeline import Counters, Timeline
from dovetail.sw import frontend
from dovetail.sw.compiler.compile import Code, SegmentCode, generate
from dovetail.sw.compiler.options import Options
from dovetail.sw.compiler.partition.host_cost import HostCost, default_host, load_host_cost
from dovetail.sw.compiler.partition.segments import ACCELERATOR, HOST
from dovetail.sw.compiler.partition.tables import records_of
from dovetail.sw.errors import CompileError, DovetailError, NetworkError
from dovetail.sw.frontend.parsed_file import ParsedFile, Shapes
from dovetail.sw.host.step import HostUnit, units_of
from dovetail.sw.host.work import host_work
from dovetail.sw.network import ir
from dovetail.sw.network.layout import Array
from dovetail.sw.passes.integer.simplify import simplify
from dovetail.sw.runtime.container import program_of
from dovetail.sw.runtime.engine import Engine, RunResult
from dovetail.sw.runtime.engines import create
from dovetail.sw.runtime.report import LayerReport, MemoryUse, Report


class RunError(DovetailError):
    """The engine stopped with a fault, or ran into its cycle limit."""


@dataclass(frozen=True)
class Result:
    """What a run gives.

    ``outputs`` by name, as the network's file declares them; ``cycles``: accelerator cycles of all segments;
    ``timeline``: one per segment; ``counters``: stall counters per unit, summed over segments; ``tensors``: int8
    tensors by name, but for those that were in SRAM only (with ``Options.keep_tensors`` none is).
    """

    outputs: dict[str, Array]
    cycles: int
    timeline: tuple[Timeline, ...]
    counters: dict[Unit, Counters]
    tensors: dict[str, Array] = field(repr=False)

    def __repr__(self) -> str:
        outputs = ", ".join(f"{name} {value.dtype}{list(value.shape)}" for name, value in self.outputs.items())
        return f"<Result {self.cycles:,} cycles; {outputs}>"

    def _repr_html_(self) -> str:
        rows = [(name, value.dtype, " x ".join(map(str, value.shape))) for name, value in self.outputs.items()]
        return html_table(f"{self.cycles:,} cycles", ("output", "type", "shape"), "lll", rows)


def _add_counters(runs: list[Mapping[Unit, Counters]]) -> dict[Unit, Counters]:
    names = [f.name for f in fields(Counters)]
    return {unit: Counters(**{name: sum(getattr(run[unit], name) for run in runs) for name in names}) for unit in Unit}


class CompiledNetwork:
    """A network compiled for one configuration.

    Parameters
    ----------
    code
        What the compiler made.
    source
        The network file that it was made from; None if from a graph.

    ``state`` holds what the next run finds in the network's variables, by the name of the tensor that reads it: at
    first their initial values, then what the last run left; empty for networks without variables. It may be set.
    """

    def __init__(self, code: Code, source: ParsedFile | None = None) -> None:
        self.code = code
        self.config = code.config
        self.graph = code.graph
        self.source = source
        self.state = self.graph.initial_state()
        self._engines: dict[str, Engine] = {}
        self._left: tuple[object, dict[str, Array]] | None = None
        """What stands for what the last run has left in SRAM, and the variables that it left."""

    def __repr__(self) -> str:
        code = self.code
        return (
            f"<CompiledNetwork {self.graph.name} on {self.config.array}, "
            f"{format_bytes(self.config.sram)}: {len(code.layers)} layers on the accelerator, "
            f"{len(code.host_reasons)} on the host>"
        )

    def _repr_html_(self) -> str:
        code, config = self.code, self.config
        rows = (
            ("multipliers", config.array),
            ("SRAM", format_bytes(config.sram)),
            ("layers on the accelerator", len(code.layers)),
            ("nodes on the host", len(code.host_reasons)),
            ("system memory", f"{code.memory_bytes:,} bytes"),
        )
        return html_table(self.graph.name, (), "lr", rows)

    def on(self, config: Config) -> CompiledNetwork:
        """The same network, compiled with the same options for another configuration. Raises CompileError."""
        return CompiledNetwork(generate(self.code.network, config, self.code.options), self.source)

    # --- timing ------------------------------------------------------------------------------------------------

    def cycles_with(self, memory: Memory) -> int:
        """What the programs take with another memory, with the least run inputs. Raises ConfigError where the
        configuration cannot have it."""
        config, code = self.config.replace(memory=memory), self.code
        return sum(self._timed(config, segment).cycles for segment in code.segments)

    def _timed(self, config: Config, segment: SegmentCode) -> Timeline:
        """A run of a segment that finds SRAM as the last one left it, with the least run inputs."""
        timeline = time_program(
            config,
            segment.body,
            address=segment.address + segment.entry * PAGE_BYTES,
            memory_bytes=self.code.memory_bytes,
            parameters=self.code.parameters.least,
        )
        return timeline.behind(segment.entry)

    def _first_cycles(self, segment: SegmentCode, later: Timeline) -> int:
        """Of a run of a segment that finds nothing in SRAM; ``later``: one that does."""
        return self._timed(self.config, replace(segment, entry=0)).cycles if segment.entry else later.cycles

    @cached_property
    def _report(self) -> Report:
        code, config = self.code, self.config
        timelines = []
        for segment in code.segments:
            timeline = self._timed(config, segment)
            if timeline.fault:
                raise RunError(f"the compiler made a faulty program: {timeline.fault}; please report this network")
            timelines.append(timeline)
        reports: list[LayerReport] = []
        for layer, cycles in zip(code.layers, self.layer_cycles(timelines), strict=True):
            bound = _bound(config, layer.macs, layer.least_bytes)
            reports.append(
                LayerReport(layer.name, layer.kind, layer.macs, cycles, bound, layer.least_bytes, layer.moved_bytes)
            )
        macs = sum(layer.macs for layer in code.layers)
        least = self._least_bytes()
        return Report(
            cycles=sum(timeline.cycles for timeline in timelines),
            first_cycles=sum(
                self._first_cycles(segment, run) for segment, run in zip(code.segments, timelines, strict=True)
            ),
            macs=macs,
            host_macs=self.graph.total_macs - macs,
            bound=_bound(config, macs, least),
            least_bytes=least,
            moved_bytes=sum(layer.moved_bytes for layer in code.layers),
            layers=tuple(reports),
            counters=_add_counters([t.counters for t in timelines]),
            timeline=tuple(timelines),
            host=code.host_reasons,
            host_work=host_work(self.graph, code.steps, code.options.host, code.where),
            memory=MemoryUse(
                constants=code.constants_bytes,
                tensors=code.stream_offset - code.constants_bytes,
                least_tensors=code.least_activations,
                program=sum(len(segment.words) * WORD_BYTES for segment in code.segments),
            ),
            config=config,
        )

    def layer_cycles(self, timelines: Sequence[Timeline]) -> list[int]:
        """Cycles of each layer in a run, from the end of the one before to its own; ``timelines``: one per segment."""
        offset, ends = 0, np.zeros(len(self.code.layers), np.int64)
        for segment, timeline in zip(self.code.segments, timelines, strict=True):
            index = np.full(len(segment.words), -1, np.int64)
            index[list(segment.layers)] = list(segment.layers.values())
            operations = ~timeline.is_fetch
            np.maximum.at(ends, index[timeline.pc[operations]], timeline.end[operations] + 1 + offset)
            offset += timeline.cycles
            ends[max(segment.layers.values())] = offset  # the segment's end belongs to its last layer
        cycles: list[int] = np.diff(np.maximum.accumulate(ends), prepend=0).tolist()
        return cycles

    def report(self) -> Report:
        """Exact cycles of an inference, where they go, and the memory that it takes; no tensor data is touched. Run
        inputs, such as the position of a row in a cache, have their least values."""
        return self._report

    def _least_bytes(self) -> int:
        """Bytes that must cross the bus: accelerator inputs from and outputs to the host, weights, biases."""
        code, tensors = self.code, self.graph.tensors
        updates = [node for node in code.nodes_on(ACCELERATOR) if isinstance(node, ir.Update)]
        own = [node for node in code.nodes_on(ACCELERATOR) if not isinstance(node, ir.Update | ir.Pick)]
        made = {name for node in own for name in node.outputs}
        used = {name for node in own for name in node.inputs}
        wanted = {name for node in code.nodes_on(HOST) for name in node.inputs}.union(self.graph.wanted)
        outputs = sum(tensors[name].bytes for name in made & wanted)
        inputs = sum(tensors[name].size for name in used - made)
        weights = sum(node.weight_bytes for node in own)
        return inputs + outputs + weights + sum(tensors[node.inputs[1]].size for node in updates)

    # --- running -----------------------------------------------------------------------------------------------

    @cached_property
    def _image(self) -> NDArray[np.uint8]:
        """System memory before a run: constants and instruction stream in place."""
        code = self.code
        image = np.zeros(code.memory_bytes, np.uint8)
        constants = np.frombuffer(code.constants(), np.uint8)
        image[: len(constants)] = constants
        for segment in code.segments:
            words = np.frombuffer(to_bytes(segment.words), np.uint8)
            image[segment.address : segment.address + len(words)] = words
        return image

    @cached_property
    def _host_units(self) -> dict[int, list[HostUnit]]:
        """What runs at once on the host, by the number of the step."""
        return {index: units_of(step.nodes) for index, step in enumerate(self.code.steps) if step.device == HOST}

    def run(self, inputs: Mapping[str, Array] | Array, engine: str | Engine = "model") -> Result:
        """One inference; a network with variables goes on from where the last one left them (see `reset`).

        Parameters
        ----------
        inputs
            By input name, or one array; dtype and shape as the network's file declares them.
        engine
            ``"model"`` or ``"rtl"`` (same bytes, same cycles), or an engine of the network's configuration.

        Raises
        ------
        NetworkError
            Inputs do not fit the network, or a run input is outside its range.
        RunError
            The engine faulted.
        """
        graph, code = self.graph, self.code
        accelerator = self._engine(engine) if isinstance(engine, str) else engine
        values: dict[str, Array] = self.state | graph.bind(inputs)
        try:
            code.parameters.values(self._run_inputs(values))
        except ParameterError as error:
            raise NetworkError(str(error)) from None
        memory, where = self._image.copy(), self._where(values)
        runs: list[RunResult] = []
        found = self._finds_sram(accelerator)
        for index, (step, number) in enumerate(code.walk):
            if step.device == HOST:
                for unit in self._host_units[index]:
                    values |= unit.run(graph, values)
                continue
            if number is not None:
                self._write(memory, step.nodes, values, where)
                segment = code.segments[number]
                try:
                    parameters = code.parameters.values(self._run_inputs(values))
                except ParameterError as error:
                    raise NetworkError(str(error)) from None
                entry = segment.entry if found else 0
                address, pages = segment.address + entry * PAGE_BYTES, segment.pages - entry
                run = accelerator.run(memory, address, pages, parameters=parameters)
                run = replace(run, timeline=run.timeline.behind(entry))
                if run.fault:
                    raise RunError(f"the engine stopped in segment {number}: {run.fault}")
                runs.append(run)
            for node in step.nodes:
                for name in node.outputs:
                    if (value := self._read(memory, name, values, node, where)) is not None:
                        values[name] = value
        outputs = graph.unbind(values)
        self.state = graph.next_state(values)
        if code.keeps:
            accelerator.holds = object()
            self._left = accelerator.holds, {name: value.copy() for name, value in self.state.items()}
        return Result(
            outputs,
            sum(run.cycles for run in runs),
            tuple(run.timeline for run in runs),
            _add_counters([run.counters for run in runs]),
            values,
        )

    def _finds_sram(self, accelerator: Engine) -> bool:
        """Whether an engine's SRAM is as this network's last run left it, and the variables are as well."""
        if self._left is None or accelerator.holds is not self._left[0]:
            return False
        return all(np.array_equal(value, self._left[1][name]) for name, value in self.state.items())

    def reset(self) -> None:
        """Give the network's variables their initial values again."""
        self.state = self.graph.initial_state()

    def _run_inputs(self, values: Mapping[str, Array]) -> dict[str, int]:
        """What the host has for each run input; the least value of those that come later."""
        return {
            one.name: whole_number(one.name, values[one.name].ravel().tolist()) if one.name in values else one.low
            for one in self.code.parameters.inputs
        }

    def _engine(self, name: str) -> Engine:
        if name not in self._engines:
            self._engines[name] = create(name, self.config)
        return self._engines[name]

    def _where(self, values: Mapping[str, Array]) -> dict[str, int]:
        """Addresses of tensors in this run: what lies in a row that it picks is as many records further on."""
        where = dict(self.code.where)
        for records in records_of(self.graph.nodes):
            further = self._run_inputs(values)[records.input] * records.step
            for pick in records.picks:
                first = self.code.where[pick.outputs[0]]
                row = range(first, first + pick.table.shape[1])
                where |= {name: at + further for name, at in self.code.where.items() if at in row}
        return where

    def _write(
        self, memory: NDArray[np.uint8], nodes: tuple[ir.Node, ...], values: dict[str, Array], where: Mapping[str, int]
    ) -> None:
        """Put what a segment reads from outside where it expects it."""
        made = {name for node in nodes for name in node.outputs}
        for name in {name for node in nodes for name in node.inputs} - made:
            address = where.get(name)
            if address is not None:
                data = np.ascontiguousarray(values[name]).view(np.uint8).ravel()
                memory[address : address + data.size] = data

    def _read(
        self,
        memory: NDArray[np.uint8],
        name: str,
        values: dict[str, Array],
        node: ir.Node,
        where: Mapping[str, int],
    ) -> Array | None:
        """A tensor, None if it was in SRAM only."""
        tensor = self.graph.tensors[name]
        if isinstance(node, ir.Reshape):  # perhaps of something that the host has made
            source = values.get(node.inputs[0])
            return None if source is None else source.reshape(tensor.shape)
        address = where.get(name)
        if address is None:
            return None
        if name in self.code.pitches:
            pitch, channels = self.code.pitches[name], tensor.shape[-1]
            shape = (tensor.size // channels, channels)
            strides = pitch, tensor.item_bytes
            whole = memory[address:].view(tensor.dtype)
            return np.lib.stride_tricks.as_strided(whole, shape, strides, writeable=False).reshape(tensor.shape).copy()
        return memory[address : address + tensor.bytes].view(tensor.dtype).reshape(tensor.shape).copy()

    @cached_property
    def program(self) -> Program:
        """The program container (see `dovetail.isa.program`)."""
        return program_of(self.code, self.source)

    def save(self, path: str | Path) -> None:
        """Write the program container, whole or not at all. Raises OSError."""
        self.program.save(path)


def _bound(config: Config, macs: int, size: int) -> int:
    """Cycles of the roofline: the array's at its peak, or the bus's, whichever takes longer."""
    return max(ceil_div(macs, config.macs_per_cycle), ceil_div(size, config.bus_bytes) * config.like_fixed.beat_cycles)


def compile_network(
    network: frontend.Network | ir.Graph,
    config: Config | None = None,
    *,
    shapes: Shapes | None = None,
    states: Mapping[str, str] | None = None,
    example_inputs: Any = None,
    tiling: str = "free",
    keep_tensors: bool = False,
    host: HostCost | str | Path | None = None,
    effort: int = Options().effort,
    exact: bool = False,
    keep_weights: bool = False,
) -> CompiledNetwork:
    """Compile a network for a configuration.

    Parameters
    ----------
    network
        An ONNX or TFLite file, a ``zoo:`` name, what `quantise` returns, a `torch.nn.Module` that PT2E has quantised,
        a `torch.export.ExportedProgram` of one, or a graph.
    config
        The accelerator; the default configuration when left out.
    shapes
        Input name -> sizes, for axes that an ONNX file leaves open. The batch is 1 where nothing is said.
    states
        Input name -> output name of each variable of an ONNX file. Without, pairs that are named as caches are.
    example_inputs
        What a PyTorch module takes: a tensor, a tuple of its arguments, or a mapping of these by name.
    tiling, keep_tensors, effort, exact, keep_weights
        See `dovetail.sw.compiler.options.Options`.
    host
        What the host costs, or the TOML file of a table (docs/host-cost.md).

    Raises
    ------
    NetworkError, CompileError
        One line that names the node or layer, the rule and the way out.
    """
    if not isinstance(config, Config | None):
        raise CompileError(f"config must be a dovetail.Config, not {type(config).__name__}")
    cost = load_host_cost(host) if isinstance(host, str | Path) else host or default_host()
    options = Options(tiling, keep_tensors, cost, effort, exact, keep_weights)
    if isinstance(network, ir.Graph):
        return CompiledNetwork(generate(network, config or Config(), options))
    source = frontend.parse(frontend.read(network, states, example_inputs), shapes)
    return CompiledNetwork(generate(simplify(source.graph), config or Config(), options), source)


__all__ = [
    "CompiledNetwork",
    "MemoryUse",
    "NetworkError",
    "Report",
    "Result",
    "RunError",
    "compile_network",
]
