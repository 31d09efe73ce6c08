"""The divider search: every setting within the limits, against a search through all settings."""

from fractions import Fraction

import pytest

from dovetail.flows.fpga.design.boards import BOARDS
from dovetail.flows.fpga.design.pll import ECP5, GOWIN, GOWIN_LAST, ICE40, MHZ, ecp5, gowin, ice40
from dovetail.sw.errors import DovetailError


@pytest.mark.parametrize("reference", [12, 25, 48])
@pytest.mark.parametrize("wanted", [10.0, 12.5, 48.0, 66.0, 80.0, 103.0, 133.0, 400.0])
def test_ecp5_is_nearest(reference: int, wanted: float) -> None:
    found = ecp5(reference * MHZ, round(wanted * MHZ))
    assert ECP5.detector[0] <= found.detector <= ECP5.detector[1]
    assert ECP5.vco[0] <= found.vco <= ECP5.vco[1]
    assert ECP5.output[0] <= found.output <= ECP5.output[1]
    assert ECP5.output[0] <= found.vco / found.loop_divider <= ECP5.output[1]
    assert found.output == Fraction(reference * MHZ * found.feedback * found.loop_divider) / (
        found.reference_divider * found.output_divider
    )
    assert max(found.reference_divider, found.loop_divider, found.output_divider) <= 128 and found.feedback <= 80
    off = abs(found.output - round(wanted * MHZ))
    for divider in range(1, reference * MHZ // ECP5.detector[0] + 1):
        for multiple in range(1, 80 * 128):
            vco = Fraction(reference * MHZ * multiple, divider)
            if ECP5.vco[0] <= vco <= ECP5.vco[1] and _splits(Fraction(reference * MHZ, divider), multiple):
                last = round(vco / (wanted * MHZ))
                if last <= 128 and ECP5.output[0] <= vco / last <= ECP5.output[1]:
                    assert abs(vco / last - round(wanted * MHZ)) >= off


def _splits(detector: Fraction, multiple: int) -> bool:
    return any(
        multiple % n == 0 and multiple // n <= 128 and ECP5.output[0] <= detector * n <= ECP5.output[1]
        for n in range(1, 81)
    )


@pytest.mark.parametrize("wanted", [4.0, 27.5, 40.0, 54.0, 66.6, 100.0, 600.0])
def test_gowin_is_nearest(wanted: float) -> None:
    hertz = round(wanted * MHZ)
    found = gowin(27 * MHZ, hertz)
    able = [
        abs(output - hertz)
        for divider in range(1, 10)
        for feedback in range(1, 65)
        for last in GOWIN_LAST
        if GOWIN.vco[0] <= (output := Fraction(27 * MHZ * feedback, divider)) * last <= GOWIN.vco[1]
        if GOWIN.output[0] <= output <= GOWIN.output[1]
    ]
    assert abs(found.output - hertz) == min(able)
    assert found.reference_divider <= 9 and found.feedback <= 64 and found.loop_divider == found.output_divider
    assert GOWIN.detector[0] <= found.detector and GOWIN.vco[0] <= found.vco <= GOWIN.vco[1]


def test_known_settings() -> None:
    d = ecp5(25 * MHZ, 100 * MHZ)
    assert (d.reference_divider, d.feedback * d.loop_divider, d.output_divider) == (1, 24, 6)
    d = ice40(12 * MHZ, 48 * MHZ)  # as `icepll -i 12 -o 48`: DIVR 0, DIVF 63, DIVQ 4
    assert (d.reference_divider, d.feedback, d.output_divider, int(d.output)) == (1, 64, 16, 48 * MHZ)
    d = gowin(27 * MHZ, 54 * MHZ)  # as `gowin_pll -i 27 -o 54`: IDIV_SEL 0, FBDIV_SEL 1, ODIV_SEL 16
    assert (d.reference_divider, d.feedback, d.output_divider, float(d.vco)) == (1, 2, 16, 864e6)
    assert ICE40.vco[0] <= ice40(12 * MHZ, 20 * MHZ).vco <= ICE40.vco[1]
    assert float(ice40(12 * MHZ, 20 * MHZ).output) == 19_875_000


def test_clock_of_a_board() -> None:
    assert BOARDS["icebreaker"].clock(12 * MHZ) == (12 * MHZ, None)
    assert BOARDS["ulx3s-85f"].clock(103 * MHZ)[0] == 103_125_000


@pytest.mark.parametrize(
    ("search", "wanted"), [(ecp5, 9 * MHZ), (ecp5, 401 * MHZ), (ice40, 15 * MHZ), (gowin, 3 * MHZ)]
)
def test_what_no_pll_makes(search: type, wanted: int) -> None:
    with pytest.raises(DovetailError, match=r"frequency must be (1[06]|3.90625) to .* or the oscillator's 12, not"):
        search(12 * MHZ, wanted)
