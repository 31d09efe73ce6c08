"""The microcoded accelerator's data path and its sequencing."""

from itertools import pairwise

from amaranth import Cat, Module, Mux, Shape, Signal, signed
from amaranth.lib import data, memory, wiring
from amaranth.lib.wiring import In, Out
from amaranth.utils import exact_log2

from dovetail.hw.common.axi import INCR, AxiRead, AxiWrite
from dovetail.hw.microcoded.assembler import CODE, INDIRECT, WORDS, Action, Alu, If, Micro, Special
from dovetail.hw.microcoded.microcode import build
from dovetail.hw.microcoded.sram import MicrocodedSram
from dovetail.hw.sequencer.control import Trace
from dovetail.isa.config.resolved import Config
from dovetail.isa.instructions.table import Unit
from dovetail.isa.timing.microcoded.durations import SUMS


class HostAccess(wiring.Signature):
    """The host's access to the data memory, seen from the host. While the datapath rests, a word can be read or written
    in every cycle; a word that is read comes in the next cycle."""

    def __init__(self) -> None:
        super().__init__(
            {"rests": In(1), "address": Out(9), "read": Out(1), "write": Out(1), "value": Out(32), "word": In(32)}
        )


class Datapath(wiring.Component):
    """Runs programs.

    Parameters
    ----------
    config: the accelerator.
    simulation: take the SRAM's simulation form.

    Members
    -------
    read, write: system memory.
    host: the data memory, for the host.
    start: pulse while the datapath rests: a run.
    busy: a run is under way. ``ended``: pulse after its last cycle. ``faulted``: the last one ended with a fault.
    trace: of each unit.

    Latency
    -------
    A microinstruction takes two cycles, one to read its operands and one for the rest; some take longer: SRAM reads 3,
    DOT 2 * lanes + 2, and what waits for the bus.
    """

    def __init__(self, config: Config, *, simulation: bool) -> None:
        self.config = config
        self.simulation = simulation
        super().__init__(
            {
                "read": Out(AxiRead(32)),
                "write": Out(AxiWrite(32)),
                "host": In(HostAccess()),
                "start": In(1),
                "busy": Out(1),
                "ended": Out(1),
                "faulted": Out(1),
                "trace": Out(Trace()).array(len(Unit)),
            }
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        config = self.config
        asm = build(config)
        address_bits = exact_log2(config.sram)

        # Microprogram, and the two phases of a microinstruction.
        program = asm.program()
        code = memory.Memory(shape=Shape.cast(Micro).width, depth=CODE, init=program + [0] * (CODE - len(program)))
        m.submodules.code = code
        fetch = code.read_port()
        micro = data.View(Micro, fetch.data)
        counter, following = Signal(range(CODE)), Signal(range(CODE))
        works, done = Signal(), Signal()  # the second phase; its last cycle
        begun = Signal()  # not the first cycle after reset, in which the microprogram's first word is read
        m.d.sync += begun.eq(1)
        taken = Signal()
        m.d.comb += [
            following.eq(Mux(taken & ~micro.mark, micro.target, counter + 1)),
            fetch.addr.eq(Mux(begun, following, 0)),
            fetch.en.eq(~begun | done),
        ]
        with m.If(done):
            m.d.sync += counter.eq(following)
        m.d.sync += works.eq(begun & ~done)

        # Data memory, twice for two operands.
        first = asm.memory()
        index = Signal(9)
        m.submodules.words_a = words_a = memory.Memory(shape=32, depth=WORDS, init=first)
        m.submodules.words_b = words_b = memory.Memory(shape=32, depth=WORDS, init=first)
        port_a, port_b = words_a.read_port(), words_b.read_port()
        result, write_address, writes, written = Signal(32), Signal(9), Signal(), Signal(32)
        rests = Signal()
        m.d.comb += [
            rests.eq(works & (micro.action == Action.HALT)),
            self.host.rests.eq(rests),
            self.host.word.eq(port_a.data),
            port_a.addr.eq(Mux(rests, self.host.address, Mux(micro.a == INDIRECT, index, micro.a))),
            port_b.addr.eq(Mux(micro.b == INDIRECT, index, micro.b)),
            port_a.en.eq(~works | rests & self.host.read),
            port_b.en.eq(~works),
            write_address.eq(Mux(rests, self.host.address, Mux(micro.d == INDIRECT, index, micro.d))),
            writes.eq(Mux(rests, self.host.write, done & micro.write)),
            written.eq(Mux(rests, self.host.value, result)),
        ]
        for words in (words_a, words_b):
            port = words.write_port()
            m.d.comb += [port.addr.eq(write_address), port.data.eq(written), port.en.eq(writes)]
        a, b = port_a.data, port_b.data

        # SRAM, its pointers, and sums of products.
        m.submodules.sram = sram = MicrocodedSram(config, simulation=self.simulation)
        pointer = Signal(address_bits)
        weights, weights_end = Signal(32), Signal(address_bits + 1)
        offset, column = Signal(32), Signal(32)
        lanes = Signal(21)
        row = Signal()
        totals = [Signal(32, name=f"total{n}") for n in range(SUMS)]
        zero, mask = Signal(8), Signal(4)
        step = Signal(2)  # of DOT: input, weight, last product; of a read: address, bytes
        lane_of = Signal(2)
        byte = Signal(8)
        dots = Signal()
        m.d.comb += [
            dots.eq(works & (micro.action == Action.DOT)),
            byte.eq(sram.word.word_select(lane_of, 8)),
            sram.data.eq(a[:8].replicate(4)),
        ]
        at = Signal(address_bits)
        m.d.comb += at.eq(Mux(dots & step[0], weights, pointer))
        m.d.comb += sram.addr.eq(at >> 2)
        m.d.sync += lane_of.eq(at)
        with m.If(works & (micro.action == Action.STORE_BYTE)):
            m.d.comb += sram.write.eq(Mux(mask[0], 1 << at[:2], 0))
            m.d.sync += mask.eq(mask >> 1)

        value, inside, counts, multiplies = Signal(8), Signal(), Signal(), Signal()
        products = [Signal(signed(16), name=f"product{n}") for n in range(SUMS)]
        for n, product in enumerate(products):
            factor = sram.word.word_select(n, 8) if n else byte
            m.d.comb += product.eq(value.as_signed() * factor.as_signed())
        with m.If(dots):
            with m.If(step == 0):
                m.d.sync += [inside.eq(row & (offset < a) & (column < b)), offset.eq(offset + 1), column.eq(column + 1)]
                m.d.sync += [pointer.eq(pointer + 1), step.eq(1)]
            with m.If(step == 1):
                m.d.sync += [
                    value.eq(Mux(inside, byte, zero)),
                    counts.eq(weights < weights_end),
                    weights.eq(weights + config.oc_lanes),
                    lanes.eq(lanes - 1),
                    step.eq(Mux(lanes == 1, 2, 0)),
                ]
            with m.If(step == 2):
                m.d.sync += step.eq(0)
        m.d.sync += multiplies.eq(dots & (step == 1))
        with m.If(multiplies & counts):
            m.d.sync += [total.eq(total + product) for total, product in zip(totals, products, strict=True)]
        with m.If(done & (micro.alu == Alu.SUM)):
            m.d.sync += [total.eq(after) for total, after in pairwise(totals)]

        # The result.
        carry, carried = Signal(), Signal()
        added = Signal(33)
        operand = Signal(32)
        m.d.comb += [
            operand.eq(Mux(micro.alu == Alu.SUB, ~b, b)),
            added.eq(a + operand + Mux(micro.alu == Alu.ADC, carry, micro.alu == Alu.SUB)),
            carried.eq(added[32]),
        ]
        shift_in, left = Signal(), Signal()
        shifted = Signal(32)
        m.d.comb += [left.eq(micro.alu == Alu.SHL), shift_in.eq((micro.alu == Alu.SAR) & a[31])]
        m.d.comb += shifted.eq(Mux(left, a[::-1], a))
        stage = shifted
        for n in range(5):
            after = Signal(32, name=f"shifted_{n}")
            m.d.comb += after.eq(Mux(b[n], Cat(stage[1 << n :], shift_in.replicate(1 << n)), stage))
            stage = after
        wide = Signal(64)
        m.d.comb += wide.eq(a * b)
        cycles = Signal(64)
        source = Signal(32)
        m.d.comb += source.eq(Mux(micro.action == Action.READ, self.read.rdata, sram.word))
        with m.Switch(micro.alu):
            with m.Case(Alu.AND):
                m.d.comb += result.eq(a & b)
            with m.Case(Alu.OR):
                m.d.comb += result.eq(a | b)
            with m.Case(Alu.XOR):
                m.d.comb += result.eq(a ^ b)
            with m.Case(Alu.B):
                m.d.comb += result.eq(b)
            with m.Case(Alu.SHL):
                m.d.comb += result.eq(stage[::-1])
            with m.Case(Alu.SHR, Alu.SAR):
                m.d.comb += result.eq(stage)
            with m.Case(Alu.MULLO):
                m.d.comb += result.eq(wide[:32])
            with m.Case(Alu.MULHI):
                m.d.comb += result.eq(wide[32:])
            with m.Case(Alu.READ):
                m.d.comb += result.eq(source)
            with m.Case(Alu.BYTE):
                m.d.comb += result.eq(Cat(a[8:], byte))
            with m.Case(Alu.SUM):
                m.d.comb += result.eq(totals[0])
            with m.Case(Alu.CYCLE):
                m.d.comb += result.eq(Mux(micro.action == Action.CYCLE_HIGH, cycles[32:], cycles[:32]))
            with m.Default():
                m.d.comb += result.eq(added)

        # Conditions.
        flag, bad = Signal(), Signal()
        is_zero = Signal()
        m.d.comb += is_zero.eq(~result.any())
        with m.Switch(micro.when):
            with m.Case(If.ALWAYS):
                m.d.comb += taken.eq(1)
            with m.Case(If.ZERO):
                m.d.comb += taken.eq(is_zero)
            with m.Case(If.NOT_ZERO):
                m.d.comb += taken.eq(~is_zero)
            with m.Case(If.CARRY):
                m.d.comb += taken.eq(carried)
            with m.Case(If.NOT_CARRY):
                m.d.comb += taken.eq(~carried)
            with m.Case(If.NEGATIVE):
                m.d.comb += taken.eq(result[31])
            with m.Case(If.LESS):
                m.d.comb += taken.eq(Mux(a[31] ^ b[31], a[31], added[31]))
            with m.Case(If.FLAG):
                m.d.comb += taken.eq(flag)
            with m.Case(If.BAD):
                m.d.comb += taken.eq(bad)

        # What takes its time, and the bus.
        r, w = self.read, self.write
        m.d.comb += [
            r.araddr.eq(a),
            r.arlen.eq(0),
            r.arsize.eq(2),
            r.arburst.eq(INCR),
            r.rready.eq(1),
            w.awaddr.eq(a),
            w.awlen.eq(0),
            w.awsize.eq(2),
            w.awburst.eq(INCR),
            w.wdata.eq(b),
            w.wstrb.eq(mask),
            w.wlast.eq(1),
            w.bready.eq(1),
        ]
        # Addresses are offered from the second phase on, data from a cycle later on, until they are taken.
        follows = Signal()
        m.d.sync += [
            follows.eq(works & ~done),
            r.arvalid.eq(begun & ~works & (micro.action == Action.READ) | r.arvalid & ~r.arready),
            w.awvalid.eq(begun & ~works & (micro.action == Action.WRITE) | w.awvalid & ~w.awready),
            w.wvalid.eq(works & ~follows & (micro.action == Action.WRITE) | w.wvalid & ~w.wready),
        ]
        with m.Switch(micro.action):
            with m.Case(Action.HALT):
                m.d.comb += done.eq(works & self.start)
            with m.Case(Action.READ):
                m.d.comb += done.eq(works & r.rvalid)
            with m.Case(Action.WRITE):
                m.d.comb += done.eq(works & w.bvalid)
            with m.Case(Action.LOAD, Action.LOAD_BYTE):
                m.d.comb += done.eq(works & step[0])
                with m.If(works):
                    m.d.sync += step.eq(~step[0])
            with m.Case(Action.DOT):
                m.d.comb += done.eq(works & step[1])
            with m.Default():
                m.d.comb += done.eq(works)
        with m.If(r.rvalid & r.rresp[1] | w.bvalid & w.bresp[1]):
            m.d.sync += bad.eq(1)
        with m.If(works & (micro.action == Action.STORE_BYTE) | done & (micro.action == Action.LOAD_BYTE)):
            m.d.sync += pointer.eq(pointer + 1)
        with m.If(done & (micro.action == Action.LOAD)):
            m.d.sync += pointer.eq(pointer + 4)

        with m.If(done):
            with m.If((micro.alu == Alu.ADD) | (micro.alu == Alu.ADC)):
                m.d.sync += carry.eq(carried)
            with m.If(micro.mark & taken):
                m.d.sync += flag.eq(1)
            with m.Switch(micro.special):
                for special, register in (
                    (Special.INDEX, index),
                    (Special.POINTER, pointer),
                    (Special.WEIGHTS, weights),
                    (Special.WEIGHTS_END, weights_end),
                    (Special.ZERO, zero),
                    (Special.LANES, lanes),
                    (Special.MASK, mask),
                ):
                    with m.Case(special):
                        m.d.sync += register.eq(result)
                with m.Case(Special.OFFSET):
                    m.d.sync += offset.eq(a)
                with m.Case(Special.COLUMN):
                    m.d.sync += column.eq(a)
                with m.Case(Special.ROW):
                    m.d.sync += row.eq(taken)
                with m.Case(Special.CLEAR_SUM):
                    m.d.sync += [total.eq(0) for total in totals]
                with m.Case(Special.CLEAR_FLAGS):
                    m.d.sync += [flag.eq(0), bad.eq(bad & micro.target[0])]
                with m.Case(Special.FINISH):
                    m.d.sync += [self.busy.eq(0), self.faulted.eq(~is_zero)]
                    m.d.comb += self.ended.eq(1)

        with m.If(rests & self.start):
            m.d.sync += [self.busy.eq(1), cycles.eq(0)]
        with m.Elif(self.busy):
            m.d.sync += cycles.eq(cycles + 1)
        for unit in Unit:
            trace = self.trace[unit]
            mine = works & (micro.target[:2] == unit)
            m.d.comb += [
                trace.start.eq(mine & (micro.action == Action.BEGIN)),
                trace.end.eq(mine & (micro.action == Action.END)),
                trace.pc.eq(a),
            ]
        return m
