"""The mutants are what they say, and the explanations of survivors are of code that is there."""

import ast
import importlib
from typing import Any

import pytest
from amaranth import Module, Mux, Signal
from amaranth.sim import Simulator

from tests.mutation import mutants, systematic

SOURCE = """
def elaborate(a, b, y):
    m = Module()
    m.d.comb += y.eq(Mux(a == 2, a + b, a & b))
    return m
"""
AS_IT_IS = {"": lambda a, b: a + b if a == 2 else a & b}
WRONG = {
    "negated": lambda a, b: a & b if a == 2 else a + b,
    "always": lambda a, b: a + b,
    "never": lambda a, b: a & b,
    "== becomes !=": lambda a, b: a + b if a != 2 else a & b,
    "== one more": lambda a, b: a + b if a == 3 else a & b,
    "== one less": lambda a, b: a + b if a == 1 else a & b,
    "+ becomes -": lambda a, b: (a - b) % 16 if a == 2 else a & b,
    "+ dropped": lambda a, b: a if a == 2 else a & b,
    "& becomes |": lambda a, b: a + b if a == 2 else a | b,
}


def elaborated(mutator: mutants.Mutator, a: Signal, b: Signal, y: Signal) -> Module:
    tree = mutants._Rewriter("some.py").visit(ast.parse(SOURCE))
    names: dict[str, Any] = {"Module": Module, "Mux": Mux, mutants.HOOK: mutator}
    exec(compile(tree, "some.py", "exec"), names)
    module: Module = names["elaborate"](a, b, y)
    return module


def values(mutator: mutants.Mutator, number: int) -> list[int]:
    a, b, y = Signal(3), Signal(3), Signal(4)
    m = elaborated(mutator, a, b, y)
    found: list[int] = []

    async def bench(ctx: Any) -> None:
        ctx.set(mutator.select, number)
        for n in range(64):
            ctx.set(a, n % 8)
            ctx.set(b, n // 8)
            await ctx.delay(1e-9)
            found.append(ctx.get(y))

    simulator = Simulator(m)
    simulator.add_testbench(bench)
    simulator.run()
    return found


def test_each_switch_is_what_it_says_and_none_is_the_design() -> None:
    mutator = mutants.Mutator()
    assert values(mutator, 0) == [AS_IT_IS[""](n % 8, n // 8) for n in range(64)]
    names = {mutant[3]: number for mutant, number in mutator.numbers.items()}
    assert names.keys() == WRONG.keys()
    for what, number in names.items():
        assert values(mutator, number) == [WRONG[what](n % 8, n // 8) for n in range(64)], what
        (mutant,) = (m for m in mutator.numbers if m[3] == what)
        planted = mutants.Mutator(planted=mutant)
        assert values(planted, 0) == values(mutator, number), what


def test_hardware_must_not_have_been_imported() -> None:
    importlib.import_module("dovetail.hw.sequencer.queue")
    with pytest.raises(RuntimeError, match=r"^mutants must be installed before dovetail\.hw\."):
        mutants.install(mutants.Mutator())


def test_explanations_are_of_code_that_is_there() -> None:
    for (file, code, what), why in systematic.reasons().items():
        lines = [line.strip() for line in (systematic.ROOT / "hw" / file).read_text().splitlines()]
        assert code in lines, f"{file}: {what}: {code}"
        assert why


def test_names_of_files_are_of_files_that_are_there() -> None:
    hw = systematic.ROOT / "hw"
    files = [path.relative_to(hw).as_posix() for path in hw.rglob("*.py")]
    assert set(files) >= systematic.LEFT_OUT
    for test, beginnings in systematic.UNIT_TESTS.items():
        assert (systematic.ROOT / test).is_file(), test
        for beginning in beginnings:
            assert any(file.startswith(beginning) for file in files), f"{test}: {beginning}"


def test_report_says_what_was_not_run(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(systematic, "code_at", lambda mutant: f"line {mutant[1]}")
    monkeypatch.setattr(systematic, "reasons", lambda: {("a.py", "line 4", "never"): "it is so"})
    known = [("a.py", line, 0, "never") for line in range(1, 7)]
    by = {1: "program 0", 2: "faults: reset", 3: "tests/hw/test_a.py", 4: "", 5: ""}
    outcomes = {m: systematic.Outcome(m, "", by[m[1]], 1) for m in known if m[1] in by}
    text = systematic.report(known, outcomes)
    assert "| `hw/a.py` | 6 | 5 | 2 | 1 | 1 | 1 |" in text
    assert "Of 6 mutants 5 were run, a random sample of all files.\nNot run: 1.\n" in text
    assert "**1 survive unexplained (20.0 %)**" in text
    assert "- `hw/a.py`, never: `line 4`: it is so" in text
