"""Cycles as time, in units that a person reads."""

from __future__ import annotations

from math import isfinite

from dovetail.sw.errors import DovetailError

MEGA = 1e6
CLOCKS = (1.0, 1e12)
"""Slowest and fastest, in Hz."""
_TIMES = ((1.0, "s"), (1e-3, "ms"), (1e-6, "µs"), (1e-9, "ns"))
_RATES = ((1e9, "GB/s"), (1e6, "MB/s"), (1e3, "kB/s"))


def hertz(mhz: float) -> float:
    """A clock in Hz of one in MHz, as command lines have it. Raises DovetailError."""
    if not isfinite(mhz) or not CLOCKS[0] <= mhz * MEGA <= CLOCKS[1]:
        raise DovetailError(f"--clock must be {CLOCKS[0] / MEGA:g} to {CLOCKS[1] / MEGA:g} MHz, not {mhz:g}")
    return mhz * MEGA


def milliseconds(cycles: float, clock: float) -> float:
    """How long cycles take at a clock in Hz."""
    return 1e3 * cycles / clock


def per_second(cycles: float, clock: float) -> float:
    """How many runs of so many cycles there are in a second at a clock in Hz; 0 if they take none."""
    return clock / cycles if cycles else 0.0


def time_text(cycles: float, clock: float) -> str:
    """The time of cycles at a clock in Hz, with four digits: ``59.36 ms``."""
    seconds = cycles / clock
    scale, unit = next(((s, u) for s, u in _TIMES if seconds >= s * 0.99995), _TIMES[-1])
    return f"{_digits(seconds / scale)} {unit}"


def clock_text(clock: float) -> str:
    """A clock in Hz as MHz."""
    return f"{clock / MEGA:g} MHz"


def rate_text(count: float, cycles: float, clock: float) -> str:
    """Bytes moved in so many cycles, per second: ``0.353 GB/s``."""
    rate = count * per_second(cycles, clock)
    scale, unit = next(((s, u) for s, u in _RATES if rate >= s * 0.1), _RATES[-1])
    return f"{_digits(rate / scale)} {unit}"


def frequency_text(cycles: float, clock: float) -> str:
    """Runs of so many cycles per second: ``16.8 inferences/s``."""
    return f"{_digits(per_second(cycles, clock))} inferences/s"


def _digits(value: float) -> str:
    """Four digits, all of a large number."""
    return f"{value:,.0f}" if value >= 9999.5 else f"{value:.4g}"
