"""Kinds of system memory that configurations and systems name: ``fixed``, ``sdram``, ``dram`` (`docs/memory.md`)."""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields
from fractions import Fraction
from functools import partial
from math import ceil, floor
from typing import Any

from dovetail.isa.common.suggestion import nearest
from dovetail.isa.config.given import INT, SIZE, ConfigError, MemoryTiming
from dovetail.isa.config.memory_presets import PRESETS, SDRAM_NANOSECONDS

DEFAULT_CLOCK = 100_000_000
"""Hz of an accelerator whose clock matters and is not given."""
CLOCKS = (1_000_000, 4_000_000_000)
"""Hz of the slowest and the fastest clock."""
FASTEST_SDRAM = 100_000_000
"""Hz of the fastest clock of the boards' SDRAM controller."""
PLACES = 16
"""Bursts of a direction that `sdram` and `dram` hold."""
_UNITS: dict[str, int | Fraction] = {
    "Hz": 1,
    "kHz": 10**3,
    "MHz": 10**6,
    "GHz": 10**9,
    "ns": Fraction(1, 10**9),
    "us": Fraction(1, 10**6),
}
_MOST = 1 << 20
"""Of every number."""


def _quantity(value: Any, units: tuple[str, ...], example: str) -> tuple[Fraction, str]:
    """The number of a text with a unit, and the unit. Raises ValueError."""
    found = re.fullmatch(r"\s*(\d{1,12}(?:\.\d{1,9})?)\s*([A-Za-z]+)\s*", value) if isinstance(value, str) else None
    if found is None or found[2] not in units:
        raise ValueError(f'must be a text such as "{example}", not {value!r}')
    return Fraction(found[1]) * _UNITS.get(found[2], 1), found[2]


def _frequency(value: Any) -> int:
    if isinstance(value, int) and not isinstance(value, bool):
        hertz = Fraction(value)
    else:
        hertz, _ = _quantity(value, ("Hz", "kHz", "MHz", "GHz"), "100 MHz")
    if hertz.denominator > 1 or not CLOCKS[0] <= hertz <= CLOCKS[1]:
        raise ValueError(f"must be 1 MHz to 4 GHz in whole Hz, not {value!r}")
    return int(hertz)


def _time(value: Any, clock: int, *, at_most: bool = False) -> int:
    """Periods of a clock in a time, rounded up, or down if it may not be exceeded."""
    if isinstance(value, int) and not isinstance(value, bool):
        return value
    amount, unit = _quantity(value, ("ns", "us", "ck"), "13.75 ns")
    if unit == "ck" and amount.denominator > 1:
        raise ValueError(f"must be whole periods of the clock, not {value!r}")
    if unit == "ck":
        return int(amount)
    return floor(amount * clock) if at_most else ceil(amount * clock)


def _text(value: Any) -> str:
    if not isinstance(value, str):
        raise ValueError(f"must be a text, not {value!r}")
    return value


def show_clock(hertz: int) -> str:
    """A frequency with its unit, exact."""
    return f"{hertz // 10**6} MHz" if hertz % 10**6 == 0 else f"{hertz} Hz"


