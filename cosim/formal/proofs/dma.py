"""Proofs of LOAD and STORE as AXI4 managers."""

from typing import Any

from amaranth import Cat, Module, Mux, Signal, Value
from amaranth.hdl import Assert, Assume, Cover
from amaranth.lib import wiring
from amaranth.lib.wiring import In
from amaranth.utils import exact_log2

from dovetail.cosim.formal.properties import Opened, before, stable
from dovetail.hw.common.axi import INCR
from dovetail.hw.common.ports import GROUP
from dovetail.hw.dma.load import LoadCore
from dovetail.hw.dma.store import BUFFER, StoreCore
from dovetail.isa.config.resolved import Config
from dovetail.isa.instructions.table import PAGE_BYTES
from dovetail.isa.timing.dma import BOUNDARY
from dovetail.isa.timing.memory import SRAM_READ
from dovetail.isa.timing.sequencer import CHECK


class _Control:
    """The control's side of a core, doing what the proof ``control`` allows, at the pleasure of the harness's inputs.

    ``working``: between go and done. ``reads``, ``writes``: the banks that the operation has claimed.
    """

    def __init__(self, m: Module, harness: Any, core: Any, *, fetches: bool) -> None:
        config = harness.config
        age = Signal(range(CHECK + 1))
        self.working = Signal()
        self.reads, self.writes = Signal(config.banks), Signal(config.banks)
        idle = Signal()
        verify = age == CHECK
        m.d.comb += [
            idle.eq((age == 0) & ~self.working),
            core.cfg.clear.eq(harness.clear & idle & ~harness.start),
            core.cfg.en.eq(harness.cfg_en & idle & ~harness.start),
            core.cfg.due.eq(core.cfg.en),
            core.cfg.group.eq(1 << harness.cfg_index[exact_log2(GROUP) :]),
            core.cfg.place.eq(1 << harness.cfg_index[: exact_log2(GROUP)]),
            core.cfg.value.eq(harness.cfg_value),
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


def _region_banks(config: Config, registers: Any) -> Value:
    first = registers.sram_addr
    end = registers.sram_addr + registers.sram_bytes
    size = config.bank_bytes
    return Cat((first < (n + 1) * size) & (end > n * size) for n in range(config.banks))


def _claims(m: Module, config: Config, registers: Any, control: _Control, banks: Value) -> None:
    """Asserts what an operation has claimed while it works."""
    with m.If(control.working & ~registers.fetching):
        m.d.comb += [
            Assert(
                (registers.sram_bytes != 0) & (registers.sram_addr + registers.sram_bytes <= config.sram),
                "the region of an operation is not empty and inside SRAM",
            ),
            Assert(banks == _region_banks(config, registers), "an operation claims exactly the banks of its region"),
        ]


def _inside(config: Config, registers: Any, address: Value, size: Value | int) -> Value:
    return (address >= registers.sram_addr) & (address + size <= registers.sram_addr + registers.sram_bytes)


class LoadHarness(wiring.Component):
    """LOAD with any program, and a memory that answers when and what it likes, in order.

    Parameters
    ----------
    config: the accelerator.
    """

    def __init__(self, config: Config) -> None:
        self.config = config
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
            Assume(~axi.rvalid | (bursts.count != 0), "R: data come only for a requested burst, in order"),
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
        # The end. What the walkers yield agrees, so the last beat is that of the last burst.
        registers = inner.module.submodules.registers
        beats = inner.module.submodules.beats
        came, arrived, ending = inner["came"], inner["there"], inner["ending"]
        bad = Signal()
        with m.If(core.go):
            m.d.sync += bad.eq(0)
        with m.Elif(beat):
            m.d.sync += bad.eq(bad | axi.rresp.any())
        over = ~inner["bursts.active"] & (bursts.count == 0)
        m.d.comb += [
            Assume(
                ~came | beats.active & (beats.beat.last == over), "the last beat is the last burst's (proof walkers)"
            ),
            Assert(~axi.arvalid & (bursts.count == 0) | control.working, "no burst is requested or open at rest"),
            Assert(~core.done | control.working, "done only while an operation works"),
            Assert(~core.done | over & ~axi.arvalid, "done only after the last beat of every burst"),
            Assert(~core.done | (core.error == bad), "error exactly if a beat had an error response"),
            Assert(~load.sram.en | control.working, "SRAM is written during an operation only"),
            Assert(
                ~load.sram.en | (load.sram.size == 0) | _inside(config, registers, load.sram.addr, load.sram.size),
                "SRAM is written inside the operation's region only",
            ),
            Assert(~load.sram.en | ~registers.fetching, "a fetch writes no SRAM"),
            Assert(control.working | ~(inner["bursts.active"] | came | arrived | ending.any()), "invariant: at rest"),
            Assert(inner["bursts.active"] | ~inner["bursts.o__valid"], "invariant: bursts while active"),
            Assert(~ending.any() | over, "invariant: the end comes when everything is over"),
            Assert(~ending[0] | ~came, "invariant: no beat behind the last"),
            Assert(~ending[1] | ~came & ~arrived & ~ending[0], "invariant: the last beat goes through the stages"),
            Assert(~ending[2] | ~came & ~arrived & ~load.sram.en & ~ending[:2].any(), "invariant: and leaves them"),
            Assert(~control.working | ((inner["bad"] | came & inner["came_bad"]) == bad), "invariant: bad"),
            Cover(load.sram.en & (load.sram.size != 0), "a write to SRAM"),
        ]
        _claims(m, config, registers, control, control.writes)
        return m


class StoreHarness(wiring.Component):
    """STORE with any program, SRAM contents, and a memory that accepts and answers when and what it likes, in order.

    Parameters
    ----------
    config: the accelerator.
    """

    def __init__(self, config: Config) -> None:
        self.config = config
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
        # Bursts whose data are not all there, bursts without an answer.
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

        # The beats' buffer, as in the proof of the queue, and the register behind it.
        filled, leaves, beat_there = inner["filled"], inner["leaves"], inner["beat_there"]
        stages = [inner["there"], inner["reading"], *(inner[f"coming{n}"][-1] for n in range(SRAM_READ))]
        m.d.comb += [
            Assert(filled <= BUFFER, "beats never overflow their buffer"),
            Assert(filled + sum(stages) == inner["taken"], "a buffer entry is reserved for every beat in flight"),
            Assert(inner["taken"] <= BUFFER, "invariant: taken"),
            Assert(
                (inner["tail"] - inner["head"])[: exact_log2(BUFFER)] == filled[: exact_log2(BUFFER)],
                "invariant: level",
            ),
            Assert(inner["any_filled"] == (filled != 0), "invariant: beats are there"),
            Assert(inner["any_open"] == (inner["open_bursts"] != 0), "invariant: addresses have gone out"),
            Assert(axi.wvalid == (beat_there & inner["any_open"]), "W: a beat behind its address is offered at once"),
        ]
        inside, shown = Signal(), Signal()  # the marked beat is in the buffer, behind `ahead` others; in the register
        ahead = Signal(range(BUFFER))
        marked = Signal(cell.data.shape())
        came = write.en
        m.d.comb += cell.addr.eq(inner["head"] + ahead)
        with m.If(inside):
            m.d.comb += [
                Assert(ahead < filled, "invariant: the marked beat is one of those inside"),
                Assert(cell.data.as_value() == marked.as_value(), "invariant: it stands where it belongs"),
                Assert(~shown, "invariant: once"),
            ]
        with m.If(shown):
            m.d.comb += [
                Assert(beat_there, "a beat stays in the register until it is sent"),
                Assert(
                    (axi.wdata == marked.data) & (axi.wstrb == marked.strb) & (axi.wlast == marked.last),
                    "the n-th beat out is the n-th beat in",
                ),
            ]
        with m.If(inside & leaves):
            with m.If(ahead == 0):
                m.d.sync += [inside.eq(0), shown.eq(1)]
            with m.Else():
                m.d.sync += ahead.eq(ahead - 1)
        with m.Elif(shown & sent):
            m.d.sync += shown.eq(0)
        with m.Elif(came & self.mark & ~inside & ~shown):
            m.d.sync += [inside.eq(1), marked.eq(write.data), ahead.eq(filled - leaves)]
        # A beat's way from the walker to the buffer. With the order above, and with the walkers' agreement on what a
        # burst is (proof walkers), WLAST stands on the beat that AWLEN says.
        registers = inner.module.submodules.registers
        beats = inner.module.submodules.beats
        on_way: Value = Cat(beats.active & beats.advance, beats.beat.burst_last, beats.beat.low, beats.beat.size)
        for _ in range(SRAM_READ + 2):
            on_way = before(m, on_way)
        lanes = len(beats.beat.low)
        low, size = on_way[2 : 2 + lanes], on_way[2 + lanes :]
        bad = Signal()
        with m.If(core.go):
            m.d.sync += bad.eq(0)
        with m.Elif(answered):
            m.d.sync += bad.eq(bad | axi.bresp.any())
        m.d.comb += [
            Assert(write.en == on_way[0], "every beat of the walker enters the buffer, and no other"),
            Assert(~write.en | (write.data.last == on_way[1]), "WLAST is the walker's end of a burst"),
            Assert(
                ~write.en | (write.data.strb == Cat((n >= low) & (n < low + size) for n in range(config.bus_bytes))),
                "strobes are the beat's lanes",
            ),
            Assert(~axi.awvalid & (unanswered == 0) | control.working, "no burst is offered or open at rest"),
            Assert(~core.done | (core.error == bad), "error exactly if a response was one"),
            Assert(~control.working | (inner["bad"] == bad), "invariant: bad"),
            Cover(core.done & bad, "an operation ends with an error"),
            Cover(shown & sent, "a beat that was followed is sent"),
        ]
        _claims(m, config, registers, control, control.reads)
        return m
