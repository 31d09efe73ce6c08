"""PyVerilator on Python 3.11+ and Verilator 5.

PyVerilator 0.7.0 cannot be imported where tkinter has no ``split`` any more (through its dependency tclwrapper, which
only its GTKWave remote control needs), does not understand the headers that Verilator 5 writes, and knows internal
signals only of Verilator 3. What it does well stays in use: the C++ around a model, which carries its own table of
signals, and the Python objects made from it. What is replaced here: the import, the build (through
:mod:`dovetail.cosim.verilate`), and where internal signals are found.
"""

import ctypes
import importlib
import json
import re
import shutil
import string
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from types import ModuleType
from typing import Any

from dovetail.cosim.verilate import Design, trace_format, verilate

PREFIX = "dut"
"""PyVerilator puts a V before it: the name of the class that :func:`~dovetail.cosim.verilate.verilate` makes."""
VERSION = "1"
"""Counts up whenever :func:`wrapper` writes something else."""


def _import() -> ModuleType:
    """PyVerilator, with a stand-in for tclwrapper."""
    stand_in = ModuleType("tclwrapper")

    def unavailable(*_: object) -> None:
        raise NotImplementedError("GTKWave cannot be controlled from here; dump waves to a file and open that")

    stand_in.__dict__["TCLWrapper"] = unavailable
    present = sys.modules.get("tclwrapper")
    sys.modules["tclwrapper"] = stand_in
    try:
        module = importlib.import_module("pyverilator.pyverilator")
    finally:
        del sys.modules["tclwrapper"]
        if present is not None:
            sys.modules["tclwrapper"] = present
    plain_name = module.verilator_name_to_standard_modular_name

    def standard_name(name: str) -> tuple[str, ...]:
        """With ``[n]`` of a generate block as an ordinary part of its name."""
        path: tuple[str, ...] = plain_name(name.replace("__BRA__", "__05b").replace("__KET__", "__05d"))
        return path

    module.__dict__["verilator_name_to_standard_modular_name"] = standard_name
    return module


pyverilator = _import()
_template = importlib.import_module("pyverilator.verilatorcpp")


def public_signals() -> str:
    """A Verilator control file that keeps all signals with a name; those that tools invented start with ``$``."""
    lines = (
        f'public_flat_rw -module "*" -var "{start}{letter}*"' for start in ("", "_") for letter in string.ascii_letters
    )
    return "\n".join(["`verilator_config", *lines, ""])


@dataclass(frozen=True)
class MemoryRow:
    """An array of signals: ``depth`` rows of ``width`` bits, ``bytes`` apart."""

    name: str
    width: int
    depth: int
    bytes: int


_PORT = re.compile(r"VL_(IN|OUT)(?:8|16|64|W)?\(&?(\w+),(\d+),(\d+)(?:,\d+)?\);")
_ITEM = r"(CData|SData|IData|QData|VlWide<\d+>)/\*(\d+):(\d+)\*/"
_SIGNAL = re.compile(rf"^\s*{_ITEM} (\w+__DOT__\w+);", re.M)
_MEMORY = re.compile(rf"^\s*VlUnpacked<{_ITEM}, (\d+)> (\w+__DOT__\w+);", re.M)
_BYTES = {"CData": 1, "SData": 2, "IData": 4, "QData": 8}

Signals = list[tuple[str, int]]
"""Names as Verilator spells them, and widths."""


def _ports(header: str) -> tuple[Signals, Signals]:
    """Inputs and outputs, from the header of Verilator's model class."""
    found: dict[str, Signals] = {"IN": [], "OUT": []}
    for direction, name, high, low in _PORT.findall(header):
        found[direction].append((name, int(high) - int(low) + 1))
    return found["IN"], found["OUT"]


def _internals(header: str) -> tuple[Signals, list[MemoryRow]]:
    """Signals and memories below the ports, from the header of the model's root."""

    def wanted(name: str) -> bool:
        return not any(part.startswith(("__V", "__024")) for part in (name, *name.split("__DOT__")))

    signals = [(name, int(high) - int(low) + 1) for _, high, low, name in _SIGNAL.findall(header) if wanted(name)]
    memories = []
    for kind, high, low, depth, name in _MEMORY.findall(header):
        size = _BYTES.get(kind) or 4 * int(kind[len("VlWide<") : -1])
        if wanted(name):
            memories.append(MemoryRow(name, int(high) - int(low) + 1, int(depth), size))
    return signals, memories


def _accesses(inputs: Signals, internals: Signals, memories: Sequence[MemoryRow]) -> Iterator[str]:
    """C++ functions that PyVerilator's template lacks: writing internal signals, memories, many ticks."""
    for line in _template.function_definitions_cpp(PREFIX, internals, [], [], None).splitlines():
        if line.startswith("int set_"):
            yield line
    for memory in memories:
        yield f"void* row_{memory.name}(V{PREFIX}* top, uint32_t row) {{ return &top->{memory.name}[row]; }}"
    for name, width in inputs:
        if width == 1:
            yield (
                f"void ticks_{name}(V{PREFIX}* top, uint64_t cycles) {{"
                " for (uint64_t n = 0; n < cycles && !Verilated::gotFinish(); ++n) {"
                f" top->{name} = 0; eval(top); top->{name} = 1; eval(top); }} }}"
            )


