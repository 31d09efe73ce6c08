"""The vector unit's timing rule; its equality with the RTL is tested in ``tests/hw/test_vector_unit.py``."""

import pytest

from dovetail.isa.config import PRESETS, Config
from dovetail.isa.instructions import Op
from dovetail.isa.latency import VECTOR_LANE
from dovetail.isa.timing.common import CHECK, SRAM_READ
from dovetail.isa.timing.vector import PIPELINE, TAPS, WALK, vector_duration


def test_pipeline_is_the_sum_of_its_parts() -> None:
    assert PIPELINE == WALK + SRAM_READ + TAPS + VECTOR_LANE


@pytest.mark.parametrize(
    ("pixels", "blocks", "reads", "steps"),
    [
        (1, 1, 1, 1),  # the shortest instruction
        (1, 1, 2, 2),  # addition
        (49, 256, 49, 614_656),  # global average of 7 x 7 x 1024
        (65535 * 65535, 65535, 255 * 255, 65535**3 * 65025),  # no overflow
    ],
)
def test_one_cycle_per_read(pixels: int, blocks: int, reads: int, steps: int) -> None:
    assert (
        vector_duration(PRESETS["default"], Op.POOL, pixels=pixels, blocks=blocks, reads=reads)
        == CHECK + steps + PIPELINE
    )


def test_lanes_do_not_matter_but_by_the_number_of_blocks() -> None:
    durations = {vector_duration(Config(vector_lanes=n), Op.POOL, pixels=5, blocks=3, reads=9) for n in (1, 3, 16)}
    assert durations == {CHECK + 135 + PIPELINE}
