"""The front end: fetches the program page by page, decodes and checks its words, and feeds the units' queues."""

from typing import Any

from amaranth import Cat, Const, Module, Mux, Signal, Value
from amaranth.lib import data, memory, stream, wiring
from amaranth.lib.wiring import In, Out
from amaranth.utils import exact_log2

from dovetail.hw.common.ports import Entry, EntryKind
from dovetail.hw.dma.load import PageWrite
from dovetail.hw.sequencer.control import Fault
from dovetail.isa.config.given import MAX_PARAMETERS
from dovetail.isa.config.resolved import Config
from dovetail.isa.instructions.checks import has, known, reserved_bits
from dovetail.isa.instructions.table import (
    BY_NUMBER,
    CFG_PARAM,
    CFG_REG,
    CFG_VALUE,
    OPCODE,
    PAGE_BYTES,
    PAGE_WORDS,
    SYNC_ON,
    SYNC_PENDING,
    SYNC_UNIT,
    Cause,
    Field,
    Op,
    Unit,
)
from dovetail.isa.timing.sequencer import PAGE_READY

PAGES_BITS = 23
"""Bits of a page count: enough for 4 GiB."""
WORD_BITS = 64
MANY = 1 << 30
"""More operations than any program has: its words fit into 4 GiB."""


class Decoded(data.Struct):
    """A word, decoded. ``value`` of a WAIT is how many operations may still be pending, at most :data:`MANY`. ``bad``:
    it has one of the five faults before it, see :func:`first_cause`; ``past``: there is no such word, the program is at
    its end."""

    kind: EntryKind
    unit: 2
    code: 8
    waits: 4
    value: 32
    end: 1
    past: 1
    opcode: 1
    reserved: 1
    register: 1
    overflow: 1
    absent: 1
    bad: 1


def first_cause(decoded: Any) -> Value:
    """The cause that a word's faults are reported with, 0 if it has none."""
    cause: Value = Mux(decoded.absent, Cause.UNIT_ABSENT, Cause.NONE)
    for fault, reported in (
        (decoded.overflow, Cause.RESERVED),
        (decoded.register, Cause.REGISTER),
        (decoded.reserved, Cause.RESERVED),
        (decoded.opcode, Cause.OPCODE),
    ):
        cause = Mux(fault, reported, cause)
    return cause


class Decoder(wiring.Component):
    """Decodes and checks a word, combinationally, as ``isa.instructions.table.decode`` does and with the units of
    ``config``.

    Members
    -------
    word: the word.
    decoded: what it is; ``past`` is left 0.
    """

    def __init__(self, config: Config) -> None:
        self.config = config
        super().__init__({"word": In(WORD_BITS), "decoded": Out(Decoded)})

    def elaborate(self, platform: object) -> Module:
        m = Module()
        d = self.decoded

        def bits(field: Field) -> Signal:
            return self.word[field.low : field.low + field.width]

        absent = set() if self.config.vector else {Unit.VECTOR}

        exists, reserved, lacking = Signal(), Signal(), Signal()
        parameters = self.config.parameters
        with m.Switch(bits(OPCODE)):
            for row in known(self.config):
                with m.Case(int(row.op)):  # the width of `Op` would depend on what extensions are loaded
                    unused = (self.word & reserved_bits(self.config, row)).any()
                    if row.op == Op.CFG and 0 < parameters < MAX_PARAMETERS:
                        unused |= bits(CFG_PARAM) > parameters
                    m.d.comb += [
                        exists.eq(1),
                        reserved.eq(unused),
                        lacking.eq(not has(self.config, row.op)),
                    ]
                    if row.unit is not None:
                        m.d.comb += [d.kind.eq(EntryKind.OP), d.unit.eq(row.unit), d.code.eq(int(row.op))]

        number = bits(CFG_REG)
        defined, overflows = Signal(), Signal()
        with m.Switch(number):
            for register in BY_NUMBER.values():
                with m.Case(register.number):
                    m.d.comb += defined.eq(1)
                    if lacks := ~register.mask & 0xFFFF_FFFF:
                        m.d.comb += overflows.eq((bits(CFG_VALUE) & lacks).any())
        target, on = bits(SYNC_UNIT), bits(SYNC_ON)

        def is_absent(unit: Signal) -> Value:
            return Cat(unit == u for u in absent).any() if absent else Const(0)

        unknown = Signal()
        with m.If(bits(OPCODE) == int(Op.CFG)):
            m.d.comb += [
                d.kind.eq(EntryKind.CFG),
                d.unit.eq(number[6:]),
                d.code.eq(number[:6]),
                d.value.eq(bits(CFG_VALUE)),
                unknown.eq(~defined),
                lacking.eq(is_absent(number[6:])),
            ]
        with m.Elif(bits(OPCODE) == int(Op.SYNC)):
            m.d.comb += [
                d.kind.eq(EntryKind.WAIT),
                d.unit.eq(target),
                d.waits.eq(1 << on[:2]),
                d.value.eq(Mux(bits(SYNC_PENDING) >= MANY, MANY, bits(SYNC_PENDING))),
                unknown.eq((target >= len(Unit)) | (on >= len(Unit))),
                lacking.eq(is_absent(target) | is_absent(on)),
            ]
        overflow = (bits(OPCODE) == int(Op.CFG)) & overflows
        m.d.comb += [
            d.end.eq(bits(OPCODE) == int(Op.END)),
            d.opcode.eq(~exists),
            d.reserved.eq(reserved),
            d.register.eq(unknown),
            d.overflow.eq(overflow),
            d.absent.eq(lacking),
            d.bad.eq(~exists | reserved | unknown | overflow | lacking),
        ]
        return m


