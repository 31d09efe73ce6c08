"""A whole board under Verilator, with a pseudo-terminal where the board would have its serial port.

The UART's pins carry the same bits as a board's: a program that opens the port talks to the design of a bitstream.
"""

import ctypes
import os
import pty
import tty
from pathlib import Path
from threading import Thread

import numpy as np
import numpy.typing as npt

from dovetail.cosim.rtl.block import driver
from dovetail.cosim.rtl.rtl_engine import RtlError, sources_hash
from dovetail.cosim.rtl.verilate import Design, verilate
from dovetail.hw.board.design import BoardDesign
from dovetail.hw.board.memory import BoardMemory
from dovetail.hw.verilog import simulation_verilog
from dovetail.isa.common.build_cache import noted_library
from dovetail.isa.config.resolved import Config
from dovetail.isa.config.system import Part, System

TOP = "board"
DRIVER = ("board.cpp", "axi_bus.h", "dut_ports.h")
BAUD = 1_000_000
"""Bits per second of the simulated UART; a pseudo-terminal takes any. The clock has ``divisor`` times as many hertz."""


class SimulatedBoard:
    """A board in a thread of this process. A context manager; the board runs inside.

    Parameters
    ----------
    design
        The accelerator, or a system of them.
    memory
        System memory.
    cache
        Folder of the builds; the first use of a design compiles for some seconds.
    divisor
        Clock cycles per bit of the UART, at least 4: fewer, and simulated transfers take less time.
    clock_hz
        What the board takes itself to run at, a multiple of the divisor: the times of SDRAM in cycles follow from it.
        By default what the divisor makes of 1,000,000 bits per second.

    Members
    -------
    port
        Path of the serial port, for pyserial and others; for one of them at a time.
    baud, clock_hz
        Of the UART, and of the clock.

    The board's clock stands still while neither host nor board does anything; neither can notice that.

    Raises
    ------
    RtlError
        At the end, when the design told its SDRAM something that it cannot do.
    ToolError
        When Verilator or the C++ compiler is missing or fails.
    """

    def __init__(
        self,
        design: Config | System,
        *,
        memory: BoardMemory,
        cache: Path,
        divisor: int = 8,
        clock_hz: int | None = None,
    ) -> None:
        self.clock_hz = BAUD * divisor if clock_hz is None else clock_hz
        self.baud = self.clock_hz // divisor
        self._library = ctypes.CDLL(str(board_library(design, memory, self.clock_hz, self.baud, Path(cache))))
        self._library.board_new.restype = ctypes.c_void_p
        self._library.board_violation.restype = ctypes.c_char_p
        self._library.board_cycles.restype = ctypes.c_uint64
        self._library.board_dropped.restype = ctypes.c_uint64
        self._library.board_origin.restype = ctypes.c_uint64
        self._library.board_entries.restype = ctypes.c_uint64
        self._handle = ctypes.c_void_p(self._library.board_new(ctypes.c_uint64(divisor)))
        self._far, self._near = pty.openpty()
        tty.setraw(self._near)
        os.set_blocking(self._far, False)
        self._stop, self._stopper = os.pipe()
        self.port = os.ttyname(self._near)
        self._thread = Thread(
            target=self._library.board_run, args=(self._handle, self._far, self._stop), name="board", daemon=True
        )

    @property
    def cycles(self) -> int:
        """Clock cycles since power-up, not quite up to date while the board is at work."""
        return int(self._library.board_cycles(self._handle))

    @property
    def fault(self) -> bool:
        """The lamp of that name: the last request was broken or refused."""
        return bool(self._library.board_fault(self._handle))

    @property
    def dropped(self) -> int:
        """Bytes from the board that had no stop bit."""
        return int(self._library.board_dropped(self._handle))

    def latest_run(self, number: int = 0) -> tuple[int, npt.NDArray[np.int64]]:
        """Of the latest run of an accelerator, when the host knows that it has ended: its cycle 0 in cycles since
        power-up, and rows of what its units did, see :func:`~dovetail.cosim.rtl.rtl_engine.timeline_of`."""
        rows = np.zeros((int(self._library.board_entries(self._handle, number, None)), 5), np.int64)
        self._library.board_entries(self._handle, number, ctypes.c_void_p(rows.ctypes.data))
        return int(self._library.board_origin(self._handle, number)), rows

    def __enter__(self) -> "SimulatedBoard":
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        os.write(self._stopper, b"\0")
        self._thread.join()
        violation = self._library.board_violation(self._handle)
        self._library.board_delete(self._handle)
        for descriptor in (self._far, self._near, self._stop, self._stopper):
            os.close(descriptor)
        if violation:
            raise RtlError(f"SDRAM: {violation.decode()}")


def board_library(design: Config | System, memory: BoardMemory, clock_hz: int, baud: int, cache: Path) -> Path:
    """The Verilated library of a board."""
    parts = design.accelerators if isinstance(design, System) else (Part("alone", design, -1),)
    hashes = [f"{part.config.hash:016x} {part.registers:#x}" for part in parts]
    note = f"board-{sources_hash(parts[0].config, repr(memory), f'{clock_hz} {baud}', *hashes)}"
    return noted_library(cache, note, lambda: verilate(board_design(design, memory, clock_hz, baud), cache))


def board_design(design: Config | System, memory: BoardMemory, clock_hz: int, baud: int) -> Design:
    """What is Verilated for a board."""
    top = BoardDesign(design, clock_hz=clock_hz, baud=baud, memory=memory, simulation=True)
    count = len(top.configs)
    return Design(
        verilog=simulation_verilog(top, name=TOP),
        top=TOP,
        driver={name: driver(name) for name in DRIVER},
        defines=(
            *_chip(memory),
            f"COUNT={count}",
            "ACCELERATORS=" + " ".join(f"ACCELERATOR({k})" for k in range(count)),
        ),
    )


def _chip(memory: BoardMemory) -> tuple[str, ...]:
    """The shape of the chip of SDRAM, for `board.cpp`."""
    if memory.chip is None:
        return ("HAS_SDRAM=0",)
    shape = {"WIDTH": memory.chip.width, "ROW_BITS": memory.chip.row_bits, "COLUMN_BITS": memory.chip.column_bits}
    return ("HAS_SDRAM=1", *(f"SDRAM_{name}={value}" for name, value in shape.items()))
