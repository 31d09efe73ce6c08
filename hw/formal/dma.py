"""Proofs of LOAD and STORE as AXI4 managers."""

from typing import Any

from amaranth import Module, Mux, ResetSignal, Signal, Value
from amaranth.hdl import Assert, Assume, Cover
from amaranth.lib import wiring
from amaranth.lib.wiring import In
from amaranth.utils import exact_log2

from dovetail.hw.axi import INCR
from dovetail.hw.formal.properties import Opened, before, stable
from dovetail.hw.load import LoadCore
from dovetail.hw.store import BUFFER, StoreCore
from dovetail.isa.config import Config
from dovetail.isa.instructions import PAGE_BYTES
from dovetail.isa.timing.common import CHECK, SRAM_READ
from dovetail.isa.timing.dma import BOUNDARY


class _Control:
    """The control's side of a core, doing what the proof ``control`` allows, at the pleasure of the harness's inputs.

    ``working``: between go and done. ``reads``, ``writes``: the banks that the operation has claimed.
    """

    def __init__(self, m: Module, harness: Any, core: Any, *, fetches: bool) -> None:
        config = harness.config
        age = Signal(range(CHECK + 1))
        self.working = Signal()
        self.reads, self.writes = Signal(config.n_banks), Signal(config.n_banks)
        idle = Signal()
        verify = age == CHECK
        m.d.comb += [
            idle.eq((age == 0) & ~self.working),
            core.clear.eq(harness.clear & idle),
            core.cfg_en.eq(harness.cfg_en & idle & ~harness.start),
            core.cfg_index.eq(harness.cfg_index),
            core.cfg_value.eq(harness.cfg_value),
            core.start.eq(harness.start & idle),
            core.fetch.eq(harness.fetch & fetches),
            core.address.eq(harness.page * PAGE_BYTES),
            core.go.eq(verify & harness.granted & (core.cause == 0)),
            Assert((age == 0) | ~self.working, "invariant: one operation at a time"),
        ]
        with m.If(core.start):
            m.d.sync += age.eq(1)
        with m.Elif(verify):
            m.d.sync += [age.eq(0), self.working.eq(core.go), self.reads.eq(core.reads), self.writes.eq(core.writes)]
        with m.Elif(age != 0):
            m.d.sync += age.eq(age + 1)
        with m.If(core.done):
            m.d.sync += self.working.eq(0)


def _core_inputs() -> dict[str, wiring.Member]:
    """Inputs of a harness from which :class:`_Control` makes its decisions."""
    return {
        "clear": In(1),
        "cfg_en": In(1),
        "cfg_index": In(6),
        "cfg_value": In(32),
        "start": In(1),
        "fetch": In(1),
        "page": In(32 - exact_log2(PAGE_BYTES)),
        "granted": In(1),
        "block": In(32 - exact_log2(BOUNDARY)),
    }


class _Lengths:
    """Beats - 1 of the bursts that are open, oldest first: what a subordinate remembers."""

    def __init__(self, m: Module, depth: int, *, push: Value, length: Value, beat: Value) -> None:
        self.count = Signal(range(depth + 1))
        left = [Signal(8, name=f"left{n}") for n in range(depth)]
        self.last = left[0] == 0
        pop = Signal()
        m.d.comb += pop.eq(beat & self.last)
        m.d.sync += self.count.eq(self.count + push - pop)
        for n in range(depth):
            stays = left[n] - (beat if n == 0 else 0)
            moved = Mux(pop, left[n + 1] if n + 1 < depth else 0, stays)
            m.d.sync += left[n].eq(Mux(push & (self.count - pop == n), length, moved))


def _address_rules(m: Module, config: Config, channel: str, axi: Any, prefix: str) -> None:
    """AXI4's rules for an address that is offered."""
    address, length = getattr(axi, f"{prefix}addr"), getattr(axi, f"{prefix}len")
    beat = exact_log2(config.bus_bytes)
    with m.If(getattr(axi, f"{prefix}valid")):
        m.d.comb += [
            Assert(
                (address & (BOUNDARY - 1)) + ((length + 1) << beat) <= BOUNDARY, f"{channel}: no burst crosses 4 KiB"
            ),
            Assert(address[:beat] == 0, f"{channel}: addresses are those of whole beats"),
        ]


