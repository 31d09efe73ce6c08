"""The vector unit's timing rule; its equality with the RTL is tested in ``tests/hw/vector/test_unit.py``."""

import pytest

from dovetail.isa.config.resolved import Config
from dovetail.isa.instructions.checks import View
from dovetail.isa.instructions.table import DIRECT, INSTRUCTIONS, REGISTERS, SCALING, SOFTMAX, Op, Stage, Unit, pack
from dovetail.isa.timing.memory import SRAM_READ
from dovetail.isa.timing.operations import duration
from dovetail.isa.timing.sequencer import CHECK
from dovetail.isa.timing.vector import OUTPUT, TAPS, WALK, table_lanes, to_end, vector_duration


def test_pipeline_is_the_sum_of_its_parts() -> None:
    assert to_end(Stage("any", 5, "")) == WALK + SRAM_READ + TAPS + 5 + OUTPUT
    assert (to_end(SCALING), to_end(DIRECT)) == (30, 15)


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
    assert vector_duration(Config(), Op.POOL, groups=pixels, blocks=blocks, reads=reads) == CHECK + steps + to_end(
        SCALING
    )


def test_lanes_do_not_matter_but_by_the_number_of_blocks() -> None:
    durations = {vector_duration(Config(vector_lanes=n), Op.POOL, groups=5, blocks=3, reads=9) for n in (1, 3, 16)}
    assert durations == {CHECK + 135 + to_end(SCALING)}


@pytest.mark.parametrize("op", [op for op, row in INSTRUCTIONS.items() if row.unit == Unit.VECTOR and not row.passes])
def test_pipeline_and_table(op: Op) -> None:
    scaled = op not in (Op.MOV, Op.ACT_LUT, Op.E32_ADD, Op.E32_SHIFT)
    assert INSTRUCTIONS[op].stage == (SCALING if scaled else DIRECT)
    table = 256 // 8 if op == Op.ACT_LUT else 0
    duration = vector_duration(Config(vector_lanes=13), op, groups=7, blocks=2, reads=1)
    assert duration == CHECK + table + 14 + to_end(SCALING if scaled else DIRECT)


@pytest.mark.parametrize(("rounding", "waits"), [(0, 25), (1, 10)])
def test_softmax_reads_a_row_once_whole_and_once_by_element(rounding: int, waits: int) -> None:
    row, drain = 25 + 25 * 8 + waits, 25 * 8 + waits + 1
    found = vector_duration(Config(vector_lanes=8), Op.SOFTMAX, groups=16, blocks=25, reads=1, rounding=rounding)
    assert found == CHECK + 1024 // 8 + 16 * row + drain + to_end(SOFTMAX)


@pytest.mark.parametrize(("rows", "groups"), [(1, 21), (2, 12), (4, 6)])
def test_softmax_goes_over_rows_of_a_line_together(rows: int, groups: int) -> None:
    """The last group of a line is filled up, and the last row of a group ends that much later."""
    config = Config(vector_lanes=8, softmax=rows)
    values = dict.fromkeys(REGISTERS[Unit.VECTOR], 0)
    values["TILE"] = pack(Unit.VECTOR, "TILE", height=3, width=7)
    values["BLOCKS"] = pack(Unit.VECTOR, "BLOCKS", count=5, last=1)
    group = 5 * rows + 5 * 8 + 25
    expected = CHECK + 1024 // 8 + groups * group + 5 * 8 + 26 + rows - 1 + to_end(SOFTMAX)
    assert duration(config, Op.SOFTMAX, View(Unit.VECTOR, list(values.values()))) == expected


@pytest.mark.parametrize("rounding", [0, 1])
@pytest.mark.parametrize(("channels", "cycles"), [(64, 118), (192, 182), (768, 470), (4096, 2134)])
def test_norm_reads_a_row_twice_and_its_records_once(channels: int, cycles: int, rounding: int) -> None:
    """Two turns more than blocks in the second pass, before which the root takes 80 cycles. The last row's last output
    does not wait for what is read after its elements."""
    config, blocks = Config(vector_lanes=8), channels // 8
    assert cycles == blocks + 80 + 3 * (blocks + 2)
    found = vector_duration(config, Op.NORM, groups=16, blocks=blocks, reads=1, rounding=rounding)
    assert found == CHECK + 16 * cycles - 7 + to_end(SCALING)


@pytest.mark.parametrize("op", [Op.NORM16, Op.NORM16_WIDE])
def test_the_root_of_a_row_of_16_bits_takes_ten_cycles_more(op: Op) -> None:
    config = Config(vector_lanes=8, norm=1, norm_bits=16)
    durations = [vector_duration(config, each, groups=16, blocks=24, reads=1) for each in (Op.NORM, op)]
    assert durations[1] == durations[0] + 16 * 10


@pytest.mark.parametrize(("width", "groups"), [(1, 1), (4, 1), (5, 2), (99, 25)])
def test_norm_of_four_rows_reads_records_once(width: int, groups: int) -> None:
    """Two words and four blocks take turns; one turn more than blocks. The last output is a turn's last step."""
    config = Config(vector_lanes=8, norm=4)
    values = dict.fromkeys(REGISTERS[Unit.VECTOR], 0)
    values["TILE"] = pack(Unit.VECTOR, "TILE", height=3, width=width)
    values["BLOCKS"] = pack(Unit.VECTOR, "BLOCKS", count=8, last=8)
    group = 4 * 8 + 80 + 6 * (8 + 1)
    expected = CHECK + 3 * groups * group - 6 + to_end(SCALING)
    assert duration(config, Op.NORM, View(Unit.VECTOR, list(values.values()))) == expected


@pytest.mark.parametrize(("lanes", "read"), [(1, 1), (2, 2), (3, 2), (4, 4), (7, 4), (8, 8), (15, 8), (16, 16)])
def test_table_lanes(lanes: int, read: int) -> None:
    """A power of two, so that a step's bytes never wrap around the table's end."""
    assert table_lanes(Config(vector_lanes=lanes)) == read


@pytest.mark.parametrize(
    ("op", "reads"),
    [
        *((op, 2) for op in (Op.E_ADD, Op.E_MUL, Op.C_MIN, Op.C_MAX, Op.E32_ADD)),
        *((op, 1) for op in (Op.E_ABS, Op.ACT_RELU, Op.ACT_LRELU, Op.ACT_LUT, Op.MOV, Op.E32_SHIFT, Op.REQUANT)),
        (Op.SOFTMAX, 1),
        (Op.NORM, 1),
        (Op.NORM16, 1),
        (Op.NORM16_WIDE, 1),
        (Op.WIDEN, 1),
        (Op.POOL, 6),
    ],
)
def test_only_pooling_walks_the_kernel(op: Op, reads: int) -> None:
    config, values = Config(), dict.fromkeys(REGISTERS[Unit.VECTOR], 0)
    values["TILE"] = pack(Unit.VECTOR, "TILE", height=3, width=4)
    values["BLOCKS"] = pack(Unit.VECTOR, "BLOCKS", count=5, last=1)
    values["GEOMETRY"] = pack(Unit.VECTOR, "GEOMETRY", kh=2, kw=3, stride_y=1, dilation_y=1)
    expected = vector_duration(config, op, groups=12, blocks=5, reads=reads)
    assert duration(config, op, View(Unit.VECTOR, list(values.values()))) == expected
