"""One Amaranth component under Verilator: poke, peek and tick its ports, and stream arrays through it.

For speed over many cycles; to look inside a design there is :class:`dovetail.cosim.handle.design.Handle`.
"""

import ctypes
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from amaranth.back import verilog
from amaranth.hdl import Value, ValueCastable
from amaranth.lib import wiring

from dovetail.cosim.rtl.verilate import Design, verilate, yosys
from dovetail.hw.common.elaboration import checked
from dovetail.hw.verilog import to_verilog
from dovetail.isa.config.resolved import Config

TOP = "dut"


@dataclass(frozen=True)
class Port:
    """A port of the block; ``bytes`` is its size in the Verilated class, little-endian."""

    index: int
    name: str
    width: int
    signed: bool
    output: bool
    bytes: int


def driver(name: str) -> str:
    """The text of a C++ driver of this package."""
    return files("dovetail.cosim.rtl").joinpath(name).read_text()


def sources_of(
    design: wiring.Component | Config | str | Path | Sequence[str | Path], top: str | None = None
) -> tuple[dict[str, str], str]:
    """Verilog texts by file name, and the name of the top module: of a component, of a configuration's accelerator, or
    of Verilog files, the first of which is named like ``top`` unless that is given. Raises TypeError for anything else,
    and :class:`~dovetail.isa.common.cplusplus.ToolError` without Yosys."""
    if isinstance(design, str | Path):
        design = [design]
    if isinstance(design, Sequence):
        return {Path(file).name: Path(file).read_text() for file in design}, top or Path(design[0]).stem
    if not isinstance(design, wiring.Component | Config):
        raise TypeError(f"design must be a component, a configuration or Verilog files, not {design!r}")
    with yosys():
        return dict(to_verilog(design, simulation=True, name=TOP)), TOP


def block_design(component: Any, *, trace: str = "", extra: Mapping[str, str] | None = None) -> Design:
    """The design of a component. ``extra``: Verilog files of modules that it instantiates."""
    with checked():
        text = verilog.convert(component, name=TOP, emit_src=False)
    names = [name for name, *_ in _signature_ports(component)]
    clock = "input clk;" in text
    if "input rst;" in text:
        names.append("rst")
    # Verilator spells a double underscore in a name this way.
    table = "".join(f"PORT({n}, {name.replace('__', '___05F')})\n" for n, name in enumerate(names))
    return Design(
        verilog={f"{TOP}.v": text, **(extra or {})},
        top=TOP,
        driver={"block.cpp": driver("block.cpp"), "waves.h": driver("waves.h"), "ports.inc": table},
        trace=trace,
        defines=(f"HAS_CLOCK={int(clock)}",),
    )


def _signature_ports(component: Any) -> Iterable[tuple[str, int, bool, bool]]:
    """(name, width, signed, is output) of the component's ports, named as Amaranth names them in Verilog."""
    for path, member, value in component.signature.flatten(component):
        if isinstance(value, ValueCastable):
            value = value.as_value()
        if isinstance(value, Value) and len(value):
            shape = value.shape()
            yield "__".join(map(str, path)), shape.width, shape.signed, member.flow == wiring.Out


