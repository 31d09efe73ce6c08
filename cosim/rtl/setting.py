"""What an engine is given to run, as a value: system memory, the program's place in it, and SRAM."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from dovetail.isa.config.resolved import Config
from dovetail.isa.instructions.table import PAGE_BYTES
from dovetail.sw.model.accelerator import Model
from dovetail.sw.runtime.compiled_network import CompiledNetwork
from dovetail.sw.runtime.engine import Bytes, RunResult


@dataclass(frozen=True)
class Setting:
    """A program about to run."""

    memory: Bytes
    program: int
    pages: int
    base: int
    sram: Bytes

    @property
    def text(self) -> bytes:
        """The program's bytes; zeros where memory ends before it."""
        size = self.pages * PAGE_BYTES
        return self.memory[self.program : self.program + size].tobytes().ljust(size, b"\0")

    def flipped(self, bit: int) -> "Setting":
        """With one bit of the program inverted."""
        memory = self.memory.copy()
        memory[self.program + bit // 8] ^= 1 << bit % 8
        return replace(self, memory=memory)


class _Recorder(Model):
    """A model that remembers what it was given to run."""

    def __init__(self, config: Config) -> None:
        super().__init__(config)
        self.settings: list[Setting] = []

    def run(self, memory: Bytes, program: int, pages: int, base: int = 0) -> RunResult:
        self.settings.append(Setting(memory.copy(), program, pages, base, self.read_sram()))
        return super().run(memory, program, pages, base)


def settings_of(
    compiled: CompiledNetwork, sample: Mapping[str, npt.NDArray[np.generic]] | npt.NDArray[Any]
) -> list[Setting]:
    """One per segment of a network, as the model finds it in an inference."""
    recorder = _Recorder(compiled.config)
    compiled.run(sample, engine=recorder)
    return recorder.settings
