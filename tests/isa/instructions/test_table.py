"""The instruction table: encodings by hand, decode against encode, and the rule that nobody else has opcodes."""

import re
from dataclasses import fields
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dovetail.isa.instructions.table import (
    BY_NUMBER,
    CAUSE_DOC,
    INSTRUCTIONS,
    REGISTERS,
    TRAITS,
    Cause,
    Decoded,
    Field,
    Instruction,
    Op,
    Register,
    Unit,
    cfg,
    decode,
    from_bytes,
    pack,
    pack_some,
    sync,
    to_bytes,
    unpack,
)

ROOT = Path(__file__).parents[3]
U32 = st.integers(0, (1 << 32) - 1)
REGISTER = st.sampled_from(sorted(BY_NUMBER.values(), key=lambda r: r.number))


@pytest.mark.parametrize(
    ("word", "expected"),
    [
        (cfg(Unit.LOAD, "MEM_ADDR", 0x1234_5678), 0x1234_5678_0000_0001),
        (cfg(Unit.ARRAY, "IN_ADDR", 1), 0x0000_0001_0000_4001),
        (cfg(Unit.VECTOR, "POOL_SHIFT", 2), 0x0000_0002_0000_A001),
        (cfg(Unit.STORE, "COUNT", -1), 0xFFFF_FFFF_0000_C801),
        (sync(Unit.ARRAY, Unit.LOAD), 0x0000_0000_0000_0102),
        (cfg(Unit.STORE, "LENGTH", 7, 5), 0x0000_0007_0005_C701),
        (sync(Unit.STORE, Unit.VECTOR, 5), 0x0000_0005_0002_0302),
    ],
)
def test_words_by_hand(word: int, expected: int) -> None:
    assert word == expected


def test_fields_by_hand() -> None:
    assert pack(Unit.ARRAY, "QUANT", zero_in=-128, zero_out=3, lo=-1, hi=127) == 0x7FFF_0380
    assert pack(Unit.ARRAY, "GEOMETRY", kh=3, kw=1, stride_y=2, dilation_y=1) == 0x0102_0103
    assert pack_some(Unit.ARRAY, "GEOMETRY", kw=2, stride_y=1) == 0x0001_0200
    assert unpack(Unit.VECTOR, "SHIFTS", 0x003F_0201) == {"a": 1, "b": 2, "out": 63}


@given(REGISTER, U32, st.integers(0, 15))
def test_cfg_decodes_to_what_was_encoded(register: Register, value: int, param: int) -> None:
    value &= register.mask
    word = cfg(register.unit, register.name, value, param)
    assert decode(word) == Decoded(word, Op.CFG, Cause.NONE, register, value, register.unit, param=param)


@given(REGISTER.filter(lambda r: bool(r.fields)), st.data())
def test_pack_and_unpack_are_inverse(register: Register, data: st.DataObject) -> None:
    values = {f.name: data.draw(st.integers(0, (1 << f.width) - 1)) for f in register.fields}
    value = pack(register.unit, register.name, **values)
    assert value & ~register.mask == 0
    assert unpack(register.unit, register.name, value) == values


@given(st.sampled_from(Unit), st.sampled_from(Unit), U32)
def test_sync_decodes_to_what_was_encoded(unit: Unit, on: Unit, pending: int) -> None:
    word = sync(unit, on, pending)
    assert decode(word) == Decoded(word, Op.SYNC, Cause.NONE, None, pending, unit, on)


@pytest.mark.parametrize("op", [op for op in Op if op not in (Op.CFG, Op.SYNC)])
def test_plain_instructions_decode(op: Op) -> None:
    assert decode(int(op)) == Decoded(int(op), op, Cause.NONE, unit=INSTRUCTIONS[op].unit)
    for bit in range(8, 64):
        assert decode(op | 1 << bit).fault == Cause.RESERVED


@given(st.integers(0, (1 << 64) - 1))
def test_every_word_decodes_and_only_exact_ones_are_legal(word: int) -> None:
    decoded = decode(word)
    if decoded.op is None:
        assert decoded.fault == Cause.OPCODE
    elif decoded.fault == Cause.NONE and decoded.register is not None:
        assert cfg(decoded.register.unit, decoded.register.name, decoded.value, decoded.param) == word
    elif decoded.fault == Cause.NONE and decoded.on is not None and decoded.unit is not None:
        assert sync(decoded.unit, decoded.on, decoded.value) == word
    elif decoded.fault == Cause.NONE:
        assert int(decoded.op) == word


