"""A UART: 8 data bits from the lowest on, no parity, 1 stop bit."""

from amaranth import Cat, Const, Module, Mux, Signal
from amaranth.lib import stream, wiring
from amaranth.lib.wiring import In, Out

from dovetail.isa.link import CHARACTER_BITS

MIN_DIVISOR = 4
"""Clock cycles of the shortest bit."""
TOLERANCE = 0.02
"""Tolerance of the bit rate. The receiver samples the stop bit half a bit from its edges, nine bits after the start
bit. Both sides share this margin, and so does the rounding of the sampling."""


def divisor_of(clock_hz: int, baud: int) -> int:
    """Clock cycles of a bit. Raises ValueError when there are too few, or they make a bit rate that is too far off."""
    if baud < 1:
        raise ValueError(f"baud must be at least 1, not {baud}")
    divisor = round(clock_hz / baud)
    if divisor < MIN_DIVISOR:
        raise ValueError(f"baud must be at most {clock_hz // MIN_DIVISOR} with a clock of {clock_hz} Hz, not {baud}")
    if abs(clock_hz / (divisor * baud) - 1) > TOLERANCE:
        raise ValueError(
            f"baud must be within {TOLERANCE:.0%} of {clock_hz} Hz / {divisor} = {clock_hz // divisor}, not {baud}"
        )
    return divisor


def _check(divisor: int) -> None:
    if divisor < MIN_DIVISOR:
        raise ValueError(f"divisor must be at least {MIN_DIVISOR}, not {divisor}")


class Receiver(wiring.Component):
    """Bytes from a line.

    Parameters
    ----------
    divisor: clock cycles per bit.

    Members
    -------
    rx: the line, in no clock domain.
    data, valid: a byte; ``valid`` is a pulse. A byte whose stop bit is low is dropped.
    idle: the line is idle.
    tick: pulse, once per bit time while it is.

    Latency
    -------
    A byte shows in the middle of its stop bit, 2 cycles later for the synchroniser.
    """

    def __init__(self, *, divisor: int) -> None:
        _check(divisor)
        self.divisor = divisor
        super().__init__({"rx": In(1), "data": Out(8), "valid": Out(1), "idle": Out(1), "tick": Out(1)})

    def elaborate(self, platform: object) -> Module:
        m = Module()
        line = Signal(2, init=3)
        m.d.sync += line.eq(Cat(self.rx, line[0]))
        rx = line[1]
        count = Signal(range(self.divisor))
        bit = Signal()
        m.d.comb += bit.eq(count == 0)
        m.d.sync += count.eq(Mux(bit, self.divisor - 1, count - 1))

        # The bits so far; the one before them reaches the lowest place when all are there.
        shift = Signal(9, reset_less=True)
        m.d.comb += self.data.eq(shift[1:])
        with m.FSM():
            with m.State("IDLE"):
                m.d.comb += [self.idle.eq(1), self.tick.eq(bit)]
                m.d.sync += shift.eq(1 << 8)
                with m.If(~rx):
                    m.d.sync += count.eq(self.divisor // 2 - 1)
                    m.next = "START"
            with m.State("START"), m.If(bit):
                m.next = "BITS"
                with m.If(rx):
                    m.next = "IDLE"
            with m.State("BITS"), m.If(bit):
                m.d.sync += shift.eq(Cat(shift[1:], rx))
                with m.If(shift[0]):
                    m.d.comb += self.valid.eq(rx)
                    m.next = "BREAK"
                    with m.If(rx):
                        m.next = "IDLE"
            with m.State("BREAK"), m.If(rx):
                m.next = "IDLE"
        return m


class Transmitter(wiring.Component):
    """Bytes to a line.

    Parameters
    ----------
    divisor: clock cycles per bit.

    Members
    -------
    i: the bytes.
    tx: the line.
    idle: no byte is under way.

    Latency
    -------
    The start bit begins in the cycle after a byte has been taken; the next byte is taken ``10 * divisor`` cycles after
    it, so that no time is lost.
    """

    def __init__(self, *, divisor: int) -> None:
        _check(divisor)
        self.divisor = divisor
        super().__init__({"i": In(stream.Signature(8)), "tx": Out(1), "idle": Out(1)})

    def elaborate(self, platform: object) -> Module:
        m = Module()
        count = Signal(range(self.divisor))
        # The bits to come; the last of them is always a one and stays.
        shift = Signal(CHARACTER_BITS, init=1)
        bit = Signal()
        last = Signal()
        m.d.comb += [
            self.tx.eq(shift[0]),
            bit.eq(count == 0),
            last.eq(~shift[1:].any()),
            self.idle.eq(last & bit),
            self.i.ready.eq(self.idle),
        ]
        with m.If(~bit):
            m.d.sync += count.eq(count - 1)
        with m.Elif(self.i.valid & last):
            m.d.sync += [shift.eq(Cat(Const(0, 1), self.i.payload, Const(1, 1))), count.eq(self.divisor - 1)]
        with m.Elif(~last):
            m.d.sync += [shift.eq(shift >> 1), count.eq(self.divisor - 1)]
        return m
