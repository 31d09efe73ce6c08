"""A design as an interactive object: ports, internal signals and memories by name, clock ticks, waves.

Made for looking and trying, at a Python prompt, in a notebook or in a small test. For many cycles of one block with
known inputs there is :class:`dovetail.cosim.rtl.block.Bench` (ports only, whole arrays per call, no look inside); for
programs :class:`dovetail.cosim.rtl.rtl_engine.RtlEngine`; for protocols :mod:`dovetail.cosim.benches`.
"""

import difflib
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from amaranth.hdl import Const, ShapeCastable
from amaranth.lib import wiring

from dovetail.cosim.handle.pyverilator_compat import Memory, Simulation, pyverilator
from dovetail.cosim.rtl.block import sources_of
from dovetail.isa.common.build_cache import default_cache
from dovetail.isa.config.resolved import Config

CLOCKS = ("clk", "clock")
RESETS = ("rst", "reset", "rst_n", "reset_n", "resetn")
ACTIVE_LOW = ("_n", "resetn")
"""How the name of a reset ends that acts while low."""
SUGGESTIONS = 3

Tree = dict[str, Any]
"""Signals and memories of a level of the hierarchy, and the trees below it, by name."""


class Reading(pyverilator.SignalValue):  # type: ignore[misc]
    """An integer that was read from a signal; prints as ``8'hff``."""

    @property
    def width(self) -> int:
        """Bits of the signal."""
        return int(self.signal.width)

    @property
    def signed(self) -> int:
        """The same bits as a signed number."""
        return int(self) - (int(self) >> self.width - 1 << self.width)


class Scope:
    """Signals of a part of the hierarchy: ``scope.tail``, ``scope["tail"]``, ``scope.tail = 3``, ``dir(scope)``."""

    def __init__(self, handle: "Handle", path: str, tree: Tree) -> None:
        self.__dict__.update(_handle=handle, _path=path, _tree=tree)

    def __dir__(self) -> list[str]:
        return _shown(self._tree)

    def __iter__(self) -> Iterator[str]:
        return iter(dir(self))

    def __getitem__(self, name: str) -> Any:
        return self._handle[f"{self._path}.{name}"]

    def __setitem__(self, name: str, value: int | Mapping[str, Any]) -> None:
        self._handle[f"{self._path}.{name}"] = value

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        try:
            return self[name]
        except KeyError as error:
            raise AttributeError(error.args[0]) from None

    def __setattr__(self, name: str, value: int | Mapping[str, Any]) -> None:
        try:
            self[name] = value
        except KeyError as error:
            raise AttributeError(error.args[0]) from None

    def __repr__(self) -> str:
        names = dir(self)
        width = max(map(len, names), default=0)
        return "\n".join(f"{name:{width}}  {_summary(self[name])}" for name in names)


def _summary(item: Any) -> str:
    return f"<{len(dir(item))} names>" if isinstance(item, Scope) else repr(item)


class Clock:
    """The clock of a handle."""

    def __init__(self, handle: "Handle") -> None:
        self._handle = handle

    def tick(self, cycles: int = 1) -> None:
        """Rising edges with the inputs as they are; afterwards signals show what follows the last one."""
        self._handle.tick(cycles)


