"""Constraints of a space: one comparison over parameters and metrics, checked when it is read.

The syntax is a part of Python's: numbers, texts in quotes, names, ``+ - * / // %``, comparisons, ``in``, ``and``,
``or``, ``not``, ``a if b else c`` and the calls of :data:`FUNCTIONS`; sizes may be written ``512 KiB``.
"""

from __future__ import annotations

import ast
import math
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from types import CodeType
from typing import Any

from dovetail.flows.explore.metrics import AREA, METRICS
from dovetail.flows.parameters import INT, PARAMETERS, SIZE, SWITCH
from dovetail.isa.suggestion import nearest
from dovetail.sw.errors import DovetailError

FUNCTIONS: dict[str, Callable[..., Any]] = {"min": min, "max": max, "abs": abs, "sqrt": math.sqrt, "log2": math.log2}
"""What a constraint may call."""

SIZES = re.compile(r"(?<![\w.])(\d+)\s*(?:([KMG])i)?B\b")
STRINGS = re.compile(r"""("[^"]*"|'[^']*')""")

TOUCHING = 1e-9
"""The violation of a < b where both are equal."""

NUMBER, TEXT, TRUTH = "a number", "a text", "a truth value"


class ExpressionError(DovetailError):
    """A constraint cannot be read; the text names the expression, the rule and the way out."""


@dataclass(frozen=True)
class Constraint:
    """An expression that must be true. ``names``: the parameters and metrics that it reads."""

    text: str
    names: frozenset[str]
    code: CodeType
    margin: CodeType | None

    @property
    def needs_cost(self) -> bool:
        """Whether the configuration alone does not tell it."""
        return not self.names <= {*PARAMETERS, *AREA}

    def holds(self, values: Mapping[str, Any]) -> bool:
        """Whether it is true; where a value does not exist (a division by zero, a metric nobody knows) it is not."""
        return bool(_evaluate(self.code, values, False))

    def violation(self, values: Mapping[str, Any]) -> float:
        """0 if it is true, else above: how far from it, as a share of the larger side; 1 where that has no meaning."""
        if self.holds(values):
            return 0.0
        left, right = _evaluate(self.margin, values, (0, 0)) if self.margin else (0, 0)
        try:
            share = abs(left - right) / max(abs(left), abs(right))
        except ArithmeticError:  # both are 0, or too large
            return 1.0
        return float(share or TOUCHING) if math.isfinite(share) else 1.0


def _evaluate(code: CodeType, values: Mapping[str, Any], otherwise: Any) -> Any:
    try:
        return eval(code, {"__builtins__": {}, **FUNCTIONS}, values)  # the tree was checked node by node
    except (ArithmeticError, ValueError, KeyError, NameError):
        return otherwise


@lru_cache(maxsize=1024)
def parse(text: str) -> Constraint:
    """The constraint of a text. Raises :class:`ExpressionError`."""
    try:
        return _parsed(text)
    except (SyntaxError, ValueError, RecursionError, MemoryError):  # of what is too long or too deep as well
        raise ExpressionError(f'`{text}` must be a comparison such as "pe <= 256" or "sram / pe >= 1 KiB"') from None


def _parsed(text: str) -> Constraint:
    parts = STRINGS.split(text)
    parts[::2] = [
        SIZES.sub(lambda match: str(int(match[1]) << 10 * " KMG".index(match[2] or " ")), part) for part in parts[::2]
    ]
    tree = ast.parse("".join(parts).strip(), mode="eval").body
    kind = _Checker(text).kind(tree)
    if kind != TRUTH:
        raise ExpressionError(f'`{text}` must be a comparison such as "lut <= 60000", not {kind}')
    names = frozenset(n.id for n in ast.walk(tree) if isinstance(n, ast.Name)) - set(FUNCTIONS)
    if not names:
        raise ExpressionError(f"`{text}` must name a parameter or a metric; it is the same for every configuration")
    return Constraint(text, names, _compiled(tree), _margin(tree))


def _compiled(tree: ast.expr) -> CodeType:
    return compile(ast.fix_missing_locations(ast.Expression(tree)), "constraint", "eval")


def _margin(tree: ast.expr) -> CodeType | None:
    """Both sides of a single comparison of sizes."""
    if (
        isinstance(tree, ast.Compare)
        and len(tree.ops) == 1
        and isinstance(tree.ops[0], ast.Lt | ast.LtE | ast.Gt | ast.GtE)
    ):
        return _compiled(ast.copy_location(ast.Tuple([tree.left, tree.comparators[0]], ast.Load()), tree))
    return None