class Bench:
    """A Verilated component.

    Parameters
    ----------
    component
        An ``amaranth.lib.wiring.Component``; ports are named by their path, joined with ``__``.
    cache
        Folder of the builds.
    trace
        Format of :meth:`waves`, ``"vcd"`` or ``"fst"``; empty: build without them, for speed.
    extra
        Verilog files of modules that the component instantiates.

    Values are integers; a port wider than 64 bits is a row of little-endian bytes in :meth:`stream`.
    """

    def __init__(self, component: Any, *, cache: Path, trace: str = "", extra: Mapping[str, str] | None = None) -> None:
        design = block_design(component, trace=trace, extra=extra)
        self._library = ctypes.CDLL(str(verilate(design, cache)))
        self._library.block_new.restype = ctypes.c_void_p
        self._library.block_size.restype = ctypes.c_uint64
        self._handle = ctypes.c_void_p(self._library.block_new())
        rows = list(_signature_ports(component))
        if "rst)" in design.driver["ports.inc"].splitlines()[-1]:
            rows.append(("rst", 1, False, False))
        self.ports = {
            name: Port(n, name, width, signed, output, int(self._library.block_size(self._handle, n)))
            for n, (name, width, signed, output) in enumerate(rows)
        }

    def close(self) -> None:
        """Free the instance; the handle cannot be used any more."""
        if self._handle:
            self._library.block_delete(self._handle)
            self._handle = ctypes.c_void_p()

    def __enter__(self) -> "Bench":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _port(self, name: str) -> Port:
        if name not in self.ports:
            raise KeyError(f"port must be one of {', '.join(self.ports)}, not {name!r}")
        return self.ports[name]

    def _input(self, name: str) -> Port:
        port = self._port(name)
        if port.output:
            raise ValueError(f"{name} is an output")
        return port

    def poke(self, name: str, value: int) -> None:
        """Drive an input from now on; the value wraps to the port's width."""
        port = self._input(name)
        data = (value & (1 << port.width) - 1).to_bytes(port.bytes, "little")
        self._library.block_poke(self._handle, port.index, data)

    def peek(self, name: str) -> int:
        """A port's value in the present cycle."""
        port = self._port(name)
        data = ctypes.create_string_buffer(port.bytes)
        self._library.block_peek(self._handle, port.index, data)
        value = int.from_bytes(data.raw, "little")
        return value - (1 << port.width) if port.signed and value >> port.width - 1 else value

    def tick(self, cycles: int = 1) -> None:
        """Clock edges with the inputs as they are."""
        self._library.block_tick(self._handle, ctypes.c_uint64(cycles))

    def reset(self) -> None:
        """One cycle of ``rst``, for a block that has it."""
        if "rst" in self.ports:
            self.poke("rst", 1)
            self.tick()
            self.poke("rst", 0)

    def waves(self, path: Path | None) -> None:
        """Dump waves to ``path`` from now on, or end the dump with ``None``."""
        if not self._library.block_waves(self._handle, None if path is None else str(path).encode()):
            raise ValueError("trace must be vcd or fst for waves, not empty")

    def stream(
        self, inputs: Mapping[str, npt.ArrayLike], outputs: Sequence[str], cycles: int | None = None
    ) -> dict[str, npt.NDArray[Any]]:
        """Run cycles with a row of each input array per cycle; returns what each output showed in each cycle.

        ``cycles`` defaults to the longest input; a shorter input keeps its last row. Outputs are taken after the
        inputs of the same cycle have settled and before the clock edge.
        """
        arrays = {name: np.asarray(value) for name, value in inputs.items()}
        if cycles is None:
            cycles = max((len(a) for a in arrays.values()), default=0)
        sources = [(self._input(name), array) for name, array in arrays.items()]
        targets = [self._port(name) for name in outputs]
        in_data = [_to_storage(port, array, cycles) for port, array in sources]
        out_data = [np.zeros((cycles, port.bytes), np.uint8) for port in targets]
        self._library.block_stream(
            self._handle,
            ctypes.c_uint64(cycles),
            len(sources),
            (ctypes.c_int * len(sources))(*(port.index for port, _ in sources)),
            (ctypes.c_void_p * len(sources))(*(a.ctypes.data for a in in_data)),
            len(targets),
            (ctypes.c_int * len(targets))(*(port.index for port in targets)),
            (ctypes.c_void_p * len(targets))(*(a.ctypes.data for a in out_data)),
        )
        return {port.name: _from_storage(port, data) for port, data in zip(targets, out_data, strict=True)}

    def pipeline(
        self, inputs: Mapping[str, npt.ArrayLike], outputs: Sequence[str], latency: int
    ) -> dict[str, npt.NDArray[Any]]:
        """What a block that takes a row every cycle answers to each row ``latency`` cycles later."""
        rows = max(len(np.asarray(value)) for value in inputs.values())
        answer = self.stream(inputs, outputs, rows + latency)
        return {name: array[latency:] for name, array in answer.items()}


def _to_storage(port: Port, array: npt.NDArray[Any], cycles: int) -> npt.NDArray[np.uint8]:
    """``cycles`` rows of the port's bytes; the last row of ``array`` is repeated."""
    if not len(array):
        raise ValueError(f"input {port.name} must have at least one row")
    array = array[:cycles]
    data = np.zeros((cycles, port.bytes), np.uint8)
    if port.width > 64:
        if array.dtype != np.uint8 or array.ndim != 2 or array.shape[1] != -(-port.width // 8):
            raise ValueError(
                f"input {port.name} must be rows of {-(-port.width // 8)} uint8, not {array.shape} {array.dtype}"
            )
        data[: len(array), : array.shape[1]] = array
    else:
        if array.ndim != 1:
            raise ValueError(f"input {port.name} must have one value per cycle, not shape {array.shape}")
        values = array.astype(np.int64 if array.dtype.kind != "u" else np.uint64).astype(np.uint64)
        values &= np.uint64((1 << port.width) - 1)
        data[: len(array)] = values.view(np.uint8).reshape(-1, 8)[:, : port.bytes]
    data[len(array) :] = data[len(array) - 1]
    return data


def _from_storage(port: Port, data: npt.NDArray[np.uint8]) -> npt.NDArray[Any]:
    if port.width > 64:
        return data[:, : -(-port.width // 8)]
    wide = np.zeros((len(data), 8), np.uint8)
    wide[:, : port.bytes] = data
    values = wide.view(np.uint64).reshape(-1)
    if not port.signed:
        return values
    spare = 64 - port.width
    return (values << np.uint64(spare)).view(np.int64) >> spare
