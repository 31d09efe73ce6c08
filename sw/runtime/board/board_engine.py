"""A board behind the engine interface that the model and the RTL have too."""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from dovetail.isa.common.sizes import format_bytes
from dovetail.isa.config.presets import PRESETS
from dovetail.isa.config.resolved import Config
from dovetail.isa.host import ID, STATUS_BUSY, STATUS_DONE, VERSION
from dovetail.isa.instructions.checks import View
from dovetail.isa.instructions.table import INSTRUCTIONS, PAGE_BYTES, Op, Unit, unit_of
from dovetail.isa.link import BAUD, WORD
from dovetail.isa.timing.operations import Operations
from dovetail.isa.timing.run import cycle_bound
from dovetail.isa.timing.sequencer import Words, as_words
from dovetail.sw.compiler.emit.hazards import transfer_rows
from dovetail.sw.runtime.board.link import PATIENCE, Link, LinkError
from dovetail.sw.runtime.engine import Bytes, DeviceEngine, RunResult, without_timeline

PAGE = 4096
"""Memory comes in multiples of it."""
GAP = 32
"""Pieces closer than this many bytes go over the link together: a request of its own costs about as much."""
WAIT_CYCLES = 2_000_000
"""Cycles of one WAIT."""
SLACK, MARGIN = 16, 1_000_000
"""A run is given up after so many times its bound, and so many cycles more. The bound assumes the configuration's
memory, and a board's may be slower."""

MOST_ROWS = 1 << 16
"""Transfers of up to so many rows are examined row by row; larger ones count as everything."""

Mask = npt.NDArray[np.bool_]


@dataclass(frozen=True)
class Traffic:
    """Bytes of system memory, from address 0 on.

    ``taken``: read by the program before it has stored them itself, in the order of its words. ``stored``: written by
    it, if it runs to its END.
    """

    taken: Mask
    stored: Mask


class BoardEngine(DeviceEngine):
    """Runs programs on a board; an :class:`~dovetail.sw.runtime.engine.Engine`. A context manager.

    Only bytes that a program reads and the board does not have yet are sent; only those that it stores come back.
    Timelines are empty; cycles and counters are the board's, whose memory has a timing of its own. After a fault, bytes
    that the program would have stored but did not are what earlier runs left there. The board's memory beyond that of
    a run answers, too.

    Parameters
    ----------
    config
        The accelerator that the bitstream must hold.
    port, baud, patience
        See :class:`~dovetail.sw.runtime.board.link.Link`.

    Raises
    ------
    LinkError
        The port cannot be used, no board answers, or it holds something else. :meth:`run` raises it where memory does
        not suffice, the link breaks, or a run does not end.
    """

    def __init__(
        self, config: Config, port: str | None = None, baud: int = BAUD, *, patience: float = PATIENCE
    ) -> None:
        self._config = config
        self.link = Link(port, baud, patience=patience)
        try:
            self._check()
        except LinkError:
            self.link.close()
            raise
        size = self.link.board.memory_bytes
        self._contents: Bytes = np.zeros(size, np.uint8)
        self._known: Mask = np.zeros(size, np.bool_)
        self._doubtful = False
        """Whether the last run may still be under way."""

    def close(self) -> None:
        """Give the port back."""
        self.link.close()

    def _check(self) -> None:
        """Raise LinkError unless the board holds an idle accelerator of this configuration."""
        link = self.link
        identity = link.read_register("ID")
        if identity != ID:
            raise LinkError(f"{link.port}: the board must hold a Dovetail accelerator (ID {ID:#x}, not {identity:#x})")
        version = link.read_register("VERSION")
        if version != VERSION:
            raise LinkError(
                f"{link.port}: the bitstream must have version {VERSION} of the instruction set, not {version};"
                " build it again"
            )
        found = link.read_register("CONFIG_HASH_LO") | link.read_register("CONFIG_HASH_HI") << 32
        if found != self._config.hash:
            names = [f", the preset {name}" for name in PRESETS if Config.load(name).hash == found][:1]
            raise LinkError(
                f"{link.port}: the bitstream must be of configuration {self._config.hash:016x}, not"
                f" {found:016x}{''.join(names)}; compile for that one with --config, or `dovetail build` this one"
            )
        if link.read_register("STATUS") & STATUS_BUSY.mask:
            raise LinkError(f"{link.port}: the board must be idle, not in a run of before; reset it")

    # --- SRAM ----------------------------------------------------------------------------------------------------

    def reset(self) -> None:
        """Fill SRAM with zeros, as after power-up."""
        self.write_sram(np.zeros(self._config.sram, np.uint8))

    def _copy_bytes(self) -> int:
        most = self.link.board.memory_bytes - PAGE
        if most <= 0:
            raise LinkError(f"{self.link.port}: the board must have more than {PAGE} bytes of memory to copy SRAM")
        return most

    def _run_copy(self, memory: Bytes) -> None:
        result = self.run(memory, 0, 1)
        if result.fault:
            raise LinkError(f"{self.link.port}: the copy of SRAM failed: {result.fault}")

    # --- runs ----------------------------------------------------------------------------------------------------

    def run(self, memory: Bytes, program: int, pages: int, base: int = 0) -> RunResult:
        """Run a program; see :meth:`~dovetail.sw.runtime.engine.Engine.run`."""
        if memory.dtype != np.uint8 or memory.ndim != 1 or len(memory) % PAGE:
            raise ValueError(f"memory must be bytes, a multiple of {PAGE}")
        size = self.link.board.memory_bytes
        if len(memory) > size:
            raise LinkError(
                f"the program needs {format_bytes(len(memory))} of memory, the board has {format_bytes(size)}: take a"
                " smaller network, or build the board with more memory"
            )
        words = memory[program : program + pages * PAGE_BYTES].tobytes()
        moved = traffic(words, base, len(memory))
        needed = moved.taken.copy()
        needed[program : program + pages * PAGE_BYTES] = True
        if self._doubtful:
            self._check()
        self._doubtful = True
        try:
            self._send(memory, needed)
            self._execute(program, pages, base, cycle_bound(self._config, words))
            result = without_timeline(memory, self.link.read_register)
            self._fetch(memory, moved.stored)
        except BaseException:  # how far it got is unknown
            self._known[:] = False
            raise
        self._doubtful = False
        return result

    def _send(self, memory: Bytes, needed: Mask) -> None:
        """Write what is needed and not there yet."""
        size = len(memory)
        there = self._known[:size] & (self._contents[:size] == memory)
        for first, past in pieces(needed & ~there):
            self.link.write(first, memory[first:past].tobytes())
            self._contents[first:past] = memory[first:past]
            self._known[first:past] = True

    def _fetch(self, memory: Bytes, stored: Mask) -> None:
        """Read what the program has stored."""
        for first, past in pieces(stored):
            data = np.frombuffer(self.link.read(first, past - first), np.uint8)
            self._contents[first:past] = data
            self._known[first:past] = True
            np.copyto(memory[first:past], data, where=stored[first:past])

    def _execute(self, program: int, pages: int, base: int, bound: int) -> None:
        link = self.link
        for name, value in (("STATUS", STATUS_DONE.mask), ("PROGRAM", program), ("PAGES", pages), ("BASE", base)):
            link.write_register(name, value)
        link.start()
        waited, limit = 0, SLACK * bound + MARGIN
        while not link.wait(min(WAIT_CYCLES, limit - waited)):
            waited += WAIT_CYCLES
            if waited >= limit:
                raise LinkError(f"{link.port}: the run did not end after {limit:,} cycles; it takes {bound:,} at most")
        link.write_register("STATUS", STATUS_DONE.mask)


