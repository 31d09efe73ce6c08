"""Constraints and the user's metrics: expressions over parameters and metrics, checked when they are read.

The syntax is a part of Python's: numbers, texts in quotes, names, ``+ - * / // %``, comparisons, ``in``, ``and``,
``or``, ``not``, ``a if b else c`` and the calls of :data:`FUNCTIONS`. Quantities may have a unit of :data:`UNITS`, as
``512 KiB`` or ``20 ms``; ``resnet8.latency`` is a metric of one network.
"""

from __future__ import annotations

import ast
import math
import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import lru_cache
from types import CodeType
from typing import Any

from dovetail.flows.explore.space.deployment import SYSTEM_PARAMETERS
from dovetail.flows.explore.space.metrics import METRICS, SYSTEM_METRICS, Metric, fixed_of, per_network
from dovetail.flows.options.parameters import CLOCK
from dovetail.isa.common.suggestion import nearest
from dovetail.isa.config.given import INT, PARAMETERS, SIZE, SWITCH, Parameter
from dovetail.sw.errors import DovetailError

FUNCTIONS: dict[str, Callable[..., Any]] = {"min": min, "max": max, "abs": abs, "sqrt": math.sqrt, "log2": math.log2}
"""What a constraint may call."""

UNITS: dict[str, float] = {
    "B": 1,
    "KiB": 1 << 10,
    "MiB": 1 << 20,
    "GiB": 1 << 30,
    "ns": 1e-6,
    "us": 1e-3,
    "µs": 1e-3,
    "ms": 1,
    "s": 1e3,
    "Hz": 1,
    "kHz": 1e3,
    "MHz": 1e6,
    "GHz": 1e9,
    "nJ": 1e-3,
    "uJ": 1,
    "µJ": 1,
    "mJ": 1e3,
    "J": 1e6,
    "uW": 1e-3,
    "µW": 1e-3,
    "mW": 1,
    "W": 1e3,
}
"""What a unit is worth in that of the metrics: bytes, ms, Hz, µJ and mW."""
QUANTITIES = re.compile(rf"(?<![\w.])(\d+(?:\.\d+)?)\s*({'|'.join(UNITS)})(?!\w)")
STRINGS = re.compile(r"""("[^"]*"|'[^']*')""")

_TOLD = {*PARAMETERS, *SYSTEM_PARAMETERS, CLOCK.name, *fixed_of(METRICS), *fixed_of(SYSTEM_METRICS)}
"""What needs no cost."""

TOUCHING = 1e-9
"""The violation of a < b where both are equal."""

NUMBER, TEXT, TRUTH = "a number", "a text", "a truth value"


class ExpressionError(DovetailError):
    """A constraint cannot be read; the text names the expression, the rule and the way out."""


@dataclass(frozen=True)
class Scope:
    """What names mean in a space, besides parameters and metrics.

    ``networks``: whose metrics are written ``name.metric``; ``own``: (name, expression) of the user's own metrics, each
    over those before it; ``systems``: points are systems.
    """

    networks: tuple[str, ...] = ()
    own: tuple[tuple[str, str], ...] = ()
    systems: bool = False

    @property
    def parameters(self) -> Mapping[str, Parameter]:
        """Of a point."""
        return SYSTEM_PARAMETERS if self.systems else PARAMETERS

    @property
    def metrics(self) -> Mapping[str, Metric]:
        """Of a point, the user's own left out."""
        return SYSTEM_METRICS if self.systems else METRICS


@dataclass(frozen=True)
class Expression:
    """A number for each configuration. ``names``: the parameters and metrics that it reads."""

    text: str
    names: frozenset[str]
    code: CodeType

    def value(self, values: Mapping[str, Any]) -> float | None:
        """Its value; None where there is none (a division by zero, an unknown metric)."""
        found = _evaluate(self.code, values, None)
        return float(found) if found is not None and math.isfinite(found) else None


