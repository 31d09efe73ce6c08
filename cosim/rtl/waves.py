"""Waves of one program, of all cycles or around a difference, with set-ups for viewers.

Beside ``run.fst`` are ``run.gtkw`` for GTKWave and ``run.sucl`` for Surfer. They show the instruction of each unit, by
name and word, the buses, and a cursor at the difference. The names are in ``run.names/`` for GTKWave and in
``.surfer/mappings/`` for Surfer, which has to be started in that folder. A cycle is ten units of time, counted from the
run's cycle 0.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from dovetail.cosim.rtl.rtl_engine import FORMS, TOP, RtlEngine, RtlError
from dovetail.cosim.rtl.setting import Setting
from dovetail.cosim.rtl.verilate import wave_format
from dovetail.isa.common.files import write_atomically
from dovetail.isa.config.resolved import Config
from dovetail.isa.instructions.table import Op, Unit
from dovetail.isa.timing.timeline import Timeline

TICK = 10
"""Units of time a cycle."""
MODULE = f"top.{TOP}"
BIT, HEX, NAMED, TITLE = "@28", "@22", "@2022", "@200"
"""GTKWave's flags of a trace: binary and right-justified, hexadecimal, hexadecimal with names from a file, a title."""
MARKERS = 27
"""Positions that GTKWave's save file holds behind the zoom: the cursor's and those of the markers a to z."""


@dataclass(frozen=True)
class Waves:
    """Requested waves: the file, and how many cycles before and after the first difference; ``None``: all cycles, also
    when nothing differs."""

    path: Path
    around: int | None = None

    def __post_init__(self) -> None:
        wave_format(self.path)
        if self.around is not None and self.around < 1:
            raise ValueError(f"around must be at least 1, not {self.around}")

    def window(self, cycles: range | None) -> range | None:
        """The cycles to dump, of a run that first differs in ``cycles``; None if nothing is wanted."""
        if self.around is None:
            return range(1 << 62)
        return cycles and range(max(0, cycles.start - self.around), cycles.stop + self.around)


def dump(
    waves: Waves,
    config: Config,
    setting: Setting,
    timeline: Timeline,
    cycles: range | None,
    *,
    cache: Path,
    limit: int,
    broken: tuple[tuple[int, int], ...] = (),
    form: str = FORMS[0],
) -> None:
    """Run a program on an RTL that dumps waves, and write the viewers' files. Nothing where nothing is wanted.

    Parameters
    ----------
    timeline
        The model's, for the names.
    cycles
        Those in which model and RTL first differ, if they do.
    limit
        Cycles after which the run is given up; what it did until then is in the waves.

    Raises
    ------
    ToolError
        When Verilator or the C++ compiler is missing or fails.
    """
    window = waves.window(cycles)
    if window is None:
        return
    engine = RtlEngine(config, cache=cache, trace=waves.path, window=window, form=form)
    engine.write_sram(setting.sram)
    engine.broken, engine.limit = broken, limit
    try:
        engine.run(setting.memory.copy(), *setting.arguments)
    except RtlError:
        pass  # whoever compares has said so
    finally:
        engine.close()
    write_views(waves.path, config, timeline, cycles.start if cycles else None)


def write_views(path: Path, config: Config, timeline: Timeline, cursor: int | None = None) -> list[Path]:
    """Write what viewers need beside a file of waves; ``cursor``: a cycle to point at. Returns the files."""
    path = path.resolve()
    names, mappings = path.with_suffix(".names"), path.parent / ".surfer" / "mappings"
    written = []
    for unit, texts in instruction_names(timeline).items():
        title = f"{path.stem}-{unit.name.lower()}"
        surfer = [f"Name = {title}", "Bits = 32", *(f"0x{pc:08x} {text}" for pc, text in texts.items())]
        gtkwave = [f"{pc:08X} {text}" for pc, text in texts.items()]
        for file, lines in ((names / f"{unit.name.lower()}.txt", gtkwave), (mappings / title, surfer)):
            file.parent.mkdir(parents=True, exist_ok=True)
            write_atomically(file, "\n".join(lines) + "\n")
            written.append(file)
    views = {".gtkw": _gtkwave(path, names, config, cursor), ".sucl": _surfer(path, config, cursor)}
    for suffix, rows in views.items():
        write_atomically(path.with_suffix(suffix), "\n".join(rows) + "\n")
        written.append(path.with_suffix(suffix))
    return written


def instruction_names(timeline: Timeline) -> dict[Unit, dict[int, str]]:
    """Per unit, what the values of its ``pc`` mean: the instructions that it started, by word."""
    found: dict[Unit, dict[int, str]] = {unit: {} for unit in Unit}
    rows = zip(timeline.unit.tolist(), timeline.op.tolist(), timeline.pc.tolist(), timeline.is_fetch, strict=True)
    for unit, op, pc, fetch in rows:
        if not fetch:
            found[Unit(unit)][pc] = f"{Op(op).name}@{pc}"
    return found


def _signals(config: Config) -> Iterator[tuple[str, list[tuple[str, int, Unit | None]]]]:
    """Groups of signals: title, and per signal name, bits and the unit whose instructions it names."""
    yield "run", [("trace_busy", 1, None), ("irq", 1, None)]
    for unit in Unit:
        if unit == Unit.VECTOR and not config.vector:
            continue
        name = unit.name.lower()
        control = f"core.sequencer.{name}_control"
        group: list[tuple[str, int, Unit | None]]
        if config.serial:
            group = [(f"trace_{name}_pc", 32, unit)]
        else:
            group = [(f"{control}.pc", 32, unit), (f"{control}.activity__busy", 1, None)]
            group += [(f"{control}.fetching", 1, None)] if unit == Unit.LOAD else []
        ends: list[tuple[str, int, Unit | None]] = [(f"trace_{name}_start", 1, None), (f"trace_{name}_end", 1, None)]
        yield unit.name, [*group, *ends]
    for title, prefix, more in (
        ("read", "ar", [("rvalid", 1), ("rdata", config.bus)]),
        ("write", "aw", [("wvalid", 1), ("wready", 1), ("wdata", config.bus), ("bvalid", 1)]),
    ):
        channel = [(f"{prefix}valid", 1), (f"{prefix}ready", 1), (f"{prefix}addr", 32), (f"{prefix}len", 8), *more]
        yield title, [(f"m_axi_{name}", bits, None) for name, bits in channel]


def _gtkwave(path: Path, names: Path, config: Config, cursor: int | None) -> Iterator[str]:
    yield "[*] Made by Dovetail"
    yield f'[dumpfile] "{path}"'
    yield f"[timestart] {max(0, (cursor or 0) - 10) * TICK}"
    yield f"*-6.0 {' '.join(str(at) for at in [-1 if cursor is None else cursor * TICK, *[-1] * (MARKERS - 1)])}"
    for title, signals in _signals(config):
        yield TITLE
        yield f"-{title}"
        for name, bits, unit in signals:
            yield NAMED if unit is not None else HEX if bits > 1 else BIT
            if unit is not None:
                yield f"^1 {names / f'{unit.name.lower()}.txt'}"
            yield f"{MODULE}.{name}" + (f"[{bits - 1}:0]" if bits > 1 else "")


def _surfer(path: Path, config: Config, cursor: int | None) -> Iterator[str]:
    for title, signals in _signals(config):
        yield f"divider_add {title}"
        for name, _, unit in signals:
            yield f"variable_add {MODULE}.{name}"
            if unit is not None:
                yield f"item_set_format {path.stem}-{unit.name.lower()}"
    yield "zoom_fit"
    if cursor is not None:
        yield f"cursor_set {cursor * TICK}"
