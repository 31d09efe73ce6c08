"""PyVerilator on Python 3.11+ and Verilator 5: its README works as it stands, and the interactive handle stands on it.

PyVerilator 0.7.0 does not understand the headers that Verilator 5 writes, and knows internal signals only of Verilator
3. Three parts stay in use: the C++ around a model, which carries its own table of signals; the Python objects made from
it; the remote control of GTKWave. Two are replaced here: the build (by :mod:`dovetail.cosim.rtl.verilate`), and the
search for internal signals. :mod:`dovetail.cosim.handle.pyverilator_import` makes the package importable, with
:class:`Simulation` as ``pyverilator.PyVerilator``.
"""

import ctypes
import importlib
import json
import os
import re
import shutil
import string
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from importlib.metadata import version
from pathlib import Path
from typing import Any

from dovetail.cosim.rtl.verilate import Design, verilate, verilator_root
from dovetail.isa.common.build_cache import default_cache
from dovetail.isa.common.cplusplus import ToolError

PREFIX = "dut"
"""PyVerilator puts a V before it: the name of the class that :func:`~dovetail.cosim.rtl.verilate.verilate` makes."""
SUFFIXES = (".v", ".sv")
VERSION = "2"
"""Counts up whenever :func:`wrapper` writes something else."""
MEMORIES = "_dovetail_memories"
"""Name of the table of arrays in a library."""


pyverilator: Any = importlib.import_module("pyverilator.pyverilator")
_template = importlib.import_module("pyverilator.verilatorcpp")
_plain_name = pyverilator.verilator_name_to_standard_modular_name


def standard_name(name: str) -> tuple[str, ...]:
    """The path of a signal, with ``[n]`` of a generate block as an ordinary part of its name."""
    path: tuple[str, ...] = _plain_name(name.replace("__BRA__", "__05b").replace("__KET__", "__05d"))
    return path


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


def _accesses(prefix: str, inputs: Signals, internals: Signals, memories: Sequence[MemoryRow]) -> Iterator[str]:
    """C++ functions that PyVerilator's template lacks: writing internal signals, memories, many ticks."""
    for line in _template.function_definitions_cpp(prefix, internals, [], [], None).splitlines():
        if line.startswith("int set_"):
            yield line
    for memory in memories:
        yield f"void* row_{memory.name}(V{prefix}* top, uint32_t row) {{ return &top->{memory.name}[row]; }}"
    for name, width in inputs:
        if width == 1:
            yield (
                f"void ticks_{name}(V{prefix}* top, uint64_t cycles) {{"
                " for (uint64_t n = 0; n < cycles && !Verilated::gotFinish(); ++n) {"
                f" top->{name} = 0; eval(top); top->{name} = 1; eval(top); }} }}"
            )


def wrapper(folder: Path, *, top: str, json_data: Any = None, prefix: str = PREFIX) -> Mapping[str, str]:
    """PyVerilator's C++ for what Verilator left in ``folder``, as a driver source. ``top``: the top module, if that is
    not seen from the signals; ``json_data``: what a user wants kept with the model."""
    inputs, outputs = _ports((folder / f"V{prefix}.h").read_text())
    internals, memories = _internals((folder / f"V{prefix}___024root.h").read_text())
    names = [name for name, _ in internals] + [memory.name for memory in memories]
    module = names[0].partition("__DOT__")[0] if names else top
    text = _template.template_cpp(prefix, inputs, outputs, internals, json.dumps(json.dumps(json_data)))
    text = text.replace(f'_pyverilator_module_name = "{prefix}"', f'_pyverilator_module_name = "{module}"')
    rows = json.dumps(json.dumps([[m.name, m.width, m.depth, m.bytes] for m in memories]))
    text += f'\nextern "C" {{\nextern const char* {MEMORIES};\nconst char* {MEMORIES} = {rows};\n'
    text += "\n".join(_accesses(prefix, inputs, internals, memories)) + "\n}\n"
    text = re.sub(r"\btop->(\w+__DOT__)", r"top->rootp->\1", text)
    # Everything is compiled with hidden symbols; the headers come first, or they would not be hidden.
    head = f'#include "V{prefix}.h"\n#include "V{prefix}___024root.h"\n#include "verilated_vcd_c.h"\n'
    return {
        "pyverilator.cpp": f"{head}#pragma GCC visibility push(default)\n{text}\n#pragma GCC visibility pop\n",
    }


class InternalSignal(pyverilator.InternalSignal, pyverilator.Input):  # type: ignore[misc]
    """A signal below the ports. What is written to a register stays until the design writes it."""


