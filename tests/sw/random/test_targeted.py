"""Programs that end in a given fault: every cause of every instruction can be had, and is what the model ends in."""

import random

import pytest

from dovetail.isa.config.resolved import Config
from dovetail.isa.instructions.table import Cause, Op
from dovetail.sw.model.accelerator import Model
from dovetail.sw.random.programs.targeted import ends_in, targeted_program, targets

WHOLE = Config(ic_lanes=4, oc_lanes=6, sram="64 KiB", banks=16, requant_lanes=2)
BARE = WHOLE.replace(matmul=False, pooling=False, elementwise=False, activation=False, depthwise="none")
CASES = [(config, target) for config in (WHOLE, BARE) for target in targets(config)]


def test_targets_are_what_a_configuration_can_raise() -> None:
    assert {op for op, _ in targets(WHOLE)} == set(Op)
    causes = {cause for config in (WHOLE, BARE) for _, cause in targets(config)}
    assert set(Cause) - causes == {Cause.NONE, Cause.OPCODE, Cause.NO_END, Cause.BUS_FETCH}
    assert (Op.DMA_READ, Cause.BUS_READ) in targets(WHOLE)
    assert (Op.DMA_READ, Cause.BUS_WRITE) not in targets(WHOLE)
    assert (Op.POOL, Cause.ALIGNMENT) not in targets(WHOLE)
    assert (Op.POOL, Cause.ZERO_SIZE) not in targets(BARE)
    assert {(Op.POOL, Cause.UNIT_ABSENT), (Op.CFG, Cause.UNIT_ABSENT)} <= set(targets(BARE))


@pytest.mark.parametrize(("config", "target"), CASES, ids=[f"{op.name}-{cause.name}" for _, (op, cause) in CASES])
def test_every_target_is_hit(config: Config, target: tuple[Op, Cause]) -> None:
    rng = random.Random(f"{target}")
    program = targeted_program(rng, config, target)
    assert program is not None
    assert ends_in(program) == target
    fault = Model(config).run(program.fresh_memory(), *program.arguments).fault
    assert fault is not None and fault.cause == target[1]
    assert program.words[fault.pc] & 0xFF == target[0]


def test_a_seed_gives_the_same_program() -> None:
    target = Op.CONV, Cause.BANK_CONFLICT
    first, second = (targeted_program(random.Random(3), WHOLE, target) for _ in range(2))
    assert first is not None and second is not None
    assert first.words == second.words
