"""The interface that the engines share: the model here, the RTL in ``dovetail.cosim``."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Protocol, Self

import numpy as np
import numpy.typing as npt

from dovetail.isa.common.sizes import round_up
from dovetail.isa.config.resolved import Config
from dovetail.isa.host import STALLS
from dovetail.isa.instructions.parameters import check_values
from dovetail.isa.instructions.table import DMA_OPS, Cause, Op, Unit, cfg, pack, to_bytes
from dovetail.isa.timing.timeline import Counters, Fault, Timeline

Bytes = npt.NDArray[np.uint8]


@dataclass(frozen=True)
class RunResult:
    """What a run of the accelerator left behind.

    ``memory`` is system memory after the run (the array that was given, changed in place); ``cycles`` from the start
    write to the end; ``timeline`` when every operation and fetch ran; ``counters`` where each unit's cycles went;
    ``fault`` why it stopped early, None when it ran to its END.
    """

    memory: Bytes
    cycles: int
    timeline: Timeline
    counters: dict[Unit, Counters]
    fault: Fault | None


def run_registers(
    config: Config, program: int, pages: int, base: int, parameters: Sequence[int]
) -> Iterator[tuple[str, int]]:
    """Name and value of the host registers to be written before a run starts. Raises ValueError for parameters that the
    accelerator lacks."""
    check_values(config, parameters)
    yield from (("PROGRAM", program), ("PAGES", pages), ("BASE", base))
    for number in range(1, config.parameters + 1):
        yield f"PARAM{number}", parameters[number - 1] if number <= len(parameters) else 0


def outcome(read: Callable[[str], int]) -> tuple[int, dict[Unit, Counters], Fault | None]:
    """Cycles, counters and fault of the latest run; ``read`` gives a host register's value by its name."""
    cycles = read("CYCLES_LO") | read("CYCLES_HI") << 32
    counters = {unit: Counters(*(read(f"{unit.name}_{stall}") for stall in STALLS)) for unit in Unit}
    cause = Cause(read("CAUSE"))
    return cycles, counters, Fault(cause, read("FAULT_PC")) if cause else None


def without_timeline(memory: Bytes, read: Callable[[str], int]) -> RunResult:
    """The latest run of an engine that does not see when operations run; ``read``: see :func:`outcome`."""
    cycles, counters, fault = outcome(read)
    none = np.zeros(0, np.int64)
    timeline = Timeline(none, none, none, none, none, np.zeros(0, np.bool_), (), cycles, counters, fault)
    return RunResult(memory, cycles, timeline, counters, fault)


class Engine(Protocol):
    """One accelerator with its system memory outside. SRAM keeps its contents from run to run.

    ``holds``: what SRAM keeps for a later run; who ran a program sets it. Another run, `reset` and `write_sram` make it
    None.
    """

    holds: object | None

    @property
    def config(self) -> Config:
        """The accelerator."""

    def reset(self) -> None:
        """As after power-up: SRAM is zero."""

    def read_sram(self) -> Bytes:
        """A copy of SRAM."""

    def write_sram(self, contents: Bytes) -> None:
        """Replace SRAM, all of it."""

    def run(self, memory: Bytes, program: int, pages: int, base: int = 0, parameters: Sequence[int] = ()) -> RunResult:
        """Run the ``pages`` pages of program at address ``program`` in ``memory``, which starts at address 0 and is a
        multiple of 4096 bytes. What lies beyond answers with bus errors. ``base`` is what the program's addresses are
        relative to, ``parameters`` the values of the host registers PARAM1 and up; those left out are 0.
        """


class DeviceEngine(ABC):
    """An engine beside this process's memory, such as RTL or a board: only programs of its own reach its SRAM.

    A context manager that closes it.
    """

    holds: object | None = None
    _config: Config

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def config(self) -> Config:
        """The accelerator."""
        return self._config

    @abstractmethod
    def close(self) -> None:
        """Free what the engine holds."""

    @abstractmethod
    def _run_copy(self, memory: Bytes) -> None:
        """Run the program of one page at address 0 of ``memory``. Raises the engine's error if it does not end well."""

    def _copy_bytes(self) -> int:
        """How much of SRAM one program can copy."""
        return self._config.sram

    def read_sram(self) -> Bytes:
        """A copy of SRAM, fetched by DMA programs."""
        return self._copy(Unit.STORE, np.zeros(self._config.sram, np.uint8))

    def write_sram(self, contents: Bytes) -> None:
        """Replace SRAM, all of it, by DMA programs."""
        self.holds = None
        if contents.shape != (self._config.sram,):
            raise ValueError(f"contents must be {self._config.sram} bytes, not {contents.shape}")
        self._copy(Unit.LOAD, contents)

    def _copy(self, unit: Unit, contents: Bytes) -> Bytes:
        parts, most = [], self._copy_bytes()
        for first in range(0, len(contents), most):
            part = contents[first : first + most]
            memory, at = sram_program(unit, part, first)
            self._run_copy(memory)
            parts.append(memory[at : at + len(part)])
        return np.concatenate(parts)


def sram_program(unit: Unit, contents: Bytes, first: int = 0) -> tuple[Bytes, int]:
    """System memory with a program of one page at address 0. With it LOAD or STORE copies the part of SRAM from byte
    ``first`` on, from or to where ``contents`` lies: the address that is returned, too."""
    at, size = 4096, len(contents)
    values = {"MEM_ADDR": at, "SRAM_ADDR": first, "SRAM_BYTES": size, "LENGTH": size}
    values["COUNT"] = pack(unit, "COUNT", rows=1, planes=1)
    words = [*(cfg(unit, name, value) for name, value in values.items()), int(DMA_OPS[unit]), int(Op.END)]
    program = to_bytes(words)
    memory = np.zeros(at + round_up(size, 4096), np.uint8)
    memory[: len(program)] = np.frombuffer(program, np.uint8)
    memory[at : at + size] = contents
    return memory, at