class Memory:
    """An array of signals in the design; rows by index, ``len`` gives the rows."""

    def __init__(self, simulation: "Simulation", row: MemoryRow) -> None:
        self.simulation = simulation
        self.modular_name = standard_name(row.name)
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

    @property
    def status(self) -> str:
        """What it is, for PyVerilator's tables."""
        return f"{self.depth} rows of {self.width} bits"

    def send_to_gtkwave(self) -> None:
        """Nothing: GTKWave is given no rows."""

    def __repr__(self) -> str:
        return f"<memory of {self.status}>"


class _Closed:
    """Stands where the library was."""

    def __getattr__(self, name: str) -> Any:
        raise ValueError("the handle is closed")


class BuildError(ToolError, subprocess.CalledProcessError):
    """Verilator refused a design; as PyVerilator promises, a ``CalledProcessError``."""

    def __init__(self, done: subprocess.CompletedProcess[str]) -> None:
        subprocess.CalledProcessError.__init__(self, done.returncode, done.args, done.stdout, done.stderr)

    def __str__(self) -> str:
        return f"Verilator refused the design\n{self.stderr.strip()}"


class Simulation(pyverilator.PyVerilator):  # type: ignore[misc]
    """A PyVerilator object: ``io``, ``internals``, ``clock``, ``sim["name"]``, waves and GTKWave as its README says.

    More than that: arrays of the design are in ``internals`` too, and internal registers can be written; all signals
    and arrays are in ``all_signals`` and ``memories``, by their path.
    """

    lib: Any
    model: Any
    clock: Any
    vcd_trace: Any

    @classmethod
    def build(
        cls,
        top_verilog_file: str | os.PathLike[str],
        verilog_path: Sequence[str | os.PathLike[str]] = (),
        build_dir: str | os.PathLike[str] = "obj_dir",
        json_data: Any = None,
        gen_only: bool = False,
        quiet: bool = False,
        command_args: Sequence[str] = (),
        verilog_defines: Sequence[str] = (),
    ) -> "Simulation | None":
        """The model of a Verilog file; modules that it lacks are looked for in ``verilog_path`` and the working folder.

        Parameters
        ----------
        build_dir
            Where the library is copied, as ``V<name of the file>``; it is built in Dovetail's cache, where a second
            build of the same texts finds it.
        json_data
            Kept in the library, and read as ``sim.json_data``.
        gen_only
            Leave Verilator's C++ and the wrapper in ``build_dir``, and return nothing.
        quiet
            Do not print Verilator's warnings.
        command_args
            Arguments of the simulation, for ``$test$plusargs``.
        verilog_defines
            ``NAME`` or ``NAME=value``.

        Raises
        ------
        BuildError
            When Verilator refuses the design.
        ToolError
            When a tool is missing.
        """
        for name, given in (("verilog_defines", verilog_defines), ("command_args", command_args)):
            if isinstance(given, str):
                raise TypeError(f"{name} must be a list of strings, not a string")
        file, target = Path(top_verilog_file), Path(build_dir)
        if file.suffix not in SUFFIXES:
            raise ValueError(f"top_verilog_file must end in {' or '.join(SUFFIXES)}, not {str(file)!r}")
        text = file.read_text()
        flags = [f"+define+{define}" for define in verilog_defines]
        for folder in (*verilog_path, "."):
            flags += ["-y", str(Path(folder).resolve())]
        target.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory() as folder:
            read = _elaborate(file, flags, Path(folder), quiet=quiet)
        if gen_only:
            _elaborate(file, [*flags, "--exe", "pyverilator_wrapper.cpp"], target, quiet=True)
            source = wrapper(target, top=file.stem, json_data=json_data, prefix=file.stem)["pyverilator.cpp"]
            (target / "pyverilator_wrapper.cpp").write_text(source)
            return None
        library = _library({file.name: text}, "", file.stem, default_cache(), flags, json_data, read)
        return cls(shutil.copyfile(library, target / f"V{file.stem}"), command_args=command_args)

    @classmethod
    def of(cls, verilog: Mapping[str, str], top: str, cache: Path, flags: Sequence[str] = ()) -> "Simulation":
        """The model of Verilog texts by file name. Raises :class:`~dovetail.isa.common.cplusplus.ToolError`."""
        return cls(_library(verilog, top, top, cache, flags))

    def __init__(
        self, so_file: str | os.PathLike[str], auto_eval: bool = True, command_args: Sequence[str] = ()
    ) -> None:
        # PyVerilator keeps time, context and callbacks in variables of the library: each simulation has its own copy.
        with tempfile.TemporaryDirectory() as folder:
            super().__init__(shutil.copy(so_file, folder), auto_eval, command_args)
        self.lib.get_finished.restype = ctypes.c_bool
        self.lib.set_finished.argtypes = [ctypes.c_bool]
        self.finished = False
        self.set_vl_finish_callback(Simulation._finish)

    def _finish(self, *_: object) -> None:
        """Instead of ending the process at the second ``$finish``."""
        self.finished = True

    def _populate_signal_collections(self) -> None:
        """PyVerilator's table of signals, as it shows them and as the handle needs them."""
        ports = [pyverilator.Input(self, *signal) for signal in self.inputs]
        ports += [pyverilator.Output(self, *signal) for signal in self.outputs]
        names = {signal.modular_name for signal in ports}
        inside = [InternalSignal(self, *signal) for signal in self.internal_signals]
        inside = [signal for signal in inside if signal.modular_name not in names]
        self.all_signals = {signal.modular_name: signal for signal in (*ports, *inside)}
        self.memories = {memory.modular_name: memory for memory in self._arrays()}
        internals = {signal.modular_name: signal for signal in inside} | self.memories
        self.io = pyverilator.Collection({signal.short_name: signal for signal in ports})
        self.internals = pyverilator.Collection.build_nested_collection(internals, pyverilator.Submodule)

    def _arrays(self) -> Iterator[Memory]:
        try:
            table = ctypes.c_char_p.in_dll(self.lib, MEMORIES).value or b"[]"
        except ValueError:  # a library that PyVerilator itself has built
            return
        for row in json.loads(table):
            yield Memory(self, MemoryRow(*row))

    def start_gtkwave(self) -> None:
        """As PyVerilator does it. Raises :class:`~dovetail.isa.common.cplusplus.ToolError` without GTKWave."""
        if shutil.which("gtkwave") is None:
            raise ToolError("gtkwave is not on PATH (Debian: apt install gtkwave); start_vcd_trace needs nothing")
        super().start_gtkwave()

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
        """End GTKWave and waves, and free the model. Further use raises ValueError."""
        if self.model is None:
            return
        if self.gtkwave_active:
            self.stop_gtkwave()
        if self.vcd_trace is not None:
            self.stop_vcd_trace()
        self.lib.destruct.argtypes = [ctypes.c_void_p]
        self.lib.destruct(self.model)
        self.model, self.lib = None, _Closed()


