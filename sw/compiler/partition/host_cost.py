"""What the host takes: for the nodes that it runs, and for starting the accelerator. An estimate.

The partition weighs small segments by it, and reports count it beside the accelerator's exact cycles.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from functools import cache
from math import ceil, isfinite
from pathlib import Path
from typing import Any

from dovetail.isa.common.toml import parse_toml
from dovetail.sw.errors import CompileError
from dovetail.sw.network import ir
from dovetail.sw.runtime.clock import CLOCKS

NOT_MEASURED = "not measured"
MOST_TRIP = 10**12
"""Cycles of a round trip, at most."""
RATES = ("macs_per_cycle", "values_per_cycle")
CALL, RESULTS = "call", "results_per_cycle"
OWN = (*RATES, CALL, RESULTS)
"""Keys of a kind."""
NEEDED = ("round_trip", *RATES)
"""Keys that every table has."""
LOADS = ("load_bytes_per_cycle", "clear_bytes_per_cycle")
PORTS = ("copy", "reorder")
"""Kinds of what is no node: bringing the caller's arrays to where the accelerator sees them, and back, in the same
order of elements or in another. They count where a table has rates for them."""
FOLDER = Path(__file__).parent / "hosts"
"""Of the tables that come along."""
DEFAULT = "vexriscv"
"""The one of them that counts where none is named."""
FEW = 4
"""Kinds of nodes that a line names."""
MOST_BYTES = 1 << 20
"""Of a table's file."""


@dataclass(frozen=True)
class OperatorCost:
    """The rates of one kind of node, such as ``softmax``, where they are not those of the others. ``call``: cycles of
    a node beyond those of its size; ``results_per_cycle``: elements that it makes, on top of its values; None: these
    cost no more than others."""

    operator: str
    macs_per_cycle: float
    values_per_cycle: float
    call: int = 0
    results_per_cycle: float | None = None

    def __post_init__(self) -> None:
        if not isinstance(self.operator, str) or not self.operator:
            raise CompileError(f"the host's operator must be a name, not {self.operator!r}")
        for name in (*RATES, *([RESULTS] if self.results_per_cycle is not None else [])):
            _check_rate(f"{self.operator}.{name}", getattr(self, name))
        _check_cycles(f"{self.operator}.{CALL}", self.call)

    def cycles(self, macs: int, values: int, results: int) -> int:
        """Of a node of this kind and size."""
        more = 0 if self.results_per_cycle is None else results / self.results_per_cycle
        return self.call + ceil(macs / self.macs_per_cycle + values / self.values_per_cycle + more)


@dataclass(frozen=True)
class HostCost:
    """A coarse model of the host, in cycles of the accelerator. :func:`default_host` is one that was measured.

    Parameters
    ----------
    round_trip: a segment's start and end as seen by the host: cache maintenance of its operands, register writes, the
        interrupt. 0 keeps everything that the accelerator can run on it.
    macs_per_cycle: int8 multiply-accumulates of kinds without rates of their own.
    values_per_cycle: elements of tensors read and written by these.
    operators: kinds of nodes with rates of their own, see :meth:`kind`; :data:`PORTS` among them.
    clock: of the accelerator in Hz, with which these cycles hold, for a host whose clock is another one: it takes as
        long beside a faster accelerator, so more of its cycles. None: the host is on the accelerator's clock.
    name: what the host is called.
    error: how far the estimate is from measurements, in the words of who made the table.
    load_bytes_per_cycle, clear_bytes_per_cycle: before the first inference, of the weights file that is checked and
        copied, and of the shared memory that is cleared before; None: not known.

    Raises
    ------
    CompileError
        A number below what makes sense.
    """

    round_trip: int
    macs_per_cycle: float
    values_per_cycle: float
    operators: tuple[OperatorCost, ...] = ()
    clock: float | None = None
    name: str = "a host without a name"
    error: str = NOT_MEASURED
    load_bytes_per_cycle: float | None = None
    clear_bytes_per_cycle: float | None = None

    def __post_init__(self) -> None:
        _check_cycles("round trip", self.round_trip)
        for name in (*RATES, *(name for name in LOADS if getattr(self, name) is not None)):
            _check_rate(name, getattr(self, name))
        if self.clock is not None and not (_is_number(self.clock) and CLOCKS[0] <= self.clock <= CLOCKS[1]):
            raise CompileError(f"the clock of host costs must be {CLOCKS[0]:g} to {CLOCKS[1]:g} Hz, not {self.clock!r}")
        for name in ("name", "error"):
            if not isinstance(getattr(self, name), str) or not getattr(self, name):
                raise CompileError(f"the host's {name} must be a text, not {getattr(self, name)!r}")

    def cycles(self, graph: ir.Graph, node: ir.Node) -> int:
        """About the cycles of a node on the host."""
        own = self.own(graph, node) or OperatorCost(node.op, self.macs_per_cycle, self.values_per_cycle)
        made = sum(graph.tensors[name].size for name in node.outputs)
        return own.cycles(graph.macs(node), made + sum(graph.tensors[name].size for name in node.inputs), made)

    @staticmethod
    def kind(graph: ir.Graph, node: ir.Node) -> str:
        """What a node is to a table: its kind, with ``_float`` behind it where it makes floats."""
        return f"{node.op}_float" if graph.tensors[node.outputs[0]].dtype == "float32" else node.op

    def port(self, graph: ir.Graph, port: ir.Port) -> int | None:
        """About the cycles of an input or output that is converted; None where they are not known."""
        own = self.of(PORTS[not port.layout.is_plain])
        size = graph.tensors[port.tensor].size
        return None if own is None else own.cycles(0, 2 * size, size)

    def own(self, graph: ir.Graph, node: ir.Node) -> OperatorCost | None:
        """What there is of a node's own kind; floats count as others do where a table says no more of them."""
        return self.of(self.kind(graph, node)) or self.of(node.op)

    def of(self, operator: str) -> OperatorCost | None:
        """What a kind has of its own."""
        return next((own for own in self.operators if own.operator == operator), None)

    def start_up(self, weights_bytes: int, memory_bytes: int) -> int | None:
        """About the cycles before the first inference; None where they are not known."""
        load, clear = self.load_bytes_per_cycle, self.clear_bytes_per_cycle
        return None if load is None or clear is None else ceil(weights_bytes / load + memory_bytes / clear)

    def at(self, cycles: float, clock: float | None) -> float:
        """The host's cycles in those of an accelerator with a clock of so many Hz; None: that of these costs."""
        return cycles if self.clock is None or clock is None else cycles * clock / self.clock

    @property
    def basis(self) -> str:
        """What the estimate rests on, and its error."""
        return f"{self._rates}, {self.round_trip:,} cycles per start of the accelerator; error {self.error}"

    @property
    def basis_of_layers(self) -> str:
        """:attr:`basis` without starts, where these are not estimated."""
        return f"{self._rates}; error {self.error}"

    @property
    def _rates(self) -> str:
        rates = f"{self.macs_per_cycle:g} MACs or {self.values_per_cycle:g} values a cycle"
        kinds = [own.operator for own in self.operators]
        names = ", ".join(kinds) if len(kinds) <= FEW else f"{len(kinds)} kinds of layers"
        own = f", rates of their own for {names}" if names else ""
        clock = "on the accelerator's clock" if self.clock is None else f"in cycles of {self.clock / 1e6:g} MHz"
        return f"{self.name} {clock}: {rates}{own}"

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> HostCost:
        """The inverse of `dataclasses.asdict`, from JSON too. Raises CompileError."""
        _check_keys("", data, tuple(field.name for field in fields(cls)))
        for name in NEEDED:
            if name not in data:
                raise CompileError(f"{name} must be given")
        operators = data.get("operators", ())
        if not isinstance(operators, list | tuple) or not all(isinstance(own, Mapping) for own in operators):
            raise CompileError(f"the host's operators must be a list of rates, not {operators!r}")
        for own in operators:
            _check_keys("operators.", own, ("operator", *OWN))
            for name in ("operator", *RATES):
                if name not in own:
                    raise CompileError(f"operators.{name} must be given")
        return cls(**{**data, "operators": tuple(OperatorCost(**own) for own in operators)})


