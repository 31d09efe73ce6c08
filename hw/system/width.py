"""A manager on a wider bus."""

from typing import Any

from amaranth import Module, Signal, Value, unsigned
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out
from amaranth.utils import ceil_log2, exact_log2

from dovetail.hw.common.axi import AxiRead, AxiWrite
from dovetail.hw.sequencer.queue import Queue


def queue_of(bursts: int, bits: int) -> Queue:
    """A queue that holds a number of ``bits`` bits for each of ``bursts`` bursts."""
    return Queue(depth=1 << max(1, ceil_log2(bursts)), entry=unsigned(bits))


class Widener(wiring.Component):
    """Puts a manager's beats on the lanes of a wider bus. Bursts stay as they are: AxSIZE says that beats are narrow.

    The manager's bursts are INCR of whole beats, at most ``outstanding`` in flight, write data behind the acceptance of
    their address; read data come in order.

    Parameters
    ----------
    narrow, wide: data bits of the manager and of the bus.
    outstanding: bursts of the manager in flight, of each direction.

    Members
    -------
    narrow_read, narrow_write: the manager.
    wide_read, wide_write: the bus.

    Latency
    -------
    None: wires, and a choice of lanes by registers.
    """

    def __init__(self, narrow: int, wide: int, *, outstanding: int) -> None:
        if narrow >= wide:
            raise ValueError(f"narrow must be less than wide, {wide}, not {narrow}")
        self.narrow = narrow
        self.wide = wide
        self.outstanding = outstanding
        super().__init__(
            {
                "narrow_read": In(AxiRead(narrow)),
                "narrow_write": In(AxiWrite(narrow)),
                "wide_read": Out(AxiRead(wide)),
                "wide_write": Out(AxiWrite(wide)),
            }
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        read, write = self.narrow_read, self.narrow_write
        out_read, out_write = self.wide_read, self.wide_write
        for ports, channels in (
            ((read, out_read), ("ar", "r")),
            ((write, out_write), ("aw", "w", "b")),
        ):
            self._pass(m, *ports, channels)
        lane = self._lane(m, "ar", out_read, beat=out_read.rvalid & out_read.rready, last=out_read.rlast)
        m.d.comb += read.rdata.eq(out_read.rdata.word_select(lane, self.narrow))
        lane = self._lane(m, "aw", out_write, beat=out_write.wvalid & out_write.wready, last=out_write.wlast)
        m.d.comb += [
            out_write.wdata.eq(write.wdata.replicate(self.wide // self.narrow)),
            out_write.wstrb.eq(write.wstrb << (lane << exact_log2(self.narrow // 8))),
        ]
        return m

    def _pass(self, m: Module, inner: Any, outer: Any, channels: tuple[str, ...]) -> None:
        """Wires what is as wide on both sides."""
        for name, member in outer.signature.members.items():
            assert name.startswith(channels)
            if name not in ("rdata", "wdata", "wstrb"):
                one, other = getattr(inner, name), getattr(outer, name)
                m.d.comb += other.eq(one) if member.flow == Out else one.eq(other)

    def _lane(self, m: Module, channel: str, port: Any, *, beat: Value, last: Value) -> Signal:
        """The lane of the beat that is due: the burst's first one's, then the next."""
        low, bits = exact_log2(self.narrow // 8), exact_log2(self.wide // self.narrow)
        m.submodules[f"{channel}_lanes"] = begun = queue_of(self.outstanding, bits)
        past = Signal(bits, name=f"{channel}_past")  # beats of the burst so far
        lane = Signal(bits, name=f"{channel}_lane")
        m.d.comb += [
            begun.i.valid.eq(getattr(port, f"{channel}valid") & getattr(port, f"{channel}ready")),
            begun.i.payload.eq(getattr(port, f"{channel}addr")[low : low + bits]),
            begun.o.ready.eq(beat & last),
            lane.eq(begun.o.payload + past),
        ]
        with m.If(beat):
            m.d.sync += past.eq(past + 1)
            with m.If(last):
                m.d.sync += past.eq(0)
        return lane
