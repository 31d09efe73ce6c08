"""The clock of a board's design: the oscillator, or the part's PLL on it."""

from __future__ import annotations

from typing import Any

from amaranth import ClockDomain, ClockSignal, Const, Elaboratable, Instance, Module, Signal
from amaranth.lib import io
from amaranth.lib.cdc import ResetSynchronizer

from dovetail.flows.fpga.design.pll import MHZ, Dividers

SETTLING = 15e-6
"""Seconds for which an iCE40 stays in reset: its block RAMs read as zero for some 3 us after configuration."""
FILTER_RANGES = (17, 26, 44, 66, 101)
"""MHz at an SB_PLL40's phase detector from which on FILTER_RANGE is one more than 1."""
GOWIN_INPUTS = {
    "RESET": 1,
    "RESET_P": 1,
    "CLKFB": 1,
    "FBDSEL": 6,
    "IDSEL": 6,
    "ODSEL": 6,
    "PSDA": 4,
    "DUTYDA": 4,
    "FDLY": 4,
}
"""Inputs of an rPLL that are not used, and their bits."""


def pll_domain(platform: Any) -> ClockDomain:
    """The domain that :class:`PllClock` drives; it belongs to a module above all that uses it."""
    return ClockDomain("sync", reset_less=platform.family == "ecp5")


class PllClock(Elaboratable):
    """Drives the domain sync from the board's oscillator; :func:`pll_domain` makes it.

    Parameters
    ----------
    dividers: setting of the part's PLL.

    On an ECP5 the domain has no reset: as in Amaranth's own clock of these parts, the global set/reset holds every
    register until the PLL has locked (and while the board's reset button is pressed). A Gowin part's reset is released
    then, an iCE40's `SETTLING` later.
    """

    def __init__(self, dividers: Dividers) -> None:
        self.dividers = dividers

    def elaborate(self, platform: Any) -> Module:
        m = Module()
        clock, locked, ready = (Signal(name=name) for name in ("sync_clock", "locked", "ready"))
        if platform.default_rst is None:
            m.d.comb += ready.eq(locked)
        else:
            m.submodules.reset_pin = pin = io.Buffer("i", platform.request(platform.default_rst, dir="-"))
            m.d.comb += ready.eq(locked & ~pin.i)
        source = platform.request(platform.default_clk, dir="-")
        if platform.family == "ecp5":
            m.submodules.oscillator = oscillator = io.Buffer("i", source)
            m.submodules.pll = ecp5_pll(self.dividers, oscillator.i, clock, locked)
            first, second = (Signal(name=f"ready_{place}") for place in ("first", "second"))
            m.submodules.first = Instance("FD1S3AX", p_GSR="DISABLED", i_CK=clock, i_D=ready, o_Q=first)
            m.submodules.second = Instance("FD1S3AX", p_GSR="DISABLED", i_CK=clock, i_D=first, o_Q=second)
            m.submodules.reset = Instance("SGSR", i_CLK=clock, i_GSR=second)
        elif platform.family.startswith("GW"):
            m.submodules.oscillator = oscillator = io.Buffer("i", source)
            m.submodules.pll = gowin_pll(self.dividers, oscillator.i, clock, locked, platform.family)
            m.submodules.reset = ResetSynchronizer(~ready, domain="sync")
        else:
            m.submodules.pll = ice40_pll(self.dividers, source.io, clock, locked)
            m.domains += ClockDomain("starting", local=True)
            m.d.comb += ClockSignal("starting").eq(clock)
            m.submodules.starting = ResetSynchronizer(~ready, domain="starting")
            cycles = int(SETTLING * self.dividers.output)
            left = Signal(range(cycles + 1), init=cycles)
            with m.If(left != 0):
                m.d.starting += left.eq(left - 1)
            m.submodules.reset = ResetSynchronizer(left != 0, domain="sync")
        m.d.comb += ClockSignal("sync").eq(clock)
        return m


def ecp5_pll(dividers: Dividers, source: Signal, clock: Signal, locked: Signal) -> Instance:
    """EHXPLLL: ``clock`` (CLKOS) from ``source``; CLKOP is the feedback only."""
    feedback = Signal(name="feedback")
    return Instance(
        "EHXPLLL",
        a_FREQUENCY_PIN_CLKI=f"{dividers.reference / MHZ:g}",
        a_FREQUENCY_PIN_CLKOS=f"{float(dividers.output) / MHZ:g}",
        a_ICP_CURRENT="12",
        a_LPF_RESISTOR="8",
        a_MFG_ENABLE_FILTEROPAMP="1",
        a_MFG_GMCREF_SEL="2",
        p_PLLRST_ENA="DISABLED",
        p_INTFB_WAKE="DISABLED",
        p_STDBY_ENABLE="DISABLED",
        p_DPHASE_SOURCE="DISABLED",
        p_OUTDIVIDER_MUXA="DIVA",
        p_OUTDIVIDER_MUXB="DIVB",
        p_CLKI_DIV=dividers.reference_divider,
        p_CLKFB_DIV=dividers.feedback,
        p_FEEDBK_PATH="CLKOP",
        p_CLKOP_ENABLE="ENABLED",
        p_CLKOP_DIV=dividers.loop_divider,
        p_CLKOP_CPHASE=dividers.loop_divider - 1,
        p_CLKOP_FPHASE=0,
        p_CLKOS_ENABLE="ENABLED",
        p_CLKOS_DIV=dividers.output_divider,
        p_CLKOS_CPHASE=dividers.output_divider - 1,
        p_CLKOS_FPHASE=0,
        i_CLKI=source,
        i_CLKFB=feedback,
        i_RST=Const(0),
        i_STDBY=Const(0),
        i_ENCLKOP=Const(1),
        i_ENCLKOS=Const(1),
        o_CLKOP=feedback,
        o_CLKOS=clock,
        o_LOCK=locked,
    )


def ice40_pll(dividers: Dividers, pad: object, clock: Signal, locked: Signal) -> Instance:
    """SB_PLL40_PAD: ``clock`` from the pad that has the PLL's input."""
    return Instance(
        "SB_PLL40_PAD",
        p_FEEDBACK_PATH="SIMPLE",
        p_DIVR=Const(dividers.reference_divider - 1, 4),
        p_DIVF=Const(dividers.feedback - 1, 7),
        p_DIVQ=Const(dividers.output_divider.bit_length() - 1, 3),
        p_FILTER_RANGE=Const(1 + sum(dividers.detector >= limit * MHZ for limit in FILTER_RANGES), 3),
        i_PACKAGEPIN=pad,
        i_RESETB=Const(1),
        i_BYPASS=Const(0),
        o_PLLOUTGLOBAL=clock,
        o_LOCK=locked,
    )


def gowin_pll(dividers: Dividers, source: Signal, clock: Signal, locked: Signal, device: str) -> Instance:
    """rPLL: ``clock`` from ``source``; the feedback is inside."""
    fixed = {f"p_DYN_{name}_SEL": "false" for name in ("IDIV", "FBDIV", "ODIV")}
    unused = {f"i_{name}": Const(0, width) for name, width in GOWIN_INPUTS.items()}
    return Instance(
        "rPLL",
        p_DEVICE=device,
        p_FCLKIN=f"{dividers.reference / MHZ:g}",
        p_IDIV_SEL=dividers.reference_divider - 1,
        p_FBDIV_SEL=dividers.feedback - 1,
        p_ODIV_SEL=dividers.output_divider,
        p_CLKFB_SEL="internal",
        i_CLKIN=source,
        o_CLKOUT=clock,
        o_LOCK=locked,
        **fixed,
        **unused,
    )
