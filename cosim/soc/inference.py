"""One inference on the SoC: generated C on the processor, segments on the accelerator."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from math import prod
from pathlib import Path

import numpy as np

from dovetail.cosim.rtl.rtl_engine import RtlError
from dovetail.cosim.soc.build import HOST_BYTES, MAIN, TRAP, compile_program, soc_header
from dovetail.cosim.soc.simulation import SocRun, run_program
from dovetail.hw.soc.design import PERIPHERAL
from dovetail.hw.soc.peripheral import Register
from dovetail.isa.common.sizes import round_up
from dovetail.isa.program import ITEM_BYTES
from dovetail.sw.export.codegen.inference import inference_of
from dovetail.sw.export.codegen.project import project_of
from dovetail.sw.network.ir import Port
from dovetail.sw.network.layout import Array, Sample
from dovetail.sw.runtime.compiled_network import CompiledNetwork

PAGE = 4096
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
class SocInference:
    """An inference from reset to result.

    ``outputs`` by name, as the network's file declares them; ``steps`` cover all cycles up to the last result: ``boot``
    until main(), ``weights``: loading them, then those of the inference.
    """

    outputs: dict[str, Array]
    run: SocRun
    steps: tuple[Step, ...]


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
    RtlError, ToolError
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
    sources = {
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
        raise RtlError(f"the program has ended with an error: {what}")
    outputs = {
        port.name: memory[ports[port.name] :][: _bytes(port)].view(port.dtype).reshape(port.shape).copy()
        for port in compiled.graph.outputs
    }
    return SocInference(outputs, run, _steps(run, inference_of(compiled).steps))


def _steps(run: SocRun, names: Sequence[str]) -> tuple[Step, ...]:
    """What lies between two marks of a program that went through all."""
    assert [mark.number for mark in run.marks] == [MAIN, *range(len(names) + 1)]
    begins = [0, *(mark.cycle for mark in run.marks)]
    return tuple(Step(*step) for step in zip(("boot", "weights", *names), begins, begins[1:], strict=False))


def _pointers(addresses: Iterable[int]) -> str:
    return ", ".join(f"(void *){address:#x}" for address in addresses)


def _bytes(port: Port) -> int:
    return prod(port.shape) * ITEM_BYTES[port.dtype]