class _Checker:
    """Finds what kind of value each part of an expression has, and refuses everything that is not in the language."""

    def __init__(self, text: str) -> None:
        self.text = text

    def error(self, text: str) -> ExpressionError:
        return ExpressionError(f"`{self.text}`: {text}")

    def kind(self, node: ast.expr) -> str:
        """NUMBER, TEXT or TRUTH. Raises ExpressionError."""
        method = getattr(self, f"_{type(node).__name__.lower()}", None)
        if method is None:
            raise self.error(
                "a constraint may hold numbers, texts, names, arithmetic, comparisons, and, or, not, if/else and calls"
                f" of {', '.join(FUNCTIONS)}, not `{ast.unparse(node)}`"
            )
        return str(method(node))

    def _constant(self, node: ast.Constant) -> str:
        if isinstance(node.value, bool):
            return TRUTH
        if isinstance(node.value, int | float):
            return NUMBER
        if isinstance(node.value, str):
            return TEXT
        raise self.error(f"values must be numbers, texts, True or False, not {node.value!r}")

    def _name(self, node: ast.Name) -> str:
        if node.id in ("true", "false"):
            raise self.error(f"write {node.id.capitalize()} for {node.id}, or the parameter by itself")
        if node.id == "lanes":
            raise self.error("lanes is a pair; write ic_lanes and oc_lanes")
        if node.id in PARAMETERS:
            kind = PARAMETERS[node.id].kind
            return NUMBER if kind in (INT, SIZE) else TRUTH if kind is SWITCH else TEXT
        if node.id in METRICS:
            return NUMBER
        if any(node.id in p.kind.choices for p in PARAMETERS.values()):
            raise self.error(f'the text {node.id} must be in quotes: "{node.id}"')
        known = (*PARAMETERS, *METRICS)
        raise self.error(f'"{node.id}" must be a parameter or a metric{nearest(node.id, known)}')

    def _all(self, wanted: str, nodes: list[ast.expr], what: str) -> str:
        for node in nodes:
            kind = self.kind(node)
            if kind != wanted:
                named = "numbers" if wanted == NUMBER else "comparisons"
                raise self.error(f"{what} must have {named}, but `{ast.unparse(node)}` is {kind}")
        return wanted

    def _binop(self, node: ast.BinOp) -> str:
        if not isinstance(node.op, ast.Add | ast.Sub | ast.Mult | ast.Div | ast.FloorDiv | ast.Mod):
            raise self.error(f"arithmetic must be one of + - * / // %, not `{ast.unparse(node)}`")
        return self._all(NUMBER, [node.left, node.right], "arithmetic")

    def _unaryop(self, node: ast.UnaryOp) -> str:
        if isinstance(node.op, ast.Not):
            return self._all(TRUTH, [node.operand], "not")
        if isinstance(node.op, ast.Invert):
            raise self.error(f"arithmetic must be one of + - * / // %, not `{ast.unparse(node)}`")
        return self._all(NUMBER, [node.operand], "a sign")

    def _boolop(self, node: ast.BoolOp) -> str:
        return self._all(TRUTH, node.values, "and" if isinstance(node.op, ast.And) else "or")

    def _ifexp(self, node: ast.IfExp) -> str:
        self._all(TRUTH, [node.test], "if")
        kinds = {self.kind(node.body), self.kind(node.orelse)}
        if len(kinds) > 1:
            raise self.error(f"both results of `{ast.unparse(node)}` must be of one kind")
        return kinds.pop()

    def _call(self, node: ast.Call) -> str:
        if not isinstance(node.func, ast.Name) or node.func.id not in FUNCTIONS or node.keywords:
            raise self.error(f"calls must be of {', '.join(FUNCTIONS)}, not `{ast.unparse(node)}`")
        name, count = node.func.id, len(node.args)
        if count < 2 if name in ("min", "max") else count != 1:
            raise self.error(f"{name} must have {'two numbers or more' if name in ('min', 'max') else 'one number'}")
        return self._all(NUMBER, node.args, name)

    def _compare(self, node: ast.Compare) -> str:
        sides = [node.left, *node.comparators]
        for left, op, right in zip(sides, node.ops, sides[1:], strict=False):
            if isinstance(op, ast.In | ast.NotIn):
                self._membership(left, right)
                continue
            kinds = self.kind(left), self.kind(right)
            if isinstance(op, ast.Is | ast.IsNot):
                raise self.error("values must be compared with == or !=, not is")
            if kinds[0] != kinds[1]:
                raise self.error(f"`{ast.unparse(left)}` is {kinds[0]}, but `{ast.unparse(right)}` is {kinds[1]}")
            if kinds[0] != NUMBER and not isinstance(op, ast.Eq | ast.NotEq):
                raise self.error(f"only numbers have an order, but `{ast.unparse(left)}` is {kinds[0]}")
            self._choice(left, right)
            self._choice(right, left)
        return TRUTH

    def _membership(self, left: ast.expr, right: ast.expr) -> None:
        if not isinstance(right, ast.Tuple | ast.List) or not right.elts:
            raise self.error(f"in must be followed by a list such as [8, 16], not `{ast.unparse(right)}`")
        kind = self.kind(left)
        for item in right.elts:
            if self.kind(item) != kind:
                raise self.error(f"`{ast.unparse(left)}` is {kind}, but `{ast.unparse(item)}` is not")
            self._choice(left, item)

    def _choice(self, name: ast.expr, value: ast.expr) -> None:
        """A text that a parameter is compared with must be one that it can have."""
        if isinstance(name, ast.Name) and isinstance(value, ast.Constant) and isinstance(value.value, str):
            choices = PARAMETERS[name.id].kind.choices
            if value.value not in choices:
                raise self.error(f'{name.id} must be one of {", ".join(choices)}, not "{value.value}"')
