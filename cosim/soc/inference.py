"""One inference on the SoC: generated C on the processor, segments on the accelerator."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from math import prod
from pathlib import Path

import numpy as np

from dovetail.cosim.soc.build import HOST_BYTES, MAIN, TRAP, compile_program, runtime_files, soc_header
from dovetail.cosim.soc.simulation import TOP, Run, SocError, SocRun, run_program
from dovetail.hw.soc.design import PERIPHERAL, REGISTERS
from dovetail.hw.soc.peripheral import Register
from dovetail.isa.common.sizes import round_up
from dovetail.isa.config.memory import kind_of
from dovetail.isa.config.system import Part, System
from dovetail.isa.program import ITEM_BYTES
from dovetail.isa.timing.system import Begun, time_system
from dovetail.isa.timing.timeline import Timeline
from dovetail.sw.export.codegen.inference import inference_of
from dovetail.sw.export.codegen.project import project_of
from dovetail.sw.network.ir import Port
from dovetail.sw.network.layout import Array, Sample
from dovetail.sw.runtime.compiled_network import CompiledNetwork

PAGE = 4096
START_UP = ("boot", "weights")
"""Steps before the inference."""
MARKS = f"INFERENCE_STEP(number)=(*(volatile uint32_t*){PERIPHERAL + Register.MARK:#x}u=(number))"
"""Makes the generated C tell where it is."""
LEFT_OUT = ("main.c", "uio.c", "barrier.h")
"""Of the generated project: what is for Linux."""


@dataclass(frozen=True)
class Step:
    """What the host does next, in cycles since the reset; ``name`` as the generated C calls it."""

    name: str
    start: int
    end: int

    @property
    def cycles(self) -> int:
        """From its start to its end."""
        return self.end - self.start


@dataclass(frozen=True)
class Segment:
    """A segment's run on the accelerator, and when everything in it happens by prediction: alone behind the SoC's
    interconnect, since a prediction knows nothing of the processor. None for the microcoded accelerator, of programs
    with parameters, and with a memory whose state depends on the processor."""

    run: Run
    predicted: Timeline | None

    @property
    def different(self) -> int:
        """Operations and fetches that start or end in another cycle than predicted."""
        if self.predicted is None:
            return 0
        line = self.predicted
        columns = (line.unit, line.pc, line.is_fetch, line.start, line.end)
        expected = set(zip(*(np.asarray(column, np.int64).tolist() for column in columns), strict=True))
        return len(set(map(tuple, self.run.entries.tolist())) - expected)


@dataclass(frozen=True)
class SocInference:
    """An inference from reset to result.

    ``outputs`` by name, as the network's file declares them; ``steps`` cover all cycles up to the last result: ``boot``
    until main(), ``weights``: loading them, then those of the inference.
    """

    outputs: dict[str, Array]
    run: SocRun
    steps: tuple[Step, ...]
    segments: tuple[Segment, ...]
    weights_bytes: int

    @property
    def cycles(self) -> int:
        """From the reset to the last result."""
        return self.steps[-1].end

    @property
    def start_up(self) -> int:
        """Of these, before the inference."""
        return sum(step.cycles for step in self.steps[: len(START_UP)])

    @property
    def accelerator(self) -> int:
        """Of these, those of the accelerator's runs."""
        return sum(segment.run.cycles for segment in self.segments)

    @property
    def host(self) -> int:
        """Of those of the inference, the others."""
        return self.cycles - self.start_up - self.accelerator


def run_inference(
    compiled: CompiledNetwork, sample: Sample, *, cache: Path, limit: int, waves: Path | None = None
) -> SocInference:
    """Run a compiled network on a sample, from reset to result.

    Parameters
    ----------
    compiled, sample
        The network, and inputs by name as its file declares them.
    cache, limit, waves
        See :func:`~dovetail.cosim.soc.simulation.run_program`.

    Raises
    ------
    NetworkError
        The network has a node on the host for which there is no C.
    SocError, RtlError, ToolError
        See :func:`~dovetail.cosim.soc.simulation.run_program`; the program ends with an error.
    """
    project = project_of(compiled)
    weights = project.files[project.weights]
    place = HOST_BYTES
    shared, place = place, place + round_up(project.memory_bytes, PAGE)
    flash, place = place, place + round_up(len(weights), PAGE)
    ports: dict[str, int] = {}
    for port in (*compiled.graph.inputs, *compiled.graph.outputs):
        ports[port.name], place = place, place + round_up(_bytes(port), PAGE)
    addresses = {
        "SHARED": f"{shared:#x}",
        "WEIGHTS": f"{flash:#x}",
        "INPUTS": _pointers(ports[port.name] for port in compiled.graph.inputs),
        "OUTPUTS": _pointers(ports[port.name] for port in compiled.graph.outputs),
    }
    sources = {name: text for name, text in runtime_files().items() if name.endswith(".c")}
    sources |= {
        name: data.decode()
        for name, data in project.files.items()
        if name.endswith((".c", ".h")) and name not in LEFT_OUT
    }
    program = compile_program({**sources, "soc.h": soc_header(addresses)}, [MARKS], cache)
    memory = np.zeros(place, np.uint8)
    for address, data in (*program, (flash, weights)):
        memory[address : address + len(data)] = np.frombuffer(data, np.uint8)
    for port in compiled.graph.inputs:
        data = np.ascontiguousarray(sample[port.name]).tobytes()
        memory[ports[port.name] : ports[port.name] + len(data)] = np.frombuffer(data, np.uint8)
    run = run_program(compiled.config, memory, cache=cache, limit=limit, waves=waves)
    if run.status:
        what = f"trap {run.status - TRAP}" if run.status >= TRAP else run.console.strip()
        raise SocError(f"the program has ended with an error: {what}")
    outputs = {
        port.name: memory[ports[port.name] :][: _bytes(port)].view(port.dtype).reshape(port.shape).copy()
        for port in compiled.graph.outputs
    }
    segments = tuple(map(Segment, run.runs, _predicted(compiled, shared, place)))
    return SocInference(outputs, run, _steps(run, inference_of(compiled).steps), segments, len(weights))


def _predicted(compiled: CompiledNetwork, base: int, memory_bytes: int) -> Iterator[Timeline | None]:
    """Timelines of the segments, by prediction, where memory does not depend on what the processor did before."""
    config = compiled.config
    known = not config.serial and kind_of(config.memory) == "fixed" and not compiled.code.parameters.formulas
    system = System((Part(TOP, config, REGISTERS),), memory=config.memory, memory_bytes=memory_bytes)
    for segment in compiled.code.segments:
        begun = Begun(segment.words, base + segment.address, base)
        yield time_system(system, {TOP: begun})[TOP] if known else None


def _steps(run: SocRun, names: Sequence[str]) -> tuple[Step, ...]:
    """What lies between two marks of a program that went through all."""
    assert [mark.number for mark in run.marks] == [MAIN, *range(len(names) + 1)]
    begins = [0, *(mark.cycle for mark in run.marks)]
    return tuple(Step(*step) for step in zip((*START_UP, *names), begins, begins[1:], strict=False))


def _pointers(addresses: Iterable[int]) -> str:
    return ", ".join(f"(void *){address:#x}" for address in addresses)


def _bytes(port: Port) -> int:
    return prod(port.shape) * ITEM_BYTES[port.dtype]
