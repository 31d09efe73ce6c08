"""Equal parts of a concatenation as a replication: the same signals, in fewer words."""

from pathlib import Path

import pytest
from amaranth import Cat, Const, Module, Mux, signed
from amaranth.back import verilog
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from dovetail.hw.replication import replicated
from tests.hw.test_next_state import proof


class Extended(wiring.Component):
    """Signs that are extended, bits and bytes that are repeated, and parts that only look alike."""

    a: In(signed(8))
    b: In(8)
    p: Out(20)
    q: Out(32)
    r: Out(8)
    s: Out(16)

    def elaborate(self, platform: object) -> Module:
        m = Module()
        m.d.sync += [self.p.eq(self.a), self.q.eq((self.a + self.b.as_signed()).as_signed())]
        m.d.comb += [
            self.r.eq(Cat(Const(0, 2), self.b[0].replicate(4), self.b[1])),
            self.s.eq(
                Mux(self.b[7], Cat(self.b, self.b), Cat(self.b[0], self.b[1], self.b[1], self.b[:3], self.b[:3]))
            ),
        ]
        return m


def test_signals_are_the_same(tmp_path: Path) -> None:
    text = verilog.convert(Extended(), name="top", emit_src=False)
    short = replicated(text)
    assert "{3{b[0]}}" in short and "{2{b}}" in short
    done = proof(tmp_path, text, short)
    assert done.returncode == 0, done.stdout + done.stderr


def test_the_proof_sees_a_difference(tmp_path: Path) -> None:
    text = verilog.convert(Extended(), name="top", emit_src=False)
    wrong = replicated(text).replace("{3{b[0]}}", "{3{b[1]}}")
    assert "unproven" in proof(tmp_path, text, wrong).stderr


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("{ a, a, a }", "{ {3{a}} }"),
        ("{ \\$1 [3], \\$1 [3], b }", "{ {2{\\$1 [3]}}, b }"),
        ("{ \\$1 , \\$1 , \\$10  }", "{ {2{\\$1 }}, \\$10  }"),
        ("{ a, ab, a[1], a[10] }", "{ a, ab, a[1], a[10] }"),
        ("{ 4'h0, 4'h0 }", "{ 4'h0, 4'h0 }"),
    ],
)
def test_texts(before: str, after: str) -> None:
    assert replicated(before) == after