def _small(m: Module, harness: Any, core: Any, transfer: Any) -> None:
    """Keeps whole transfers within a depth that can be searched."""
    m.d.comb += [
        Assume(~ResetSignal(), "no reset after the first cycle"),
        Assume(~harness.cfg_en & ~harness.clear, "the registers' values are those that they start with"),
        Assume(
            ~core.go | (transfer.span < 16) & (transfer.rows <= 2) & (transfer.planes <= 2),
            "a transfer of at most two planes of two rows of 16 bytes",
        ),
    ]


def _within(config: Config, address: Value, size: Value, banks: Value) -> Value:
    """Whether the bytes lie in these banks."""
    shift = exact_log2(config.bank_bytes)
    last = (address + size - 1)[: len(address)]
    return banks.bit_select(address >> shift, 1) & (size.any() & banks.bit_select(last >> shift, 1))


class LoadHarness(wiring.Component):
    """LOAD with any program, and a memory that answers when and what it likes, in order.

    Parameters
    ----------
    config: the accelerator.
    whole: assert what holds of whole transfers too, which takes a bounded depth.
    """

    def __init__(self, config: Config, *, whole: bool) -> None:
        self.config = config
        self.whole = whole
        super().__init__(_core_inputs() | {"arready": In(1), "rvalid": In(1), "rdata": In(config.bus), "rresp": In(2)})

    def elaborate(self, platform: object) -> Module:
        m = Module()
        config = self.config
        load = LoadCore(config)
        m.submodules.load = inner = Opened(load)
        core, axi = load.core, load.axi
        control = _Control(m, self, core, fetches=True)
        issued, beat = Signal(), Signal()
        m.d.comb += [
            load.base.eq(self.block * BOUNDARY),
            axi.arready.eq(self.arready),
            axi.rvalid.eq(self.rvalid),
            axi.rdata.eq(self.rdata),
            axi.rresp.eq(self.rresp),
            issued.eq(axi.arvalid & axi.arready),
            beat.eq(axi.rvalid & axi.rready),
        ]
        bursts = _Lengths(m, config.outstanding + 1, push=issued, length=axi.arlen, beat=beat)
        block = before(m, self.block)
        known = before(m, 1)
        m.d.comb += [
            axi.rlast.eq(bursts.last),
            Assume(~axi.rvalid | (bursts.count != 0), "R: data come only of a burst that was asked for, in order"),
            Assume(~known | (self.block == block), "BASE does not change during a run (proof host)"),
        ]

        stable(m, "AR", axi.arvalid, axi.arready, axi.araddr, axi.arlen, axi.arsize, axi.arburst)
        m.d.comb += [
            Assert(bursts.count <= config.outstanding, "at most `outstanding` bursts in flight"),
            Assert(inner["in_flight"] == bursts.count, "in_flight counts the bursts whose last beat has not come"),
            Assert(~axi.arvalid | (bursts.count != config.outstanding), "AR: no address without room"),
            Assert((axi.arburst == INCR) & (1 << axi.arsize == config.bus_bytes), "AR: INCR, whole beats"),
            Assert(axi.rready, "R: data are always taken"),
            Cover((bursts.count == config.outstanding) & beat & bursts.last, "all bursts in flight, and one ends"),
        ]
        if not self.whole:
            m.d.comb += [
                Assume(
                    ~core.done | control.working & ~inner["bursts.active"],
                    "done only of what works, after its last address (proof load_transfers)",
                ),
                Assert(control.working | ~inner["bursts.active"], "invariant: bursts of an operation"),
                Assert(inner["bursts.active"] | ~inner["bursts.o__valid"], "invariant: bursts while active"),
            ]
            return m

        _address_rules(m, config, "AR", axi, "ar")
        _small(m, self, core, inner.module.submodules.registers.transfer)
        bad, several = Signal(), Signal()
        with m.If(core.go):
            m.d.sync += [bad.eq(0), several.eq(0)]
        with m.Elif(beat):
            m.d.sync += [bad.eq(bad | axi.rresp.any()), several.eq(several | bursts.last)]
        with m.If(~control.working):
            m.d.comb += Assert(~axi.arvalid & (bursts.count == 0), "no burst is asked for or open outside an operation")
        with m.If(core.done):
            m.d.comb += [
                Assert(control.working, "done only of what works"),
                Assert(~axi.arvalid & (bursts.count == 0), "done only after the last beat of every burst"),
                Assert(core.error == bad, "error exactly if a beat had an error response"),
                Cover(bad, "an operation ends with an error"),
                Cover(several & ~load.page.en & ~bad, "an operation ends well"),
            ]
        with m.If(load.sram.en):
            m.d.comb += [
                Assert(
                    _within(config, load.sram.addr, load.sram.size, control.writes),
                    "SRAM writes reach only claimed banks",
                ),
                Assert(control.working, "SRAM is written during an operation only"),
            ]
        return m