def parameter_members(config: Config) -> dict[str, Any]:
    """The member ``parameters`` of a component, if there are any."""
    return {"parameters": In(data.ArrayLayout(32, config.parameters))} if config.parameters else {}


class Frontend(wiring.Component):
    """Fetch, decode, dispatch.

    Parameters
    ----------
    config: the accelerator.

    Members
    -------
    start: pulse before the first cycle of a run. ``halt``: nothing more is done.
    program, pages: where the program is (1 KiB aligned), and how many pages it has.
    parameters: the host registers PARAM, PARAM1 first; constant during a run; none, no member.
    page: writes of the page buffers. ``fetched``: pulse in the end cycle of a fetch.
    queues: one per unit.
    stopped: END has been passed.
    stirs: a register of this block is about to change.
    failed, fault: pulse with a fault in the cycle to which it belongs.

    Latency
    -------
    The first fetch goes out in the cycle after ``start``; the first action of a page PAGE_READY cycles after its fetch
    has ended; then one action per cycle.
    """

    def __init__(self, config: Config) -> None:
        self.config = config
        super().__init__(
            {
                "start": In(1),
                "halt": In(1),
                "program": In(32),
                "pages": In(PAGES_BITS),
                **parameter_members(config),
                "page": In(PageWrite(config)),
                "fetched": In(1),
                "queues": Out(stream.Signature(Entry)).array(len(Unit)),
                "stopped": Out(1),
                "stirs": Out(1),
                "failed": Out(1),
                "fault": Out(Fault),
            }
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        config = self.config
        assert PAGE_READY == 3, "page buffer, word and decoder take a stage each, from the end of the fetch on"
        page_bits = exact_log2(PAGE_BYTES)
        word_bits = exact_log2(PAGE_WORDS)

        # Page buffers: rows as wide as the bus or a word.
        width = max(config.bus, WORD_BITS)
        m.submodules.pages = pages = memory.Memory(shape=width, depth=2 * 8 * PAGE_BYTES // width, init=[])
        write = pages.write_port(granularity=config.bus)
        read = pages.read_port(domain="sync")
        parts = exact_log2(width // config.bus)
        m.d.comb += [
            write.addr.eq(self.page.row >> parts),
            write.data.eq(self.page.data.replicate(1 << parts)),
            write.en.eq(self.page.en << self.page.row[:parts]),
        ]

        # Counts of pages: read into the pipeline, to be fetched. What they are compared with is in registers: `reading`
        # changes with the last word of a page, `to_fetch` with its first, and neither matters before the next page.
        active = Signal()
        reading = Signal(PAGES_BITS)
        index = Signal(word_bits)
        index_last = Signal()
        to_fetch = Signal(PAGES_BITS)
        ahead = Signal(2)  # pages fetched and not yet read, that of `turned` included
        past_end = Signal()  # `reading` is no page
        at_last = Signal()  # nor is the next one
        more = Signal()  # `to_fetch` is a page
        address = Signal(32)  # of that page
        turns, turned = Signal(), Signal()  # a page's last word is read; it was, in the cycle before
        m.d.sync += [at_last.eq(reading + 1 == self.pages), more.eq(to_fetch != self.pages)]

        # Stage A: the word leaves the buffer; stage W: it waits for the decoder; stage B: decoded. A page's first read
        # is in the end cycle of its fetch. Whether W takes a word is known late. So A does not wait for it: there is a
        # place S beside A for the word that W did not take, and A only stops when both are full.
        a_valid = Signal()
        a_first = Signal()
        a_past = Signal()
        select = Signal(exact_log2(width // WORD_BITS))
        s_valid = Signal()
        s_first = Signal()
        s_past = Signal()
        s = Signal(WORD_BITS)
        w_valid = Signal()
        w_first = Signal()
        w_past = Signal()
        w = Signal(WORD_BITS)
        b_valid = Signal()
        b = Signal(Decoded)
        to = Signal(len(Unit))  # where the word in B goes, if it goes anywhere
        fetching = Signal()  # before it a page is fetched
        advance_a, advance_w, advance_b, taken = Signal(), Signal(), Signal(), Signal()
        available = Signal()
        m.submodules.decoder = decoder = Decoder(config)
        m.d.comb += [
            advance_b.eq(~b_valid | taken),
            advance_w.eq(~w_valid | advance_b),
            advance_a.eq(~(a_valid & s_valid)),
            available.eq(active & (past_end | (ahead != turned) | self.fetched)),
            turns.eq(advance_a & available & ~past_end & index_last),
            read.en.eq(advance_a & available),
            read.addr.eq(Cat(index, reading[0] ^ self.program[page_bits]) >> len(select)),
            decoder.word.eq(w),
        ]
        with m.If(advance_a):
            m.d.sync += [
                a_valid.eq(available),
                a_first.eq((index == 0) & ~past_end),
                a_past.eq(past_end),
                select.eq(index[: len(select)]),
            ]
            with m.If(available & ~past_end):
                m.d.sync += [index.eq(index + 1), index_last.eq(index == PAGE_WORDS - 2)]
        with m.If(turns):
            m.d.sync += [reading.eq(reading + 1), past_end.eq(at_last)]
        m.d.sync += [turned.eq(turns), ahead.eq(ahead + self.fetched - turned)]
        word = read.data.word_select(select, WORD_BITS)
        m.d.sync += s_valid.eq(~advance_w & (s_valid | a_valid))
        with m.If(~s_valid):
            m.d.sync += [s_first.eq(a_first), s_past.eq(a_past), s.eq(word)]
        with m.If(advance_w):
            m.d.sync += [
                w_valid.eq(s_valid | a_valid),
                w_first.eq(Mux(s_valid, s_first, a_first)),
                w_past.eq(Mux(s_valid, s_past, a_past)),
                w.eq(Mux(s_valid, s, word)),
            ]
        with m.If(advance_b):
            goes = w_valid & ~w_past & ~decoder.decoded.end & ~decoder.decoded.bad
            m.d.sync += [
                b_valid.eq(w_valid),
                b.eq(decoder.decoded),
                b.bad.eq(decoder.decoded.bad | w_past),
                b.past.eq(w_past),
                to.eq(Cat(goes & (decoder.decoded.unit == u) for u in Unit)),
                fetching.eq(w_valid & w_first & more),
            ]

        # The parameter that the word in B names, 0 if it names none.
        offset = Signal(32)
        if config.parameters:
            with m.If(advance_b):
                m.d.sync += offset.eq(0)
                with m.If(decoder.decoded.kind == EntryKind.CFG), m.Switch(w[CFG_PARAM.low :][: CFG_PARAM.width]):
                    for n in range(config.parameters):
                        with m.Case(n + 1):
                            m.d.sync += offset.eq(self.parameters[n])

        # Actions.
        dispatched = [Signal(32, name=f"dispatched_{unit.name.lower()}") for unit in Unit]
        pc = Signal(32)
        pending = Signal(32)  # of the unit that a WAIT names
        named = [dispatched[u] & b.waits[u].replicate(32) for u in Unit]
        m.d.comb += pending.eq((named[0] | named[1]) | (named[2] | named[3]))
        entry = Signal(Entry)
        pushes, ready, going = Signal(len(Unit)), Signal(len(Unit)), Signal()
        m.d.comb += [
            going.eq(active & ~self.halt),
            pushes.eq(Mux(fetching, 1 << Unit.LOAD, to) & going.replicate(len(Unit))),
            entry.kind.eq(b.kind),
            entry.code.eq(b.code),
            entry.waits.eq(b.waits),
            entry.pc.eq(pc),
        ]
        # A value and its parameter, the difference of a WAIT, or the address of a fetch: all by one adder.
        base, amount, subtracts = Signal(32), Signal(32), Signal()
        m.d.comb += [
            subtracts.eq((b.kind == EntryKind.WAIT) & ~fetching),
            base.eq(Mux(fetching, address, pending | offset if config.parameters else pending)),
            amount.eq((b.value ^ subtracts.replicate(32)) & ~fetching.replicate(32)),
            entry.value.eq((Cat(Const(1, 1), base) + Cat(subtracts, amount))[1:]),
        ]
        with m.If(fetching):
            m.d.comb += [
                entry.kind.eq(EntryKind.FETCH),
                entry.code.eq(0),
                entry.waits.eq(0),
                entry.pc.eq(to_fetch),
            ]
        for u in Unit:
            m.d.comb += [
                self.queues[u].valid.eq(pushes[u]),
                self.queues[u].payload.eq(entry),
                ready[u].eq(self.queues[u].ready),
            ]

        fetches = Signal()
        m.d.comb += [
            fetches.eq(fetching & going & ready[Unit.LOAD]),
            taken.eq(~fetching & going & (to & ready).any()),
        ]
        with m.If(fetches):
            m.d.sync += [to_fetch.eq(to_fetch + 1), address.eq(address + PAGE_BYTES), fetching.eq(0)]
        with m.If(taken):
            m.d.sync += pc.eq(pc + 1)
        for u in Unit:
            with m.If(taken & to[u] & (b.kind == EntryKind.OP)):
                m.d.sync += dispatched[u].eq(dispatched[u] + 1)
        with m.If(going & ~fetching & b_valid):
            with m.If(b.bad):
                m.d.comb += self.failed.eq(1)
            with m.Elif(b.end):
                m.d.sync += [active.eq(0), self.stopped.eq(1)]
        cause = Signal(4)
        with m.If(b.past):
            m.d.comb += cause.eq(Cause.NO_END)
        with m.Else():
            m.d.comb += cause.eq(first_cause(b))
        stops = b_valid & (b.end | b.bad)
        moves = available & advance_a | a_valid & ~s_valid | s_valid & advance_w | w_valid & advance_b
        moves |= fetches | taken | ~fetching & stops
        m.d.comb += [
            self.fault.cause.eq(cause),
            self.fault.pc.eq(pc),
            self.stirs.eq(going & moves),
        ]

        with m.If(self.start):
            m.d.sync += [
                active.eq(1),
                self.stopped.eq(0),
                a_valid.eq(self.pages == 0),  # nothing to wait for: NO_END
                a_past.eq(self.pages == 0),
                past_end.eq(self.pages == 0),
                fetching.eq(self.pages != 0),
                to.eq(0),
                address.eq(self.program),
                s_valid.eq(0),
                w_valid.eq(0),
                b_valid.eq(0),
                reading.eq(0),
                index.eq(0),
                index_last.eq(0),
                to_fetch.eq(0),
                ahead.eq(0),
                turned.eq(0),
                pc.eq(0),
                *(count.eq(0) for count in dispatched),
            ]
        return m
