"""The top of a board: clock, UART pins and lights around a board design."""

from __future__ import annotations

from typing import Any

from amaranth import Elaboratable, Module
from amaranth.lib import io

from dovetail.flows.fpga.clock import PllClock, pll_domain
from dovetail.flows.fpga.pll import Dividers


class BoardTop(Elaboratable):
    """A design on a board's pins.

    Parameters
    ----------
    design: component with ``rx``, ``tx`` (the host link), ``busy`` and ``fault`` (shown on the first two lights).
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
        uart = platform.request("uart", dir=_bare(platform, "uart"))
        m.submodules.rx = rx = io.Buffer("i", uart.rx)
        m.submodules.tx = tx = io.Buffer("o", uart.tx)
        m.d.comb += [design.rx.eq(rx.i), tx.o.eq(design.tx)]
        for number, light in enumerate((design.busy, design.fault)):
            m.submodules[f"light_{number}"] = pin = io.Buffer("o", platform.request("led", number, dir="-"))
            m.d.comb += pin.o.eq(light)
        return m


def _bare(platform: Any, name: str) -> dict[str, str]:
    """What asks for a resource's pins without buffers."""
    return {part.name: "-" for part in platform.lookup(name).ios}
