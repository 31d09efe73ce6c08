"""Mutants of the Amaranth code, made while modules of ``dovetail.hw`` are imported.

An import hook rewrites operators, conditions, comparisons, reductions, multiplexers and assignments into calls of
:class:`Mutator`. Where an operand is a value of hardware, each way to get that place wrong becomes a mutant. Either all
of them are built at once, each behind a multiplexer that an input selects, or one of them replaces the code.

Not mutated: what is Python (shapes, loops), bounds of slices, reset values, the text of Verilog, and microprograms.
"""

import ast
import importlib.abc
import importlib.machinery
import operator
import sys
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from pathlib import Path
from types import CodeType, ModuleType
from typing import Any

from amaranth.hdl import Cat, Const, Module, Mux, Signal, Value

HOOK = "_mutator_"
PACKAGE = "dovetail.hw"
SELECT_BITS = 13
BINARY: dict[type[ast.operator], str] = {
    ast.Add: "+",
    ast.Sub: "-",
    ast.Mult: "*",
    ast.BitAnd: "&",
    ast.BitOr: "|",
    ast.BitXor: "^",
    ast.LShift: "<<",
    ast.RShift: ">>",
}
COMPARE: dict[type[ast.cmpop], str] = {
    ast.Eq: "==",
    ast.NotEq: "!=",
    ast.Lt: "<",
    ast.LtE: "<=",
    ast.Gt: ">",
    ast.GtE: ">=",
}
DO: dict[str, Callable[[Any, Any], Any]] = {
    "+": operator.add,
    "-": operator.sub,
    "*": operator.mul,
    "&": operator.and_,
    "|": operator.or_,
    "^": operator.xor,
    "<<": operator.lshift,
    ">>": operator.rshift,
    "==": operator.eq,
    "!=": operator.ne,
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}
OTHERS = {
    "+": "-",
    "-": "+",
    "*": "+",
    "&": "|",
    "|": "&^",
    "^": "|&",
    "<<": (">>",),
    ">>": ("<<",),
    "==": ("!=",),
    "!=": ("==",),
    "<": ("<=", ">="),
    "<=": ("<", ">"),
    ">": (">=", "<="),
    ">=": (">", "<"),
}
"""What an operator is mistaken for."""

Site = tuple[str, int, int]
"""File below hw/, line, column."""
Mutant = tuple[str, int, int, str]
"""A site and what is wrong there."""


