"""Dividers of a part's PLL: the clock that a board runs at, found exactly."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from fractions import Fraction
from math import ceil, floor

from dovetail.sw.errors import DovetailError

MHZ = 1_000_000


@dataclass(frozen=True)
class Limits:
    """What a PLL can do, in Hz, from the least to the most."""

    detector: tuple[int, int]
    vco: tuple[int, int]
    output: tuple[int, int]


ECP5 = Limits((3_125_000, 400 * MHZ), (400 * MHZ, 800 * MHZ), (10 * MHZ, 400 * MHZ))
"""EHXPLLL, as in Project Trellis's ecppll."""
ICE40 = Limits((10 * MHZ, 133 * MHZ), (533 * MHZ, 1066 * MHZ), (16 * MHZ, 275 * MHZ))
"""SB_PLL40, as in Project IceStorm's icepll."""
GOWIN = Limits((3 * MHZ, 500 * MHZ), (500 * MHZ, 1250 * MHZ), (3_906_250, 625 * MHZ))
"""rPLL of a GW2A of grade C8/I7, as in Project Apicula's gowin_pll."""
FEEDBACK_MAX = 80
"""The largest CLKFB_DIV of an EHXPLLL (Lattice's FPGA Libraries Reference Guide)."""
GOWIN_LAST = (2, 4, 8, 16, 32, 48, 64, 80, 96, 112, 128)
"""What an rPLL divides its oscillator by."""


@dataclass(frozen=True)
class Dividers:
    """A PLL's setting: vco = reference * feedback * loop_divider / reference_divider, output = vco / output_divider.

    ``reference``, ``vco``, ``output``: Hz. ``loop_divider``: between VCO and feedback, 1 where there is none.
    """

    reference: int
    reference_divider: int
    feedback: int
    loop_divider: int
    output_divider: int

    @property
    def detector(self) -> Fraction:
        """Hz at the phase detector."""
        return Fraction(self.reference, self.reference_divider)

    @property
    def vco(self) -> Fraction:
        """Hz of the oscillator within."""
        return self.detector * self.feedback * self.loop_divider

    @property
    def output(self) -> Fraction:
        """Hz of the clock that comes out."""
        return self.vco / self.output_divider


def ecp5(reference: int, wanted: int) -> Dividers:
    """EHXPLLL whose output CLKOP is the feedback and whose output CLKOS is the clock.

    ``reference``, ``wanted``: Hz. The nearest frequency; of several settings the one with the fastest phase detector,
    then with the VCO nearest the middle of its range. Raises DovetailError.
    """
    return _best(reference, wanted, _ecp5(reference, wanted), ECP5)


def ice40(reference: int, wanted: int) -> Dividers:
    """SB_PLL40 with simple feedback, that is from the VCO.

    ``reference``, ``wanted``: Hz; chosen as by :func:`ecp5`. Raises DovetailError.
    """
    return _best(reference, wanted, _ice40(reference, wanted), ICE40)


def gowin(reference: int, wanted: int) -> Dividers:
    """rPLL, whose output is the feedback.

    ``reference``, ``wanted``: Hz; chosen as by :func:`ecp5`. Raises DovetailError.
    """
    return _best(reference, wanted, _gowin(reference, wanted), GOWIN)


SEARCH = {"ecp5": ecp5, "ice40": ice40, "gowin": gowin}
"""By family."""


def _ecp5(reference: int, wanted: int) -> Iterator[Dividers]:
    for divider in range(1, reference // ECP5.detector[0] + 1):
        detector = Fraction(reference, divider)
        for multiple in range(ceil(ECP5.vco[0] / detector), floor(ECP5.vco[1] / detector) + 1):
            feedback = _feedback(detector, multiple)
            if feedback:
                for last in _around(detector * multiple / wanted):
                    yield Dividers(reference, divider, feedback, multiple // feedback, last)


def _feedback(detector: Fraction, multiple: int) -> int:
    """The least CLKFB_DIV that leaves CLKOP within its range, or 0."""
    able = (n for n in range(1, FEEDBACK_MAX + 1) if multiple % n == 0 and multiple // n <= 128)
    return next((n for n in able if ECP5.output[0] <= detector * n <= ECP5.output[1]), 0)


def _ice40(reference: int, wanted: int) -> Iterator[Dividers]:
    for divider in range(1, min(16, reference // ICE40.detector[0]) + 1):
        for shift in range(1, 7):
            for feedback in _around(Fraction(wanted << shift) * divider / reference):
                yield Dividers(reference, divider, feedback, 1, 1 << shift)


def _gowin(reference: int, wanted: int) -> Iterator[Dividers]:
    for divider in range(1, min(64, reference // GOWIN.detector[0]) + 1):
        for feedback in _around(Fraction(wanted) * divider / reference):
            if feedback <= 64:
                for last in GOWIN_LAST:
                    yield Dividers(reference, divider, feedback, last, last)


def _around(value: Fraction) -> Iterator[int]:
    """The dividers next to a value."""
    yield from (n for n in {floor(value), ceil(value)} if 1 <= n <= 128)


def _best(reference: int, wanted: int, settings: Iterator[Dividers], limits: Limits) -> Dividers:
    low, high = limits.output
    able = [
        setting
        for setting in settings
        if limits.detector[0] <= setting.detector <= limits.detector[1]
        and limits.vco[0] <= setting.vco <= limits.vco[1]
        and low <= setting.output <= high
    ]
    if not low <= wanted <= high or not able:
        raise DovetailError(
            f"frequency must be {low / MHZ:g} to {high / MHZ:g} MHz, what the part's PLL makes, or the oscillator's"
            f" {reference / MHZ:g}, not {wanted / MHZ:g}"
        )
    middle = sum(limits.vco) // 2
    return min(able, key=lambda d: (abs(d.output - wanted), -d.detector, abs(d.vco - middle), d.output_divider))
