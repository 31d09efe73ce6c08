"""A compiled network on the model and on the RTL in lockstep, segment by segment."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from dovetail.cosim.compare.lockstep import Comparison, Lockstep
from dovetail.cosim.rtl.rtl_engine import FORMS
from dovetail.cosim.rtl.waves import Waves
from dovetail.isa.common.build_cache import default_cache
from dovetail.isa.common.html import html_table
from dovetail.isa.config.resolved import Config
from dovetail.sw.runtime.compiled_network import CompiledNetwork
from dovetail.sw.runtime.engine import Bytes, RunResult


@dataclass(frozen=True)
class Verdict:
    """One sample: the comparison of each accelerator segment."""

    segments: tuple[Comparison, ...]

    @property
    def equal(self) -> bool:
        """Everything agrees."""
        return all(segment.equal for segment in self.segments)

    @property
    def first_difference(self) -> str:
        """The first difference, with its segment; empty when there is none."""
        found = (f"segment {n}: {s.first_difference}" for n, s in enumerate(self.segments) if not s.equal)
        return next(found, "")

    def _repr_html_(self) -> str:
        said = {True: "equal", False: "DIFFERENT"}
        rows = [
            (n, s.cycles_model, s.cycles_rtl, said[s.bytes_equal], said[s.timeline_equal], said[s.counters_equal])
            for n, s in enumerate(self.segments)
        ]
        head = ("segment", "cycles, model", "cycles, RTL", "bytes", "timeline", "counters")
        return html_table(f"Model and RTL: {said[self.equal]}", head, "rrrlll", rows, self.first_difference)


class LockstepEngine:
    """An engine that runs every program on the model and on the RTL, compares them, and goes on with the model's
    memory, so that each segment is compared from equal beginnings.

    Parameters
    ----------
    config
        The accelerator.
    cache
        Folder of the RTL builds.
    trace
        File for the RTL's waves, of all that is run.
    waves
        Waves of one run, see :class:`~dovetail.cosim.compare.lockstep.Lockstep`.
    form
        The RTL's, of :data:`~dovetail.cosim.rtl.rtl_engine.FORMS`.
    """

    def __init__(
        self,
        config: Config,
        *,
        cache: Path,
        trace: Path | None = None,
        form: str = FORMS[0],
        waves: Waves | None = None,
    ) -> None:
        self._both = Lockstep(config, cache=cache, trace=trace, form=form, waves=waves)
        self._comparisons: list[Comparison] = []
        self.holds: object | None = None

    @property
    def config(self) -> Config:
        """The accelerator."""
        return self._both.config

    def take(self) -> tuple[Comparison, ...]:
        """The comparisons since the last call."""
        taken = tuple(self._comparisons)
        self._comparisons.clear()
        return taken

    def reset(self) -> None:
        """As after power-up."""
        self.holds = None
        self._both.reset()

    def read_sram(self) -> Bytes:
        """A copy of the model's SRAM."""
        return self._both.model.read_sram()

    def write_sram(self, contents: Bytes) -> None:
        """Replace SRAM on both sides."""
        self.holds = None
        self._both.model.write_sram(contents)
        self._both.rtl.write_sram(contents)

    def run(self, memory: Bytes, program: int, pages: int, base: int = 0, parameters: Sequence[int] = ()) -> RunResult:
        """Run on both; the result is the model's."""
        self.holds = None
        self._comparisons.append(self._both.run(memory, program, pages, base, parameters))
        result = self._both.latest
        assert result is not None
        memory[:] = result.memory
        return replace(result, memory=memory)


def verify(
    compiled: CompiledNetwork,
    samples: Sequence[Mapping[str, npt.NDArray[np.generic]] | npt.NDArray[Any]],
    *,
    cache: Path | None = None,
    trace: Path | None = None,
    waves: Waves | None = None,
    form: str = FORMS[0],
) -> list[Verdict]:
    """Run every sample on the model and on the RTL, and compare all that they leave behind.

    Parameters
    ----------
    compiled
        The network.
    samples
        Inputs of one inference each, by name or one array.
    cache
        Folder of the RTL builds; left out, the one of the `dovetail` command.
    trace
        File for the RTL's waves, of all that is run.
    waves
        Waves of the first program that differs, see :class:`~dovetail.cosim.compare.lockstep.Lockstep`.
    form
        The RTL's: ``"simulation"``, or ``"fpga"`` as it is synthesised.

    Raises
    ------
    ToolError
        When Verilator or the C++ compiler is missing or fails.
    """
    engine = LockstepEngine(compiled.config, cache=cache or default_cache(), trace=trace, form=form, waves=waves)
    verdicts = []
    for sample in samples:
        compiled.run(sample, engine=engine)
        verdicts.append(Verdict(engine.take()))
    return verdicts
