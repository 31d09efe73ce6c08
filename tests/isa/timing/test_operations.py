"""All operations of a program at once against the rules for one."""

import random

import numpy as np
import pytest

from dovetail.isa.instructions.checks import READS, View, check, claim, regions
from dovetail.isa.instructions.table import Cause, Op, Unit
from dovetail.isa.timing.operations import Operations, rules_of
from dovetail.isa.timing.sequencer import as_words, front_end_faults
from dovetail.sw.random.programs.accelerators import random_config
from dovetail.sw.random.programs.broken import illegal_program, operations_of
from dovetail.sw.random.programs.legal import legal_program

SEEDS = range(40)


@pytest.mark.parametrize("seed", SEEDS)
def test_registers_causes_and_durations(seed: int) -> None:
    rng = random.Random(seed)
    config = random_config(rng)
    make = rng.choice((legal_program, illegal_program))
    words = as_words(list(make(rng, config).words))
    stops = np.flatnonzero((front_end_faults(config, words) != 0) | (words & np.uint64(0xFF) == Op.END))
    words = words[: stops[0]] if len(stops) else words
    operations, rules = Operations(words), rules_of(config)
    plain = [(n, op, view) for n, op, view in operations_of(words.tolist()) if n < len(words)]
    assert operations.pcs.tolist() == [n for n, _, _ in plain]
    assert operations.ops.tolist() == [op for _, op, _ in plain]
    assert operations.units.tolist() == [view.unit for _, _, view in plain]
    assert operations.registers() == [tuple(view.values) for _, _, view in plain]
    causes, spaces = operations.verify(config)
    for (_, op, view), row in zip(plain, spaces.tolist(), strict=True):
        claimed = regions(op, view)
        for declared, row_of in ((claimed.reads, row[:READS]), (claimed.writes, row[READS:])):
            assert [tuple(space) for space in row_of] == [*declared, *[(0, 0)] * (len(row_of) - len(declared))]
    assert causes.tolist() == [
        check(config, op, view) or (Cause.BANK_CONFLICT if claim(config, op, view).twice else Cause.NONE)
        for _, op, view in plain
    ]
    found = [rules.find((op, tuple(view.values))) for _, op, view in plain]
    assert operations.durations(rules, causes).tolist() == [rule.duration for rule in found]
    ends = zip(operations.memory_ends().tolist(), plain, causes.tolist(), strict=True)
    for end, view in ((end, view) for end, (_, _, view), cause in ends if not cause):
        assert end == (last_byte(view) + 1 if view.unit in (Unit.LOAD, Unit.STORE) else -1)


def last_byte(view: View) -> int:
    """Of system memory, from BASE on: the last row's last byte."""
    starts = (
        view["MEM_ADDR"] + plane * view["MEM_PLANE_STEP"] + row * view["MEM_ROW_STEP"]
        for plane in range(view["COUNT", "planes"])
        for row in range(view["COUNT", "rows"])
    )
    return max(starts) + view["LENGTH"] - 1


def test_no_operations() -> None:
    operations = Operations(as_words(b""))
    assert operations.registers() == []
