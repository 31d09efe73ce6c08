"""All operations of a program at once against the rules for one."""

import random
from itertools import combinations

import numpy as np
import pytest

from dovetail.isa.instructions.checks import View, check, claim
from dovetail.isa.instructions.table import Cause, Op, Unit
from dovetail.isa.timing.operations import Operations, rules_of
from dovetail.isa.timing.run import time_program
from dovetail.isa.timing.sequencer import as_words, front_end_faults
from dovetail.sw.random.programs.broken import illegal_program, operations_of
from dovetail.sw.random.programs.legal import legal_program
from dovetail.sw.random.programs.registers import random_config

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
    causes = operations.causes(config)
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


@pytest.mark.parametrize("seed", SEEDS)
def test_who_meets(seed: int) -> None:
    """Operations of four units, each in its order, at times that need not suit one another."""
    rng = random.Random(seed)
    config = random_config(rng)
    words = as_words(list(legal_program(rng, config).words))
    words = words[: int(np.flatnonzero(words & np.uint64(0xFF) == Op.END)[0])]
    operations, rules = Operations(words), rules_of(config)
    assert not operations.causes(config).any()
    found = [rules.find((op, tuple(view.values))) for _, op, view in operations_of(words.tolist())]
    timeline = time_program(config, [*words.tolist(), Op.END])
    mine = ~timeline.is_fetch
    assert not operations.meet(config, timeline.start[mine], timeline.end[mine])
    for _ in range(60):
        free, starts, ends = dict.fromkeys(Unit, 0), [], []
        for unit in operations.units.tolist():
            starts.append(free[Unit(unit)] + rng.choice((0, 0, 1, rng.randrange(400))))
            ends.append(starts[-1] + 3 + rng.randrange(40))
            free[Unit(unit)] = ends[-1] + 1
        meets = False
        for a, b in combinations(range(len(starts)), 2):
            one, two = found[a], found[b]
            together = operations.units[a] != operations.units[b] and max(starts[a], starts[b]) + 3 <= min(
                ends[a], ends[b]
            )
            meets |= together and bool(one.reads & two.reads or one.writes & two.writes or one.races(two))
        assert operations.meet(config, np.array(starts), np.array(ends)) == meets


def test_no_operations() -> None:
    operations = Operations(as_words(b""))
    assert operations.registers() == []
    assert not operations.meet(rules_of(random_config(random.Random(1))).config, *[np.zeros(0, np.int64)] * 2)
