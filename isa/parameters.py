"""What the parameters of a program are made of: the inputs of a run, and a formula for each host register PARAM.

A run input is a whole number such as a position, with a range. A formula is a sum of terms, modulo 2^32; each term is a
step times the input, the number of blocks that the input fills, or the size of the last of these blocks. So the
hardware multiplies and divides nothing.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import product
from math import prod

MODULUS = 1 << 32
"""Of a parameter's value."""
MOST_VALUES = 1 << 16
"""Combinations of values of run inputs that are looked at, at most."""


class ParameterError(ValueError):
    """A run input or a formula breaks a rule; the text is one line and names it."""


@dataclass(frozen=True)
class RunInput:
    """A whole number that each run is given, ``low`` to ``high``; ``name``: the tensor of one element that holds it."""

    name: str
    low: int
    high: int

    def __post_init__(self) -> None:
        if not isinstance(self.name, str) or not 0 <= self.low <= self.high < MODULUS:
            raise ParameterError(
                f"run input {self.name!r} must have a range in 0..2**32-1, not {self.low}..{self.high}"
            )

    def check(self, value: int) -> int:
        """The value, if it may be given."""
        if not self.low <= value <= self.high:
            raise ParameterError(f"{self.name} must be {self.low}..{self.high}, not {value}")
        return value


@dataclass(frozen=True)
class Term:
    """``step``, modulo 2^32, times the blocks of ``divisor`` that ``input + offset`` fills, the last one perhaps not
    whole; with ``rest``, times the size of the last one, 1 to ``divisor``."""

    input: str
    step: int = 1
    offset: int = 0
    divisor: int = 1
    rest: bool = False

    def __post_init__(self) -> None:
        for name, least in (("offset", 0), ("divisor", 1)):
            if not least <= (value := getattr(self, name)) < MODULUS:
                raise ParameterError(f"{name} of {self.input} must be {least}..2**32-1, not {value}")
        object.__setattr__(self, "step", self.step % MODULUS)

    def value(self, given: int) -> int:
        """Of a value of the input."""
        number = given + self.offset
        return self.step * ((number - 1) % self.divisor + 1 if self.rest else -(-number // self.divisor))


@dataclass(frozen=True)
class Formula:
    """The value of a parameter: ``base`` and all terms, modulo 2^32."""

    base: int = 0
    terms: tuple[Term, ...] = ()

    def __post_init__(self) -> None:
        object.__setattr__(self, "base", self.base % MODULUS)

    def value(self, inputs: Mapping[str, int]) -> int:
        """Of a run with these inputs."""
        return (self.base + sum(term.value(inputs[term.input]) for term in self.terms)) % MODULUS

    @classmethod
    def from_dict(cls, data: Mapping[str, object]) -> "Formula":
        """What ``dataclasses.asdict`` makes of it. Raises TypeError and what reading a dictionary of another form
        raises."""
        terms = data["terms"]
        if not isinstance(terms, list | tuple):
            raise TypeError(f"terms must be a list, not {terms!r}")
        base = data["base"]
        if not isinstance(base, int):
            raise TypeError(f"base must be a whole number, not {base!r}")
        return cls(base, tuple(Term(**term) for term in terms))


@dataclass(frozen=True)
class Parameters:
    """All that a program says of its parameters: PARAM1 has the first of ``formulas``."""

    inputs: tuple[RunInput, ...] = ()
    formulas: tuple[Formula, ...] = field(default=())

    def __post_init__(self) -> None:
        names = [one.name for one in self.inputs]
        for term in (term for formula in self.formulas for term in formula.terms):
            if term.input not in names:
                raise ParameterError(
                    f"run input of a term must be one of {', '.join(names) or 'none'}, not {term.input}"
                )
        if len(set(names)) < len(names):
            raise ParameterError(f"run inputs must have names of their own, not {', '.join(names)}")

    def values(self, given: Mapping[str, int]) -> tuple[int, ...]:
        """Of a run with these inputs. Raises :class:`ParameterError` for one outside its range."""
        checked = {one.name: one.check(given[one.name]) for one in self.inputs}
        return tuple(formula.value(checked) for formula in self.formulas)

    @property
    def least(self) -> tuple[int, ...]:
        """Of a run with the least value of each input."""
        return self.values({one.name: one.low for one in self.inputs})

    def of_formula(self, number: int) -> set[int]:
        """All values that a formula may have. Raises :class:`ParameterError` where they are too many."""
        names = {term.input for term in self.formulas[number].terms}
        return {values[number] for values in self._values([one for one in self.inputs if one.name in names])}

    def all_values(self) -> Iterator[tuple[int, ...]]:
        """Of every run that may be, each combination once. Raises :class:`ParameterError` where they are too many."""
        yield from dict.fromkeys(self._values(self.inputs))

    def _values(self, varied: Sequence[RunInput]) -> Iterator[tuple[int, ...]]:
        """Of every value of some inputs, the others being least."""
        count = prod(one.high - one.low + 1 for one in varied)
        if count > MOST_VALUES:
            raise ParameterError(f"run inputs must have at most {MOST_VALUES} combinations of values, not {count}")
        least = {one.name: one.low for one in self.inputs}
        for numbers in product(*(range(one.low, one.high + 1) for one in varied)):
            yield self.values(least | dict(zip((one.name for one in varied), numbers, strict=True)))


def whole_number(name: str, values: Sequence[int]) -> int:
    """The one element of a run input's tensor."""
    if len(values) != 1:
        raise ParameterError(f"{name} must be one whole number, not {len(values)}")
    return int(values[0])