@dataclass(frozen=True)
class Constraint:
    """An expression that must be true. ``names``: the parameters and metrics that it reads.

    ``sides``: code that gives (what must not be larger, what must not be smaller, the limit) of each comparison of
    sizes that it is made of; empty where it is made of anything else. A comparison without a constant side has no
    limit of its own, but the larger side.
    """

    text: str
    names: frozenset[str]
    code: CodeType
    sides: tuple[CodeType, ...]

    @property
    def needs_cost(self) -> bool:
        """Whether the configuration alone does not tell it."""
        return not self.names <= _TOLD

    def holds(self, values: Mapping[str, Any]) -> bool:
        """Whether it is true. It is not where a value does not exist (a division by zero, an unknown metric)."""
        return bool(_evaluate(self.code, values, False))

    def violation(self, values: Mapping[str, Any]) -> float:
        """0 if it is true, else how far from it: shares of the larger side of each broken comparison, added up; 1 where
        that has no meaning."""
        if self.holds(values):
            return 0.0
        share = 0.0
        for code in self.sides:
            low, high, _ = _evaluate(code, values, (0, 0, 0))
            try:
                share += max(low - high, 0) / max(abs(low), abs(high)) or (TOUCHING if low == high else 0)
            except ArithmeticError:  # both are 0, or too large
                return 1.0
        return float(share or 1.0) if math.isfinite(share) else 1.0

    def slack(self, values: Mapping[str, Any]) -> float | None:
        """The slack as a share of the limit: negative where it is broken, None where that has no meaning. Of several
        comparisons the one with the least slack counts."""
        shares = []
        for code in self.sides:
            low, high, limit = _evaluate(code, values, (0, 0, 0))
            size = abs(limit) or max(abs(low), abs(high))
            if not size or not math.isfinite(size) or not math.isfinite(high - low):
                return None
            shares.append((high - low) / size)
        return min(shares, default=None)


def _evaluate(code: CodeType, values: Mapping[str, Any], otherwise: Any) -> Any:
    try:
        return eval(code, {"__builtins__": {}, **FUNCTIONS}, values)  # the tree was checked node by node
    except (ArithmeticError, ValueError, KeyError, NameError):
        return otherwise


@lru_cache(maxsize=1024)
def parse(text: str, scope: Scope = Scope()) -> Constraint:
    """The constraint of a text. Raises :class:`ExpressionError`."""
    with _must_be(text, 'a comparison such as "pe <= 256" or "sram / pe >= 1 KiB"'):
        tree, names, kind = _read(text, scope)
        if kind != TRUTH:
            raise ExpressionError(f'`{text}` must be a comparison such as "lut <= 60000", not {kind}')
        return Constraint(text, names, _compiled(tree), tuple(map(_compiled, _sides(tree))))


@lru_cache(maxsize=1024)
def parse_number(text: str, scope: Scope = Scope()) -> Expression:
    """The metric of a text. Raises :class:`ExpressionError`."""
    with _must_be(text, 'an expression such as "energy * latency"'):
        tree, names, kind = _read(text, scope)
        if kind != NUMBER:
            raise ExpressionError(f'`{text}` must be a number such as "energy * latency", not {kind}')
        return Expression(text, names, _compiled(tree))


@contextmanager
def _must_be(text: str, what: str) -> Iterator[None]:
    """Turn Python's errors about a text that is no expression, too long or too deep into one line."""
    try:
        yield
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        raise ExpressionError(f"`{text}` must be {what}") from None


def _read(text: str, scope: Scope) -> tuple[ast.expr, frozenset[str], str]:
    """The tree of a text, the names that it reads, and what kind of value it has."""
    parts = STRINGS.split(text)
    parts[::2] = [QUANTITIES.sub(_in_units_of_metrics, part) for part in parts[::2]]
    tree = ast.parse("".join(parts).strip(), mode="eval").body
    kind = _Checker(text, scope).kind(tree)
    tree = _Plain(scope).visit(tree)
    names = frozenset(n.id for n in ast.walk(tree) if isinstance(n, ast.Name)) - set(FUNCTIONS)
    if not names:
        raise ExpressionError(f"`{text}` must name a parameter or a metric; it is the same for every configuration")
    return tree, names, kind


def _in_units_of_metrics(found: re.Match[str]) -> str:
    value = float(found[1]) * UNITS[found[2]] if "." in found[1] else int(found[1]) * UNITS[found[2]]
    return repr(int(value) if value == int(value) else value)