class Handle:
    """A Verilated design to play with.

    Parameters
    ----------
    design
        A component of ``hw``, or any ``amaranth.lib.wiring.Component``; a configuration, for the whole accelerator in
        the form in which the RTL engine runs it; or one or several Verilog files.
    top
        Verilog files: name of the top module, otherwise that of the first file.
    clock, reset
        Names of these inputs; by default the first of CLOCKS, of RESETS that exists. A reset whose name ends in one of
        ACTIVE_LOW acts while low and starts high.
    extra
        Verilog texts by file name, of modules that a component instantiates.
    flags
        More arguments for Verilator, such as ``-GWIDTH=8``.
    cache
        Folder of the builds, by default the one that the RTL engine uses.

    Names are those of the Verilog: ports of a component are named by their path, joined with ``__``; below the top,
    hierarchical names have dots. Numbers that Amaranth and Yosys append to a name that occurs twice (``data$12``) may
    be left out where that is clear. Fields of a structure are signals too: ``i__payload.kind``.

    Signals are read and written as integers of any width; writing is checked against the width and may be negative.
    Inputs are evaluated at once. An input whose shape is a structure takes a mapping of its fields too. An internal
    register that is written keeps its value until the design writes it; writing anything else has no lasting effect.

    Raises
    ------
    ToolError
        When a tool is missing or refuses the design.
    FileNotFoundError
        When a Verilog file does not exist.
    KeyError, AttributeError
        For a name that does not exist; the text has the nearest ones.
    """

    def __init__(
        self,
        design: wiring.Component | Config | str | Path | Sequence[str | Path],
        *,
        top: str | None = None,
        clock: str | None = None,
        reset: str | None = None,
        extra: Mapping[str, str] | None = None,
        flags: Sequence[str] = (),
        cache: Path | None = None,
    ) -> None:
        verilog, top = sources_of(design, top)
        self._shapes = _structures(design) if isinstance(design, wiring.Component) else {}
        self._late = int(isinstance(design, Config))
        self.simulation = Simulation.of({**verilog, **(extra or {})}, top, cache or default_cache(), flags)
        """The PyVerilator object."""
        items = self.simulation.all_signals | self.simulation.memories
        self._signals: dict[str, Any] = {".".join(path): item for path, item in items.items()}
        self._tree = _tree(items)
        self.ports: tuple[str, ...] = tuple(n for n, s in self._signals.items() if _is_port(s))
        """Names of the ports."""
        self._clock = self._input(clock, CLOCKS)
        self._reset = self._input(reset, RESETS)
        self.simulation.clock = None if self._clock is None else pyverilator.Clock(self._signals[self._clock])
        self.clock = Clock(self)
        if self._reset is not None and self._reset.endswith(ACTIVE_LOW):
            self[self._reset] = 1

    def _input(self, name: str | None, usual: tuple[str, ...]) -> str | None:
        if name is None:
            return next((n for n in usual if n in self.ports), None)
        if not isinstance(self._find(name), pyverilator.Input) or name not in self.ports:
            raise ValueError(f"{name} is not an input")
        return name

    # --- names

    @property
    def names(self) -> tuple[str, ...]:
        """All ports, signals and memories, by their full names."""
        return tuple(sorted(self._signals))

    def _find(self, name: str) -> Any:
        """The signal or memory of this name, or a scope. Raises KeyError."""
        rest, tree = name, self._tree
        while rest:
            head, _, tail = (rest, "", "") if _child(tree, rest, _is_any) is not None else rest.partition(".")
            item = _child(tree, head, _is_tree if tail else _is_any)
            if item is None:
                break
            if not tail:
                return Scope(self, name, item) if _is_tree(item) else item
            rest, tree = tail, item
        raise KeyError(f"{name!r} is no signal; {self._nearest(name)}")

    def _nearest(self, name: str) -> str:
        """The nearest names: of the same last part anywhere, or spelled alike."""
        names = sorted(self._signals, key=len)
        last = name.rpartition(".")[2]
        found = [n for n in names if _plain(n.rpartition(".")[2]) == last][:SUGGESTIONS]
        found = found or difflib.get_close_matches(name, names, SUGGESTIONS)
        found = found or difflib.get_close_matches(last, {n.rpartition(".")[2] for n in names}, SUGGESTIONS)
        return f"did you mean {' or '.join(found)}?" if found else "dir() lists the names at the top"

    def __dir__(self) -> list[str]:
        return [*super().__dir__(), *_shown(self._tree)]

    # --- values

    def __getitem__(self, name: str) -> Any:
        item = self._find(name)
        return item if isinstance(item, Scope | Memory) else Reading(item)

    def __setitem__(self, name: str, value: int | Mapping[str, Any]) -> None:
        item = self._find(name)
        if isinstance(item, Scope | Memory):
            raise ValueError(f"{name} is not a signal; write one of its members or rows")
        if isinstance(item, pyverilator.Output):
            raise ValueError(f"{name} is an output")
        if isinstance(value, Mapping):
            value = self._packed(name, value)
        if not -(1 << item.width - 1) <= value < 1 << item.width:
            raise ValueError(f"{name} has {item.width} bits, which do not hold {value}")
        item.write(int(value) & (1 << item.width) - 1)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_") or "_tree" not in self.__dict__:
            raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")
        try:
            return self[name]
        except KeyError as error:
            raise AttributeError(error.args[0]) from None

    def __setattr__(self, name: str, value: Any) -> None:
        if "clock" not in self.__dict__ or name in self.__dict__:
            super().__setattr__(name, value)
            return
        try:
            self[name] = value
        except KeyError as error:
            raise AttributeError(error.args[0]) from None

    def _packed(self, name: str, fields: Mapping[str, Any]) -> int:
        if name not in self._shapes:
            raise ValueError(f"{name} is not a structure, so its value must be an integer")
        return int(Const.cast(self._shapes[name].const(fields)).value)

    def fields(self, name: str) -> Any:
        """The value of a port whose shape is a structure, with its fields as attributes."""
        if name not in self._shapes:
            raise ValueError(f"{name} is not a port with a structure")
        return self._shapes[name].from_bits(int(self[name]))

    # --- time

    def tick(self, cycles: int = 1) -> None:
        """Rising edges of the clock. Raises ValueError for a design without one."""
        if self._clock is None:
            raise ValueError("the design has no clock; inputs act at once (an unusual name can be given as clock=)")
        self.simulation.ticks(cycles)

    def reset(self, cycles: int = 1) -> None:
        """Cycles of reset, and for the accelerator, which takes its reset a cycle late, one more without."""
        if self._reset is None:
            raise ValueError("the design has no reset (an unusual name can be given as reset=)")
        active = int(not self._reset.endswith(ACTIVE_LOW))
        self[self._reset] = active
        self.tick(cycles)
        self[self._reset] = 1 - active
        self.tick(self._late)

    @property
    def finished(self) -> bool:
        """The design executed ``$finish``; its clock stands still."""
        return bool(self.simulation.finished)

    def waves(self, path: str | Path | None) -> None:
        """Dump waves to a file from now on, or end the dump with ``None``. The file's name ends in ``.vcd``."""
        if self.simulation.vcd_trace is not None:
            self.simulation.stop_vcd_trace()
        if path is None:
            return
        path = Path(path)
        if path.suffix != ".vcd":
            raise ValueError(f"path must end in .vcd, not {path.suffix!r}")
        if not path.parent.is_dir():
            raise FileNotFoundError(f"there is no folder {path.parent}")
        if not str(path).isascii():
            raise ValueError(f"path must be ASCII, not {path}")
        self.simulation.start_vcd_trace(str(path))

    def close(self) -> None:
        """End waves and free the design; the handle cannot be used any more."""
        self.simulation.close()

    def __enter__(self) -> "Handle":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __repr__(self) -> str:
        if self.simulation.model is None:
            return "<closed handle>"
        width = max(map(len, self.ports), default=0)
        arrows = {name: "<-" if isinstance(self._signals[name], pyverilator.Output) else "->" for name in self.ports}
        return "\n".join(f"{arrows[name]} {name:{width}}  {self[name]!r}" for name in self.ports)


