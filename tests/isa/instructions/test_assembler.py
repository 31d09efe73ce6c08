"""The assembler: text to words, words to text, and the errors."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dovetail.isa.instructions.assembler import AssemblyError, assemble, disassemble
from dovetail.isa.instructions.table import BY_NUMBER, INSTRUCTIONS, Op, Unit, cfg, decode, pack, sync

WORDS = st.one_of(
    st.integers(0, (1 << 64) - 1),
    st.just(0),
    st.sampled_from([int(op) for op in Op]),
    st.builds(sync, st.sampled_from(Unit), st.sampled_from(Unit), st.integers(0, (1 << 32) - 1)),
    st.builds(
        lambda register, value: cfg(register.unit, register.name, value & register.mask),
        st.sampled_from(sorted(BY_NUMBER.values(), key=lambda r: r.number)),
        st.integers(0, (1 << 32) - 1),
    ),
)


def test_program_by_hand() -> None:
    text = """
        # one tile
        cfg load.MEM_ADDR 0x1000
        cfg array.TILE height=7 width=9   # packed
        CFG Array.tile WIDTH=9 height=7
        cfg array.QUANT zero_in=-128 zero_out=3 lo=-1 hi=127
        cfg vector.SUM_BIAS -2
        cfg load.MEM_ADDR -64 PARAM=15
        cfg array.TILE height=7 width=9 param=2
        sync array on load pending 3
        sync store on vector
        conv
        end
        .word 0x99
        .zero 2
    """
    assert assemble(text) == [
        0x0000_1000_0000_0001,
        0x0009_0007_0000_4C01,
        0x0009_0007_0000_4C01,
        0x7FFF_0380_0000_4D01,
        0xFFFF_FFFE_0000_9D01,
        0xFFFF_FFC0_000F_0001,
        0x0009_0007_0002_4C01,
        0x0000_0003_0000_0102,
        0x0000_0000_0002_0302,
        0x20,
        0x03,
        0x99,
        0,
        0,
    ]


def test_text_by_hand() -> None:
    words = [cfg(Unit.LOAD, "LENGTH", 64), cfg(Unit.STORE, "MEM_ADDR", 0x12345), sync(Unit.STORE, Unit.ARRAY, 1)]
    words += [cfg(Unit.ARRAY, "TILE", pack(Unit.ARRAY, "TILE", height=7, width=9)), cfg(Unit.LOAD, "LENGTH", 8, 3)]
    words += [cfg(Unit.ARRAY, "TILE", pack(Unit.ARRAY, "TILE", height=7, width=9), 12), int(Op.END), 0x99, 0, 0]
    assert disassemble(words) == (
        "cfg load.LENGTH 64\n"
        "cfg store.MEM_ADDR 0x12345\n"
        "sync store on array pending 1\n"
        "cfg array.TILE height=7 width=9\n"
        "cfg load.LENGTH 8 param=3\n"
        "cfg array.TILE height=7 width=9 param=12\n"
        "end\n"
        ".word 0x0000000000000099  # OPCODE: unknown opcode\n"
        ".zero 2\n"
    )


def test_numbers_are_word_indices() -> None:
    text = disassemble([0, 0, int(Op.CONV), int(Op.END)], numbers=True)
    assert [line.split("# ")[1] for line in text.splitlines()] == ["0", "2", "3"]


@given(st.lists(WORDS, max_size=20), st.booleans())
def test_round_trip(words: list[int], numbers: bool) -> None:
    assert assemble(disassemble(words, numbers=numbers)) == words


@given(WORDS)
def test_only_illegal_words_are_given_as_numbers(word: int) -> None:
    text = disassemble([word])
    assert text.startswith((".word", ".zero")) == bool(decode(word).fault)


@pytest.mark.parametrize("op", [op for op, row in INSTRUCTIONS.items() if not row.fields])
def test_every_plain_mnemonic(op: Op) -> None:
    assert assemble(op.name.lower()) == [op]


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("cnv", "unknown instruction 'cnv'; did you mean \"conv\"?"),
        ("cfg foo.X 1", "unknown unit 'foo'; known: array, load, store, vector"),
        ("cfg array 1", "register must be unit.REGISTER, not 'array'"),
        ("cfg array.TLE 1", "unknown register of array 'TLE'; did you mean \"TILE\"?"),
        ("cfg array.TILE", "cfg must be given unit.REGISTER and a value or its fields"),
        ("cfg array.TILE height=1", "TILE must be given all its fields; missing: width"),
        ("cfg array.TILE height=1 height=2 width=1", "field height of TILE must be given once"),
        ("cfg array.TILE height=1 colour=2", "unknown field of TILE 'colour'; known: height, width"),
        ("cfg array.TILE height=1 2", "field must be name=value, not '2'"),
        ("cfg array.TILE height=1 width=65536", "width must fit 16 bits, not 65536"),
        ("cfg array.TILE height=x width=1", "height must be a number, not 'x'"),
        ("cfg load.LENGTH rows=1", "LENGTH has no fields; give one number"),
        ("cfg load.LENGTH 1 2", "cfg takes one value, not '1 2'"),
        ("cfg load.LENGTH 1 param=16", "param must be 1..15, not 16"),
        ("cfg load.LENGTH param=1", "cfg must be given unit.REGISTER and a value or its fields"),
        ("cfg load.LENGTH 0x100000000", "LENGTH must be -2147483648..4294967295, not 0x100000000"),
        ("cfg array.MODE 8", "MODE must keep its reserved bits zero (mask 0x3ff77), not 0x8"),
        ("sync array load", "sync must be 'sync UNIT on UNIT [pending N]', not 'sync array load'"),
        ("sync array on load pending -1", "pending must be 0..4294967295, not -1"),
        ("conv 1", "conv takes no operand, not '1'"),
        (".word", ".word takes one number, not 'nothing'"),
        (".word 0x10000000000000000", "word must be 0..18446744073709551615, not 0x10000000000000000"),
        (".zero 0", ".zero must be 1..1048576, not 0"),
    ],
)
def test_errors(line: str, message: str) -> None:
    with pytest.raises(AssemblyError, match=f"^line 2: {re.escape(message)}$"):
        assemble(f"end\n{line}\n")
