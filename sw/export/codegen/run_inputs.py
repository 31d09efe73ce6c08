"""The parameters of a run: numbers that come with the inputs, their ranges, and the host registers PARAM."""

from __future__ import annotations

from collections.abc import Callable, Collection

from dovetail.isa.parameters import Formula, Parameters, Term
from dovetail.sw.export.codegen.c_text import identifier
from dovetail.sw.export.codegen.writer import Pointer, Writer


class RunInputs:
    """Writes what a run does with its parameters, as soon as their run inputs are known."""

    def __init__(self, parameters: Parameters, writer: Writer) -> None:
        self._waiting = {one.name: one for one in parameters.inputs}
        self._formulas = dict(enumerate(parameters.formulas, 1))
        self._writer = writer
        self._names: dict[str, str] = {}

    def check(self, known: Collection[str], pointer: Callable[[str], str | Pointer]) -> None:
        """Refuse numbers out of range, of the run inputs that are now known; ``pointer``: where a tensor lies."""
        for name in [name for name in self._waiting if name in known]:
            one, dtype = self._waiting.pop(name), self._writer.graph.tensors[name].dtype
            variable = f"run_{identifier(name, [text[4:] for text in self._names.values()])}"
            self._names[name] = variable
            self._writer.statement(f"const int64_t {variable} = *(const {dtype}_t *)", pointer(name), ";")
            self._writer.write(
                f"if ({variable} < {one.low} || {variable} > {one.high})", "    return DOVETAIL_ERROR_RANGE;"
            )

    def set(self) -> None:
        """Set the registers that are known and have not been set in this run."""
        known = {
            number
            for number, formula in self._formulas.items()
            if all(term.input in self._names for term in formula.terms)
        }
        for number in sorted(known):
            value = self._value(self._formulas.pop(number))
            self._writer.write(
                f"status = dovetail_set_parameter(&inference->device, {number}, (uint32_t)({value}));",
                "if (status)",
                "    return status;",
            )

    def _value(self, formula: Formula) -> str:
        """C text, an unsigned number whose low 32 bits are the formula's value."""
        texts = [f"{formula.base}u"] if formula.base or not formula.terms else []
        return " + ".join([*texts, *map(self._term, formula.terms)])

    def _term(self, term: Term) -> str:
        number = f"(uint64_t){self._names[term.input]}"
        if term.offset:
            number = f"({number} + {term.offset}u)"
        if term.rest:
            number = f"(({number} + {term.divisor - 1}u) % {term.divisor}u + 1)"
        elif term.divisor > 1:
            number = f"(({number} + {term.divisor - 1}u) / {term.divisor}u)"
        return number if term.step == 1 else f"{term.step}u * {number}"
