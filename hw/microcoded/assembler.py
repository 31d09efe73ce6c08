"""Assembler of the microcoded accelerator's microprogram: fields of a microinstruction, names of its memory, labels."""

from collections.abc import Iterator
from contextlib import contextmanager
from enum import IntEnum
from typing import Any

from amaranth import unsigned
from amaranth.lib import data

WORDS = 512
"""Words of the data memory."""
CODE = 1024
"""Microinstructions, at most."""
TABLES = 256
"""First word of constants; those before are registers."""
INDIRECT = WORDS - 1
"""Address that stands for the one in the index register."""


class Alu(IntEnum):
    """What the result is made of."""

    ADD = 0
    SUB = 1
    ADC = 2
    AND = 3
    OR = 4
    XOR = 5
    B = 6
    SHL = 7
    SHR = 8
    SAR = 9
    MULLO = 10
    MULHI = 11
    READ = 12
    """Of the bus: the beat; of SRAM: the word."""
    BYTE = 13
    """A to the right by a byte, the byte from SRAM on top."""
    SUM = 14
    CYCLE = 15


class Action(IntEnum):
    """What a microinstruction does beside its result; some take their time."""

    NONE = 0
    HALT = 1
    READ = 2
    """A beat from address A."""
    WRITE = 3
    """B to address A, the bytes of the mask."""
    LOAD = 7
    LOAD_BYTE = 8
    STORE_BYTE = 9
    DOT = 10
    BEGIN = 11
    END = 12
    CYCLE_HIGH = 13


class Special(IntEnum):
    """Registers beside the memory that take the result, or (OFFSET, COLUMN) operand A."""

    NONE = 0
    INDEX = 1
    OFFSET = 2
    COLUMN = 3
    POINTER = 4
    WEIGHTS = 5
    WEIGHTS_END = 6
    ZERO = 7
    LANES = 8
    MASK = 9
    ROW = 11
    """Whether the condition holds."""
    CLEAR_SUM = 12
    CLEAR_FLAGS = 13
    FINISH = 14


class If(IntEnum):
    """Conditions, of the result and its operands. BELOW and NOT_BELOW (unsigned) and LESS (signed) follow SUB."""

    NEVER = 0
    ALWAYS = 1
    ZERO = 2
    NOT_ZERO = 3
    CARRY = 4
    NOT_CARRY = 5
    NEGATIVE = 6
    LESS = 7
    FLAG = 8
    BAD = 9

    @classmethod
    def below(cls) -> "If":
        """A < B, of SUB."""
        return cls.NOT_CARRY

    @classmethod
    def not_below(cls) -> "If":
        """A >= B, of SUB."""
        return cls.CARRY


class Micro(data.Struct):
    """A microinstruction. ``write``: the result goes to word ``d``. The condition decides whether ``target`` is next;
    with ``mark`` it sets the flag instead."""

    a: unsigned(9)
    b: unsigned(9)
    d: unsigned(9)
    target: unsigned(10)
    alu: unsigned(4)
    action: unsigned(4)
    special: unsigned(4)
    when: unsigned(4)
    write: unsigned(1)
    mark: unsigned(1)


Row = tuple[Any, ...]
"""What an instruction is made of: ALU, target and operands."""


class Assembler:
    """Collects microinstructions.

    Words of the memory are given as names (registers, allotted where first used), numbers (constants, likewise) or
    ``at(address)``.
    """

    def __init__(self, fixed: dict[str, int], free: Iterator[int], constants: Iterator[int]) -> None:
        self.names = dict(fixed)
        self.constants: dict[int, int] = {}
        self.tables: dict[int, int] = {}
        self.labels: dict[str, int] = {}
        self._free, self._space = free, constants
        self._rows: list[dict[str, object]] = []
        self._unique = 0

    def label(self, name: str) -> None:
        """The next instruction's name."""
        if name in self.labels:
            raise ValueError(f"label {name} must be unique")
        self.labels[name] = len(self._rows)

    def fresh(self, name: str) -> str:
        """A label that is used nowhere else."""
        self._unique += 1
        return f"{name}.{self._unique}"

    def address(self, word: str | int | None) -> int:
        """Where a word is."""
        if word == "@":
            return INDIRECT
        if isinstance(word, int):
            return self.constant(word)
        if word is None:
            return self.constant(0)
        if word not in self.names:
            self.names[word] = next(self._free)
        return self.names[word]

    def constant(self, value: int) -> int:
        """The address of a constant."""
        value &= 0xFFFF_FFFF
        if value not in self.constants:
            self.constants[value] = next(self._space)
        return self.constants[value]

    def table(self, values: list[int]) -> int:
        """Constants one after the other; the first one's address."""
        places = [next(self._space) for _ in values]
        if places != list(range(places[0], places[0] + len(values))):
            raise ValueError("a table needs neighbouring words")
        self.tables |= dict(zip(places, values, strict=True))
        return places[0]

    def __call__(
        self,
        alu: Alu,
        d: str | None = None,
        a: str | int | None = None,
        b: str | int | None = None,
        *,
        action: Action = Action.NONE,
        special: Special = Special.NONE,
        when: If = If.NEVER,
        to: str | int | None = None,
        mark: bool = False,
    ) -> None:
        """One microinstruction. ``to`` without ``when``: always."""
        if to is not None and when == If.NEVER and isinstance(to, str):
            when = If.ALWAYS
        self._rows.append(
            {
                "a": self.address(a),
                "b": self.address(b),
                "d": self.address(d) if d else 0,
                "target": to if to is not None else 0,
                "alu": alu,
                "action": action,
                "special": special,
                "when": when,
                "write": int(d is not None),
                "mark": int(mark),
            }
        )

    def nop(self, count: int = 1, *, to: str | None = None) -> None:
        """Nothing, for ``count`` instructions; the last one jumps."""
        for n in range(count):
            self(Alu.ADD, to=to if n == count - 1 else None)

    @contextmanager
    def repeat(self, counter: str, count: str | int | None = None) -> Iterator[None]:
        """A loop: ``counter`` (set to ``count`` before, if given) counts down to 0."""
        if count is not None:
            self(Alu.ADD, counter, count)
        start = self.fresh(counter)
        self.label(start)
        yield
        self(Alu.SUB, counter, counter, 1, when=If.NOT_ZERO, to=start)

    def choose(self, alu: Alu, a: object, b: object, when: If, then: Row, otherwise: Row) -> None:
        """``then`` if the condition holds, else ``otherwise``: (alu, d, a, b) each; two instructions either way."""
        yes, end = self.fresh("yes"), self.fresh("end")
        self(alu, None, a, b, when=when, to=yes)  # type: ignore[arg-type]
        self(*otherwise, to=end)
        self.label(yes)
        self(*then)
        self.label(end)

    def program(self) -> list[int]:
        """The microprogram's words."""
        words = []
        if len(self._rows) > CODE:
            raise ValueError(f"the microprogram must have at most {CODE} words, not {len(self._rows)}")
        for row in self._rows:
            fields = {k: (self.labels[v] if isinstance(v, str) else int(v)) for k, v in row.items()}  # type: ignore
            words.append(Micro.const(fields).as_value().value)
        return words

    def memory(self) -> list[int]:
        """The data memory's first contents: constants."""
        words = [0] * WORDS
        for value, place in self.constants.items():
            words[place] = value
        for place, value in self.tables.items():
            words[place] = value
        return words
