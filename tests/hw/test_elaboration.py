"""Hardware that Amaranth warns of is not made."""

import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from amaranth import Module, Signal
from amaranth.lib import wiring
from amaranth.lib.wiring import Out

from dovetail.cosim.formal.proof import Proof
from dovetail.cosim.rtl.block import block_design
from dovetail.flows.fpga.builder import Builder, Target
from dovetail.flows.fpga.design.boards import board_of
from dovetail.hw.common.elaboration import ElaborationError
from dovetail.hw.verilog import to_verilog


class TooNarrow(wiring.Component):
    """A register that has no room for its initial value."""

    out: Out(2)

    def elaborate(self, platform: object) -> Module:
        m = Module()
        register = Signal(2, init=9)
        m.d.comb += self.out.eq(register)
        return m


class NeverEqual(wiring.Component):
    """A case that its value never has."""

    out: Out(2)

    def elaborate(self, platform: object) -> Module:
        m = Module()
        with m.Switch(self.out), m.Case(9):
            m.d.comb += self.out.eq(1)
        return m


def to_rtlil(component: Any) -> str:
    return Proof("none", "", "", lambda: component, "bmc", 1, 1).rtlil()


def to_board(component: Any) -> object:
    board = board_of("ulx3s-85f")
    return Builder(Target.of(board, board.frequency), {}).prepare(component, Path("never-made"))


MAKERS: tuple[Callable[[Any], object], ...] = (
    lambda component: to_verilog(component, simulation=True),
    block_design,
    to_rtlil,
    to_board,
)


@pytest.mark.parametrize("make", MAKERS, ids=("verilog", "block", "proof", "board"))
def test_a_warning_is_an_error_with_its_place(make: Callable[[Any], object]) -> None:
    before = list(warnings.filters)
    line = Path(__file__).read_text().splitlines().index("        register = Signal(2, init=9)") + 1
    with pytest.raises(ElaborationError) as error:
        make(TooNarrow())
    text = "Initial value 9 will be truncated to the signal shape unsigned(2)"
    assert str(error.value) == f"{Path(__file__)}:{line}: {text}"
    assert warnings.filters == before


def test_a_pattern_that_never_matches_is_an_error() -> None:
    with pytest.raises(ElaborationError, match=r"test_elaboration.py:\d+: Pattern '9' .* will never be true$"):
        to_verilog(NeverEqual(), simulation=True)
