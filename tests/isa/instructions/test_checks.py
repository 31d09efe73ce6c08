"""What operations are verified for: every check by one register that breaks it, claims, what a configuration has."""

from typing import Any

import pytest

from dovetail.isa.config.resolved import Config
from dovetail.isa.instructions.checks import View, check, claim, has, lanes_of, regions, result_pairs_of
from dovetail.isa.instructions.table import INSTRUCTIONS, REGISTERS, Cause, Op, Unit, pack, pack_some

CONFIG = Config(
    ic_lanes=4, oc_lanes=6, sram="64 KiB", banks=16, stripe=20, vector_lanes=3, softmax=1, norm=1, norm_bits=16
)
BANK = CONFIG.bank_bytes

OPERATIONS = [op for op, row in INSTRUCTIONS.items() if row.unit is not None]
COMPUTE = [op for op in OPERATIONS if INSTRUCTIONS[op].unit in (Unit.ARRAY, Unit.VECTOR)]
ARRAY = [op for op in COMPUTE if INSTRUCTIONS[op].unit == Unit.ARRAY]
OF_16_BITS = [Op.WIDEN, Op.NORM16, Op.NORM16_WIDE]
NORMS = [Op.NORM, Op.NORM16, Op.NORM16_WIDE]
WITH_B = [Op.MAT_MUL, Op.E_ADD, Op.E_MUL, Op.C_MIN, Op.C_MAX, Op.E32_ADD, Op.ACT_LUT, Op.SOFTMAX, *NORMS]
"""Operations that read region B."""


def legal(op: Op, **changes: int) -> View:
    """The least registers that pass the checks of ``op``, with regions in banks 1 (input), 3, 5, 7 (output)."""
    unit = INSTRUCTIONS[op].unit
    assert unit is not None
    values = dict.fromkeys(REGISTERS[unit], 0)
    if unit in (Unit.LOAD, Unit.STORE):
        values |= {"SRAM_ADDR": BANK, "SRAM_BYTES": 64, "LENGTH": 64, "COUNT": pack(unit, "COUNT", rows=1, planes=1)}
    else:
        values |= {"IN_ADDR": BANK, "IN_BYTES": 64, "OUT_ADDR": 7 * BANK, "OUT_BYTES": 64}
        values |= {
            "TILE": pack(unit, "TILE", height=1, width=1),
            "GEOMETRY": pack(unit, "GEOMETRY", kh=1, kw=1, stride_y=0, dilation_y=0),
            "BLOCKS": pack(unit, "BLOCKS", count=1, last=1),
        }
    if unit == Unit.ARRAY:
        values |= {"W_ADDR": 3 * BANK, "W_BYTES": 64, "STRIPE": 1}
    if op in WITH_B:
        values |= {"B_ADDR": 5 * BANK, "B_BYTES": 64}
    if unit == Unit.ARRAY and op != Op.DEPTH_CONV:
        values["KC"] = 1
    return View(unit, list((values | changes).values()))


def array_mode(**fields: int) -> int:
    return pack_some(Unit.ARRAY, "MODE", **fields)


@pytest.mark.parametrize("op", OPERATIONS)
def test_legal(op: Op) -> None:
    assert check(CONFIG, op, legal(op)) == Cause.NONE
    assert not claim(CONFIG, op, legal(op)).twice


@pytest.mark.parametrize("op", COMPUTE)
@pytest.mark.parametrize("name", ["IN_BYTES", "OUT_BYTES", "TILE", "GEOMETRY", "BLOCKS"])
def test_zero_sizes(op: Op, name: str) -> None:
    unit = legal(op).unit
    assert check(CONFIG, op, legal(op, **{name: 0})) == Cause.ZERO_SIZE
    for field in (f.name for f in REGISTERS[unit][name].fields if f.name not in ("stride_y", "dilation_y")):
        others = {f.name: int(f.name != field) for f in REGISTERS[unit][name].fields}
        assert check(CONFIG, op, legal(op, **{name: pack(unit, name, **others)})) == Cause.ZERO_SIZE


