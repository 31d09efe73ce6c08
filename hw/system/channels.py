"""Channels of the interconnect, from managers to memory: addresses, and write data."""

from amaranth import Array, Cat, Module, Mux, Signal, Value, unsigned
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out

from dovetail.hw.system.arbiter import RoundRobin


class Address(data.Struct):
    """What an address channel of AXI4 carries."""

    addr: unsigned(32)
    len: unsigned(8)
    size: unsigned(3)
    burst: unsigned(2)


class Granted(data.StructLayout):
    """An address and the number of its manager."""

    def __init__(self, id_bits: int) -> None:
        super().__init__({"address": Address, "id": id_bits})


class WriteBeat(data.StructLayout):
    """What a beat of the write data channel carries."""

    def __init__(self, bus: int) -> None:
        super().__init__({"data": bus, "strb": bus // 8, "last": 1})


def id_bits(managers: int) -> int:
    """Bits of a manager's number; at least 1."""
    return max(1, (managers - 1).bit_length())


def chosen(chooser: Value, values: list[Value]) -> Value:
    """That one of the values whose bit of ``chooser`` is set; 0 if none is."""
    found: Value = values[0] & chooser[0].replicate(len(values[0]))
    for bit, value in zip(chooser[1:], values[1:], strict=True):
        found |= value & bit.replicate(len(value))
    return found


class Addresses(wiring.Component):
    """An address channel: a slice that holds one address of each manager, a round robin, and an output register.

    Parameters
    ----------
    managers: how many there are.

    Members
    -------
    i: the managers' addresses; ready from a register.
    o: to memory, from registers.

    Latency
    -------
    An address taken in cycle s asks for its grant from s + 1 on. There is at most one grant a cycle, when the output
    register is empty or its address is taken. One granted in cycle g shows on ``o`` in g + 1, and its manager's slice
    takes the next one from g + 1 on. So a lone manager's address passes in 2 cycles, and one passes every 2 cycles.
    """

    def __init__(self, managers: int) -> None:
        self.managers = managers
        super().__init__(
            {
                "i": In(stream.Signature(Address)).array(managers),
                "o": Out(stream.Signature(Granted(id_bits(managers)))),
            }
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        m.submodules.arbiter = arbiter = RoundRobin(self.managers)
        full = Signal(self.managers)
        held = [Signal(Address, name=f"held{k}") for k in range(self.managers)]
        free = Signal()
        m.d.comb += [free.eq(~self.o.valid | self.o.ready), arbiter.take.eq(free)]
        m.d.sync += full.eq(arbiter.coming)
        for k, i in enumerate(self.i):
            m.d.comb += [
                i.ready.eq(~full[k]),
                arbiter.coming[k].eq(Mux(full[k], ~(free & arbiter.grant[k]), i.valid)),
            ]
            with m.If(i.ready):
                m.d.sync += held[k].eq(i.payload)
        with m.If(free):
            m.d.sync += [
                self.o.valid.eq(full.any()),
                self.o.payload.address.eq(chosen(arbiter.grant, [address.as_value() for address in held])),
                self.o.payload.id.eq(encoded(arbiter.grant)),
            ]
        return m


def encoded(one: Value) -> Value:
    """The number of the bit that is set, if one is."""
    bits = id_bits(len(one))
    return Cat(Cat(one[k] for k in range(len(one)) if k >> n & 1).any() for n in range(bits))


class TwoPlaces(wiring.Component):
    """A register for a stream, and a place beside it, so that neither side's output follows the other side's input.

    Members
    -------
    i: ready from a register.
    o: from registers.

    Latency
    -------
    What is taken in cycle t shows in t + 1, or when what came before it has left. ``i`` is ready unless both places are
    taken: until the cycle after the item before the last has left.
    """

    def __init__(self, layout: data.Layout) -> None:
        self.layout = layout
        super().__init__({"i": In(stream.Signature(layout)), "o": Out(stream.Signature(layout))})

    def elaborate(self, platform: object) -> Module:
        m = Module()
        spare = Signal(self.layout)
        spared = Signal()
        m.d.comb += self.i.ready.eq(~spared)
        with m.If(~self.o.valid | self.o.ready):
            m.d.sync += [
                self.o.valid.eq(spared | self.i.valid),
                self.o.payload.eq(Mux(spared, spare.as_value(), self.i.payload.as_value())),
                spared.eq(0),
            ]
        with m.Elif(self.i.valid & ~spared):
            m.d.sync += [spared.eq(1), spare.eq(self.i.payload)]
        return m


class WriteData(wiring.Component):
    """The write data channel: whole bursts in the order of their turns.

    Parameters
    ----------
    managers: how many there are.
    bus: data bits.

    Members
    -------
    i: the managers' beats. A manager's are taken in its turn only.
    turns: numbers of managers, a turn for each burst; one is taken with its burst's last beat.
    o: to memory, from registers; see :class:`TwoPlaces`.
    """

    def __init__(self, managers: int, bus: int) -> None:
        self.managers = managers
        self.bus = bus
        beats = stream.Signature(WriteBeat(bus))
        super().__init__(
            {
                "i": In(beats).array(managers),
                "turns": In(stream.Signature(unsigned(id_bits(managers)))),
                "o": Out(beats),
            }
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        m.submodules.places = places = TwoPlaces(WriteBeat(self.bus))
        turn = Signal(self.managers)
        for k, i in enumerate(self.i):
            m.d.comb += [turn[k].eq(self.turns.valid & (self.turns.payload == k)), i.ready.eq(turn[k] & places.i.ready)]
        m.d.comb += [
            places.i.valid.eq((turn & Cat(i.valid for i in self.i)).any()),
            places.i.payload.eq(Array(i.payload.as_value() for i in self.i)[self.turns.payload]),
            self.turns.ready.eq(places.i.valid & places.i.ready & places.i.payload.last),
        ]
        wiring.connect(m, places.o, wiring.flipped(self.o))
        return m
