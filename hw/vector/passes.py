"""Passes over a row in the vector unit's loops: which one it is, its lanes and waits, and which elements count."""

from collections.abc import Callable, Mapping

from amaranth import Cat, Const, Module, Mux, Signal, Value
from amaranth.utils import exact_log2

from dovetail.hw.common.regions import is_any
from dovetail.hw.common.walk import Level, Place
from dovetail.hw.vector.stage import row_layout
from dovetail.isa.config.resolved import Config
from dovetail.isa.instructions.checks import built
from dovetail.isa.instructions.table import INSTRUCTIONS, MAX_PASSES, Op, Pass, Unit
from dovetail.isa.numerics.rounding import Rounding
from dovetail.isa.timing.vector import RECORDS_LATE, rows_at_once, turn_of

VALID_BITS = 16
"""Of the number of elements of a row that count, which SOFTMAX's masks may lower."""


ELEMENT_BITS = 20
"""Of the number of elements of a row."""


def has_groups(config: Config) -> bool:
    """Whether an operation goes over several rows together."""
    return max(config.softmax, config.norm) > 1


class Groups:
    """Pixels side by side whose rows an operation goes over together (`isa.timing.vector.rows_at_once`).

    ``own``: the operation does; ``softmax``: it is one that does, whose rows are a step apart; ``norm``: it is one.
    ``most``: how many there are at most.
    """

    def __init__(self, config: Config, operation: Value) -> None:
        self.rows = {op: rows for op in (Op.SOFTMAX, Op.NORM) if (rows := rows_at_once(config, op)) > 1}
        self.most = max(self.rows.values(), default=1)
        norms = [row for row in built(config, Unit.VECTOR) if row.records and Op.NORM in self.rows]
        softmaxes = [INSTRUCTIONS[op] for op in self.rows if op == Op.SOFTMAX]
        self.own, self.softmax, self.norm = (is_any(operation, some) for some in (softmaxes + norms, softmaxes, norms))

    def choose(self, of: Callable[[int], Value | int]) -> Value:
        """What there is ``of`` as many rows as the operation has at once."""
        chosen = Value.cast(of(1))
        for op, rows in self.rows.items():
            chosen = Mux(self.softmax if op == Op.SOFTMAX else self.norm, of(rows), chosen)
        return chosen

    def count(self, width: Value) -> Value:
        """Groups of a line of ``width`` pixels, the last one filled up."""
        return self.choose(lambda rows: (width + (rows - 1)) >> exact_log2(rows))

    def step(self, step: Value) -> Value:
        """From a group to the next, where there is a ``step`` from a pixel to the next."""
        return self.choose(lambda rows: step << exact_log2(rows))