@dataclass(frozen=True, kw_only=True)
class SdramTiming:
    """The boards' controller with a chip of SDRAM: see ``docs/memory.md``. Times are cycles of ``clock``, in Hz."""

    clock: int = DEFAULT_CLOCK
    width: int = 16
    column_bits: int = 9
    rcd: int = 2
    rp: int = 2
    ras: int = 5
    rfc: int = 7
    wr: int = 2
    refresh_interval: int = 780
    phase: int = 0

    def __post_init__(self) -> None:
        if self.clock > FASTEST_SDRAM:
            raise ConfigError(f"memory: clock must be at most 100 MHz with sdram, not {show_clock(self.clock)}")
        if self.width not in (16, 32):
            raise ConfigError(f"memory: width must be one of 16, 32 with sdram, not {self.width}")
        _within("column_bits", self.column_bits, 8, 12)
        for name in SDRAM_NANOSECONDS:
            _within(name, getattr(self, name), 1, _MOST)
        _at_least("ras", self.ras, "rcd", self.rcd)
        busy = self.rfc + self.ras + self.rp + self.rcd + self.wr  # for a refresh and a row's opening and closing
        _at_least("refresh_interval", self.refresh_interval, "2 * (rfc + ras + rp + rcd + wr)", 2 * busy)
        _within("phase", self.phase, 0, self.refresh_interval - 1)

    def like_fixed(self, bus_bytes: int) -> MemoryTiming:
        """About its latency and rate, behind a bus of so many bytes."""
        columns = max(1, 8 * bus_bytes // self.width)
        return MemoryTiming(read_latency=1 + columns + 5, write_latency=1, beat_cycles=min(columns, 11))

    def slowest(self, bus_bytes: int) -> int:
        """Cycles that a beat takes at most, with a row closed and another opened for it, and a refresh."""
        columns = max(1, 8 * bus_bytes // self.width)
        return columns + self.rp + self.rcd + self.ras + self.wr + self.rfc + 20  # and what is between bus and chip

    @property
    def label(self) -> str:
        """A name for tables."""
        return f"sdram@{show_clock(self.clock)}".replace(" ", "")


@dataclass(frozen=True, kw_only=True)
class DramTiming:
    """A channel of DRAM behind a controller: see ``docs/memory.md``, whose names the members have.

    ``clock`` and ``dram_clock`` are in Hz, ``row`` in bytes, times in periods of ``dram_clock``. ``preset``: what it
    was made of; it does not count where memories are compared.
    """

    clock: int = DEFAULT_CLOCK
    dram_clock: int
    width: int
    burst_length: int
    groups: int
    banks: int
    row: int
    map: str = "row-bank-column-group"
    cl: int
    cwl: int
    rcd: int
    rp: int
    ras: int
    rtp: int
    wr: int
    ccd: int
    ccd_l: int
    rrd: int
    rrd_l: int
    faw: int
    wtr: int
    wtr_l: int
    rfc: int
    refi: int
    queue: int = 16
    ahead: int = 8
    front: int
    back: int
    preset: str = field(default="", compare=False)

    def __post_init__(self) -> None:
        for name, among in (("width", (8, 16, 32, 64)), ("burst_length", (4, 8, 16, 32)), ("groups", (1, 2, 4, 8))):
            if getattr(self, name) not in among:
                raise ConfigError(
                    f"memory: {name} must be one of {', '.join(map(str, among))}, not {getattr(self, name)}"
                )
        for name, low, high in (("banks", 1, 64), ("row", self.block, 1 << 16)):
            value = getattr(self, name)
            if value & (value - 1) or not low <= value <= high:
                raise ConfigError(f"memory: {name} must be a power of two, {low}..{high}, not {value}")
        if self.groups * self.banks > 64:
            raise ConfigError(f"memory: groups * banks must be at most 64, not {self.groups * self.banks}")
        parts = self.map.split("-")
        if parts[0] != "row" or sorted(parts) != sorted(FIELDS):
            raise ConfigError(f"memory: map must be row, then the other of {', '.join(FIELDS)}, not {self.map!r}")
        for name in _DRAM_TIMES:
            _within(name, getattr(self, name), 0 if name in ("front", "back") else 1, _MOST)
        _within("queue", self.queue, 1, 64)
        _within("ahead", self.ahead, 1, 64)
        _at_least("ras", self.ras, "rcd", self.rcd)
        _at_least("ccd", self.ccd, "burst_length / 2", self.data_ticks)
        _at_least("ccd_l", self.ccd_l, "ccd", self.ccd)
        _at_least("rrd_l", self.rrd_l, "rrd", self.rrd)
        _at_least("wtr_l", self.wtr_l, "wtr", self.wtr)
        _at_least("faw", self.faw, "rrd", self.rrd)
        _at_least("cl", self.cl, "cwl", self.cwl)
        _at_least("rfc", self.rfc, "ras + rp", self.ras + self.rp)  # a refresh is an ACTIVATE and a PRECHARGE inside
        busy = self.rfc + self.ras + self.rp + self.rcd + self.wr  # for a refresh and a row's opening and closing
        _at_least("refi", self.refi, "2 * (rfc + ras + rp + rcd + wr)", 2 * busy)

    @property
    def block(self) -> int:
        """Bytes that a column command moves."""
        return self.width // 8 * self.burst_length

    @property
    def data_ticks(self) -> int:
        """Ticks of a block on the data bus."""
        return self.burst_length // 2

    @property
    def rtw(self) -> int:
        """Ticks from a READ to a WRITE."""
        return self.cl + self.data_ticks + 2 - self.cwl

    @property
    def ratio(self) -> Fraction:
        """Ticks of a cycle."""
        return Fraction(self.dram_clock, self.clock)

    def arrival(self, cycle: int) -> int:
        """The tick at which what is taken in a cycle is in the queue."""
        return -(-(cycle + 1) * self.dram_clock // self.clock) + self.front

    def ready(self, end: int) -> int:
        """The cycle in which data are on the bus that have come at the tick ``end``."""
        return -(-(end + self.back) * self.clock // self.dram_clock)

    def like_fixed(self, bus_bytes: int) -> MemoryTiming:
        """About its latency and rate, in open rows, behind a bus of so many bytes."""
        latency, answer = (self.ready(self.arrival(0) + n + self.data_ticks) for n in (self.cl, self.cwl))
        spacing = self.ccd if self.groups > 1 else self.ccd_l
        beats = ceil(Fraction(bus_bytes * max(spacing, self.data_ticks), self.block) / self.ratio)
        latency, answer = (min(max(n, 1), 4096) for n in (latency, answer))
        return MemoryTiming(
            read_latency=latency, write_latency=answer, beat_cycles=min(max(beats, 1), min(latency, answer) + 10, 64)
        )

    def slowest(self, bus_bytes: int) -> int:
        """Cycles that a beat takes at most, with a row closed and another opened for each of its blocks, one after the
        other, while refreshes take half of the time."""
        row = self.rp + self.rcd + self.ras + self.wr + self.faw
        block = row + self.cl + self.data_ticks + self.wtr_l + self.front + self.back
        return ceil(2 * block * max(1, bus_bytes // self.block) / self.ratio) + 2

    @property
    def label(self) -> str:
        """A name for tables."""
        return f"{self.preset or 'dram'}@{show_clock(self.clock)}".replace(" ", "")


FIELDS = ("row", "bank", "column", "group")
"""Of an address."""
_DRAM_TIMES = (
    *("cl", "cwl", "rcd", "rp", "ras", "rtp", "wr", "ccd", "ccd_l", "rrd", "rrd_l", "faw", "wtr", "wtr_l"),
    *("rfc", "refi", "front", "back"),
)
Memory = MemoryTiming | SdramTiming | DramTiming
NAMES_OF_MEMORIES = ("fixed", "sdram", *PRESETS)
KINDS: dict[str, type[Memory]] = {"fixed": MemoryTiming, "sdram": SdramTiming, "dram": DramTiming}


def kind_of(memory: Memory) -> str:
    """The name of a memory's kind."""
    return next(kind for kind, of in KINDS.items() if isinstance(memory, of))


def _within(name: str, value: int, low: int, high: int) -> None:
    if not low <= value <= high:
        raise ConfigError(f"memory: {name} must be {low}..{high}, not {value}")


def _at_least(name: str, value: int, of: str, least: int) -> None:
    if value < least:
        raise ConfigError(f"memory: {name} must be at least {of} = {least} periods of the clock, not {value}")


def memory_of(given: Memory | Mapping[str, Any] | str) -> Memory:
    """The memory that a table of a file describes, or a name such as ``ddr4-2400-x16@200MHz``.

    Raises :class:`ConfigError`.
    """
    if isinstance(given, Memory):
        return given
    if isinstance(given, str):
        return named_memory(given)
    if not isinstance(given, dict):
        raise ConfigError(f'memory must be a table or a name such as "fixed", not {given!r}')
    table = dict(given)
    kind = table.pop("kind", "fixed")
    if kind not in KINDS:
        raise ConfigError(f"memory: kind must be one of {', '.join(KINDS)}, not {kind!r}")
    names = [f.name for f in fields(KINDS[kind])]
    for name in table:
        if name not in names:
            raise ConfigError(f'memory: "{name}" must be a name of its parts{nearest(name, names)}')
    if kind == "fixed":
        return MemoryTiming(**table)
    return _sdram(table) if kind == "sdram" else _dram(table)


def named_memory(name: str) -> Memory:
    """What ``fixed``, ``sdram`` or a preset of DRAM is, with a clock behind ``@``. Raises :class:`ConfigError`."""
    model, at, clock = name.strip().partition("@")
    if model not in NAMES_OF_MEMORIES:
        raise ConfigError(f"memory must be a kind or a preset, not {model!r}{nearest(model, NAMES_OF_MEMORIES)}")
    if model == "fixed":
        if at:
            raise ConfigError(f"memory: fixed counts in cycles and must have no clock, not {name!r}")
        return MemoryTiming()
    given = {"clock": clock} if at else {}
    return _sdram(given) if model == "sdram" else _dram({"preset": model, **given})


def table_of(memory: Memory) -> dict[str, Any]:
    """What :func:`memory_of` reads back to an equal memory, in the terms of a file."""
    if isinstance(memory, MemoryTiming):
        return dict(vars(memory))
    values = {name: value for name, value in vars(memory).items() if value != ""}
    for name in ("clock", "dram_clock"):
        if name in values:
            values[name] = show_clock(values[name])
    times = SDRAM_NANOSECONDS if isinstance(memory, SdramTiming) else _DRAM_TIMES
    return {"kind": kind_of(memory), **values, **{name: f"{values[name]} ck" for name in times}}


def _read(name: str, read: Callable[..., Any], *arguments: Any) -> Any:
    try:
        return read(*arguments)
    except ValueError as error:
        raise ConfigError(f"memory: {name} {error}") from None


def _sdram(table: Mapping[str, Any]) -> SdramTiming:
    clock = _read("clock", _frequency, table.get("clock", DEFAULT_CLOCK))
    values: dict[str, Any] = {"clock": clock}
    for name in ("width", "column_bits", "phase"):
        if name in table:
            values[name] = _read(name, INT.read, table[name])
    for name, default in SDRAM_NANOSECONDS.items():
        values[name] = max(1, _read(name, _time, table.get(name, f"{default} ns"), clock))
    return SdramTiming(**values)


def _dram(table: Mapping[str, Any]) -> DramTiming:
    preset = _read("preset", _text, table.get("preset", ""))
    if preset and preset not in PRESETS:
        raise ConfigError(f"memory: preset must be the name of one, not {preset!r}{nearest(preset, PRESETS)}")
    values = {"front": "20 ns", "back": "20 ns", **PRESETS.get(preset, {}), **table}
    for name in ("dram_clock", "width", "burst_length", "groups", "banks", "row", *_DRAM_TIMES):
        if name not in values:
            raise ConfigError(f"memory: {name} must be given, or a preset, one of {', '.join(PRESETS)}")
    for name in ("clock", "dram_clock"):
        values[name] = _read(name, _frequency, values.get(name, DEFAULT_CLOCK))
    for name in ("width", "burst_length", "groups", "banks", "queue", "ahead"):
        if name in values:
            values[name] = _read(name, INT.read, values[name])
    for name in _DRAM_TIMES:
        times = partial(_time, clock=values["dram_clock"], at_most=name == "refi")
        values[name] = _read(name, times, values[name])
    values["row"] = _read("row", SIZE.read, values["row"])
    if "map" in values:
        values["map"] = _read("map", _text, values["map"])
    return DramTiming(**values)
