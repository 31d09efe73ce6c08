"""Formulas of parameters, by hand; what is refused; and the way through a program file."""

import json
from dataclasses import asdict, replace

import pytest

from dovetail.isa.config.resolved import Config
from dovetail.isa.instructions.table import PAGE_BYTES
from dovetail.isa.parameters import Formula, ParameterError, Parameters, RunInput, Term, whole_number
from dovetail.isa.program import Program, ProgramError, Segment

POSITION = RunInput("position", 0, 255)
LANES = Formula(
    base=5 << 24,
    terms=(Term("position", offset=1, divisor=8), Term("position", step=1 << 16, offset=1, divisor=8, rest=True)),
)
"""Blocks of 8 and the size of the last one, as BLOCKS has them."""
PARAMETERS = Parameters((POSITION, RunInput("token", 1, 3)), (Formula(-4, (Term("position", 64),)), LANES))


@pytest.mark.parametrize(("position", "blocks", "last"), [(0, 1, 1), (6, 1, 7), (7, 1, 8), (8, 2, 1), (255, 32, 8)])
def test_blocks_and_rest(position: int, blocks: int, last: int) -> None:
    assert LANES.value({"position": position}) == 5 << 24 | last << 16 | blocks


def test_values() -> None:
    assert PARAMETERS.values({"position": 2, "token": 1}) == (124, 5 << 24 | 3 << 16 | 1)
    assert PARAMETERS.least == (2**32 - 4, 5 << 24 | 1 << 16 | 1)
    assert len(list(PARAMETERS.all_values())) == 256, "nothing depends on the token"
    assert sorted(PARAMETERS.of_formula(0))[:2] == [60, 124]


@pytest.mark.parametrize(
    ("make", "text"),
    [
        (lambda: PARAMETERS.values({"position": 256, "token": 1}), r"position must be 0\.\.255, not 256"),
        (lambda: RunInput("x", 3, 2), r"run input 'x' must have a range in 0\.\.2\*\*32-1, not 3\.\.2"),
        (lambda: Term("x", divisor=0), r"divisor of x must be 1\.\.2\*\*32-1, not 0"),
        (lambda: Term("x", offset=-1), r"offset of x must be 0\.\.2\*\*32-1, not -1"),
        (lambda: Parameters((), (Formula(terms=(Term("x"),)),)), "run input of a term must be one of none, not x"),
        (lambda: Parameters((POSITION, POSITION)), "run inputs must have names of their own, not position, position"),
        (
            lambda: list(Parameters((RunInput("x", 0, 255), RunInput("y", 0, 256))).all_values()),
            "run inputs must have at most 65536 combinations of values, not 65792",
        ),
        (lambda: whole_number("x", [1, 2]), "x must be one whole number, not 2"),
    ],
)
def test_what_is_refused(make: object, text: str) -> None:
    assert callable(make)
    with pytest.raises(ParameterError, match=f"^{text}$"):
        make()


def program(parameters: Parameters) -> Program:
    stream = b"\3" + bytes(PAGE_BYTES - 1)
    return Program(
        config=Config(parameters=2), stream=stream, memory_bytes=4096, segments=(Segment(0, 1),), parameters=parameters
    )


def test_in_a_file() -> None:
    again = Program.from_bytes(program(PARAMETERS).to_bytes())
    assert again.parameters == PARAMETERS
    assert json.loads(again.header())["parameters"] == json.loads(json.dumps(asdict(PARAMETERS)))
    assert Program.from_bytes(program(Parameters()).to_bytes()).parameters == Parameters()


def test_more_than_the_configuration_has() -> None:
    with pytest.raises(ProgramError, match=r"^parameters must be at most 2, what the configuration has, not 3$"):
        program(replace(PARAMETERS, formulas=(LANES, LANES, LANES)))
