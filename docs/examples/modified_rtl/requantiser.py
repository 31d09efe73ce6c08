"""A requantiser with one more register at its output, as one might add for a faster clock."""

from amaranth import Module

from dovetail.hw.array.requantiser import Requantiser


class RegisteredRequantiser(Requantiser):
    """As :class:`dovetail.hw.array.requantiser.Requantiser`, a cycle later."""

    LATENCY = Requantiser.LATENCY + 1

    def elaborate(self, platform: object) -> Module:
        m = Module()
        m.submodules.inner = inner = Requantiser(lanes=self.lanes)
        for name in ("acc", "mult", "shift", "rounding", "zero_point", "lo", "hi"):
            m.d.comb += getattr(inner, name).eq(getattr(self, name))
        m.d.sync += self.result.eq(inner.result)
        return m