def hosts() -> tuple[str, ...]:
    """Names of the tables that come along."""
    return tuple(sorted(file.stem for file in FOLDER.glob("*.toml")))


@cache
def default_host() -> HostCost:
    """What the host costs where nobody says: the table :data:`DEFAULT`."""
    return load_host_cost(FOLDER / f"{DEFAULT}.toml")


def load_host_cost(path: str | Path) -> HostCost:
    """A table of what the host costs: a TOML file (docs/host-cost.md), or the name of one that comes along.

    Raises CompileError: the file cannot be read, or breaks a rule.
    """
    if not Path(path).exists() and str(path) in hosts():
        path = FOLDER / f"{path}.toml"
    try:
        with Path(path).open("rb") as file:
            content = file.read(MOST_BYTES + 1)
        if len(content) > MOST_BYTES:
            raise CompileError(f"{path}: table of host costs must have at most {MOST_BYTES:,} bytes")
        return _of_table(parse_toml(content.decode()))
    except OSError as error:
        known = ", ".join(hosts())
        raise CompileError(
            f"{path}: table of host costs must be a TOML file ({error.strerror}) or one of {known}"
        ) from None
    except CompileError as error:
        raise error if str(error).startswith(f"{path}: ") else CompileError(f"{path}: {error}") from None
    except ValueError as error:  # of TOML, or of its encoding
        raise CompileError(f"{path}: table of host costs must be TOML: {error}") from None


def _of_table(data: Mapping[str, Any]) -> HostCost:
    """A table's values; operators stand there by name, and take from the whole table the rates that they do not say."""
    _check_keys("", data, tuple(field.name for field in fields(HostCost)))
    operators = data.get("operators", {})
    if not isinstance(operators, Mapping):
        raise CompileError(f"operators must be tables such as [operators.softmax], not {operators!r}")
    own = []
    for name, rates in operators.items():
        if not isinstance(rates, Mapping):
            raise CompileError(f"operators.{name} must be a table with {' or '.join(RATES)}, not {rates!r}")
        _check_keys(f"operators.{name}.", rates, OWN)
        own.append({"operator": name, **{rate: data[rate] for rate in RATES if rate in data}, **rates})
    return HostCost.from_dict({**data, "operators": own})


def _check_keys(before: str, data: Mapping[str, Any], known: tuple[str, ...]) -> None:
    for name in data:
        if name not in known:
            raise CompileError(f"{before}{name} is not a key of host costs; known: {', '.join(known)}")


def _check_cycles(name: str, value: Any) -> None:
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value <= MOST_TRIP:
        raise CompileError(f"{name} must be 0 to {MOST_TRIP} cycles, a whole number, not {value!r}")


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and isfinite(value)


def _check_rate(name: str, value: Any) -> None:
    if not (_is_number(value) and 1e-12 <= value <= 1e12):
        raise CompileError(f"the host's {name} must be a number above 0 (1e-12 to 1e+12), not {value!r}")