def pieces(wanted: Mask) -> list[tuple[int, int]]:
    """(first byte, byte after the last) of what covers the wanted bytes, in whole words; pieces with less than
    :data:`GAP` bytes between them are one. ``wanted`` is a multiple of 4 bytes."""
    words = np.flatnonzero(wanted.reshape(-1, WORD).any(axis=1))
    if not len(words):
        return []
    breaks = np.flatnonzero(np.diff(words) > GAP // WORD)
    firsts = words[np.concatenate(([0], breaks + 1))]
    lasts = words[np.concatenate((breaks, [len(words) - 1]))]
    return [(first * WORD, (last + 1) * WORD) for first, last in zip(firsts.tolist(), lasts.tolist(), strict=True)]


def traffic(program: Words, base: int, memory_bytes: int) -> Traffic:
    """What a program reads and writes of the first ``memory_bytes`` bytes; its own pages do not count. ``base`` is what
    its addresses are relative to."""
    found = Traffic(np.zeros(memory_bytes, np.bool_), np.zeros(memory_bytes, np.bool_))
    words = as_words(program)
    ends = np.flatnonzero((words & np.uint64(0xFF)) == Op.END)
    operations = Operations(words[: ends[0]] if len(ends) else words)
    for op, registers in zip(operations.ops.tolist(), operations.registers(), strict=True):
        if INSTRUCTIONS[op].moves:
            _add(found, Op(op), View(unit_of(op), registers), base)
    return found


def _add(found: Traffic, op: Op, view: View, base: int) -> None:
    if view["COUNT", "rows"] * view["COUNT", "planes"] > MOST_ROWS:
        rows = [(0, len(found.taken))]
    else:
        rows = transfer_rows(op, view.values, base)
    for start, size in rows:
        part = slice(start, start + size)
        if view.unit == Unit.LOAD:
            found.taken[part] |= ~found.stored[part]
        else:
            found.stored[part] = True