class StoreHarness(wiring.Component):
    """STORE with any program, SRAM contents, and a memory that accepts and answers when and what it likes, in order.

    Parameters
    ----------
    config: the accelerator.
    whole: assert what holds of whole transfers too, which takes a bounded depth.
    """

    def __init__(self, config: Config, *, whole: bool) -> None:
        self.config = config
        self.whole = whole
        super().__init__(
            _core_inputs()
            | {
                "awready": In(1),
                "wready": In(1),
                "bvalid": In(1),
                "bresp": In(2),
                "bytes": In(8 * config.word_bytes),
                "mark": In(1),
            }
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        config = self.config
        store = StoreCore(config)
        m.submodules.store = inner = Opened(store)
        buffer = inner.module.submodules.buffer
        cell = buffer.read_port(domain="comb")
        (write,) = buffer.write_ports
        core, axi = store.core, store.axi
        control = _Control(m, self, core, fetches=False)
        issued, sent, answered = Signal(), Signal(), Signal()
        m.d.comb += [
            store.base.eq(self.block * BOUNDARY),
            store.sram.data.eq(self.bytes),
            axi.awready.eq(self.awready),
            axi.wready.eq(self.wready),
            axi.bvalid.eq(self.bvalid),
            axi.bresp.eq(self.bresp),
            issued.eq(axi.awvalid & axi.awready),
            sent.eq(axi.wvalid & axi.wready),
            answered.eq(axi.bvalid & axi.bready),
        ]
        # Bursts whose data are not all there, bursts without an answer. In the first proof WLAST says when a burst is
        # complete; in the second it must be when as many beats have come as AWLEN promised.
        bursts = _Lengths(m, config.outstanding + 1, push=issued, length=axi.awlen, beat=sent)
        unanswered = Signal(range(config.outstanding + 2))
        unsent = Signal.like(unanswered)
        block = before(m, self.block)
        known = before(m, 1)
        m.d.sync += [
            unanswered.eq(unanswered + issued - answered),
            unsent.eq(unsent + issued - (sent & axi.wlast)),
        ]
        m.d.comb += [
            Assume(~axi.bvalid | (unanswered != unsent), "B: responses come only of bursts that are complete"),
            Assume(~known | (self.block == block), "BASE does not change during a run (proof host)"),
        ]

        stable(m, "AW", axi.awvalid, axi.awready, axi.awaddr, axi.awlen, axi.awsize, axi.awburst)
        stable(m, "W", axi.wvalid, axi.wready, axi.wdata, axi.wstrb, axi.wlast)
        m.d.comb += [
            Assert(unanswered <= config.outstanding, "at most `outstanding` bursts in flight"),
            Assert(inner["in_flight"] == unanswered, "in_flight counts the bursts without a response"),
            Assert(~axi.awvalid | (unanswered != config.outstanding), "AW: no address without room"),
            Assert((axi.awburst == INCR) & (1 << axi.awsize == config.bus_bytes), "AW: INCR, whole beats"),
            Assert(~axi.wvalid | (unsent != 0), "W: data come only behind their address"),
            Assert(axi.bready, "B: responses are always taken"),
            Assert(inner["open_bursts"] == unsent, "invariant: open_bursts"),
            Assert(unsent <= unanswered, "invariant: what is not sent is not answered"),
        ]

        with m.If(core.done):
            m.d.comb += Assert((unanswered == 0) & ~axi.awvalid, "done only after every response")
        m.d.comb += [
            Assert(control.working == (inner["working"] | core.done), "invariant: working"),
            Assert(inner["working"] | ~inner["bursts.active"], "invariant: bursts of an operation"),
            Assert(inner["bursts.active"] | ~axi.awvalid, "invariant: bursts while active"),
            Assert(~core.done | ~inner["working"] & (unanswered == 0), "invariant: done once"),
            Assert(inner["bursts.active"] | ~inner["bursts.o__valid"], "invariant: bursts while active"),
        ]

        # The beats' buffer, as in the proof of the queue.
        filled = inner["filled"]
        stages = [inner["walked"], inner["reading"], *(inner[f"coming{n}"][-1] for n in range(SRAM_READ))]
        m.d.comb += [
            Assert(filled <= BUFFER, "beats never overflow their buffer"),
            Assert(filled + sum(stages) == inner["taken"], "a place is kept for every beat on its way"),
            Assert(inner["taken"] <= BUFFER, "invariant: taken"),
            Assert(
                (inner["tail"] - inner["head"])[: exact_log2(BUFFER)] == filled[: exact_log2(BUFFER)],
                "invariant: level",
            ),
        ]
        inside = Signal()
        ahead = Signal(range(BUFFER))
        marked = Signal(cell.data.shape())
        came, went = write.en, sent
        m.d.comb += cell.addr.eq(inner["head"] + ahead)
        with m.If(inside):
            m.d.comb += [
                Assert(ahead < filled, "invariant: the marked beat is one of those inside"),
                Assert(cell.data.as_value() == marked.as_value(), "invariant: it stands where it belongs"),
            ]
        with m.If(inside & went):
            with m.If(ahead == 0):
                m.d.comb += Assert(
                    (axi.wdata == marked.data) & (axi.wstrb == marked.strb) & (axi.wlast == marked.last),
                    "the n-th beat out is the n-th beat in",
                )
                m.d.sync += inside.eq(0)
            with m.Else():
                m.d.sync += ahead.eq(ahead - 1)
        with m.Elif(came & self.mark & ~inside):
            m.d.sync += [inside.eq(1), marked.eq(write.data), ahead.eq(filled - went)]
        if not self.whole:
            m.d.comb += Cover(inside & went & (ahead == 0), "a beat that was followed is sent")
            return m

        _address_rules(m, config, "AW", axi, "aw")
        _small(m, self, core, inner.module.submodules.registers.transfer)
        bad = Signal()
        with m.If(core.go):
            m.d.sync += bad.eq(0)
        with m.Elif(answered):
            m.d.sync += bad.eq(bad | axi.bresp.any())
        with m.If(axi.wvalid):
            m.d.comb += [
                Assert(axi.wlast == bursts.last, "W: WLAST on exactly the beat that AWLEN says"),
                Assert(axi.wstrb.any(), "W: no beat without a byte"),
                Cover(axi.wlast & (unsent == 2), "a burst ends with another one open"),
            ]
        with m.If(~control.working):
            m.d.comb += Assert(~axi.awvalid & (unanswered == 0), "no burst is offered or open outside an operation")
        with m.If(core.done):
            m.d.comb += [
                Assert(control.working, "done only of what works"),
                Assert((filled == 0) & (inner["taken"] == 0), "done with every beat sent"),
                Assert(core.error == bad, "error exactly if a response was one"),
                Cover(bad, "an operation ends with an error"),
            ]
        with m.If(store.sram.en):
            m.d.comb += Assert(
                control.reads.bit_select(store.sram.addr >> exact_log2(config.bank_bytes), 1),
                "SRAM reads begin in claimed banks only",
            )
        return m