class Mutator:
    """What rewritten code calls. ``files``: those below hw/ that are mutated; ``planted``: the mutant that replaces the
    code, instead of all behind switches."""

    def __init__(self, files: Iterable[str] | None = None, planted: Mutant | None = None) -> None:
        self.files = None if files is None else frozenset(files)
        self.planted = planted
        self.select = Signal(SELECT_BITS, name="mutant")
        self.numbers: dict[Mutant, int] = {}
        """Number of each mutant that was met, from 1 on; the switch at 0 is the design as it is."""
        self.met: set[Mutant] = set()
        """Mutants of the designs that were elaborated since somebody emptied this."""
        self._named_values: list[tuple[Signal, Value]] | None = None

    def module(self) -> Module:
        """In the place of Module(): the one that is being filled. It gets the signals of :meth:`_named` at its end, out
        of any m.If."""
        m = Module()
        named: list[tuple[Signal, Value]] = []
        complete = m.elaborate

        def elaborate(platform: object) -> Any:
            self._named_values = None
            for signal, value in named:
                m.d.comb += signal.eq(value)
            named.clear()
            return complete(platform)

        m.elaborate = elaborate
        self._named_values = named
        return m

    def _named(self, value: Any) -> Any:
        """A value that may be used many times: an expression becomes a signal of its own, or it would be copied into
        each mutant of each expression around it."""
        if not isinstance(value, Value) or isinstance(value, Signal | Const) or self._named_values is None:
            return value
        signal = Signal(value.shape(), name="_")
        self._named_values.append((signal, value))
        return signal

    def _mutates(self, site: Site) -> bool:
        if self.planted:
            return self.planted[:3] == site
        return self.files is None or site[0] in self.files

    def _choose(self, site: Site, original: Value, ways: Sequence[tuple[str, Callable[[], Any]]]) -> Value:
        result = original
        for what, make in ways:
            mutant = (*site, what)
            if self.planted not in (None, mutant):
                continue
            try:
                wrong = _fit(make(), original)
            except (TypeError, ValueError, OverflowError):
                continue  # there is no such expression
            if self.planted:
                return wrong
            self.met.add(mutant)
            number = self.numbers.setdefault(mutant, len(self.numbers) + 1)
            result = Mux(self.select == number, wrong, result)
        return result

    def binary(self, site: Site, op: str, left: Any, right: Any) -> Any:
        """An operator or a comparison."""
        result = DO[op](left, right)
        if not isinstance(result, Value) or not len(result) or not self._mutates(site):
            return result
        left, right = self._named(left), self._named(right)
        result = DO[op](left, right)
        ways: list[tuple[str, Callable[[], Any]]] = []
        ways += [(f"{op} becomes {other}", partial(DO[other], left, right)) for other in OTHERS[op]]
        for name, step in (("one more", 1), ("one less", -1)):
            if isinstance(right, int) and right + step >= 0:
                ways.append((f"{op} {name}", partial(DO[op], left, int(right) + step)))
        if op in "+-":
            ways.append((f"{op} dropped", lambda: Value.cast(left)))
        return self._choose(site, result, ways)

    def unary(self, site: Site, op: str, value: Any) -> Any:
        """~ or -."""
        result = ~value if op == "~" else -value
        if not isinstance(result, Value) or not self._mutates(site):
            return result
        value = self._named(value)
        result = ~value if op == "~" else -value
        return self._choose(site, result, [(f"{op} dropped", lambda: Value.cast(value))])

    def condition(self, site: Site, value: Any) -> Any:
        """Of m.If, m.Elif and Mux."""
        if not isinstance(value, Value) or not self._mutates(site):
            return value
        value = self._named(value)
        whether = value if len(value) == 1 and not value.shape().signed else value.bool()
        ways = [("negated", lambda: ~whether), ("always", lambda: Const(1, 1)), ("never", lambda: Const(0, 1))]
        return self._choose(site, whether, ways)

    def reduce(self, site: Site, value: Any, name: str) -> Any:
        """.any() or .all()."""
        result = getattr(value, name)()
        if not isinstance(value, Value) or len(value) < 2 or not isinstance(result, Value) or not self._mutates(site):
            return result
        value = self._named(value)
        result = getattr(value, name)()
        other = "all" if name == "any" else "any"
        return self._choose(site, result, [(f"{name} becomes {other}", getattr(value, other))])

    def assign(self, site: Site, target: Any, value: Any, plain: bool) -> Any:
        """target.eq(value); ``plain``: the value is no expression that has mutants of its own."""
        if not isinstance(target, Value) or not len(target) or not plain or not self._mutates(site):
            return target.eq(value)
        if isinstance(value, int) and int(value) >= 0:
            constant = Const(int(value), len(target))
            ways: list[tuple[str, Callable[[], Any]]] = [("one off", lambda: constant ^ 1)]
            return target.eq(self._choose(site, constant, ways))
        if isinstance(value, Value):
            ways = [("assigned 0", lambda: Const(0, len(value)))]
            return target.eq(self._choose(site, value, ways))
        return target.eq(value)


def _fit(value: Any, like: Value) -> Value:
    """``value`` in the shape of ``like``."""
    value = Value.cast(value)
    missing = len(like) - len(value)
    if missing > 0:
        fill = value[-1] if value.shape().signed and len(value) else Const(0, 1)
        value = Cat(value, fill.replicate(missing))
    value = value[: len(like)]
    return value.as_signed() if like.shape().signed else value