def wrapper(folder: Path) -> Mapping[str, str]:
    """PyVerilator's C++ for what Verilator left in ``folder``, as a driver source."""
    inputs, outputs = _ports((folder / f"V{PREFIX}.h").read_text())
    internals, memories = _internals((folder / f"V{PREFIX}___024root.h").read_text())
    payload = {"memories": [[m.name, m.width, m.depth, m.bytes] for m in memories]}
    text = _template.template_cpp(PREFIX, inputs, outputs, internals, json.dumps(json.dumps(payload)))
    text += '\nextern "C" {\n' + "\n".join(_accesses(inputs, internals, memories)) + "\n}\n"
    text = re.sub(r"\btop->(\w+__DOT__)", r"top->rootp->\1", text)
    if trace_format() == "fst":
        text = text.replace("verilated_vcd_c.h", "verilated_fst_c.h").replace("VerilatedVcdC", "VerilatedFstC")
    # Everything is compiled with hidden symbols; the headers come first, or they would not be hidden.
    head = f'#include "V{PREFIX}.h"\n#include "V{PREFIX}___024root.h"\n#include "verilated_{trace_format()}_c.h"\n'
    return {
        "pyverilator.cpp": f"{head}#pragma GCC visibility push(default)\n{text}\n#pragma GCC visibility pop\n",
    }


class InternalSignal(pyverilator.Input):  # type: ignore[misc, name-defined]
    """A signal below the ports. What is written to a register stays until the design writes it."""


class Memory:
    """An array of signals in the design; rows by index, ``len`` gives the rows."""

    def __init__(self, simulation: "Simulation", row: MemoryRow) -> None:
        self.simulation = simulation
        self.modular_name: tuple[str, ...] = pyverilator.verilator_name_to_standard_modular_name(row.name)
        self.width, self.depth, self._bytes, self._name = row.width, row.depth, row.bytes, row.name

    def __len__(self) -> int:
        return self.depth

    def _row(self, index: int) -> Any:
        if not -self.depth <= index < self.depth:
            raise IndexError(f"row must be below {self.depth}, not {index}")
        function = getattr(self.simulation.lib, f"row_{self._name}")
        function.argtypes, function.restype = [ctypes.c_void_p, ctypes.c_uint32], ctypes.c_void_p
        address = function(self.simulation.model, index % self.depth)
        return (ctypes.c_char * self._bytes).from_address(address)

    def __getitem__(self, index: int) -> int:
        return int.from_bytes(self._row(index).raw, "little")

    def __setitem__(self, index: int, value: int) -> None:
        self._row(index).raw = value.to_bytes(self._bytes, "little")
        self.simulation.eval()

    def __iter__(self) -> Iterator[int]:
        return (self[n] for n in range(self.depth))

    def __repr__(self) -> str:
        return f"<memory of {self.depth} rows of {self.width} bits>"


class _Closed:
    """Stands where the library was."""

    def __getattr__(self, name: str) -> Any:
        raise ValueError("the handle is closed")


class Simulation(pyverilator.PyVerilator):  # type: ignore[misc, name-defined]
    """A PyVerilator object; its signals are in ``all_signals`` and ``memories``, by their path."""

    lib: Any
    model: Any
    clock: Any
    vcd_trace: Any

    @classmethod
    def build(cls, verilog: Mapping[str, str], top: str, cache: Path, flags: Sequence[str] = ()) -> "Simulation":
        """The model of Verilog files by name. Raises :class:`~dovetail.cosim.verilate.ToolError`."""
        design = Design(
            verilog={"0_public.vlt": public_signals(), **verilog},
            top=top,
            driver={},
            trace=True,
            flags=("--flatten", *flags),
            wrapper=wrapper,
            wrapper_version=f"{VERSION} {version('PyVerilator')}",
        )
        return cls(verilate(design, cache))

    def __init__(self, library: Path) -> None:
        # PyVerilator keeps time, context and callbacks in variables of the library: each simulation has its own copy.
        with tempfile.TemporaryDirectory() as folder:
            super().__init__(shutil.copy(library, folder))
        self.lib.get_finished.restype = ctypes.c_bool
        self.lib.set_finished.argtypes = [ctypes.c_bool]
        self.finished = False
        self.set_vl_finish_callback(Simulation._finish)

    def _finish(self, *_: object) -> None:
        """Instead of ending the process at the second ``$finish``."""
        self.finished = True

    def _populate_signal_collections(self) -> None:
        """PyVerilator's table of signals; the trees that users see are the handle's."""
        signals = [pyverilator.Input(self, *signal) for signal in self.inputs]
        signals += [pyverilator.Output(self, *signal) for signal in self.outputs]
        self.io: dict[str, Any] = {}  # where PyVerilator would look for a clock
        ports = {signal.modular_name for signal in signals}
        inside = [InternalSignal(self, *signal) for signal in self.internal_signals]
        signals += [signal for signal in inside if signal.modular_name not in ports]
        self.all_signals = {signal.modular_name: signal for signal in signals}
        rows = (MemoryRow(*row) for row in self.json_data["memories"])
        self.memories = {memory.modular_name: memory for memory in (Memory(self, row) for row in rows)}

    def ticks(self, cycles: int) -> None:
        """Cycles of the clock; in C++ unless waves are dumped."""
        if self.vcd_trace is not None:
            for _ in range(cycles):
                if not self.finished:
                    self.clock.tick()
            return
        function = getattr(self.lib, f"ticks_{self.clock.verilator_name}")
        function.argtypes = [ctypes.c_void_p, ctypes.c_uint64]
        function(self.model, cycles)

    def close(self) -> None:
        """End waves and free the model. Further use raises ValueError."""
        if self.model is None:
            return
        if self.vcd_trace is not None:
            self.stop_vcd_trace()
        self.lib.destruct.argtypes = [ctypes.c_void_p]
        self.lib.destruct(self.model)
        self.model, self.lib = None, _Closed()