@pytest.mark.parametrize(
    ("word", "fault"),
    [
        (0x00, Cause.OPCODE),
        (0xFF, Cause.OPCODE),
        (0x0901, Cause.REGISTER),  # LOAD has registers 0..8
        (0xFF01, Cause.REGISTER),
        (0xF_0001, Cause.NONE),  # CFG may name 15 parameters
        (0x10_0001, Cause.RESERVED),  # bit 20 of CFG
        (0x0000_0008_0000_5701, Cause.RESERVED),  # bit 3 of ARRAY.MODE
        (0x0402, Cause.REGISTER),  # unit 4
        (0x4_0002, Cause.REGISTER),
        (0x0100_0002, Cause.RESERVED),
        (0x0103, Cause.RESERVED),
    ],
)
def test_faults_by_hand(word: int, fault: Cause) -> None:
    assert decode(word).fault == fault


@given(st.lists(st.integers(0, (1 << 64) - 1), max_size=10))
def test_bytes_round_trip(words: list[int]) -> None:
    assert list(from_bytes(to_bytes(words))) == words


def test_words_are_little_endian() -> None:
    assert to_bytes([0x0102_0304_0506_0708]) == bytes([8, 7, 6, 5, 4, 3, 2, 1])


def test_field_errors() -> None:
    field = Field("height", 0, 16, "rows")
    with pytest.raises(ValueError, match=r"^height must fit 16 bits, not 65536$"):
        field.put(65536)
    with pytest.raises(ValueError, match=r"^height must fit 16 bits, not -32769$"):
        field.put(-32769)
    with pytest.raises(ValueError, match=r"^ARRAY.TILE must be given \['height', 'width'\], not \['height'\]$"):
        pack(Unit.ARRAY, "TILE", height=1)
    with pytest.raises(ValueError, match=r"not \['depth', 'height', 'width'\]"):
        pack_some(Unit.ARRAY, "TILE", depth=1)


def test_tables_are_complete() -> None:
    assert set(INSTRUCTIONS) == set(Op)
    assert set(CAUSE_DOC) == set(Cause)
    assert set(REGISTERS) == set(Unit)
    assert all(row.doc for row in INSTRUCTIONS.values())
    assert all(r.doc and all(f.doc for f in r.fields) for r in BY_NUMBER.values())


NORMS = {Op.NORM, Op.NORM16, Op.NORM16_WIDE}
ARRAY_OPS = {Op.CONV, Op.CONV_RELU, Op.DEPTH_CONV, Op.MAT_MUL}


@pytest.mark.parametrize(
    ("trait", "operations"),
    [
        ("taps", {*ARRAY_OPS, Op.POOL}),
        ("two_operands", {Op.E_ADD, Op.E_MUL, Op.C_MIN, Op.C_MAX, Op.E32_ADD}),
        ("looks_up", {Op.ACT_LUT, Op.SOFTMAX}),
        ("passes", {Op.SOFTMAX, *NORMS}),
        ("records", NORMS),
        ("int32_input", {Op.E32_ADD, Op.E32_SHIFT, Op.REQUANT, Op.NORM16, Op.NORM16_WIDE}),
        ("int32_output", {Op.E32_ADD, Op.E32_SHIFT, Op.WIDEN, Op.NORM16_WIDE}),
        ("depthwise", {Op.DEPTH_CONV}),
        ("matrix", {Op.MAT_MUL}),
        ("full_range", {Op.CONV}),
        ("rescales", {Op.E_ABS, Op.ACT_RELU, Op.ACT_LRELU, Op.WIDEN}),
        ("moves", {Op.DMA_READ, Op.DMA_WRITE}),
        (
            "reads_b",
            {Op.E_ADD, Op.E_MUL, Op.C_MIN, Op.C_MAX, Op.E32_ADD, Op.ACT_LUT, Op.SOFTMAX, *NORMS, Op.MAT_MUL},
        ),
    ],
)
def test_traits(trait: str, operations: set[Op]) -> None:
    """Model and RTL ask the same row: what it says is written down here once more."""
    assert {op for op, row in INSTRUCTIONS.items() if getattr(row, trait)} == operations


def test_every_trait_is_documented() -> None:
    flags = {field.name for field in fields(Instruction) if field.type is bool}
    assert flags | {"passes"} == set(TRAITS)


def test_no_opcode_or_cause_is_written_outside_isa() -> None:
    literal = re.compile(r"\b(?:Op|Cause)\(\s*\d|\bopcode\w*\s*(?:==|!=)\s*\d|\bCFG_REG\w*\s*=\s*\d")
    found = [
        f"{path.relative_to(ROOT)}:{number}: {line.strip()}"
        for folder in ("hw", "sw", "cosim", "flows")
        for path in sorted((ROOT / folder).rglob("*"))
        if path.suffix in (".py", ".cpp", ".cc", ".h", ".v")
        for number, line in enumerate(path.read_text().splitlines(), 1)
        if literal.search(line)
    ]
    assert not found