def _structures(component: wiring.Component) -> dict[str, ShapeCastable]:
    shapes = {"__".join(map(str, p)): member.shape for p, member, _ in component.signature.flatten(component)}
    return {name: shape for name, shape in shapes.items() if isinstance(shape, ShapeCastable)}


def _is_port(item: Any) -> bool:
    return isinstance(item, pyverilator.Output) or type(item) is pyverilator.Input


def _is_any(item: Any) -> bool:
    return item is not None


def _is_tree(item: Any) -> bool:
    return isinstance(item, dict)


def _plain(name: str) -> str:
    """A name without the number that a tool appended."""
    return name.partition("$")[0]


def _tree(items: Mapping[tuple[str, ...], Any]) -> Tree:
    top: Tree = {}
    for path, item in items.items():
        level = top
        for part in path[:-1]:
            level = level.setdefault(part, {})
        level[path[-1]] = item
    return top


def _child(tree: Tree, name: str, wanted: Callable[[Any], bool]) -> Any:
    """The wanted child of exactly this name, else the only one whose name a tool has lengthened, else None."""
    if wanted(tree.get(name)):
        return tree[name]
    others = [item for key, item in tree.items() if _plain(key) == name and wanted(item)]
    return others[0] if len(others) == 1 else None


def _shown(tree: Tree) -> list[str]:
    """Names for tab completion: a tool's copies of a signal are left out."""
    plain = {_plain(name) for name in tree if "$" not in name}
    names = set()
    for name, item in tree.items():
        if "$" not in name:
            names.add(name)
        elif _child(tree, _plain(name), _is_any) is item:
            names.add(_plain(name))
        elif _plain(name) not in plain or not isinstance(item, pyverilator.Signal):
            names.add(name)
    return sorted(names)