@pytest.mark.parametrize("op", COMPUTE)
def test_region_b_counts_where_it_is_read(op: Op) -> None:
    reads = op in WITH_B
    assert (legal(op).region("B") in regions(op, legal(op)).reads) == reads
    for changes, cause in (({"B_BYTES": 0}, Cause.ZERO_SIZE), ({"B_ADDR": CONFIG.sram - 63}, Cause.SRAM_RANGE)):
        assert check(CONFIG, op, legal(op, **changes)) == (cause if reads else Cause.NONE)


@pytest.mark.parametrize("op", ARRAY)
def test_array_limits(op: Op) -> None:
    for name in ("W_BYTES", "STRIPE", *(["KC"] if op != Op.DEPTH_CONV else [])):
        assert check(CONFIG, op, legal(op, **{name: 0})) == Cause.ZERO_SIZE
    assert check(CONFIG, op, legal(op, STRIPE=20)) == Cause.NONE
    assert check(CONFIG, op, legal(op, STRIPE=21)) == Cause.TOO_LARGE
    for name in ("W_ADDR", "W_BYTES"):
        assert check(CONFIG, op, legal(op, **{name: CONFIG.word_bytes // 2})) == Cause.ALIGNMENT


@pytest.mark.parametrize("op", ARRAY)
@pytest.mark.parametrize(("pixel_lanes", "sets"), [(1, 1), (2, 4), (8, 16)])
def test_groups_fit_the_weight_sets(op: Op, pixel_lanes: int, sets: int) -> None:
    config = CONFIG.replace(pixel_lanes=pixel_lanes, ic_lanes=1)
    assert config.weight_sets == sets
    for group in (1, sets, sets + 1):
        if group <= 16:
            view = legal(op, KC=pack(Unit.ARRAY, "KC", blocks=1, group=group - 1))
            most = config.depthwise_sets if op == Op.DEPTH_CONV else sets
            fits = group <= most
            assert check(config, op, view) == (Cause.NONE if fits else Cause.TOO_LARGE)


@pytest.mark.parametrize("op", OPERATIONS)
def test_regions_end_with_the_sram(op: Op) -> None:
    names = [n.removesuffix("_ADDR") for n in REGISTERS[legal(op).unit] if n.endswith("_ADDR") and n != "MEM_ADDR"]
    for name in names:
        if name == "B" and op not in WITH_B:
            continue
        end = CONFIG.sram
        assert check(CONFIG, op, legal(op, **{f"{name}_ADDR": end - 64})) == Cause.NONE
        assert check(CONFIG, op, legal(op, **{f"{name}_ADDR": end})) == Cause.SRAM_RANGE
        assert check(CONFIG, op, legal(op, **{f"{name}_ADDR": (1 << 32) - 64})) == Cause.SRAM_RANGE


@pytest.mark.parametrize(
    ("op", "extra", "lanes"),
    [
        (Op.CONV, 7, 6),
        (Op.MAT_MUL, 7, 6),
        (Op.DEPTH_CONV, 0, 6),
        (Op.DEPTH_CONV, 3, 4),
        (Op.DEPTH_CONV, 5, 6),
        (Op.MOV, 0, 3),
    ],
)
def test_last_block_fits_the_lanes(op: Op, extra: int, lanes: int) -> None:
    unit = legal(op).unit
    mode = {"MODE": array_mode(extra=extra)} if unit == Unit.ARRAY else {}
    for last in (lanes, lanes + 1):
        view = legal(op, **mode, BLOCKS=pack(unit, "BLOCKS", count=1, last=last))
        assert lanes_of(CONFIG, op, view) == lanes
        assert check(CONFIG, op, view) == (Cause.NONE if last == lanes else Cause.TOO_LARGE)


def test_channel_multiplier_beyond_the_lanes() -> None:
    config = Config(ic_lanes=4, oc_lanes=6)
    view = legal(Op.DEPTH_CONV, MODE=array_mode(extra=6))
    assert lanes_of(config, Op.DEPTH_CONV, view) == 0
    assert check(config, Op.DEPTH_CONV, view) == Cause.TOO_LARGE


def test_a_channel_multiplier_has_one_set() -> None:
    config = CONFIG.replace(pixel_lanes=2)
    for extra, sets, fits in ((0, 2, True), (1, 1, True), (1, 2, False)):
        kc = pack(Unit.ARRAY, "KC", blocks=0, group=sets - 1)
        view = legal(Op.DEPTH_CONV, MODE=array_mode(extra=extra), KC=kc)
        assert check(config, Op.DEPTH_CONV, view) == (Cause.NONE if fits else Cause.TOO_LARGE)


@pytest.mark.parametrize(("sets", "pixels"), [(1, 10), (2, 10), (3, 5), (4, 5)])
def test_depthwise_stripes_have_rows_for_all_sets(sets: int, pixels: int) -> None:
    """Of 10 rows of accumulators a pixel takes one for every two sets, as there are two pixel lanes."""
    config = CONFIG.replace(pixel_lanes=2, stripe=20, bus=256)
    assert config.depthwise_sets == 4
    kc, mode = pack(Unit.ARRAY, "KC", blocks=0, group=sets - 1), array_mode(slide=sets % 3)
    for stripe in (pixels, pixels + 1):
        view = legal(Op.DEPTH_CONV, MODE=mode, KC=kc, STRIPE=stripe)
        assert check(config, Op.DEPTH_CONV, view) == (Cause.NONE if stripe == pixels else Cause.TOO_LARGE)


def test_slides_go_to_two() -> None:
    assert check(CONFIG, Op.DEPTH_CONV, legal(Op.DEPTH_CONV, MODE=array_mode(slide=3))) == Cause.TOO_LARGE


@pytest.mark.parametrize(("pixel_lanes", "most"), [(2, 2), (4, 4), (8, 4)])
def test_columns_of_a_word(pixel_lanes: int, most: int) -> None:
    """A word is full of columns, of a kernel of three, and pixels slide by it."""
    config = CONFIG.replace(pixel_lanes=pixel_lanes, ic_lanes=3, bus=256, stripe=20 * pixel_lanes)
    assert config.word_columns == most
    legal_ = {
        "KC": pack(Unit.ARRAY, "KC", blocks=0, group=pixel_lanes - 1),
        "GEOMETRY": pack(Unit.ARRAY, "GEOMETRY", kh=2, kw=3, stride_y=1, dilation_y=1),
        "KX_STEP": config.acc_lanes,
        "BLOCKS": pack(Unit.ARRAY, "BLOCKS", count=1, last=config.acc_lanes),
    }

    def found(columns: int = 1, slide: int = 1, extra: int = 0, other: Config = config, **changes: int) -> Cause:
        mode = array_mode(columns=columns, slide=slide, extra=extra)
        return check(other, Op.DEPTH_CONV, legal(Op.DEPTH_CONV, **legal_ | {"MODE": mode} | changes))

    assert [found(columns=power) for power in range(4)] == [
        Cause.NONE if 1 << power <= most else Cause.TOO_LARGE for power in range(4)
    ]
    assert {found(slide=0), found(slide=2), found(extra=1, BLOCKS=1 | 1 << 16)} == {Cause.TOO_LARGE}
    assert config.has_wide_words == (pixel_lanes == 2)
    wide: dict[str, Any] = {"KX_STEP": 2 * config.acc_lanes}
    assert found(**wide) == (Cause.NONE if config.has_wide_words else Cause.TOO_LARGE)
    assert found(columns=2, **wide) == Cause.TOO_LARGE
    cases: list[dict[str, Any]] = [
        {"KC": pack(Unit.ARRAY, "KC", blocks=0, group=pixel_lanes - 2), "BLOCKS": 1 | 1 << 16},
        {"GEOMETRY": pack(Unit.ARRAY, "GEOMETRY", kh=2, kw=2, stride_y=1, dilation_y=1)},
        {"KX_STEP": config.acc_lanes // 2},
        {"KX_STEP": config.acc_lanes | 1 << 31},
    ]
    for changes in cases:
        assert (found(**changes), found(columns=0, **changes)) == (Cause.TOO_LARGE, Cause.NONE)
    # Two input lanes are too few for the taps. With one pixel lane the field counts nowhere.
    assert found(other=config.replace(ic_lanes=2)) == Cause.TOO_LARGE
    assert found(other=CONFIG, KC=0, BLOCKS=1 | 1 << 16) == Cause.NONE


@pytest.mark.parametrize("op", [Op.CONV, Op.CONV_RELU, Op.MAT_MUL])
@pytest.mark.parametrize(("pixel_lanes", "sets"), [(2, 1), (4, 3)])
def test_pairs_of_pixels(op: Op, pixel_lanes: int, sets: int) -> None:
    """What a read has of two pixels: of few weight sets, pixels that are near, in a row and in a stripe."""
    config = CONFIG.replace(pixel_lanes=pixel_lanes, ic_lanes=2, stripe=40)
    assert config.pair_sets == sets
    tile = pack(Unit.ARRAY, "TILE", height=3, width=4)
    kc = pack(Unit.ARRAY, "KC", blocks=9, group=sets - 1)
    pairs = array_mode(pairs=1)

    def found(mode: int, **changes: int) -> Cause:
        return check(
            config, op, legal(op, **{"MODE": mode, "TILE": tile, "KC": kc, "STRIPE": 6, "X_STEP": 2 * sets} | changes)
        )

    assert found(pairs) == Cause.NONE
    for changes in (
        {"KC": pack(Unit.ARRAY, "KC", blocks=9, group=sets)},
        {"TILE": pack(Unit.ARRAY, "TILE", height=4, width=3)},
        {"STRIPE": 5},
        {"X_STEP": 2 * sets + 1},
        {"X_STEP": 1 << 31},
    ):
        assert (found(pairs, **changes), found(0, **changes)) == (Cause.TOO_LARGE, Cause.NONE)
        single = legal(op, MODE=pairs, **changes | {"KC": 1})
        assert check(CONFIG, op, single) == Cause.NONE  # with one pixel lane the bit counts nowhere
    assert found(array_mode(pairs=1, accumulate=1)) == Cause.TOO_LARGE


def test_results_that_leave_together() -> None:
    """Of pairs, as int8, whole blocks apart, with requantiser lanes for two pixels."""
    config = CONFIG.replace(pixel_lanes=4, ic_lanes=2, oc_lanes=8, requant_lanes=16)

    def found(op: Op = Op.CONV, other: Config = config, step: int = 24, **mode: int) -> bool:
        return result_pairs_of(other, op, legal(op, MODE=array_mode(pairs=1, **mode), OUT_X_STEP=step))

    assert found() and found(Op.CONV_RELU) and found(Op.MAT_MUL) and found(step=8)
    assert not any(found(step=step) for step in (0, 4, 12, 32, 1 << 31 | 8))
    assert not (found(int32=1) or found(Op.DEPTH_CONV))
    assert not found(other=config.replace(requant_lanes=15))
    assert not found(other=config.replace(oc_lanes=4, requant_lanes=8), step=4)
    assert not found(other=config.replace(pixel_lanes=1, requant_lanes=8))


def test_division_needs_a_count() -> None:
    for average, requantise in ((0, 0), (0, 1), (1, 0), (1, 1)):
        mode = pack(Unit.VECTOR, "MODE", rounding=0, average=average, requantise=requantise, subtract=0)
        cause = Cause.ZERO_SIZE if average and not requantise else Cause.NONE
        assert check(CONFIG, Op.POOL, legal(Op.POOL, MODE=mode)) == cause
        assert check(CONFIG, Op.MOV, legal(Op.MOV, MODE=mode)) == Cause.NONE


@pytest.mark.parametrize("op", COMPUTE)
@pytest.mark.parametrize(("offset", "twice"), [(-64, False), (-63, True), (0, True), (63, True), (64, False)])
def test_results_must_not_lie_on_what_is_read(op: Op, offset: int, twice: bool) -> None:
    """By a byte; two regions in one bank are no matter, one is read and one is written."""
    for name, bank in (("IN", 1), *([("W", 3)] if op in ARRAY else []), *([("B", 5)] if op in WITH_B else [])):
        assert (
            claim(
                CONFIG, op, legal(op, OUT_ADDR=bank * BANK + 128 + offset, **{f"{name}_ADDR": bank * BANK + 128})
            ).twice
            == twice
        )


@pytest.mark.parametrize("op", ARRAY)
def test_array_reads_at_the_same_time_from_different_banks(op: Op) -> None:
    streams = ["W", "B"] if op == Op.MAT_MUL else ["W"]
    for accumulate in (0, 1):
        mode = array_mode(accumulate=accumulate)
        for name in streams:
            assert claim(CONFIG, op, legal(op, MODE=mode, **{f"{name}_ADDR": BANK + 128})).twice
            view = legal(op, MODE=mode, **{f"{name}_ADDR": 7 * BANK + 128})
            assert claim(CONFIG, op, view).twice == bool(accumulate)
        old = legal(op, MODE=mode, OUT_ADDR=BANK + 128)  # pixels and old values take turns
        assert not claim(CONFIG, op, old).twice
    if op == Op.MAT_MUL:  # so do records and matrix
        assert not claim(CONFIG, op, legal(op, B_ADDR=3 * BANK + 128)).twice


@pytest.mark.parametrize("op", COMPUTE)
def test_claims(op: Op) -> None:
    reads = 1 << 1
    if op in ARRAY:
        reads |= 1 << 3
    if op in WITH_B:
        reads |= 1 << 5
    claims = claim(CONFIG, op, legal(op))
    assert (claims.reads, claims.writes) == (reads, 1 << 7)
    if op in ARRAY:
        assert claim(CONFIG, op, legal(op, MODE=array_mode(accumulate=1))).reads == reads | 1 << 7
    wide = claim(CONFIG, op, legal(op, OUT_ADDR=8 * BANK - 1, OUT_BYTES=BANK + 2))
    assert wide.writes == 0b111 << 7


@pytest.mark.parametrize(
    ("feature", "ops"),
    [
        ("matmul", [Op.MAT_MUL]),
        ("pooling", [Op.POOL]),
        (
            "elementwise",
            [Op.E_ADD, Op.E_MUL, Op.E_ABS, Op.C_MIN, Op.C_MAX, Op.E32_ADD, Op.E32_SHIFT, Op.REQUANT, *OF_16_BITS],
        ),
        ("activation", [Op.ACT_RELU, Op.ACT_LRELU, Op.ACT_LUT]),
        ("softmax", [Op.SOFTMAX]),
        ("norm", [Op.NORM, *OF_16_BITS]),
    ],
)
def test_a_feature_has_its_operations(feature: str, ops: list[Op]) -> None:
    """Those of 16 bits need norms and element-wise operations."""
    nothing: Any = {feature: type(getattr(CONFIG, feature))(0)}
    if feature in ("norm", "elementwise"):
        nothing["norm_bits"] = 8
    assert {op for op in OPERATIONS if not has(CONFIG.replace(**nothing), op)} == set(ops)


def test_copies_come_with_any_vector_unit() -> None:
    parts: dict[str, Any] = {"pooling": False, "elementwise": False, "activation": False, "softmax": 0, "norm": 0}
    config = CONFIG.replace(norm_bits=8)
    assert not has(config.replace(**parts), Op.MOV)
    assert all(has(config.replace(**parts | {name: type(parts[name])(1)}), Op.MOV) for name in parts)
    assert not has(CONFIG.replace(depthwise="none"), Op.DEPTH_CONV)
    assert all(has(CONFIG, op) for op in INSTRUCTIONS)


def test_rows_have_up_to_4096_channels() -> None:
    """Whole blocks of them: with 3 lanes 1,365 blocks, 4,095 channels."""
    for blocks, cause in ((1365, Cause.NONE), (1366, Cause.TOO_LARGE)):
        count = pack(Unit.VECTOR, "BLOCKS", count=blocks, last=1)
        assert [check(CONFIG, op, legal(op, BLOCKS=count)) for op in (*NORMS, Op.SOFTMAX)] == [cause] * 4
        assert check(CONFIG, Op.MOV, legal(Op.MOV, BLOCKS=count)) == Cause.NONE
