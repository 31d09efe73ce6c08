"""What an engine is given to run, as a value: system memory, the program's place in it, and SRAM."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from dovetail.isa.config.resolved import Config
from dovetail.isa.instructions.table import PAGE_BYTES
from dovetail.sw.model.accelerator import Model
from dovetail.sw.runtime.compiled_network import CompiledNetwork
from dovetail.sw.runtime.engine import Bytes, RunResult


@dataclass(frozen=True)
class LoadedProgram:
    """A program in the memory it runs in, which starts at address 0."""

    memory: Bytes
    program: int
    pages: int
    base: int = 0
    parameters: tuple[int, ...] = ()

    @property
    def arguments(self) -> tuple[int, int, int, tuple[int, ...]]:
        """What a run takes beside memory: program, pages, base, parameters."""
        return self.program, self.pages, self.base, self.parameters

    @property
    def text(self) -> bytes:
        """The program's bytes; zeros where memory ends before it."""
        size = self.pages * PAGE_BYTES
        return self.memory[self.program : self.program + size].tobytes().ljust(size, b"\0")

    def save(self, path: Path) -> None:
        """Write an ``.npz`` file, without SRAM."""
        place = np.array([self.program, self.pages, self.base])
        np.savez_compressed(path, memory=self.memory, place=place, parameters=np.array(self.parameters, np.uint32))

    @staticmethod
    def load(path: Path) -> "LoadedProgram":
        """Read what :meth:`save` wrote."""
        values = np.load(path)
        program, pages, base = (int(n) for n in values["place"])
        return LoadedProgram(values["memory"], program, pages, base, tuple(int(n) for n in values["parameters"]))


@dataclass(frozen=True, kw_only=True)
class Setting(LoadedProgram):
    """A program about to run, and what SRAM holds then."""

    sram: Bytes

    def flipped(self, bit: int) -> "Setting":
        """With one bit of the program inverted."""
        memory = self.memory.copy()
        memory[self.program + bit // 8] ^= 1 << bit % 8
        return replace(self, memory=memory)


class Recorder(Model):
    """A model that keeps what it is asked to run, such as the segments of a network:

    ``compiled.run(sample, engine=recorder)``
    """

    def __init__(self, config: Config) -> None:
        super().__init__(config)
        self.settings: list[Setting] = []
        """Each as it was before its run."""

    def run(self, memory: Bytes, program: int, pages: int, base: int = 0, parameters: Sequence[int] = ()) -> RunResult:
        """As the model does."""
        given = tuple(parameters)
        self.settings.append(Setting(memory.copy(), program, pages, base, given, sram=self.read_sram()))
        return super().run(memory, program, pages, base, parameters)


def settings_of(
    compiled: CompiledNetwork, sample: Mapping[str, npt.NDArray[np.generic]] | npt.NDArray[Any]
) -> list[Setting]:
    """One per segment of a network, as the model finds it in an inference."""
    recorder = Recorder(compiled.config)
    compiled.run(sample, engine=recorder)
    return recorder.settings