class Passes:
    """The part of :class:`~dovetail.hw.vector.loops.VectorReads` that only accelerators need whose operations go over a
    row several times. Two more loops: inside all others the lanes of a block, one at a time in a serial pass; outside
    a row's blocks its passes.

    Parameters
    ----------
    config
        The accelerator.
    operation
        The opcode, constant from ``load`` on.
    regs
        ``VECTOR_REGISTERS``.
    load
        As of the loops.
    """

    def __init__(self, config: Config, operation: Value, regs: Value, *, load: Value) -> None:
        self.config, self.operation, self.regs, self.load = config, operation, regs, load
        self.rows = [row for row in built(config, Unit.VECTOR) if row.passes]
        self.with_records = [row for row in self.rows if row.records]
        self.waiting = Signal()
        """No step in this cycle: a pass is still to begin."""
        self.final = Signal()
        """The step is of the last pass."""
        self.results = Signal()
        """Results come with the step."""
        self.draining = Signal()
        """The step is of the pass behind the last row, and reads nothing."""
        self.goes_on = Signal()
        """There is another step."""
        self.has = Signal(name="has_passes")
        self.records: Value = Signal() if self.with_records else Const(0, 1)
        """The operation reads records in its last pass."""
        self.is_record: Value = Signal() if self.with_records else Const(0, 1)
        """So does the step."""
        self.turn = turn_of(rows_at_once(config, Op.NORM))
        self.drains = Signal()
        self.late = Signal()  # there is a row before this one, whose results come a row late
        self.groups = Groups(config, operation)
        self.opens = Signal()
        """The step is of a row's first block."""
        self.number = Signal(range(MAX_PASSES), name="pass_number")
        self.following = Signal(range(MAX_PASSES), name="pass_following")
        self.last = Signal(range(MAX_PASSES), name="pass_last")
        self.serial = Signal(MAX_PASSES, name="pass_serial")
        self.lane = Signal(4)
        self.begins = Signal(name="row_begins")
        self.row = Signal(row_layout(config), name="row_1")
        self.left = [Signal(ELEMENT_BITS, name=f"elements_left_{n}") for n in range(self.groups.most)]

    def within(self, counts: Mapping[str, Value | int]) -> dict[str, Value]:
        """The loops' counts, with those of lanes and passes; those inside a pass are of the step to come. Of a group
        each row's block comes in a lane. A turn over a block with records (``turn_of``) is a word, the block, the other
        word; in groups of NORM two halves, each a word and blocks of half of the rows."""
        following = Mux(self.load, 0, self.following)
        serial = self.serial.bit_select(following, 1)
        groups, half = self.groups, len(self.turn) // 2
        now = self.records & (following == self.last)
        blocks = Mux(groups.norm, half - 1 + now, groups.choose(lambda rows: rows))
        loops: dict[str, Value] = {"lane": Mux(serial, self.config.vector_lanes, blocks)}
        for loop, count in counts.items():
            if loop == "x":
                loops["pass"] = self.last + 1
            loops[loop] = groups.count(Value.cast(count)) if loop == "x" else Value.cast(count)
        if self.with_records:
            loops["kx"] = Mux(groups.norm, 2, Mux(now, len(self.turn), loops["kx"]))
            loops["block"] = loops["block"] + Mux(now, RECORDS_LATE // len(self.turn), 0)
        return loops

    def count(self, m: Module, *, go: Value, step: Value, filling: Value, advances: Level, ends: Level) -> None:
        """Stage 0: the pass of the step, and the one to come; waits between them."""
        onnx = self.regs.MODE.rounding == Rounding.ONNX
        longest = max(max(each.wait) for row in self.rows for each in (*row.passes, row.drain or Pass()))
        waits = [Signal(range(1 + longest), name=f"wait_{n}") for n in range(MAX_PASSES)]
        m.d.comb += self.has.eq(is_any(self.operation, self.rows))
        if self.with_records:
            m.d.comb += [
                self.records.eq(is_any(self.operation, self.with_records)),
                self.is_record.eq(self.records & self.final & self.at_word(self.lane)),
            ]
        with m.Switch(self.operation):
            for row in self.rows:
                with m.Case(int(row.op)):
                    passes = [*row.passes, *([row.drain] if row.drain else []), *[Pass()] * MAX_PASSES][:MAX_PASSES]
                    m.d.comb += [
                        self.last.eq(len(row.passes) - 1),
                        self.drains.eq(row.drain is not None),
                        self.serial.eq(Cat(p.serial for p in passes)),
                    ]
                    m.d.sync += [
                        wait.eq(Mux(onnx, p.wait[1], p.wait[0])) for wait, p in zip(waits, passes, strict=True)
                    ]
            with m.Default():
                m.d.sync += [wait.eq(0) for wait in waits]

        m.d.comb += [
            self.following.eq(
                Mux(
                    advances["pass"] | ends["y"] & self.drains,
                    self.number + 1,
                    Mux(ends["pass"], 0, self.number),
                )
            ),
            self.final.eq(self.number == self.last),
            self.results.eq(self.final & (self.late | ~self.drains) | self.draining),
            self.goes_on.eq(Mux(self.drains, ~(self.draining & ends["block"]), ~ends["y"])),
        ]
        left = Signal.like(waits[0], name="wait_left")
        m.d.comb += self.waiting.eq(left.any())
        with m.If(self.load):
            m.d.sync += [self.number.eq(0), self.lane.eq(0), self.begins.eq(1), left.eq(0)]
            m.d.sync += [self.late.eq(0), self.draining.eq(0)]
        with m.Elif(go):
            m.d.sync += left.eq(waits[0])
        with m.Elif(step):
            m.d.sync += [
                self.number.eq(self.following),
                self.lane.eq(Mux(ends["kx"] if self.with_records else ends["lane"], 0, self.lane + 1)),
                self.begins.eq(ends["block"]),
                self.late.eq(self.late | ends["pass"]),
                self.draining.eq(self.draining | ends["y"] & self.drains),
            ]
            with m.If(ends["block"]):
                chosen = Cat(waits).word_select(self.following, len(left))
                m.d.sync += left.eq(chosen)
        with m.Elif(~filling & self.waiting):
            m.d.sync += left.eq(left - 1)
        with m.If(step):
            m.d.sync += [
                self.opens.eq(self.begins | self.opens & self.lane.any()),
                self.row.valid.eq(self.has),
                self.row.number.eq(self.number),
                self.row.results.eq(self.results),
                self.row.first.eq(self.begins),
                self.row.last.eq(ends["block"]),
                self.row.lane.eq(self.lane),
            ]

    def at_word(self, lane: Value) -> Value:
        """Whether a lane of a turn over a block with records has a word of these."""
        return Cat(lane == place for place, row in enumerate(self.turn) if row is None).any()

    def reads_block(self) -> Value:
        """Stage 0: whether the step of a group reads a block, as there is a row for its lane."""
        softmax = self.groups.rows.get(Op.SOFTMAX, 1)
        return Mux(self.groups.softmax, self.lane < softmax, ~self.is_record)

    def measure(self, m: Module, *, moves: Value, begins: Value, level: Level) -> None:
        """Stage 1: how many elements are left to count, from lane 0 on. ``moves``: there is a step, ``begins``: the
        first of its row's block."""
        lanes, regs = self.config.vector_lanes, self.regs
        masks = is_any(self.operation, [row for row in self.rows if row.op == Op.SOFTMAX])
        elements = Signal(ELEMENT_BITS)  # of a row
        m.d.sync += elements.eq(regs.BLOCKS.count * lanes - lanes + regs.BLOCKS.last)
        steps: dict[str, Value | int] = {"x": self.groups.step(regs.B_X_STEP), "y": regs.B_Y_STEP}
        opens = self.row.first
        if self.groups.rows:
            opens = self.opens
        if Op.SOFTMAX in self.groups.rows:
            steps = {"lane": regs.B_X_STEP, "block": 0, "pass": 0, **steps}
        valid = Place("valid", steps, width=VALID_BITS)
        with m.If(self.load):
            m.d.sync += valid.begin(regs.POOL_COUNT.count)
        with m.Elif(moves & Cat(level[loop] for loop in steps).any()):
            valid.move(m, level, (valid.base(level) + valid.step(level))[:VALID_BITS])
        with m.If(moves & begins):
            here = Mux(masks & (valid.here < elements), valid.here, elements)
            before = self.groups.choose(lambda rows: self.left[rows - 1])  # the same row's
            rest = Mux(before > lanes, before - lanes, 0)
            m.d.sync += Cat(self.left).eq(Cat(Mux(opens, here, rest)[:ELEMENT_BITS], self.left))

    def is_past(self) -> Value:
        """Stage 2: the step has none of a block's elements, as only records are left."""
        return ~self.left[0].any()

    def counts(self) -> Value:
        """Stage 2: a bit per lane."""
        return Cat(self.left[0] > lane for lane in range(self.config.vector_lanes))
