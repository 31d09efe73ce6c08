"""Proofs of the interconnect: its channels of addresses and write data, and the whole."""

from amaranth import Cat, Module, Mux, Signal, Value
from amaranth.hdl import Assert, Assume, Cover
from amaranth.lib import stream, wiring
from amaranth.lib.wiring import In, Out

from dovetail.cosim.formal.properties import Opened, before, stable
from dovetail.hw.system.channels import Address, Addresses, Granted, WriteBeat, WriteData, id_bits
from dovetail.hw.system.interconnect import Interconnect, Manager


class _Followed:
    """The items of a stream that are inside a block which holds two at most, oldest first: what a reader would note who
    sees only what goes in and comes out."""

    def __init__(self, m: Module, *, push: Value, item: Value, pop: Value) -> None:
        self.count = Signal(2)
        self.first, self.second = Signal(len(item)), Signal(len(item))
        m.d.sync += self.count.eq(self.count + push - pop)
        with m.If(pop):
            m.d.sync += self.first.eq(self.second)
        with m.If(push):
            with m.If(self.count == Cat(pop, 0)):
                m.d.sync += self.first.eq(item)
            with m.Else():
                m.d.sync += self.second.eq(item)

    @property
    def latest(self) -> Value:
        """The youngest of them."""
        return Mux(self.count == 2, self.second, self.first)