class _Rewriter(ast.NodeTransformer):
    """Calls of the mutator in the place of expressions."""

    def __init__(self, file: str) -> None:
        self.file = file

    def _call(self, node: ast.expr, name: str, *arguments: ast.expr) -> ast.expr:
        site = ast.Tuple([ast.Constant(v) for v in (self.file, node.lineno, node.col_offset)], ast.Load())
        call = ast.Call(ast.Attribute(ast.Name(HOOK, ast.Load()), name, ast.Load()), [site, *arguments], [])
        return ast.fix_missing_locations(ast.copy_location(call, node))

    def visit_FunctionDef(self, node: ast.FunctionDef) -> ast.AST:
        node.body = [self.visit(statement) for statement in node.body]
        return node

    def visit_AnnAssign(self, node: ast.AnnAssign) -> ast.AST:
        if node.value is not None:
            node.value = self.visit(node.value)
        return node

    def visit_AugAssign(self, node: ast.AugAssign) -> ast.AST:
        node.value = self.visit(node.value)
        return node

    def visit_Assert(self, node: ast.Assert) -> ast.AST:
        return node

    def visit_BinOp(self, node: ast.BinOp) -> ast.AST:
        self.generic_visit(node)
        if type(node.op) not in BINARY:
            return node
        return self._call(node, "binary", ast.Constant(BINARY[type(node.op)]), node.left, node.right)

    def visit_Compare(self, node: ast.Compare) -> ast.AST:
        self.generic_visit(node)
        if len(node.ops) > 1 or type(node.ops[0]) not in COMPARE:
            return node
        return self._call(node, "binary", ast.Constant(COMPARE[type(node.ops[0])]), node.left, node.comparators[0])

    def visit_UnaryOp(self, node: ast.UnaryOp) -> ast.AST:
        self.generic_visit(node)
        name = {ast.Invert: "~", ast.USub: "-"}.get(type(node.op))
        return self._call(node, "unary", ast.Constant(name), node.operand) if name else node

    def visit_Call(self, node: ast.Call) -> ast.AST:
        name = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
        if name == "eq" and len(node.args) == 1 and isinstance(node.func, ast.Attribute):
            value = node.args[0]
            plain = isinstance(value, ast.Constant | ast.Name | ast.Attribute | ast.Subscript)
            target = node.func.value  # written, not read: no mutants
            return self._call(node, "assign", target, self.visit(value), ast.Constant(plain))
        self.generic_visit(node)
        if name == "Module" and not node.args and isinstance(node.func, ast.Name):
            node.func = ast.Attribute(ast.Name(HOOK, ast.Load()), "module", ast.Load())
            return ast.fix_missing_locations(node)
        if (name in ("If", "Elif") and len(node.args) == 1) or (name == "Mux" and len(node.args) == 3):
            node.args[0] = self._call(node.args[0], "condition", node.args[0])
        if name in ("any", "all") and not node.args and isinstance(node.func, ast.Attribute):
            return self._call(node, "reduce", node.func.value, ast.Constant(name))
        return node


class _Loader(importlib.machinery.SourceFileLoader):
    def __init__(self, name: str, path: str, mutator: Mutator) -> None:
        super().__init__(name, path)
        self.mutator = mutator

    def get_code(self, fullname: str) -> CodeType:
        path = self.get_filename(fullname)
        parts = Path(path).parts
        file = "/".join(parts[parts.index("hw") + 1 :])
        tree = _Rewriter(file).visit(ast.parse(self.get_data(path), path))
        code: CodeType = compile(tree, path, "exec", dont_inherit=True)
        return code

    def exec_module(self, module: ModuleType) -> None:
        setattr(module, HOOK, self.mutator)
        super().exec_module(module)


class _Finder(importlib.abc.MetaPathFinder):
    def __init__(self, mutator: Mutator) -> None:
        self.mutator = mutator

    def find_spec(self, name: str, path: Any, target: Any = None) -> Any:
        if not name.startswith(f"{PACKAGE}."):
            return None
        spec = importlib.machinery.PathFinder.find_spec(name, path)
        if spec is not None and type(spec.loader) is importlib.machinery.SourceFileLoader:
            assert spec.origin is not None
            spec.loader = _Loader(name, spec.origin, self.mutator)
        return spec


def install(mutator: Mutator) -> Mutator:
    """From now on, hardware is imported with mutants. None may have been imported before."""
    loaded = [name for name in sys.modules if name.startswith(f"{PACKAGE}.")]
    if loaded:
        raise RuntimeError(f"mutants must be installed before {loaded[0]} is imported")
    sys.meta_path.insert(0, _Finder(mutator))
    return mutator
