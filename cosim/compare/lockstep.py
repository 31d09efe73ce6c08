"""One program on the model and on the RTL: are they equal, and if not, where do they differ first?"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from dovetail.cosim.compare.writers import writer
from dovetail.cosim.rtl.rtl_engine import DEFAULT_LIMIT, FORMS, RtlEngine, RtlError
from dovetail.cosim.rtl.setting import Setting
from dovetail.cosim.rtl.waves import Waves, dump
from dovetail.isa.config.memory import Memory
from dovetail.isa.config.resolved import Config
from dovetail.isa.instructions.table import Op, Unit
from dovetail.isa.timing.run import cycle_bound
from dovetail.isa.timing.timeline import FETCH, Timeline
from dovetail.sw.model.accelerator import Model
from dovetail.sw.runtime.engine import Bytes, RunResult


@dataclass(frozen=True)
class Comparison:
    """What agreed. ``first_difference`` is empty when everything did; ``first_cycles`` are those in which it shows, as
    far as that is known."""

    bytes_equal: bool
    cycles_model: int
    cycles_rtl: int
    timeline_equal: bool
    counters_equal: bool
    fault_equal: bool
    first_difference: str = ""
    first_cycles: range | None = None

    @property
    def equal(self) -> bool:
        """Everything agrees."""
        return not self.first_difference


def compare(
    model: RunResult,
    rtl: RunResult,
    *,
    model_sram: Bytes | None = None,
    rtl_sram: Bytes | None = None,
) -> Comparison:
    """Compare two runs of one program, and SRAM after them when given. The order in which differences are named is
    the order in which they explain each other: timeline, fault, cycles, counters, bytes."""
    timeline, at = timeline_difference(model.timeline, rtl.timeline)
    fault = "" if model.fault == rtl.fault else f"fault: model {model.fault}, RTL {rtl.fault}"
    cycles = "" if model.cycles == rtl.cycles else f"cycles: model {model.cycles}, RTL {rtl.cycles}"
    counters = ""
    for unit in Unit:
        if not counters and model.counters[unit] != rtl.counters[unit]:
            counters = f"{unit.name} counters: model {model.counters[unit]}, RTL {rtl.counters[unit]}"
    data = bytes_difference("memory", model.memory, rtl.memory)
    if model_sram is not None and rtl_sram is not None:
        data = data or bytes_difference("SRAM", model_sram, rtl_sram)
    return Comparison(
        bytes_equal=not data,
        cycles_model=model.cycles,
        cycles_rtl=rtl.cycles,
        timeline_equal=not timeline,
        counters_equal=not counters,
        fault_equal=not fault,
        first_difference=timeline or fault or cycles or counters or data,
        first_cycles=_cycle(at if timeline else min(model.cycles, rtl.cycles)) if timeline or fault or cycles else None,
    )


def _cycle(number: int) -> range:
    return range(number, number + 1)


class Lockstep:
    """Model and RTL of one accelerator, side by side; SRAM persists in both.

    Parameters
    ----------
    config
        The accelerator.
    cache
        Folder of the RTL builds.
    trace
        File for the RTL's waves.
    coverage
        Flags for counting what the RTL covers.
    form
        The RTL's, of :data:`~dovetail.cosim.rtl.rtl_engine.FORMS`.
    waves
        Waves of a run by itself: of the first that differs, or of the latest, if waves of all cycles are wanted. For
        them the program runs once more, on an RTL that dumps them.

    Members
    -------
    latest
        The model's latest run.
    dumped
        A run's waves were written.
    """

    def __init__(
        self,
        config: Config,
        *,
        cache: Path,
        trace: Path | None = None,
        coverage: Sequence[str] = (),
        form: str = FORMS[0],
        waves: Waves | None = None,
    ) -> None:
        self.model = Model(config)
        self.rtl = RtlEngine(config, cache=cache, trace=trace, coverage=coverage, form=form)
        self.latest: RunResult | None = None
        self.dumped = False
        self._cache = cache
        self._waves = waves

    @property
    def config(self) -> Config:
        """The accelerator."""
        return self.rtl.config

    @property
    def timing(self) -> Memory:
        """Timing of system memory, of both sides; another one may be set between runs."""
        return self.rtl.timing

    @timing.setter
    def timing(self, timing: Memory) -> None:
        if timing != self.rtl.timing:
            sram = self.model.read_sram()
            self.rtl.timing = timing
            self.model = Model(self.rtl.config)
            self.model.broken = self.broken
            self.model.write_sram(sram)

    @property
    def broken(self) -> tuple[tuple[int, int], ...]:
        """(address, bytes) of parts of system memory that answer with bus errors, multiples of 64, on both sides."""
        return self.rtl.broken

    @broken.setter
    def broken(self, parts: tuple[tuple[int, int], ...]) -> None:
        self.rtl.broken = self.model.broken = parts

    def reset(self) -> None:
        """As after power-up."""
        self.model.reset()
        self.rtl.reset()

    def run(
        self,
        memory: Bytes,
        program: int,
        pages: int,
        base: int = 0,
        parameters: Sequence[int] = (),
        *,
        sram: Bytes | None = None,
    ) -> Comparison:
        """Run a program on both, each on a copy of ``memory`` (and from ``sram``, if given), and compare all that is
        left behind, SRAM included. If only bytes differ, the text names the operation that wrote the first one."""
        if sram is not None:
            self.model.write_sram(sram)
            self.rtl.write_sram(sram)
        setting = Setting(memory, program, pages, base, tuple(parameters), sram=self.model.read_sram())
        comparison = self._run(setting)
        assert self.latest is not None
        if self._waves is not None and not (self.dumped and self._waves.around is not None):
            limit, broken, form = self._limit(setting), self.broken, self.rtl.form
            cycles = comparison.first_cycles
            if comparison.first_difference and cycles is None:
                cycles = range(comparison.cycles_model)
            args = self._waves, self.config, setting, self.latest.timeline, cycles
            dump(*args, cache=self._cache, limit=limit, broken=broken, form=form)
            self.dumped |= self._waves.window(cycles) is not None
        return comparison

    def _limit(self, setting: Setting) -> int:
        return cycle_bound(self.config, setting.text, setting.parameters)

    def _run(self, setting: Setting) -> Comparison:
        model = self.model.run(setting.memory.copy(), *setting.arguments)
        self.latest = model
        self.rtl.limit = self._limit(setting)
        try:
            rtl = self.rtl.run(setting.memory.copy(), *setting.arguments)
        except RtlError as error:
            self.rtl.reset()
            text, at = ("", 0) if error.timeline is None else timeline_difference(model.timeline, error.timeline)
            difference = f"{text}; RTL: {error}" if text else f"RTL: {error}"
            return Comparison(False, model.cycles, 0, False, False, False, difference, _cycle(at) if text else None)
        finally:
            self.rtl.limit = DEFAULT_LIMIT
        ours, theirs = self.model.read_sram(), self.rtl.read_sram()
        comparison = compare(model, rtl, model_sram=ours, rtl_sram=theirs)
        if comparison.bytes_equal or comparison.first_cycles is not None or not comparison.counters_equal:
            return comparison
        in_sram = bool((model.memory == rtl.memory).all())
        left, right = (ours, theirs) if in_sram else (model.memory, rtl.memory)
        address = int(np.flatnonzero(left != right)[0])
        n = writer(self.config, model.timeline, setting, address, sram=in_sram, broken=self.broken)
        if n is None:
            return replace(
                comparison, first_difference=f"{comparison.first_difference}; no operation of the program writes it"
            )
        return replace(
            comparison,
            first_difference=f"{comparison.first_difference}; written by {_text(model.timeline, n)}",
            first_cycles=range(int(model.timeline.start[n]), int(model.timeline.end[n]) + 1),
        )


def _text(timeline: Timeline, n: int) -> str:
    """Entry ``n`` as a reader names it."""
    op = int(timeline.op[n])
    name = "fetch of page" if op == FETCH else f"{Op(op).name} at word"
    text = (
        f"{name} {timeline.pc[n]} ({Unit(int(timeline.unit[n])).name}), cycles {timeline.start[n]}..{timeline.end[n]}"
    )
    return text if timeline.works[n] else text + " (fails its checks)"


def _rows(timeline: Timeline) -> dict[tuple[bool, int], tuple[int, tuple[int, ...]]]:
    """Entry number and contents by (is fetch, pc), which every entry has for itself."""
    columns = (timeline.unit, timeline.op, timeline.start, timeline.end, timeline.works)
    rows = zip(*(column.tolist() for column in columns), strict=True)
    keys = zip(timeline.is_fetch.tolist(), timeline.pc.tolist(), strict=True)
    return {key: (n, row) for n, (key, row) in enumerate(zip(keys, rows, strict=True))}


def timeline_difference(model: Timeline, rtl: Timeline) -> tuple[str, int]:
    """The differing entry that starts first, and the cycle in which it differs; empty and 0 if none does."""
    ours, theirs = _rows(model), _rows(rtl)
    found: list[tuple[int, str, int]] = []
    for key in ours.keys() | theirs.keys():
        left, right = ours.get(key), theirs.get(key)
        if left is None or right is None or left[1] != right[1]:
            there = [(t, e[0]) for t, e in ((model, left), (rtl, right)) if e is not None]
            start = min(int(t.start[n]) for t, n in there)
            same_start = left is not None and right is not None and left[1][2] == right[1][2]
            at = max(start, min(int(t.end[n]) for t, n in there)) if same_start else start
            texts = (_text(t, e[0]) if e is not None else "nothing" for t, e in ((model, left), (rtl, right)))
            found.append((start, "timeline: model {}; RTL {}".format(*texts), at))
    return min(found)[1:] if found else ("", 0)


def bytes_difference(name: str, left: Bytes, right: Bytes, sides: tuple[str, str] = ("model", "RTL")) -> str:
    """How many bytes differ, and the first; empty when none does."""
    if len(left) != len(right):
        return f"{name}: {len(left)} bytes in the {sides[0]}, {len(right)} in the {sides[1]}"
    differs = np.flatnonzero(left != right)
    if not len(differs):
        return ""
    n = int(differs[0])
    values = f"{sides[0]} {left[n]:#04x}, {sides[1]} {right[n]:#04x}"
    return f"{name}: {len(differs)} bytes differ, first at {n:#x}: {values}"