def _library(
    verilog: Mapping[str, str],
    top: str,
    name: str,
    cache: Path,
    flags: Sequence[str],
    json_data: Any = None,
    read: Mapping[str, str] | None = None,
) -> Path:
    """The library of Verilog texts; ``read``: files that Verilator finds by ``flags``, which decide it as well."""
    design = Design(
        verilog={"0_public.vlt": public_signals(), **verilog},
        top=top,
        driver={},
        trace="vcd",
        flags=("--flatten", *flags),
        wrapper=partial(wrapper, top=name, json_data=json_data),
        wrapper_version=json.dumps([VERSION, version("PyVerilator"), name, json_data, sorted((read or {}).items())]),
    )
    return verilate(design, cache)


def _elaborate(file: Path, flags: Sequence[str], folder: Path, *, quiet: bool) -> dict[str, str]:
    """Let Verilator write its C++ for a file to ``folder``: the texts of all files that it read, by path. Raises
    BuildError."""
    root = verilator_root()
    (folder / "public.vlt").write_text(public_signals())
    command = [str(root / "bin" / "verilator_bin"), "--cc", "--trace-vcd", "--flatten", "-Wno-fatal"]
    command += ["--prefix", f"V{file.stem}", "--Mdir", str(folder), *flags, str(folder / "public.vlt"), str(file)]
    done = subprocess.run(
        command, text=True, errors="replace", capture_output=True, env={**os.environ, "VERILATOR_ROOT": str(root)}
    )
    if done.returncode:
        raise BuildError(done)
    if done.stderr and not quiet:
        print(done.stderr, end="", file=sys.stderr)
    listed = re.findall(r'^S .*"(.*)"$', (folder / f"V{file.stem}__verFiles.dat").read_text(), re.M)
    paths = (Path(path) for path in listed)
    return {
        str(path.resolve()): path.read_text(errors="replace")
        for path in paths
        if not path.resolve().is_relative_to(root) and folder not in path.parents
    }


# Here, so that the package is complete whoever imports it first.
pyverilator.verilator_name_to_standard_modular_name = standard_name
pyverilator.PyVerilator = importlib.import_module("pyverilator").__dict__["PyVerilator"] = Simulation
