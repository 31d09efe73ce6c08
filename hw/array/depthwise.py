"""DEPTH_CONV: words of an input row slide past the multipliers, kernel columns on the input lanes, sets of channels on
the pixel lanes."""

from amaranth import Cat, Const, Module, Mux, Signal, Value
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out
from amaranth.utils import exact_log2

from dovetail.hw.array.passing import pixel_bits
from dovetail.hw.array.registers import MULTIPLIERS, WIDE, ArrayOperation, most_visits
from dovetail.hw.common.walk import PARTS, Position
from dovetail.isa.config.resolved import COLUMN_TAPS, Config
from dovetail.isa.instructions.checks import MAX_SLIDE
from dovetail.isa.timing.depthwise import WORDS_OF_COLUMNS


class WordPass(wiring.Component):
    """Counts the pixels in a window, and the words that each of them reads.

    A pixel has a slot of time: as many cycles as it reads words, and no fewer than its sets take visits.

    Parameters
    ----------
    config
        The accelerator.

    Members
    -------
    operation
        The operation.
    begin
        Pulse: the first slot begins in the next cycle.
    last
        With ``begin``: number of the window's last pixel.
    pixel
        Where the present pixel is in the input: the first one of the window at first, later see ``moves``.
    moves, at_last
        First cycle of a slot: go to the next pixel; this one is the window's last.
    reads, word
        A word is read, and where it is, as ``pixel`` says.
    token, first
        It is the last cycle of a slot; the slot is the window's first.
    passed
        The window is in its last cycle with a slot, or past it. From the second cycle on.
    """

    def __init__(self, config: Config) -> None:
        self.config = config
        super().__init__(
            {
                "operation": In(ArrayOperation(config)),
                "begin": In(1),
                "last": In(pixel_bits(config)),
                "pixel": In(Position(config)),
                "moves": Out(1),
                "at_last": Out(1),
                "reads": Out(1),
                "word": Out(Position(config)),
                "token": Out(1),
                "first": Out(1),
                "passed": Out(1),
            }
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        config, operation, regs = self.config, self.operation, self.operation.regs
        bits = max(config.ic_lanes, MAX_SLIDE, most_visits(config)).bit_length()

        # Constants of the operation, long before the first slot: words of a slot, and its last cycle.
        words, finals = ([Signal(bits, name=f"{name}_{n}") for n in ("onward", "first")] for name in ("words", "final"))
        taps = operation.taps
        beside = operation.columns.any()
        m.d.sync += [
            words[0].eq(Mux(operation.slides, regs.MODE.slide, taps)),
            words[1].eq(Mux(beside, WORDS_OF_COLUMNS, taps)),
        ]
        m.d.sync += [
            final.eq(Mux(count > operation.visits, count, operation.visits) - 1)
            for final, count in zip(finals, words, strict=True)
        ]

        busy, first = Signal(), Signal()
        index, following = Signal(bits), Signal(bits)
        pixel, last = Signal.like(self.last), Signal.like(self.last)
        at_last, done, done_now = self.at_last, Signal(), Signal()  # at the last pixel; past it
        final, final_next = Signal(bits), Signal(bits)
        m.d.comb += [
            final.eq(Mux(first, finals[1], finals[0])),
            self.reads.eq(busy & (index < Mux(first, words[1], words[0]))),
            self.moves.eq(busy & ~done & (index == 0)),
            done_now.eq(done | self.moves & at_last),
            self.token.eq(busy & (index == final)),
            self.first.eq(first),
            following.eq(Mux(self.token, 0, index + 1)),
            final_next.eq(Mux(self.token, finals[0], final)),
        ]
        with m.If(operation.load):
            m.d.sync += busy.eq(0)
        with m.Elif(self.begin):
            m.d.sync += [
                busy.eq(1),
                first.eq(1),
                index.eq(0),
                pixel.eq(0),
                last.eq(self.last),
                at_last.eq(self.last == 0),
                done.eq(0),
            ]
        with m.Elif(busy):
            m.d.sync += [index.eq(following), done.eq(done_now)]
            with m.If(self.moves):
                m.d.sync += [pixel.eq(pixel + 1), at_last.eq(pixel + 1 == last)]
            with m.If(self.token):
                m.d.sync += [first.eq(0), busy.eq(~done_now)]
        ends_next = (following == 0) & Mux(self.moves, pixel + 1 == last, at_last)
        m.d.sync += self.passed.eq(
            ~busy | (self.token & done_now) | ((following == final_next) & (done_now | ends_next))
        )

        # Words: the first of a window, or of a slot that does not slide, is where the pixel is.
        fresh = (index == 0) & (first | ~operation.slides)
        before = Signal(Position(config), reset_less=True)
        m.d.comb += self.word.eq(Mux(fresh, self.pixel.as_value(), before.as_value()))
        with m.If(self.reads):
            m.d.sync += [before[part].eq(self.word[part] + (0 if part == "row" else regs.KX_STEP)) for part in PARTS]
        return m


class SlidingWords(wiring.Component):
    """Words as they come, and what multipliers see of them.

    Parameters
    ----------
    config
        The accelerator.

    Members
    -------
    extra
        The channel multiplier less one.
    columns
        Columns that a word has, as a power of two, or WIDE.
    comes, bytes
        A word comes, and its bytes.
    token
        The words of a slot have come.
    visit
        The channels that are seen: one cycle before ``seen``, and at least two after ``token``.
    seen
        Per word, the latest first, a byte per channel of a visit.
    """

    def __init__(self, config: Config) -> None:
        self.config = config
        self.bytes_ = config.depthwise_sets * config.oc_lanes
        super().__init__(
            {
                "extra": In(3),
                "columns": In(2),
                "comes": In(1),
                "bytes": In(8 * self.bytes_),
                "token": In(1),
                "visit": In(range(max(most_visits(config), 2))),
                "seen": Out(8 * config.acc_lanes * config.ic_lanes),
            }
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        config, width = self.config, 8 * self.bytes_
        count = config.ic_lanes
        # The latest word is there as it came; its channels are spread as it moves on.
        latest = Signal(width, reset_less=True)
        chain = Signal(width * max(count - 1, 1), reset_less=True)
        words = Signal(width * count, reset_less=True)
        spread = Signal(width)
        m.d.comb += spread.eq(self._spread(m, latest))
        with m.If(self.comes):
            m.d.sync += [latest.eq(self.bytes), chain.eq(Cat(spread, chain))]
        with m.If(self.token):
            m.d.sync += words.eq(Cat(spread, chain))
        part = 8 * config.acc_lanes
        visits = most_visits(config)
        with m.Switch(self.visit):
            for n in range(visits):
                with m.Case(n) if n + 1 < visits else m.Default():
                    seen = (words.word_select(slot, width)[part * n :][:part] for slot in range(count))
                    m.d.sync += self.seen.eq(Cat(Cat(channels, Const(0, part - len(channels))) for channels in seen))
        if config.word_columns > 1:
            columns = Signal.like(self.columns)
            m.d.sync += columns.eq(self.columns)
            with m.Switch(columns):
                for power in range(1, exact_log2(config.word_columns) + 1):
                    with m.Case(power):
                        m.d.sync += self.seen.eq(self._columns(words, part >> power))
                if config.has_wide_words:
                    with m.Case(WIDE):
                        m.d.sync += self.seen.eq(self._columns(words, part, 2 * part))
        return m

    def _columns(self, words: Value, column: int, word: int = 0) -> Value:
        """What is seen where columns of so many bits lie beside each other in words, of which the latest is the first:
        a tap is a column behind the one before it. ``word``: bits of a word, if not those of a visit."""
        part, width = 8 * self.config.acc_lanes, 8 * self.bytes_
        word = word or part
        row = Cat(words[width:][:word], words[:word])
        return Cat(row[tap * column :][:part] for tap in reversed(range(COLUMN_TAPS)))

    def _spread(self, m: Module, word: Value) -> Value:
        """The bytes of a word, each as often as it has output channels."""
        lanes = self.config.oc_lanes
        extra = Signal.like(self.extra)
        m.d.sync += extra.eq(self.extra)
        bytes_: list[Value] = []
        for n in range(lanes):
            byte = Signal(8, name=f"spread_{n}")
            m.d.comb += byte.eq(word.word_select(n, 8))
            with m.Switch(extra):
                for multiplier in range(2, lanes + 1)[: MULTIPLIERS - 1]:
                    if n and n < lanes - lanes % multiplier:
                        with m.Case(multiplier - 1):
                            m.d.comb += byte.eq(word.word_select(n // multiplier, 8))
            bytes_.append(byte)
        return Cat(*bytes_, word[8 * lanes :])


def tap_operands(config: Config, seen: Value, *, taps: Value) -> list[Value]:
    """Per multiplier (pixel lane, input lane, output lane) the byte that it takes. ``taps``: a bit per input lane that
    has a tap; zero on others."""
    operands: list[Value] = []
    for pixel in range(config.pixel_lanes):
        for lane in range(config.ic_lanes):
            word = seen.word_select(lane * config.pixel_lanes + pixel, 8 * config.oc_lanes)
            word = Mux(taps[lane], word, Const(0, len(word))) if lane else word
            operands += [word.word_select(n, 8) for n in range(config.oc_lanes)]
    return operands
