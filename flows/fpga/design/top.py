"""The top of a board: clock, pins of UART and SDRAM, and lights around a board design."""

from __future__ import annotations

from typing import Any

from amaranth import Elaboratable, Module
from amaranth.lib import io

from dovetail.flows.fpga.design.clock import PllClock, pll_domain
from dovetail.flows.fpga.design.pll import Dividers


class BoardTop(Elaboratable):
    """A design on a board's pins.

    Parameters
    ----------
    design: component with ``rx``, ``tx`` (the host link), ``busy`` and ``fault`` (shown on the first two lights), and
        ``sdram`` (see :class:`~dovetail.hw.board.sdram.SdramPins`) where it uses the board's chip.
    dividers: setting of the PLL; None: the oscillator is the clock.
    """

    def __init__(self, design: Any, dividers: Dividers | None) -> None:
        self.design = design
        self.dividers = dividers

    def elaborate(self, platform: Any) -> Module:
        m = Module()
        if self.dividers:
            m.domains += pll_domain(platform)
            m.submodules.clock = PllClock(self.dividers)
        m.submodules.board = design = self.design
        uart = _pins(platform, "uart")
        m.submodules.rx = rx = io.Buffer("i", uart.rx)
        m.submodules.tx = tx = io.Buffer("o", uart.tx)
        m.d.comb += [design.rx.eq(rx.i), tx.o.eq(design.tx)]
        for number, light in enumerate((design.busy, design.fault)):
            m.submodules[f"light_{number}"] = pin = io.Buffer("o", platform.request("led", number, dir="-"))
            m.d.comb += pin.o.eq(light)
        if "sdram" in design.signature.members:
            self._sdram(m, _pins(platform, "sdram"))
        return m

    def _sdram(self, m: Module, chip: Any) -> None:
        """The chip's clock is the inverse of the design's, made at its pin."""
        pins = self.design.sdram
        for name in ("ras", "cas", "we", "ba", "a", "dqm"):
            m.submodules[f"sdram_{name}"] = pin = io.Buffer("o", getattr(chip, name))
            m.d.comb += pin.o.eq(getattr(pins, name))
        for name in ("clk_en", "cs"):
            m.submodules[f"sdram_{name}"] = pin = io.Buffer("o", getattr(chip, name))
            m.d.comb += pin.o.eq(1)
        m.submodules.sdram_dq = dq = io.Buffer("io", chip.dq)
        m.d.comb += [dq.o.eq(pins.dq_o), dq.oe.eq(pins.dq_oe), pins.dq_i.eq(dq.i)]
        m.submodules.sdram_clk = clock = io.DDRBuffer("o", chip.clk)
        m.d.comb += [clock.o[0].eq(0), clock.o[1].eq(1)]


def _pins(platform: Any, name: str) -> Any:
    """A resource's pins without buffers."""
    return platform.request(name, dir={part.name: "-" for part in platform.lookup(name).ios})
