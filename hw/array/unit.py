"""The array unit: CONV, CONV_RELU, DEPTH_CONV and MAT_MUL."""

from collections.abc import Sequence

from amaranth import Cat, Const, Module, Mux, Signal, Value
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out
from amaranth.utils import exact_log2

from dovetail.hw.array.depthwise import RowBuffer, SlidingWords, tap_operands
from dovetail.hw.array.drain import Drain
from dovetail.hw.array.loops import ArrayLoops, Load, Step
from dovetail.hw.array.multiply_accumulate import SUM, Accumulator, MultiplierArray
from dovetail.hw.array.operands import OPERAND, WIDE_OPERAND, difference, extended
from dovetail.hw.array.reads import WindowReads
from dovetail.hw.array.registers import ArrayOperation, ArrayRegisters, most_visits
from dovetail.hw.array.weights import ArrayWeights
from dovetail.hw.common.clocking import delayed, gate_clock
from dovetail.hw.common.ports import Check, Core, SramRead, SramWrite, part
from dovetail.isa.config.given import MAX_STRIPE
from dovetail.isa.config.resolved import Config
from dovetail.isa.timing.array import gather, to_accumulator

ROWS = 2 * MAX_STRIPE
"""Rows of accumulators, of all buffers."""


class ArrayCore(wiring.Component):
    """Core of the array unit.

    Registers and checks; the loops; in lockstep with it the reads of inputs and weights, the multipliers and the
    accumulators; and the drain, on its own. Nothing stalls in the pipeline.

    Parameters
    ----------
    config
        The accelerator.
    simulation
        For Verilator: blocks that rest have gated clocks (:mod:`dovetail.hw.common.clocking`), operands are wider.

    Members
    -------
    core
        Border to unit control.
    input
        Read port for activations and old int32 values.
    weights
        Read port for the weight stream, whole words inside its region, and for the matrix.
    streams
        Banks that ``weights`` reads, from the cycle on in which the operation may go; ``input`` reads others.
    output
        Write port.

    Latency
    -------
    As in ``isa.timing.array``.
    """

    def __init__(self, config: Config, *, simulation: bool = False) -> None:
        self.config = config
        self.simulation = simulation
        self.operand = WIDE_OPERAND if simulation else OPERAND
        super().__init__(
            {
                "core": In(Core(config)),
                "input": Out(SramRead(config)),
                "weights": Out(SramRead(config)),
                "streams": Out(config.banks),
                "output": Out(SramWrite(config)),
            }
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        config, core = self.config, self.core
        operand = self.operand
        registers, weights = ArrayRegisters(config), ArrayWeights(config, operand=operand)
        drain = Drain(config, simulation=self.simulation)
        for name, block, awake in (
            ("registers", registers, registers.awake),
            ("weights", weights, weights.awake),
            ("drain", drain, drain.awake),
        ):
            m.submodules[name] = gate_clock(m, block, awake=awake, name=f"array_{name}", simulation=self.simulation)
        m.submodules.loops = loops = ArrayLoops(config, simulation=self.simulation)
        m.submodules.window = window = WindowReads(config)
        m.submodules.multipliers = multipliers = MultiplierArray(config, operand=operand)
        m.submodules.accumulator = accumulator = Accumulator(config, rows=ROWS)
        operation, regs = registers.operation, registers.operation.regs
        m.d.comb += [
            core.done.eq(drain.done),
            self.streams.eq(registers.streams),
            loops.go.eq(core.go),
            loops.freed.eq(drain.freed),
            loops.settled.eq(drain.settled),
            window.regs.eq(regs),
            weights.record_row.eq(drain.record_row),
            weights.drains.eq(drain.awake),
            drain.stripes.eq(loops.stripes),
            drain.records.eq(weights.records),
            drain.accumulators.eq(accumulator.drained),
            accumulator.drain_row.eq(drain.row),
        ]
        wiring.connect(m, registers.operation, loops.operation, weights.operation, drain.operation)
        wiring.connect(m, window.port, wiring.flipped(self.input))
        wiring.connect(m, part(wiring.flipped(core), Check(config)), part(registers, Check(config)))
        wiring.connect(m, weights.port, wiring.flipped(self.weights))
        wiring.connect(m, drain.port, wiring.flipped(self.output))

        # A step on its way: its bytes come at `arrives`, or with pixel lanes those of the first pixel; it begins at
        # `begins`; its sums are there at `summed`. Those of a depthwise convolution follow from its tokens.
        arrives = window.LATENCY
        begins = arrives + gather(config)
        summed = begins + multipliers.LATENCY
        settles = summed - accumulator.TERM + accumulator.VISIBLE
        assert settles == to_accumulator(config)
        step = Step(Signal.like(loops.step.as_value(), name="step"))
        m.d.comb += step.eq(loops.step)
        steps = [Step(value) for value in delayed(m, "steps", step.as_value(), max(begins, arrives + 2))]
        begun = steps[begins]
        if config.depth_conv:
            begun = Step(Signal.like(step.as_value(), name="begun"))
            m.d.comb += begun.eq(
                Mux(operation.depthwise, self._visits(m, steps[arrives + 1], operation), steps[begins])
            )
        late = [Step(value) for value in delayed(m, "late", begun.as_value(), multipliers.LATENCY)]
        now = late[multipliers.OPERANDS - 1]
        m.d.comb += [
            weights.swap.eq(now.swap),
            multipliers.depthwise.eq(operation.depthwise),
            multipliers.weights.eq(weights.operands),
            window.valid.eq(step.reads),
            window.old.eq(step.old),
            window.pixel.eq(loops.pixel),
            window.tap.eq(loops.tap),
        ]
        came = steps[arrives]
        fetches = loops.fetch.as_value()
        if config.pixel_lanes == 1:
            m.d.comb += multipliers.inputs.eq(self._inputs(window, came, operation))
            if config.depth_conv:
                # The weights of a set are in use for some cycles more.
                fetches = Mux(operation.depthwise, delayed(m, "fetch", fetches, 2)[-1], fetches)
                # A register: it enables all weights.
                swap = Signal()
                m.d.sync += swap.eq(Mux(operation.depthwise, steps[arrives + 2].swap, steps[begins].swap))
                m.d.comb += weights.swap.eq(swap)
        else:
            waits = delayed(m, "fetch", fetches, gather(config) - 1)[-1]
            fetches = Mux(operation.depthwise, fetches, waits) if config.depth_conv else waits
            m.d.comb += [
                weights.step.eq(now.valid & ~now.old),
                weights.index.eq(now.index),
                multipliers.inputs.eq(self._gathered(m, window, steps[arrives:], operation)),
            ]
        m.d.comb += weights.fetch.eq(Load(fetches))
        filled = delayed(m, "filled", loops.filled, settles - 1)
        m.d.comb += drain.filled.eq(filled[-1])
        if config.depth_conv:
            after = settles - gather(config)  # and a cycle for each visit
            more = delayed(m, "filled_visits", filled[-1], max(after + most_visits(config) - settles + 1, 1))
            line = [*filled, *more[1:]]
            with m.If(operation.depthwise), m.Switch(operation.visits):
                for n in range(1, most_visits(config) + 1):
                    with m.Case(n):
                        m.d.comb += drain.filled.eq(line[after + n])
            sliding = SlidingWords(config, byte=multipliers.tap)
            m.submodules.sliding = gate_clock(
                m, sliding, awake=operation.depthwise, name="array_sliding", simulation=self.simulation
            )
            comes, taps = Signal(), Signal(config.ic_lanes)
            coming = steps[arrives - 1]
            m.d.sync += [
                comes.eq(coming.reads & ~coming.old & operation.depthwise),
                taps.eq(Cat(lane < operation.taps for lane in range(config.ic_lanes))),
            ]
            if config.kernel_rows > 1:
                several = operation.rows_apart.any()
                m.submodules.rows = rows = gate_clock(
                    m, RowBuffer(config), awake=several, name="array_rows", simulation=self.simulation
                )
                m.d.comb += [
                    rows.coming.eq(coming.reads & several),
                    rows.begins.eq(coming.swap),
                    rows.first.eq(coming.first),
                    rows.chain.eq(regs.MODE.chain),
                    rows.bytes.eq(sliding.bytes),
                    sliding.before.eq(rows.before),
                ]
            m.d.comb += [
                sliding.extra.eq(regs.MODE.extra),
                sliding.columns.eq(operation.columns),
                sliding.comes.eq(comes),
                sliding.bytes.eq(self._coming(window, regs.QUANT.zero_in)),
                sliding.token.eq(steps[arrives + 1].token),
                sliding.visit.eq(begun.index),
                sliding.rows_apart.eq(operation.rows_apart),
                multipliers.taps.eq(Cat(tap_operands(config, sliding.seen, taps=taps))),
            ]

        # Old values, in place of sums.
        group = len(window.old_mask)
        old = Signal(SUM * group)  # zero unless there are old values: anything else would be added to every sum
        olds = [Signal(name="old_now"), Signal(name="old_before")]
        m.d.comb += olds[0].eq(came.valid & came.old)
        m.d.sync += olds[1].eq(olds[0])
        at = steps[arrives + 1]
        with m.If(olds[0] | olds[1]):
            words = (self.input.data.word_select(n, SUM) for n in range(group))
            m.d.sync += old.eq(Cat(Mux(counts, word, 0) for counts, word in zip(window.old_mask, words, strict=True)))
        before = []
        for n in range(config.acc_lanes):
            pixel, lane = divmod(n, config.oc_lanes)
            was = _word(config, at, old, lane)
            before.append(Mux(at.index == pixel, was, 0) if config.pixel_lanes > 1 else was)
        # A single pixel's inputs are zero while old values come, and so are the sums.
        simple = config.pixel_lanes == 1 and not config.depth_conv
        m.d.comb += [
            accumulator.term.eq(multipliers.sums if simple else Mux(olds[1], 0, multipliers.sums)),
            accumulator.old.eq(Cat(before)),
        ]

        # Which accumulators: old values come first, then sums. Chosen a cycle before.
        tap = Step(Signal.like(step.as_value(), name="tap"))
        adds = Signal()
        turn_bits = exact_log2(config.stripe_buffers)
        at_old = arrives - accumulator.TERM
        m.d.comb += [tap.eq(late[multipliers.LATENCY - accumulator.TERM - 1]), adds.eq(tap.valid & ~tap.old)]
        tap_old = steps[at_old]
        with m.If(tap_old.valid & tap_old.old):
            m.d.comb += [tap.eq(tap_old), adds.eq(1)]
        m.d.sync += [
            accumulator.valid.eq(adds),
            accumulator.row.eq(Cat(tap.group[: len(accumulator.row) - turn_bits], tap.turn[:turn_bits])),
            accumulator.first.eq(tap.first),
            accumulator.enters.eq(tap.enters),
            accumulator.leaves.eq(tap.leaves),
        ]
        return m

    def _visits(self, m: Module, token: Step, operation: ArrayOperation) -> Value:
        """The steps of a depthwise convolution: after each ``token`` one per visit, with accumulators of its own."""
        step = Step(Signal.like(token.as_value(), name="visit"))
        last = Signal()
        m.d.comb += last.eq(step.index + 1 == operation.visits)
        m.d.sync += step.swap.eq(token.token & token.enters)
        with m.If(token.token):
            m.d.sync += [
                step.valid.eq(token.valid),
                step.index.eq(0),
                step.first.eq(token.first),
                step.turn.eq(token.turn),
                step.group.eq(Mux(token.enters, 0, step.group + 1)),
            ]
        with m.Elif(step.valid):
            m.d.sync += [
                step.valid.eq(~last),
                step.index.eq(step.index + 1),
                step.group.eq(step.group + ~last),
            ]
        m.d.sync += [step.enters.eq(1), step.leaves.eq(1)]
        return step.as_value()

    def _coming(self, window: WindowReads, zero: Value) -> Value:
        """Bytes of a word as they come; one that does not count is the zero point."""
        return Cat(Mux(window.mask[n], self.input.data.word_select(n, 8), zero) for n in range(len(window.mask)))

    def _inputs(self, window: WindowReads, came: Step, operation: ArrayOperation) -> Value:
        """Inputs of one pixel: a lane that does not count is the zero point; without a step, zero. A matrix product
        takes the zero point off."""
        config, values, zero_in = self.config, self.input.data, operation.regs.QUANT.zero_in
        operand = self.operand
        live = came.valid & ~came.old
        zero = Mux(live, extended(zero_in, 0, operand), 0)
        inputs: Value = Cat(Mux(window.mask[n], extended(values, n, operand), zero) for n in range(config.ic_lanes))
        if config.matmul:
            differences = Cat(
                Mux(window.mask[n], difference(values, n, zero_in, operand), 0) for n in range(config.ic_lanes)
            )
            inputs = Mux(operation.matrix, differences, inputs)
        return inputs

    def _gathered(self, m: Module, window: WindowReads, steps: Sequence[Step], operation: ArrayOperation) -> Value:
        """Inputs of a group of pixels: those of the block that a step takes. The pixels' bytes come one after the
        other, the first with ``steps[0]``; when the last ones are there, all go where steps find them. Pairs of pixels
        come in half the time. They wait before, so that they are there when single pixels would be."""
        config, zero_in = self.config, operation.regs.QUANT.zero_in
        lanes, operand = config.pixel_lanes, self.operand
        came, begins, waited = steps[0], steps[gather(config)], steps[lanes // 2]
        size = 8 * config.weight_sets * config.ic_lanes
        coming = self._coming(window, zero_in)
        pairs = Signal()
        m.d.sync += pairs.eq(operation.pairs)
        pair = self._pair(m, coming, pairs, operation)
        half = len(pair[0])

        def one_of(single: Value, number: int) -> Value:
            """The bytes of a pixel that comes alone, or of that number in the pair."""
            return Cat(Mux(pairs, pair[number], single[:half]), single[half:size])

        before = Signal(size * (lanes - 1), reset_less=True)
        pixels = Signal(size * lanes, reset_less=True)
        for lane in range(lanes - 2):
            with m.If(Mux(pairs, waited.index == lane // 2, came.index == lane)):
                m.d.sync += before.word_select(lane, size).eq(one_of(coming, lane % 2))
        with m.If(came.index == lanes - 2):
            m.d.sync += before[-size:].eq(coming)
        with m.If(Mux(pairs, waited.index == lanes // 2 - 1, came.index == lanes - 1)):
            m.d.sync += pixels.eq(Cat(before[:-size], one_of(before[-size:], 0), one_of(coming, 1)))
        block = Signal(8 * config.ic_lanes * lanes)
        with m.Switch(begins.index):
            for n in range(config.weight_sets):
                with m.Case(n):
                    m.d.comb += block.eq(
                        Cat(
                            pixels.word_select(lane * config.weight_sets + n, 8 * config.ic_lanes)
                            for lane in range(lanes)
                        )
                    )
        numbers = range(len(block) // 8)
        inputs: Value = Cat(extended(block, n, operand) for n in numbers)
        if config.matmul:
            inputs = Mux(operation.matrix, Cat(difference(block, n, zero_in, operand) for n in numbers), inputs)
        return inputs

    def _pair(self, m: Module, coming: Value, pairs: Value, operation: ArrayOperation) -> tuple[Value, Value]:
        """The bytes of two pixels, of those that came half as many cycles ago as there are pixel lanes."""
        config = self.config
        words = [
            Signal(8 * config.pair_bytes, name=f"pair_{n}", reset_less=True) for n in range(config.pixel_lanes // 2)
        ]
        with m.If(pairs):
            m.d.sync += [word.eq(before) for word, before in zip(words, [coming, *words], strict=False)]
        apart = Signal(range(config.pair_step + 1))
        m.d.sync += apart.eq(operation.regs.X_STEP)
        half = 8 * config.pair_sets * config.ic_lanes
        return words[-1][:half], (words[-1] >> (apart << 3))[:half]


def _word(config: Config, step: Step, old: Value, lane: int) -> Value:
    """The old value of a channel, if it is in the word that was read."""
    group = len(old) // SUM
    mine = step.word == lane // group if config.oc_lanes > group else Const(1)
    return Mux(mine, old.word_select(lane % group, SUM), 0)