class AddressesHarness(wiring.Component):
    """Any addresses of any managers, and a memory that takes them when it likes. ``who`` is the manager that is
    followed: any, and always the same.

    Parameters
    ----------
    managers: how many there are.
    """

    def __init__(self, *, managers: int) -> None:
        self.managers = managers
        super().__init__(
            {
                "i": In(stream.Signature(Address)).array(managers),
                "o": Out(stream.Signature(Granted(id_bits(managers)))),
                "who": In(id_bits(managers)),
            }
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        count, who = self.managers, self.who
        addresses = Addresses(count)
        m.submodules.addresses = inner = Opened(addresses)
        for mine, i in zip(self.i, addresses.i, strict=True):
            wiring.connect(m, wiring.flipped(mine), i)
        wiring.connect(m, addresses.o, wiring.flipped(self.o))
        known, was = before(m, 1), before(m, who)
        m.d.comb += Assume((who < count) & (~known | (who == was)), "the manager that is followed stays the same")
        for k, i in enumerate(addresses.i):
            stable(m, f"AR or AW of manager {k}", i.valid, i.ready, i.payload.as_value(), assumed=True)
        o = addresses.o
        stable(m, "AR or AW at memory", o.valid, o.ready, o.payload.as_value())

        taken = o.valid & o.ready
        full = inner["full"]
        mine = Signal(Address)
        push, held = Signal(), Signal()
        held_address = Signal(Address)
        for k, i in enumerate(addresses.i):
            with m.If(who == k):
                m.d.comb += [
                    mine.eq(i.payload),
                    push.eq(i.valid & i.ready),
                    held.eq(full[k]),
                    held_address.eq(inner[f"held{k}"]),
                ]
        shown = Signal()
        m.d.comb += shown.eq(o.valid & (o.payload.id == who))
        inside = _Followed(m, push=push, item=mine.as_value(), pop=taken & shown)
        m.d.comb += [
            Assert(o.payload.id < count, "an address at memory has a manager's number"),
            Assert(~shown | (inside.count != 0), "no address at memory that the manager has not sent"),
            Assert(
                ~shown | (o.payload.address.as_value() == inside.first),
                "the n-th address with a manager's number at memory is the n-th of that manager",
            ),
            Assert(inside.count == held + shown, "no address is lost: one that was taken is held or shown to memory"),
            Assert(~held | (held_address.as_value() == inside.latest), "invariant: the slice holds the youngest"),
            Cover((inside.count == 2) & taken & shown, "two addresses of a manager inside, and the first one leaves"),
        ]

        # Fairness. Behind the manager granted last come `behind` ones; `ahead` are between it and the one followed.
        free = ~o.valid | o.ready
        grant, behind = inner["arbiter.grant"], inner["arbiter.behind"]
        turns = full & behind
        others = Signal(range(count + 1))  # granted while the followed one's address waited
        passed = Signal(range(count + 2))  # the same, counted when memory takes them
        mine_granted = Signal()
        ahead = Signal(range(count))
        latest = Signal(range(count))
        m.d.comb += latest.eq(count - 1 - sum(behind))
        first = ~behind.any()  # as after a reset
        for k in range(count):
            with m.If(who == k):
                m.d.comb += [
                    mine_granted.eq(free & grant[k]),
                    ahead.eq(Mux(first, k, Mux(latest < k, k - latest - 1, k - latest - 1 + count))),
                ]
        with m.If(~held):
            m.d.sync += others.eq(0)
        with m.Elif(free & ~mine_granted):
            m.d.sync += others.eq(others + 1)
        with m.If(inside.count == 0):
            m.d.sync += passed.eq(0)
        with m.Elif(taken):
            m.d.sync += passed.eq(Mux(shown, 0, passed + 1))
        m.d.comb += [
            Assert(~free | (grant.any() == full.any()), "an address waits only while the output register is full"),
            Assert(sum(grant) <= 1, "one grant a cycle"),
            Assert(grant == Mux(turns.any(), turns & -turns, full & -full), "invariant: the grant"),
            Assert((grant & ~full) == 0, "a grant goes to a manager with an address"),
            Assert(
                ~held | (others < count),
                f"an address waits for at most {count - 1} grants of others ({count} managers)",
            ),
            Assert(
                (inside.count == 0) | (passed <= count),
                f"memory takes at most {count} addresses of others before a manager's next one",
            ),
            Assert(
                ~behind[0] & ((behind & -behind) + behind == Mux(behind.any(), 1 << count, 0)),
                "invariant: behind is the last bits, and not all",
            ),
            Assert(~held | (others + ahead < count), "invariant: turns"),
            Assert(~held | shown | (passed + o.valid <= others + 1), "invariant: what others have taken was granted"),
            Assert(~shown | (passed <= count), "invariant: passed"),
            Cover(held & (others == count - 1) & mine_granted, "all others were granted, then this one"),
        ]
        return m


class WriteDataHarness(wiring.Component):
    """Any beats of any managers, any turns, and a memory that takes beats when it likes.

    Parameters
    ----------
    managers: how many there are.
    bus: data bits.
    """

    def __init__(self, *, managers: int, bus: int) -> None:
        self.managers = managers
        self.bus = bus
        beats = stream.Signature(WriteBeat(bus))
        super().__init__(
            {
                "i": In(beats).array(managers),
                "turns": In(stream.Signature(id_bits(managers))),
                "o": Out(beats),
            }
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        channel = WriteData(self.managers, self.bus)
        m.submodules.channel = inner = Opened(channel)
        for mine, i in zip(self.i, channel.i, strict=True):
            wiring.connect(m, wiring.flipped(mine), i)
        wiring.connect(m, wiring.flipped(self.turns), channel.turns)
        wiring.connect(m, channel.o, wiring.flipped(self.o))
        turns, o = channel.turns, channel.o
        m.d.comb += Assume(~turns.valid | (turns.payload < self.managers), "a turn is a manager's number")
        stable(m, "turns", turns.valid, turns.ready, turns.payload, assumed=True)
        stable(m, "W at memory", o.valid, o.ready, o.payload.as_value())

        came = Signal(WriteBeat(self.bus))
        taken = Signal(self.managers)
        for k, i in enumerate(channel.i):
            m.d.comb += taken[k].eq(i.valid & i.ready)
            with m.If(taken[k]):
                m.d.comb += [
                    came.eq(i.payload),
                    Assert(turns.valid & (turns.payload == k), "a beat is taken in its manager's turn only"),
                ]
        inside = _Followed(m, push=taken.any(), item=came.as_value(), pop=o.valid & o.ready)
        spared, spare = inner["places.spared"], inner["places.spare"]
        m.d.comb += [
            Assert(inside.count <= 2, "two beats inside at most"),
            Assert(o.valid == (inside.count != 0), "no beat is lost or added: memory sees one while one is inside"),
            Assert(~o.valid | (o.payload.as_value() == inside.first), "the n-th beat out is the n-th beat in"),
            Assert(turns.ready == (taken.any() & came.last), "a turn ends with its burst's last beat"),
            Assert(sum(taken) <= 1, "one beat a cycle"),
            Assert(spared == (inside.count == 2), "invariant: the second place"),
            Assert(~spared | (spare == inside.second), "invariant: the youngest beat"),
            Cover((inside.count == 2) & o.ready & before(m, inside.count == 2), "both places full, and a beat leaves"),
            Cover(taken[1] & before(m, taken[0] & came.last), "a burst right behind that of another manager"),
        ]
        for k, i in enumerate(channel.i):
            m.d.comb += Assert(
                i.ready == (turns.valid & (turns.payload == k) & (inside.count != 2)),
                "in its turn a manager's beat is taken while a place is free",
            )
        return m


class InterconnectHarness(wiring.Component):
    """The whole, between any managers that keep to their bursts in flight and a memory that answers what it has taken.

    Parameters
    ----------
    managers: their ports, all as wide as memory.
    """

    def __init__(self, managers: tuple[Manager, ...]) -> None:
        self.managers = managers
        self._interconnect = interconnect = Interconnect(managers)
        super().__init__(dict(interconnect.signature.members))

    def elaborate(self, platform: object) -> Module:
        m = Module()
        inner = Opened(self._interconnect)
        m.submodules.interconnect = inner
        for name in self.signature.members:
            mine, its = wiring.flipped(getattr(self, name)), getattr(self._interconnect, name)
            wiring.connect(m, mine, its)
        read, write = self._interconnect.memory_read, self._interconnect.memory_write
        m.d.comb += [
            Assert(read.rready & write.bready, "R, B: always taken"),
            Assume(read.rid < len(self.managers), "R: the id of a manager"),
            Assume(write.bid < len(self.managers), "B: the id of a manager"),
        ]
        beat = before(m, Cat(read.rdata, read.rresp, read.rlast))
        response = before(m, write.bresp)
        began, ended = Signal(), Signal()
        flying: list[Value] = []
        for k, manager in enumerate(self.managers):
            r, w = (getattr(self._interconnect, f"{way}{k}") for way in ("read", "write"))
            m.d.comb += [
                Assert(
                    r.rvalid == before(m, read.rvalid & (read.rid == k)),
                    "R: a beat reaches the manager of its id, no other, a cycle later",
                ),
                Assert(~r.rvalid | (Cat(r.rdata, r.rresp, r.rlast) == beat), "R: as memory has sent it"),
                Assert(
                    w.bvalid == before(m, write.bvalid & (write.bid == k)),
                    "B: a response reaches the manager of its id, no other, a cycle later",
                ),
                Assert(~w.bvalid | (w.bresp == response), "B: as memory has sent it"),
            ]
            stable(m, f"AW of manager {k}", w.awvalid, w.awready, w.awaddr, w.awlen, w.awsize, w.awburst, assumed=True)
            inside = Signal(range(manager.outstanding + 2), name=f"in_flight{k}")
            answered = write.bvalid & (write.bid == k)
            m.d.sync += inside.eq(inside + (w.awvalid & w.awready) - answered)
            m.d.comb += [
                Assume(
                    ~w.awvalid | (inside < manager.outstanding), "AW: at most `outstanding` in flight (proof store)"
                ),
                Assume(~answered | (inside != 0), "B: only for a burst of the manager"),
            ]
            flying.append(inside)

        # Bursts whose data are complete, without an answer.
        complete = Signal(range(sum(manager.outstanding for manager in self.managers) + 2))
        parts, level = inner.module.submodules, inner["order.level"]
        order, held, grant = parts.order, inner["aw_channel.full"], inner["aw_channel.arbiter.grant"]
        m.d.comb += [
            began.eq(write.awvalid & write.awready),
            ended.eq(parts.beats.turns.ready),
            Assume(~write.bvalid | (complete != 0), "B: only for a burst whose data are complete"),
        ]
        m.d.sync += complete.eq(complete + ended - write.bvalid)
        everywhere = sum(held) + write.awvalid + level + complete
        most = sum(manager.outstanding for manager in self.managers)
        m.d.comb += [
            Assert(began == order.i.valid, "W: a turn for each address that memory takes"),
            Assert(~began | (order.i.payload == write.awid), "W: turns are in the order of addresses (proof queue)"),
            Assert(~began | order.i.ready, "W: there is always a place for a turn"),
            Assert((sum(grant) == held.any()) & ((grant & ~held) == 0), "invariant: a grant (proof addresses)"),
            Assert(everywhere == sum(flying), "invariant: every burst in flight is in one place"),
            Assert(order.o.valid == (level != 0), "invariant: a turn is due"),
            Assert(inner["order.full"] == (level == order.depth), "invariant: full"),
            Assert(inner["order.many"] == (level > 1), "invariant: more than one"),
            Assert(level <= order.depth, "invariant: level"),
            Cover((level == most) & ended, "all turns are waiting, and the first one ends"),
        ]
        for flies, manager in zip(flying, self.managers, strict=True):
            m.d.comb += Assert(flies <= manager.outstanding, "invariant: in flight")
        return m
