"""Some layers of a network on the RTL, from the model's state before them to its state behind them.

A window is a stretch of a segment's words, from the first operation of its first layer to the last operation of its
last layer. It may hold operations of other layers as well, because the compiler loads ahead and SRAM keeps tensors
between layers. These run too, from the SRAM contents that the model has there.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from dovetail.cosim.compare.lockstep import Comparison, Lockstep, bytes_difference
from dovetail.cosim.rtl.rtl_engine import FORMS
from dovetail.cosim.rtl.setting import Setting, settings_of
from dovetail.cosim.rtl.waves import Waves
from dovetail.isa.instructions.parameters import resolve
from dovetail.isa.instructions.table import BY_NUMBER, PAGE_BYTES, WORD_BYTES, Op, cfg, to_bytes
from dovetail.sw.compiler.compile import Code
from dovetail.sw.errors import NetworkError
from dovetail.sw.model.accelerator import Model
from dovetail.sw.runtime.compiled_network import CompiledNetwork
from dovetail.sw.runtime.engine import Bytes

MEMORY_PAGE = 4096


@dataclass(frozen=True)
class Window:
    """Words ``first .. past - 1`` of a segment; ``layers`` have operations among them, ``operations`` in all."""

    segment: int
    first: int
    past: int
    layers: tuple[int, ...]
    operations: int


@dataclass(frozen=True)
class WindowVerdict:
    """A window on both engines: how they compare, and how the state behind it differs from the network's."""

    window: Window
    comparison: Comparison
    state_difference: str

    @property
    def first_difference(self) -> str:
        """The first difference; empty when there is none."""
        return self.comparison.first_difference or self.state_difference


def layers_of(compiled: CompiledNetwork, text: str) -> range:
    """The layers that ``text`` names: ``12``, ``12..14``, ``12..``, ``..3``; a layer's name may stand for its number.

    Raises :class:`NetworkError`.
    """
    count = len(compiled.code.layers)
    if not count:
        raise NetworkError("layers: none of this network is on the accelerator")
    names = {layer.name: n for n, layer in enumerate(compiled.code.layers)}
    if text in names or ".." not in text:
        number = _layer(compiled, names, text)
        return range(number, number + 1)
    low, high = text.split("..", 1)
    first = _layer(compiled, names, low) if low else 0
    last = _layer(compiled, names, high) if high else count - 1
    if first > last:
        raise NetworkError(f"layers must go from a lower one to a higher one, not {first}..{last}")
    return range(first, last + 1)


def _layer(compiled: CompiledNetwork, names: Mapping[str, int], text: str) -> int:
    if text in names:
        return names[text]
    if text in compiled.code.host_reasons:
        raise NetworkError(f"layer {text!r} runs on the host: {compiled.code.host_reasons[text]}")
    try:
        number = int(text)
    except ValueError:
        raise NetworkError(
            f"layers must be numbers or names of layers on the accelerator, such as {', '.join(list(names)[:3])},"
            f" not {text!r}"
        ) from None
    if not 0 <= number < len(names):
        raise NetworkError(f"layers must be in 0..{len(names) - 1}, not {number}")
    return number


def windows_of(code: Code, layers: range) -> list[Window]:
    """One window per segment that has some of the layers."""
    windows = []
    for number, segment in enumerate(code.segments):
        wanted = [n for n, layer in segment.layers.items() if layer in layers]
        if wanted:
            first = 1 + max((n for n in segment.layers if n < min(wanted)), default=-1)
            inside = [n for n in segment.layers if first <= n <= max(wanted)]
            found = tuple(sorted({segment.layers[n] for n in inside}))
            windows.append(Window(number, first, max(wanted) + 1, found, len(inside)))
    return windows


def window_words(words: Sequence[int], window: Window) -> list[int]:
    """A program of its own: the registers as the window finds them, its words, END. ``words``: resolved ones."""
    registers: dict[int, int] = {}
    for word in words[: window.first]:
        if word & 0xFF == Op.CFG:
            registers[word >> 8 & 0xFF] = word >> 32
    restored = [(BY_NUMBER[number], value) for number, value in sorted(registers.items()) if value]
    prologue = [cfg(register.unit, register.name, value) for register, value in restored]
    return [*prologue, *words[window.first : window.past], int(Op.END)]


def place(setting: Setting, words: Sequence[int]) -> Setting:
    """The same state with another program, in memory added at the end."""
    pages = -(-len(words) * WORD_BYTES // PAGE_BYTES)
    size = len(setting.memory)
    memory = np.zeros(size + -(-pages * PAGE_BYTES // MEMORY_PAGE) * MEMORY_PAGE, np.uint8)
    memory[:size] = setting.memory
    text = np.frombuffer(to_bytes(words), np.uint8)
    memory[size : size + len(text)] = text
    return Setting(memory, size, pages, setting.base, sram=setting.sram)


def _resolved(compiled: CompiledNetwork, setting: Setting, window: Window) -> list[int]:
    """The words of a window's segment, with the values that its parameters have in a run."""
    words = np.array(compiled.code.segments[window.segment].words, np.uint64)
    found: list[int] = resolve(compiled.config, words, setting.parameters).tolist()
    return found


def window_setting(compiled: CompiledNetwork, setting: Setting, window: Window) -> Setting:
    """A window of a segment as a program of its own, in the state that the model has before it in the network;
    ``setting``: the segment's."""
    words = _resolved(compiled, setting, window)
    memory, sram = _state_after(compiled, setting, words[: window.first])
    return place(Setting(memory, 0, 0, setting.base, sram=sram), window_words(words, window))


def verify_windows(
    compiled: CompiledNetwork,
    sample: Mapping[str, npt.NDArray[np.generic]] | npt.NDArray[Any],
    layers: range,
    *,
    cache: Path,
    trace: Path | None = None,
    waves: Waves | None = None,
    form: str = FORMS[0],
) -> list[WindowVerdict]:
    """Run the layers' windows on model and RTL, that one in ``form``; both must end in the state that the model has
    there in the network.

    Raises
    ------
    ToolError
        When Verilator or the C++ compiler is missing or fails.
    """
    settings = settings_of(compiled, sample)
    pair = Lockstep(compiled.config, cache=cache, trace=trace, form=form, waves=waves)
    verdicts = []
    for window in windows_of(compiled.code, layers):
        setting = settings[window.segment]
        words = _resolved(compiled, setting, window)
        size = len(setting.memory)
        run = window_setting(compiled, setting, window)
        comparison = pair.run(run.memory, *run.arguments, sram=run.sram)
        assert pair.latest is not None
        memory, sram = _state_after(compiled, setting, words[: window.past])
        sides = "network", "window"
        state = bytes_difference("memory", memory, pair.latest.memory[:size], sides)
        state = state or bytes_difference("SRAM", sram, pair.model.read_sram(), sides)
        verdicts.append(WindowVerdict(window, comparison, state and f"model: {state}"))
    return verdicts


def _state_after(compiled: CompiledNetwork, setting: Setting, words: Sequence[int]) -> tuple[Bytes, Bytes]:
    """System memory and SRAM once a segment's first words are done."""
    model = Model(compiled.config)
    model.write_sram(setting.sram)
    run = place(setting, [*words, int(Op.END)])
    result = model.run(run.memory, *run.arguments)
    return result.memory[: len(setting.memory)], model.read_sram()
