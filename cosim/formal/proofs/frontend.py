"""Proof of the front end: counts of what it dispatches, targets of waits, order of fetches and words."""

from amaranth import Cat, Const, Module, Mux, Signal, Value
from amaranth.hdl import Assert, Assume, Cover
from amaranth.lib import data, wiring
from amaranth.lib.wiring import In
from amaranth.utils import exact_log2

from dovetail.cosim.formal.properties import Opened, before
from dovetail.hw.common.ports import EntryKind
from dovetail.hw.dma.load import PageWrite
from dovetail.hw.sequencer.frontend import MANY, PAGES_BITS, Decoded, Frontend, parameter_members
from dovetail.isa.config.resolved import Config
from dovetail.isa.instructions.table import CFG_PARAM, PAGE_BYTES, PAGE_WORDS, Unit


class FrontendHarness(wiring.Component):
    """The front end with any program, any memory behind its fetches, and queues that take what they like.

    Parameters
    ----------
    config: the accelerator.
    page_bits: bits of the number of pages.
    """

    def __init__(self, config: Config, *, page_bits: int = PAGES_BITS) -> None:
        self.config = config
        self.page_bits = page_bits
        super().__init__(
            {
                "start": In(1),
                "halt": In(1),
                "program": In(32),
                "pages": In(PAGES_BITS),
                "page": In(PageWrite(config)),
                "fetched": In(1),
                "ready": In(len(Unit)),
                **parameter_members(config),
            }
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        frontend = Frontend(self.config)
        m.submodules.frontend = inner = Opened(frontend)
        wiring.connect(m, wiring.flipped(self.page), frontend.page)
        queues = frontend.queues
        m.d.comb += [
            frontend.start.eq(self.start),
            frontend.halt.eq(self.halt),
            frontend.program.eq(self.program),
            frontend.pages.eq(self.pages),
            frontend.fetched.eq(self.fetched),
            *(queues[unit].ready.eq(self.ready[unit]) for unit in Unit),
        ]
        parameters = [self.parameters[n] for n in range(self.config.parameters)]
        if parameters:
            m.d.comb += frontend.parameters.eq(self.parameters)
        entry = queues[Unit.LOAD].payload  # all queues see the same
        valid = Cat(queues[unit].valid for unit in Unit)
        pushed = Signal()
        m.d.comb += pushed.eq((valid & self.ready).any())

        # What has gone out: operations per unit, words, fetches; fetches that have ended.
        counts = [Signal(32, name=f"count{unit}") for unit in Unit]
        word_bits = exact_log2(PAGE_WORDS)
        words = Signal(PAGES_BITS + word_bits + 1)
        fetches, ended = Signal(PAGES_BITS + 1), Signal(PAGES_BITS + 1)
        fetch = entry.kind == EntryKind.FETCH
        m.d.sync += [
            words.eq(words + (pushed & ~fetch)),
            fetches.eq(fetches + (pushed & fetch)),
            ended.eq(ended + self.fetched),
        ]
        for unit in Unit:
            goes = queues[unit].valid & self.ready[unit] & (entry.kind == EntryKind.OP)
            m.d.sync += counts[unit].eq(counts[unit] + goes)
        with m.If(self.start):
            m.d.sync += [*(count.eq(0) for count in counts), words.eq(0), fetches.eq(0), ended.eq(0)]

        known, started = before(m, 1), before(m, self.start)
        constant = Cat(self.program, self.pages, *parameters)
        same = constant == before(m, constant)
        active = inner["active"]
        m.d.comb += [
            Assume(self.pages >> self.page_bits == 0, f"a program has fewer than 2^{self.page_bits} pages"),
            Assume(self.program[: exact_log2(PAGE_BYTES)] == 0, "PROGRAM is 1 KiB aligned (proof host)"),
            Assume(~known | self.start | same, "PROGRAM, PAGES and PARAM do not change during a run (proof host)"),
            Assume(~self.start | ~active | self.halt, "a start comes outside a run only (proof run)"),
            Assume(~started | self.ready.all() & ~self.halt, "a run begins with empty queues and without a fault"),
            Assume(~self.fetched | (ended != fetches), "a fetch ends once, after it was asked for (proof control)"),
            Assume(~self.fetched | ~self.start, "no fetch is under way when a run begins"),
        ]

        offers = before(m, Mux(self.start, 0, valid & ~self.ready))
        offered = before(m, entry.as_value())
        m.d.comb += [
            Assert((valid & (valid - 1)[: len(valid)]) == 0, "at most one queue is offered an entry"),
            Assert(~self.halt | ~valid.any(), "nothing is dispatched after a fault"),
            Assert(self.halt | ((offers & ~valid) == 0), "what is offered to a queue stays until it is taken"),
            Assert(self.halt | ~offers.any() | (entry.as_value() == offered), "and does not change"),
        ]

        b = data.View(Decoded, inner["b"])
        # The parameter of the word in B, from the word itself.
        number = Signal(CFG_PARAM.width)
        with m.If(~inner["b_valid"] | pushed & ~fetch):
            m.d.sync += number.eq(inner["w"][CFG_PARAM.low :][: CFG_PARAM.width])
        added: Value = Const(0, 32)
        for n, parameter in enumerate(parameters, 1):
            added = Mux(number == n, parameter, added)
        with m.If(valid.any() & (entry.kind == EntryKind.CFG)):
            m.d.comb += Assert(entry.value == (b.value + added)[:32], "a register's value is the word's plus its PARAM")
            if parameters:
                m.d.comb += Cover(added.any() & b.value.any(), "a parameter is added")
        if parameters:
            named = Mux(b.kind == EntryKind.CFG, added, 0)
            here = inner["b_valid"] & ~self.start  # with a start the host has other ones
            m.d.comb += Assert(~here | (inner["offset"] == named), "invariant: the parameter in B")
        on = Signal(32)
        for unit in Unit:
            with m.If(entry.waits[unit]):
                m.d.comb += on.eq(counts[unit])
        with m.If(valid.any() & (entry.kind == EntryKind.WAIT)):
            m.d.comb += [
                Assert(
                    entry.value.as_signed() <= on.as_signed(),
                    "a wait's target is at most what has been dispatched: it will be released",
                ),
                Assert(entry.value == (on - b.value)[:32], "the target is dispatched - pending"),
                Assert(entry.value.as_signed() >= -MANY, "and not far below 0"),
            ]
        with m.If(valid.any() & fetch):
            m.d.comb += [
                Assert(valid == 1 << Unit.LOAD, "fetches go to LOAD"),
                Assert((entry.pc == fetches) & (fetches < self.pages), "pages are fetched in order, each once"),
                Assert(entry.value == (self.program + fetches * PAGE_BYTES)[:32], "from their address"),
                Assert(
                    (fetches < 2) | (inner["reading"] >= fetches - 1),
                    "a page buffer is refilled only after its page has been read",
                ),
                Cover(fetches == 1, "the second page is fetched"),
            ]
        with m.If(valid.any() & ~fetch):
            m.d.comb += [
                Assert(entry.pc == words, "words are dispatched in order, each once"),
                Assert(words >> word_bits < ended, "a word is dispatched only after its page's fetch has ended"),
            ]
        for unit in Unit:
            m.d.comb += Assert(inner[f"dispatched_{unit.name.lower()}"] == counts[unit], "dispatched counts operations")
        m.d.comb += [
            *(Assert(count <= words, "no more operations than words") for count in counts),
            Assert(ended <= fetches, "invariant: fetches end after their begin"),
        ]

        # What the pipeline's registers hold.
        fetching = inner["fetching"]
        a, beside, w = inner["a_valid"], inner["s_valid"], inner["w_valid"]
        a_past, s_past, w_past = inner["a_past"], inner["s_past"], inner["w_past"]
        b_valid = inner["b_valid"]
        opening = fetching & ~b_valid
        in_a, in_s, in_w, in_b = a & ~a_past, beside & ~s_past, w & ~w_past, b_valid & ~b.past
        at = Cat(inner["index"], inner["reading"])
        at_w, at_s, at_a = words + in_b, words + in_b + in_w, words + in_b + in_w + in_s
        last = self.pages << word_bits
        none = self.pages == 0
        first = words[:word_bits] == 0
        to_come = first & ~(in_b & ~fetching)  # the next page's fetch comes with the next word

        def begins(where: Value) -> Value:
            return where[:word_bits] == 0

        m.d.comb += [
            Assert(inner["to_fetch"] == fetches, "invariant: fetches"),
            Assert(
                (inner["ahead"] - inner["turned"])[:2] == (ended - inner["reading"])[:2], "invariant: pages to be read"
            ),
            Assert(inner["index_last"] == inner["index"].all(), "invariant: index_last"),
            Assert(inner["pc"] == words, "invariant: pc"),
            Assert(~b_valid | (b.kind != EntryKind.FETCH), "invariant: no word is a fetch"),
            Assert(~beside | w & b_valid, "invariant: W and B hold words before the one in S"),
            Assert(~opening | active & (fetches == 0) & (words == 0) & ~b_valid & ~w & ~in_a, "invariant: opening"),
            Assert(opening == (started & ~none), "invariant: a run opens"),
            Assert(
                inner["to"] == Mux(b_valid & ~b.bad & ~b.end, 1 << b.unit, 0)[: len(Unit)], "invariant: where B goes"
            ),
            Assert((b.kind == EntryKind.WAIT) | (b.waits == 0), "invariant: only waits wait"),
            Assert((b.waits & (b.waits - 1)[: len(b.waits)]) == 0, "invariant: for one unit"),
            Assert((b.kind != EntryKind.WAIT) | (b.value <= MANY), "invariant: pending"),
        ]
        fetched_now = before(m, pushed & fetch)
        stale = fetched_now | started  # `more` is what it was
        with m.If(active & ~self.start):
            m.d.comb += [
                Assert(words <= self.pages << word_bits, "no more words than the pages have: no count overflows"),
                Assert(fetches <= self.pages, "no more fetches than pages"),
                Assert(at == words + in_b + in_w + in_s + in_a, "invariant: words on their way"),
                Assert(at <= ended << word_bits, "invariant: words of pages that are here"),
                Assert(~in_a | (inner["a_first"] == begins(at_a)), "invariant: first word in A"),
                Assert(~in_s | (inner["s_first"] == begins(at_s)), "invariant: first word in S"),
                Assert(~in_w | (inner["w_first"] == begins(at_w)), "invariant: first word in W"),
                Assert(~fetching | opening | in_b & begins(words), "invariant: first word in B"),
                Assert(~fetching | (fetches != self.pages), "invariant: a page to fetch"),
                Assert(inner["address"] == (self.program + fetches * PAGE_BYTES)[:32], "invariant: its address"),
                Assert(stale | (inner["more"] == (fetches != self.pages)), "invariant: more"),
                Assert(~fetched_now | in_b & first | ~b_valid & ~w & (words == 0), "invariant: after a fetch"),
                Assert(~started | ~b_valid & ~w, "invariant: after a start"),
                Assert(inner["past_end"] == (inner["reading"] == self.pages), "invariant: past_end"),
                Assert(
                    (inner["index"] == 0) | (inner["at_last"] == (inner["reading"] + 1 == self.pages)),
                    "invariant: at_last",
                ),
                Assert(ended - inner["reading"] <= 2, "invariant: two buffers"),
                Assert(
                    ~(b_valid & b.past) | ~in_w & ~in_s & ~in_a & (words == last) & ~fetching & b.bad,
                    "invariant: past in B",
                ),
                Assert(
                    ~(w & w_past) | ~in_s & ~in_a & (at_w == last) & (~inner["w_first"] | none), "invariant: past in W"
                ),
                Assert(
                    ~(beside & s_past) | ~in_a & (at_s == last) & (~inner["s_first"] | none), "invariant: past in S"
                ),
                Assert(~(a & a_past) | (at_a == last) & (~inner["a_first"] | none), "invariant: past in A"),
                Assert(
                    opening
                    | (
                        fetches
                        == Mux(
                            (words >> word_bits) + 2 - to_come < self.pages,
                            (words >> word_bits) + 2 - to_come,
                            self.pages,
                        )
                    ),
                    "invariant: fetches run a page ahead",
                ),
            ]
        return m
