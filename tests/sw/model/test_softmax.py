"""The model's SOFTMAX against every measured vector of both runtimes."""

import numpy as np
import pytest

from dovetail.isa.config.resolved import Config
from dovetail.isa.instructions.checks import View, check
from dovetail.isa.instructions.table import REGISTERS, Cause, Op, Unit
from dovetail.sw.model.base import Sram, SystemMemory
from dovetail.sw.model.vector import VectorModel
from tests.softmax import TABLE, instruction, measured

CONFIG = Config(sram="32 KiB", banks=8, vector_lanes=4, softmax=1)


@pytest.mark.parametrize("prefix", ["tflm_", "ort_s8_", "ort_u8_"])
def test_every_vector(prefix: str) -> None:
    model, sram, nothing = VectorModel(CONFIG), Sram(CONFIG.sram), SystemMemory(np.zeros(0, np.uint8), 0)
    sram.touch(0, CONFIG.sram)
    count = 0
    for x, y, given in measured(prefix):
        registers, table = instruction(CONFIG, prefix, len(x), given)
        view = View(Unit.VECTOR, list((dict.fromkeys(REGISTERS[Unit.VECTOR], 0) | registers).values()))
        assert check(CONFIG, Op.SOFTMAX, view) == Cause.NONE
        sram.data[: len(x)] = x.view(np.uint8)
        sram.data[TABLE : TABLE + 1024] = np.frombuffer(table, np.uint8)
        model.execute(Op.SOFTMAX, view, sram, nothing)
        out = registers["OUT_ADDR"]
        np.testing.assert_array_equal(sram.data[out : out + len(x)].view(np.int8), y)
        count += 1
    assert count > 700
