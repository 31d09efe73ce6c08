"""No signal follows itself within a cycle, not even other bits of it.

It would be sound hardware. But Verilator, told to count lines, may read such a bit before it is set: whether a word was
bad came from the word before.
"""

from collections import defaultdict
from collections.abc import Iterator, Sequence

import pytest
from amaranth import Module, Signal, Value
from amaranth.hdl import ClockSignal, Fragment, ResetSignal
from amaranth.hdl._ast import Assign, Statement, Switch
from amaranth.lib import data, wiring
from amaranth.lib.wiring import In, Out

from dovetail.hw.accelerator import Accelerator
from dovetail.isa.config.resolved import Config
from dovetail.sw.random.programs.configurations import WHOLE

FORMS = {
    "parallel": WHOLE.replace(softmax=1, norm=1, norm_bits=16, parameters=3, pixel_lanes=2),
    "microcoded": Config.load("icebreaker"),
}
Numbers = frozenset[int]
"""Of signals: Amaranth's signals have no equality."""


def followed(value: Value) -> Numbers:
    """Signals that a value is made of, without the clocks and resets of domains."""
    return frozenset() if isinstance(value, ClockSignal | ResetSignal) else frozenset(map(id, value._rhs_signals()))


def assignments(statements: Sequence[Statement], conditions: Numbers = frozenset()) -> Iterator[tuple[Value, Numbers]]:
    """Each assigned signal and what it follows, conditions included."""
    for statement in statements:
        if isinstance(statement, Assign):
            yield from ((signal, followed(statement.rhs) | conditions) for signal in statement._lhs_signals())
        elif isinstance(statement, Switch):
            for case in statement.cases:
                yield from assignments(case[1], conditions | followed(statement.test))


def following_themselves(design: object) -> Iterator[str]:
    """Names of the signals of a design and of all below it that follow themselves within a cycle, through others of the
    same component too."""
    fragment = Fragment.get(design, None)
    edges: dict[int, set[int]] = defaultdict(set)
    names: dict[int, str] = {}
    for signal, sources in assignments(fragment.statements.get("comb", ())):
        if isinstance(signal, Signal):
            edges[id(signal)] |= sources
            names[id(signal)] = signal.name
    for number, name in names.items():
        seen: set[int] = set()
        todo = [number]
        while todo:
            more = edges.get(todo.pop(), set()) - seen
            seen |= more
            todo += more
        if number in seen:
            yield name
    for below in fragment.subfragments:
        yield from following_themselves(below[0])


@pytest.mark.parametrize("form", FORMS)
def test_no_signal_of_the_accelerator(form: str) -> None:
    assert list(following_themselves(Accelerator(FORMS[form], simulation=True))) == []


class Word(wiring.Component):
    """What the decoder of programs once did, and the same by way of another signal."""

    word: In(4)
    direct: Out(data.StructLayout({"absent": 1, "bad": 1}))
    around: Out(data.StructLayout({"absent": 1, "bad": 1}))
    plain: Out(data.StructLayout({"absent": 1, "bad": 1}))

    def elaborate(self, platform: object) -> Module:
        m = Module()
        between = Signal()
        lacking = Signal()
        m.d.comb += [
            lacking.eq(self.word == 3),
            self.direct.absent.eq(lacking),
            self.direct.bad.eq(self.direct.absent | self.word[0]),
            between.eq(self.around.absent),
            self.around.absent.eq(lacking),
            self.plain.absent.eq(lacking),
            self.plain.bad.eq(lacking | self.word[0]),
        ]
        with m.If(between):
            m.d.comb += self.around.bad.eq(1)
        return m


def test_the_walk_sees_them() -> None:
    assert set(following_themselves(Word())) == {"direct", "around", "between"}
