"""The array unit: CONV, CONV_RELU, DEPTH_CONV and MAT_MUL."""

from amaranth import Cat, Const, Module, Mux, Signal, Value
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from dovetail.hw.array.drain import Drain
from dovetail.hw.array.loops import ArrayLoops, Step
from dovetail.hw.array.multiply_accumulate import SUM, Accumulator, MultiplierArray
from dovetail.hw.array.reads import WindowReads
from dovetail.hw.array.registers import ArrayRegisters
from dovetail.hw.array.weights import OPERAND, WIDE_OPERAND, ArrayWeights, difference, extended
from dovetail.hw.common.clocking import delayed, gate_clock
from dovetail.hw.common.ports import Check, Core, SramRead, SramWrite, part
from dovetail.isa.config.resolved import Config
from dovetail.isa.timing.array import to_accumulator

ROWS = 128
"""Rows of accumulators: two buffers of 64 pixels."""


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
        lanes = max(config.ic_lanes, config.depthwise_lanes)
        operand = WIDE_OPERAND if self.simulation else OPERAND
        registers, weights, drain = ArrayRegisters(config), ArrayWeights(config, operand=operand), Drain(config)
        for name, block, awake in (
            ("registers", registers, registers.awake),
            ("weights", weights, weights.awake | drain.awake),
            ("drain", drain, drain.awake),
        ):
            m.submodules[name] = gate_clock(m, block, awake=awake, name=f"array_{name}", simulation=self.simulation)
        m.submodules.loops = loops = ArrayLoops(config)
        m.submodules.window = window = WindowReads(config, lanes=lanes)
        m.submodules.multipliers = multipliers = MultiplierArray(config, operand=operand)
        m.submodules.accumulator = accumulator = Accumulator(config, rows=ROWS)
        operation, regs = registers.operation, registers.operation.regs
        m.d.comb += [
            core.done.eq(drain.done),
            self.streams.eq(registers.streams),
            loops.go.eq(core.go),
            loops.freed.eq(drain.freed),
            loops.settled.eq(drain.settled),
            window.valid.eq(loops.step.valid),
            window.old.eq(loops.step.old),
            window.pixel.eq(loops.pixel),
            window.tap.eq(loops.tap),
            window.regs.eq(regs),
            weights.fetch.eq(loops.fetch),
            weights.record_row.eq(drain.record_row),
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

        # A step on its way: its bytes come at `arrives`, its sums at `summed`, its products at `multiplied`.
        arrives = window.LATENCY
        multiplied, summed = arrives + multipliers.PRODUCT, arrives + multipliers.LATENCY
        settles = summed - accumulator.TERM + accumulator.VISIBLE
        assert settles == to_accumulator(config)
        step = Step(Signal.like(loops.step.as_value(), name="step"))
        m.d.comb += step.eq(loops.step)
        late = max(summed - accumulator.TERM - 1, arrives + 1)
        steps = [Step(value) for value in delayed(m, "steps", step.as_value(), late)]
        m.d.comb += [
            weights.swap.eq(steps[arrives + multipliers.OPERANDS - 1].swap),
            multipliers.depthwise.eq(operation.depthwise),
            multipliers.extra.eq(regs.MODE.extra),
            multipliers.weights.eq(weights.operands),
            drain.filled.eq(delayed(m, "filled", loops.filled, settles - 1)[-1]),
        ]

        # Inputs: a lane that does not count is the zero point; without a step, zero. A matrix product takes the zero
        # point off.
        live = steps[arrives].valid & ~steps[arrives].old
        zero = Signal(operand)
        m.d.comb += zero.eq(Mux(live, extended(regs.QUANT.zero_in, 0, operand), 0))
        m.d.comb += multipliers.inputs.eq(
            Cat(Mux(window.mask[n], extended(self.input.data, n, operand), zero) for n in range(lanes))
        )
        if config.matmul:
            differences = (difference(self.input.data, n, regs.QUANT.zero_in, operand) for n in range(config.ic_lanes))
            with m.If(operation.matrix):
                m.d.comb += multipliers.inputs.eq(
                    Cat(Mux(window.mask[n], difference, 0) for n, difference in enumerate(differences))
                )

        # Old values, in place of sums.
        group = len(window.old_mask)
        old = Signal(SUM * group)  # zero unless there are old values: anything else would be added to every sum
        olds = [Signal(name="old_now"), Signal(name="old_before")]
        m.d.comb += olds[0].eq(steps[arrives].valid & steps[arrives].old)
        m.d.sync += olds[1].eq(olds[0])
        with m.If(olds[0] | olds[1]):
            words = (self.input.data.word_select(n, SUM) for n in range(group))
            m.d.sync += old.eq(Cat(Mux(counts, word, 0) for counts, word in zip(window.old_mask, words, strict=True)))
        terms = []
        for n in range(config.acc_lanes):
            total: Value = multipliers.sums.word_select(n, SUM) if n < config.oc_lanes else Const(0, SUM)
            if n < config.depthwise_lanes:
                total = Mux(operation.depthwise, multipliers.products.word_select(n, SUM), total)
            mine = steps[arrives + 1].word == n // group if config.acc_lanes > group else 1
            terms.append(total | Mux(mine, old.word_select(n % group, SUM), 0))
        m.d.comb += accumulator.term.eq(Cat(terms))

        # Which accumulators: old values come first, then products, then sums. Chosen a cycle before.
        tap = Step(Signal.like(step.as_value(), name="tap"))
        adds = Signal()
        at_old, at_product, at_sum = (n - accumulator.TERM - 1 for n in (arrives + 1, multiplied, summed))
        m.d.comb += [tap.eq(steps[at_sum]), adds.eq(tap.valid & ~tap.old)]
        with m.If(operation.depthwise):
            m.d.comb += tap.eq(steps[at_product])
        with m.If(steps[at_old].valid & steps[at_old].old):
            m.d.comb += [tap.eq(steps[at_old]), adds.eq(1)]
        m.d.sync += [
            accumulator.valid.eq(adds),
            accumulator.row.eq(Cat(tap.pixel, tap.turn)),
            accumulator.first.eq(tap.first),
        ]
        return m
