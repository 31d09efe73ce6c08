"""Temporary: a core that does nothing for a few cycles, until the real ones exist."""

from amaranth import Module, Signal
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from dovetail.hw.ports import Core, SramRead, SramWrite
from dovetail.isa.config import Config


class ArrayCore(wiring.Component):
    def __init__(self, config: Config) -> None:
        super().__init__(
            {
                "core": In(Core(config)),
                "input": Out(SramRead(config)),
                "weights": Out(SramRead(config)),
                "output": Out(SramWrite(config)),
            }
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        delay = Signal(8)
        m.d.sync += delay.eq(delay << 1 | self.core.go)
        m.d.comb += self.core.done.eq(delay[-1])
        return m


class VectorCore(wiring.Component):
    def __init__(self, config: Config) -> None:
        super().__init__(
            {"core": In(Core(config)), "input": Out(SramRead(config)), "output": Out(SramWrite(config))}
        )

    elaborate = ArrayCore.elaborate
