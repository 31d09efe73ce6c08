"""Configuration and timing of the microcoded accelerator; tests/cosim/rtl/test_microcoded.py holds the RTL to it."""

import numpy as np
import pytest

from dovetail.isa.config.given import ConfigError
from dovetail.isa.config.resolved import Config
from dovetail.isa.instructions.table import Cause, Op, Unit, cfg, pack
from dovetail.isa.timing.run import cycle_bound, time_program
from dovetail.isa.timing.timeline import Fault

CONFIG = Config.load("icebreaker")
LATENCY = CONFIG.like_fixed.read_latency


@pytest.mark.parametrize(
    ("changes", "text"),
    [
        ({"stripe": 2}, "serial needs stripe = 1, not 2"),
        ({"matmul": True}, "serial needs matmul = false, not true"),
        ({"ic_lanes": 8}, r"^serial needs ic_lanes \* oc_lanes = 16, not 32$"),
        ({"sram": "96 KiB", "banks": 6}, "serial needs sram of a power of two, not 96 KiB"),
    ],
)
def test_what_it_cannot_be(changes: dict[str, object], text: str) -> None:
    with pytest.raises(ConfigError, match=text):
        CONFIG.replace(**changes)


def test_toml_keeps_it_and_older_hashes_stay() -> None:
    assert Config.from_toml(CONFIG.to_toml()) == CONFIG
    assert "serial" not in Config().to_dict()


def test_a_program_of_nothing() -> None:
    timeline = time_program(CONFIG, [int(Op.END)])
    # 199 microinstructions that clear registers, the word in two beats, 14 that decode it, 14 that end the run.
    assert timeline.cycles == 2 * 199 + (10 + 2 * LATENCY) + 2 * 14 + 28
    assert all(timeline.counters[unit].idle == timeline.cycles for unit in Unit)


def test_words_take_their_time_one_after_the_other() -> None:
    words = [cfg(Unit.STORE, "LENGTH", 4), int(Op.END)]
    nothing = time_program(CONFIG, [int(Op.END)])
    timeline = time_program(CONFIG, words)
    assert timeline.cycles - nothing.cycles == 10 + 2 * LATENCY + 2 * 18
    assert timeline.counters[Unit.STORE].config == 1


def test_a_row_of_a_transfer_takes_its_beats() -> None:
    def cycles(address: int, length: int) -> int:
        values = {"MEM_ADDR": address, "SRAM_BYTES": 64, "LENGTH": length}
        words = [cfg(Unit.LOAD, name, value) for name, value in values.items()]
        words += [cfg(Unit.LOAD, "COUNT", pack(Unit.LOAD, "COUNT", rows=1, planes=1)), int(Op.DMA_READ), int(Op.END)]
        timeline = time_program(CONFIG, words)
        assert timeline.fault is None and timeline.cycles <= cycle_bound(CONFIG, words)
        return int((timeline.end - timeline.start)[0])

    assert cycles(0, 8) - cycles(0, 4) == 48 + LATENCY
    assert cycles(3, 8) - cycles(0, 8) == 48 + LATENCY  # three beats


def test_faults_are_reported_where_they_are() -> None:
    timeline = time_program(CONFIG, [int(Op.DMA_READ)])
    assert timeline.fault == Fault(Cause.ZERO_SIZE, 0)
    np.testing.assert_array_equal(timeline.works, [False])
    assert time_program(CONFIG, [int(Op.MAT_MUL)]).fault == Fault(Cause.UNIT_ABSENT, 0)
    assert time_program(CONFIG, [0] * 128).fault == Fault(Cause.OPCODE, 0)
    assert time_program(CONFIG, []).fault == Fault(Cause.NO_END, 0)