class _Plain(ast.NodeTransformer):
    """Writes the user's metrics out, and those of a network as one name that no user can write."""

    def __init__(self, scope: Scope) -> None:
        self.own = {name: (text, replace(scope, own=scope.own[:n])) for n, (name, text) in enumerate(scope.own)}

    def visit_Attribute(self, node: ast.Attribute) -> ast.expr:  # the visitor's own way of naming methods
        assert isinstance(node.value, ast.Name)
        return ast.copy_location(ast.Name(f"{node.value.id}.{node.attr}", ast.Load()), node)

    def visit_Name(self, node: ast.Name) -> ast.expr:
        return _read(*self.own[node.id])[0] if node.id in self.own else node


def _compiled(tree: ast.expr) -> CodeType:
    return compile(ast.fix_missing_locations(ast.Expression(tree)), "constraint", "eval")


def _sides(tree: ast.expr) -> list[ast.expr]:
    """(lower side, upper side, limit) of each comparison; nothing where one is not of sizes."""
    if isinstance(tree, ast.BoolOp) and isinstance(tree.op, ast.And):
        parts = [_sides(value) for value in tree.values]
        return [side for part in parts for side in part] if all(parts) else []
    if not isinstance(tree, ast.Compare):
        return []
    found: list[ast.expr] = []
    sides = [tree.left, *tree.comparators]
    for left, op, right in zip(sides, tree.ops, sides[1:], strict=False):
        if not isinstance(op, ast.Lt | ast.LtE | ast.Gt | ast.GtE):
            return []
        low, high = (left, right) if isinstance(op, ast.Lt | ast.LtE) else (right, left)
        limit = next((side for side in (low, high) if _is_constant(side)), ast.Constant(0))
        found.append(ast.copy_location(ast.Tuple([low, high, limit], ast.Load()), tree))
    return found


def _is_constant(tree: ast.expr) -> bool:
    return not any(isinstance(node, ast.Name) and node.id not in FUNCTIONS for node in ast.walk(tree))


class _Checker:
    """Finds what kind of value each part of an expression has, and refuses everything that is not in the language."""

    def __init__(self, text: str, scope: Scope) -> None:
        self.text, self.scope = text, scope

    def error(self, text: str) -> ExpressionError:
        return ExpressionError(f"`{self.text}`: {text}")

    def kind(self, node: ast.expr) -> str:
        """NUMBER, TEXT or TRUTH. Raises ExpressionError."""
        method = getattr(self, f"_{type(node).__name__.lower()}", None)
        if method is None:
            raise self.error(
                "an expression may hold numbers, texts, names, arithmetic, comparisons, and, or, not, if/else and calls"
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
            raise self.error("lanes is several numbers; write ic_lanes, oc_lanes and pixel_lanes")
        parameters, metrics = self.scope.parameters, self.scope.metrics
        if node.id in parameters:
            kind = parameters[node.id].kind
            return NUMBER if kind in (INT, SIZE) else TRUTH if kind is SWITCH else TEXT
        if node.id in metrics or node.id == CLOCK.name or node.id in dict(self.scope.own):
            return NUMBER
        if any(node.id in p.kind.choices for p in parameters.values()):
            raise self.error(f'the text {node.id} must be in quotes: "{node.id}"')
        known = (*parameters, CLOCK.name, *metrics, *dict(self.scope.own))
        raise self.error(f'"{node.id}" must be a parameter or a metric{nearest(node.id, known)}')

    def _attribute(self, node: ast.Attribute) -> str:
        written = ast.unparse(node)
        if not isinstance(node.value, ast.Name):
            raise self.error(f"a point stands between a network and a metric, as in resnet8.latency, not `{written}`")
        if node.value.id not in self.scope.networks:
            raise self.error(f'"{node.value.id}" must be a network{nearest(node.value.id, self.scope.networks)}')
        names = per_network(self.scope.metrics)
        if node.attr not in names:
            raise self.error(f'"{written}" must be a metric of a network{nearest(node.attr, names)}')
        return NUMBER

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
            choices = self.scope.parameters[name.id].kind.choices
            if choices and value.value not in choices:
                raise self.error(f'{name.id} must be one of {", ".join(choices)}, not "{value.value}"')
