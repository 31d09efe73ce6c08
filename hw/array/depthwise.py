"""DEPTH_CONV: words of an input row slide past the multipliers, kernel columns on the input lanes, sets of channels on
the pixel lanes."""

from collections.abc import Sequence

from amaranth import Cat, Const, Module, Mux, Signal, Value
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out
from amaranth.utils import exact_log2

from dovetail.hw.array.operands import extended
from dovetail.hw.array.passing import pixel_bits
from dovetail.hw.array.registers import MULTIPLIERS, WIDE, ArrayOperation, most_visits
from dovetail.hw.common.walk import PARTS, Position
from dovetail.hw.memory.cells import block_ram, read_row
from dovetail.isa.config.resolved import COLUMN_TAPS, ROW_KERNELS, ROW_STEPS, Config
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
        First cycle of a slot: go to the next pixel; this one is the window's last. Behind it there is none.
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
        bits = max(config.ic_lanes, MAX_SLIDE, WORDS_OF_COLUMNS, most_visits(config)).bit_length()

        # Constants of the operation, long before the first slot: words of a slot, and its last cycle.
        words, finals = ([Signal(bits, name=f"{name}_{n}") for n in ("onward", "first")] for name in ("words", "final"))
        m.d.sync += [
            words[0].eq(Mux(operation.slides, regs.MODE.slide, operation.words)),
            words[1].eq(operation.words),
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


def words_of_row(config: Config, row: int) -> int:
    """Words that are seen of a line, or of the ``row``-th line before it, at most."""
    if not row:
        return config.ic_lanes
    return max(config.row_kernels(row + 1))


class RowBuffer(wiring.Component):
    """The words of a line, for the lines after it: those of the lines before come with the words in the same place.

    Every line has as many words. Those of its first step are in one half of the memory, those of another in the other.
    In a chain all are in one half, and those of the steps before come, of whichever line.

    Parameters
    ----------
    config
        The accelerator, with `kernel_rows` of 2 or more.

    Members
    -------
    coming
        A word comes in the next cycle.
    begins, first
        With ``coming``: it is the first one of a step; the step is the line's first.
    chain
        The steps are a chain. Constant while words come.
    bytes
        The word, when it comes.
    before
        With it, the words in its place in the lines, or steps, before, the latest first.
    """

    def __init__(self, config: Config) -> None:
        self.config = config
        self.bytes_ = config.depthwise_sets * config.oc_lanes
        super().__init__(
            {
                "coming": In(1),
                "begins": In(1),
                "first": In(1),
                "chain": In(1),
                "bytes": In(8 * self.bytes_),
                "before": Out(8 * self.bytes_ * (config.kernel_rows - 1)),
            }
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        config = self.config
        m.submodules.cells = cells = block_ram(width=len(self.before), depth=ROW_STEPS * config.line_words)
        write = cells.write_port()
        word = Signal(range(config.line_words))  # of a step, the next one
        half = Signal()
        at, in_half = Signal.like(word, name="at"), Signal.like(half, name="in_half")  # of the word that is coming
        m.d.comb += [at.eq(Mux(self.begins, 0, word)), in_half.eq(Mux(self.begins, ~(self.first | self.chain), half))]
        comes = Signal()
        write_addr = Signal.like(write.addr, name="write_addr")
        m.d.sync += comes.eq(self.coming)
        with m.If(self.coming):
            m.d.sync += [word.eq(at + 1), half.eq(in_half), write_addr.eq(Cat(at, in_half))]
        m.d.comb += [
            self.before.eq(read_row(m, cells, name="row", addr=Cat(at, in_half), en=self.coming, platform=platform)),
            write.en.eq(comes),
            write.addr.eq(write_addr),
            write.data.eq(Cat(self.bytes, self.before)),
        ]
        return m


class SlidingWords(wiring.Component):
    """Words as they come, and what multipliers see of them.

    Parameters
    ----------
    config
        The accelerator.
    byte
        Bits that a byte has once it has come, sign-extended. The wide operands of a simulation are quicker made of the
        few bytes that come than of those of all multipliers.

    Members
    -------
    extra
        The channel multiplier less one.
    columns
        Columns that a word has, as a power of two, or WIDE.
    comes, bytes
        A word comes, and its bytes.
    before
        With a word, those in its place in the lines before, the latest first.
    rows_apart
        Kernel columns, if lines before are seen, too: so many input lanes for each; 0 if they are not. Those have no
        channel multiplier.
    token
        The words of a slot have come.
    visit
        The channels that are seen: one cycle before ``seen``, and at least two after ``token``.
    seen
        Per word, the latest first, a byte per channel of a visit; then those of the lines before.
    """

    def __init__(self, config: Config, *, byte: int = 8) -> None:
        self.config = config
        self.byte = byte
        self.bytes_ = config.depthwise_sets * config.oc_lanes
        super().__init__(
            {
                "extra": In(3),
                "columns": In(2),
                "comes": In(1),
                "bytes": In(8 * self.bytes_),
                "before": In(8 * self.bytes_ * (config.kernel_rows - 1)),
                "rows_apart": In(range(ROW_KERNELS[-1] + 1)),
                "token": In(1),
                "visit": In(range(max(most_visits(config), 2))),
                "seen": Out(byte * config.acc_lanes * config.ic_lanes),
            }
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        config, width = self.config, self.byte * self.bytes_
        count = config.ic_lanes
        # The latest word is there as it came; its channels are spread as it moves on.
        latest = Signal(width, reset_less=True)
        chain = Signal(width * max(count - 1, 1), reset_less=True)
        words = Signal(width * count, reset_less=True)
        spread = Signal(width)
        m.d.comb += spread.eq(self._spread(m, latest))
        with m.If(self.comes):
            m.d.sync += [latest.eq(self._extended(self.bytes)), chain.eq(Cat(spread, chain))]
        with m.If(self.token):
            m.d.sync += words.eq(Cat(spread, chain))
        lines: list[Value] = [words]
        for row in range(1, config.kernel_rows):
            others = words_of_row(config, row) - 1
            came = Signal(width * (others + 1), name=f"came_{row}", reset_less=True)
            line = Signal.like(came, name=f"line_{row}")
            with m.If(self.comes):
                before = self._extended(self.before.word_select(row - 1, 8 * self.bytes_))
                m.d.sync += came.eq(Cat(before, came[: width * others]))
            with m.If(self.token):
                m.d.sync += line.eq(came)
            lines.append(line)
        part = self.byte * config.acc_lanes
        visits = most_visits(config)
        with m.Switch(self.visit):
            for n in range(visits):
                with m.Case(n) if n + 1 < visits else m.Default():
                    seen = (self._lane(lines, lane)[part * n :][:part] for lane in range(count))
                    m.d.sync += self.seen.eq(Cat(Cat(channels, Const(0, part - len(channels))) for channels in seen))
        if config.word_columns > 1:
            columns = Signal.like(self.columns)
            m.d.sync += columns.eq(self.columns)
            with m.Switch(columns):
                for power in range(1, exact_log2(config.word_columns) + 1):
                    with m.Case(power):
                        m.d.sync += self.seen.eq(Cat(self._columns(line, part >> power) for line in lines))
                if config.has_wide_words:
                    with m.Case(WIDE):
                        m.d.sync += self.seen.eq(Cat(self._columns(line, part, 2 * part) for line in lines))
        return m

    def _extended(self, word: Value) -> Value:
        """A word as it comes, in bytes of ``byte`` bits."""
        if self.byte == 8:
            return word
        return Cat(extended(word, n, self.byte) for n in range(self.bytes_))

    def _lane(self, lines: Sequence[Value], lane: int) -> Value:
        """The word whose tap is on an input lane: of one line, or of several so many lanes apart."""
        width = self.byte * self.bytes_
        word = lines[0].word_select(lane, width)
        for columns in ROW_KERNELS:
            row, slot = divmod(lane, columns)
            if 0 < row < len(lines) and columns in self.config.row_kernels(row + 1):
                word = Mux(self.rows_apart == columns, lines[row].word_select(slot, width), word)
        return word

    def _columns(self, words: Value, column: int, word: int = 0) -> Value:
        """What is seen where columns of so many bits lie beside each other in words, of which the latest is the first:
        a tap is a column behind the one before it. ``word``: bits of a word, if not those of a visit."""
        part, width = self.byte * self.config.acc_lanes, self.byte * self.bytes_
        word = word or part
        row = Cat(words[width:][:word], words[:word])
        return Cat(row[tap * column :][:part] for tap in reversed(range(COLUMN_TAPS)))

    def _spread(self, m: Module, word: Value) -> Value:
        """The bytes of a word, each as often as it has output channels."""
        lanes, bits = self.config.oc_lanes, self.byte
        extra = Signal.like(self.extra)
        m.d.sync += extra.eq(self.extra)
        bytes_: list[Value] = []
        for n in range(lanes):
            byte = Signal(bits, name=f"spread_{n}")
            m.d.comb += byte.eq(word.word_select(n, bits))
            with m.Switch(extra):
                for multiplier in range(2, lanes + 1)[: MULTIPLIERS - 1]:
                    if n and n < lanes - lanes % multiplier:
                        with m.Case(multiplier - 1):
                            m.d.comb += byte.eq(word.word_select(n // multiplier, bits))
            bytes_.append(byte)
        return Cat(*bytes_, word[bits * lanes :])


def tap_operands(config: Config, seen: Value, *, taps: Value) -> list[Value]:
    """Per multiplier (pixel lane, input lane, output lane) the byte that it takes. ``taps``: a bit per input lane that
    has a tap; zero on others."""
    byte = len(seen) // (config.acc_lanes * config.ic_lanes)
    operands: list[Value] = []
    for pixel in range(config.pixel_lanes):
        for lane in range(config.ic_lanes):
            word = seen.word_select(lane * config.pixel_lanes + pixel, byte * config.oc_lanes)
            word = Mux(taps[lane], word, Const(0, len(word))) if lane else word
            operands += [word.word_select(n, byte) for n in range(config.oc_lanes)]
    return operands
