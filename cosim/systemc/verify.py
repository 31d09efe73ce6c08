"""Programs on the model and on both forms of the SystemC platform: bytes, cycles, counters, faults, moments."""

import time
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from dovetail.cosim.compare.lockstep import compare
from dovetail.cosim.compare.windows import window_setting, windows_of
from dovetail.cosim.rtl.setting import Setting, settings_of
from dovetail.cosim.systemc.build import SystemC
from dovetail.cosim.systemc.folder import PERIOD_NS
from dovetail.cosim.systemc.systemc_engine import SystemCEngine
from dovetail.isa.config.resolved import Config
from dovetail.sw.model.accelerator import Model
from dovetail.sw.runtime.compiled_network import CompiledNetwork


@dataclass(frozen=True)
class Form:
    """One form of the accelerator, ``rtl`` or ``view``, on a program: the first difference to the model, and the
    seconds from the start write to the interrupt."""

    name: str
    first_difference: str
    seconds: float


@dataclass(frozen=True)
class Verdict:
    """A program. ``seconds``: of the model alone."""

    cycles: int
    seconds: float
    forms: tuple[Form, ...]

    @property
    def first_difference(self) -> str:
        """The first difference, with the form that has it; empty when there is none."""
        return next((f"{f.name}: {f.first_difference}" for f in self.forms if f.first_difference), "")


def programs_of(
    compiled: CompiledNetwork,
    sample: Mapping[str, npt.NDArray[np.generic]] | npt.NDArray[Any],
    layers: range | None = None,
) -> list[Setting]:
    """The segments of a network as the model finds them, or the windows of some ``layers``."""
    settings = settings_of(compiled, sample)
    if layers is None:
        return settings
    return [window_setting(compiled, settings[w.segment], w) for w in windows_of(compiled.code, layers)]


def verify_systemc(config: Config, programs: list[Setting], *, cache: Path, systemc: SystemC) -> list[Verdict]:
    """Run programs, each from its own SRAM contents. Raises :class:`~dovetail.isa.common.cplusplus.ToolError`."""
    model = Model(config)
    with (
        SystemCEngine(config, cache=cache, systemc=systemc) as rtl,
        SystemCEngine(config, cache=cache, systemc=systemc, view=True) as view,
    ):
        return [_verify(model, {"rtl": rtl, "view": view}, program) for program in programs]


def _verify(model: Model, engines: dict[str, SystemCEngine], program: Setting) -> Verdict:
    model.write_sram(program.sram)
    start = time.perf_counter()
    wanted = model.run(program.memory.copy(), *program.arguments)
    seconds = time.perf_counter() - start
    forms = []
    for name, engine in engines.items():
        engine.write_sram(program.sram)
        found = engine.run(program.memory.copy(), *program.arguments)
        # A platform records no timeline.
        comparison = compare(
            wanted,
            replace(found, timeline=wanted.timeline),
            model_sram=model.read_sram(),
            rtl_sram=engine.read_sram(),
        )
        latest = engine.latest
        passed = (latest["ended_ps"] - latest["started_ps"]) // (1000 * PERIOD_NS)
        difference = comparison.first_difference
        if not difference and passed != wanted.cycles:
            difference = f"interrupt: after {passed} cycles, not {wanted.cycles}"
        forms.append(Form(name, difference, latest["seconds"]))
    return Verdict(wanted.cycles, seconds, tuple(forms))
