"""A whole board under Verilator, with a pseudo-terminal where the board would have its serial port.

The UART's pins carry the same bits as a board's: a program that opens the port talks to the design of a bitstream.
"""

import ctypes
import os
import pty
import tty
from pathlib import Path
from threading import Thread

from dovetail.cosim.rtl.block import driver
from dovetail.cosim.rtl.rtl_engine import RtlError, sources_hash
from dovetail.cosim.rtl.verilate import Design, verilate
from dovetail.hw.board.design import BoardDesign
from dovetail.hw.board.memory import BoardMemory
from dovetail.hw.verilog import simulation_verilog
from dovetail.isa.common.build_cache import noted_library
from dovetail.isa.config.resolved import Config

TOP = "board"
BAUD = 1_000_000
"""Bits per second of the simulated UART; a pseudo-terminal takes any. The clock has ``divisor`` times as many hertz."""


class SimulatedBoard:
    """A board in a thread of this process. A context manager; the board runs inside.

    Parameters
    ----------
    config
        The accelerator.
    memory
        System memory.
    cache
        Folder of the builds; the first use of a design compiles for some seconds.
    divisor
        Clock cycles per bit of the UART, at least 4: fewer, and simulated transfers take less time.

    Members
    -------
    port
        Path of the serial port, for pyserial and others; for one of them at a time.
    baud, clock_hz
        What the board takes itself to run at.

    The board's clock stands still while neither host nor board does anything; neither can notice that.

    Raises
    ------
    RtlError
        At the end, when the design told its SDRAM something that it cannot do.
    ToolError
        When Verilator or the C++ compiler is missing or fails.
    """

    def __init__(self, config: Config, *, memory: BoardMemory, cache: Path, divisor: int = 8) -> None:
        self.baud = BAUD
        self.clock_hz = BAUD * divisor
        self._library = ctypes.CDLL(str(board_library(config, memory, divisor, Path(cache))))
        self._library.board_new.restype = ctypes.c_void_p
        self._library.board_violation.restype = ctypes.c_char_p
        self._library.board_cycles.restype = ctypes.c_uint64
        self._library.board_dropped.restype = ctypes.c_uint64
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


def board_library(config: Config, memory: BoardMemory, divisor: int, cache: Path) -> Path:
    """The Verilated library of a board."""
    note = f"board-{sources_hash(config, repr(memory), str(divisor))}"
    return noted_library(cache, note, lambda: verilate(board_design(config, memory, divisor), cache))


def board_design(config: Config, memory: BoardMemory, divisor: int) -> Design:
    """What is Verilated for a board."""
    top = BoardDesign(config, clock_hz=BAUD * divisor, baud=BAUD, memory=memory, simulation=True)
    return Design(
        verilog=simulation_verilog(top, name=TOP),
        top=TOP,
        driver={"board.cpp": driver("board.cpp")},
        defines=_chip(memory),
    )


def _chip(memory: BoardMemory) -> tuple[str, ...]:
    """The shape of the chip of SDRAM, for `board.cpp`."""
    if memory.chip is None:
        return ("HAS_SDRAM=0",)
    shape = {"WIDTH": memory.chip.width, "ROW_BITS": memory.chip.row_bits, "COLUMN_BITS": memory.chip.column_bits}
    return ("HAS_SDRAM=1", *(f"SDRAM_{name}={value}" for name, value in shape.items()))
