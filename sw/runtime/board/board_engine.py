"""A board behind the engine interface that the model and the RTL have too."""

from collections.abc import Iterable, Sequence

import numpy as np

from dovetail.isa.common.sizes import format_bytes
from dovetail.isa.config.presets import PRESETS
from dovetail.isa.config.resolved import Config
from dovetail.isa.host import ID, STATUS_BUSY, STATUS_DONE, VERSION
from dovetail.isa.instructions.parameters import resolve
from dovetail.isa.instructions.table import PAGE_BYTES
from dovetail.isa.link import BAUD
from dovetail.isa.timing.run import cycle_bound
from dovetail.isa.timing.sequencer import as_words
from dovetail.sw.runtime.board.contents import Contents, traffic
from dovetail.sw.runtime.board.link import PATIENCE, Link, LinkError
from dovetail.sw.runtime.engine import Bytes, DeviceEngine, RunResult, run_registers, without_timeline

PAGE = 4096
"""Memory comes in multiples of it."""
WAIT_CYCLES = 2_000_000
"""Cycles of one WAIT."""
SLACK, MARGIN = 16, 1_000_000
"""A run is given up after so many times its bound, and so many cycles more. The bound assumes the configuration's
memory, and a board's may be slower."""


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
            check_accelerator(self.link, self._config)
        except LinkError:
            self.link.close()
            raise
        self._contents = Contents(self.link)
        self._doubtful = False
        """Whether the last run may still be under way."""

    def close(self) -> None:
        """Give the port back."""
        self.link.close()

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

    def run(self, memory: Bytes, program: int, pages: int, base: int = 0, parameters: Sequence[int] = ()) -> RunResult:
        """Run a program; see :meth:`~dovetail.sw.runtime.engine.Engine.run`."""
        check_room(self.link, memory)
        self.holds = None
        text = memory[program : program + pages * PAGE_BYTES].tobytes()
        words = resolve(self._config, as_words(text), parameters)
        moved = traffic(words, base, len(memory))
        needed = moved.taken.copy()
        needed[program : program + pages * PAGE_BYTES] = True
        if self._doubtful:
            check_accelerator(self.link, self._config)
        self._doubtful = True
        try:
            self._contents.send(memory, needed)
            registers = run_registers(self._config, program, pages, base, parameters)
            self._execute(registers, cycle_bound(self._config, words))
            result = without_timeline(memory, self.link.read_register)
            self._contents.fetch(memory, moved.stored)
        except BaseException:  # how far it got is unknown
            self._contents.forget()
            raise
        self._doubtful = False
        return result

    def _execute(self, registers: Iterable[tuple[str, int]], bound: int) -> None:
        link = self.link
        for name, value in (("STATUS", STATUS_DONE.mask), *registers):
            link.write_register(name, value)
        link.start()
        wait_for(link, bound)
        link.write_register("STATUS", STATUS_DONE.mask)


def check_accelerator(link: Link, config: Config, window: int = 0) -> None:
    """Raise LinkError unless the board holds an idle accelerator of a configuration; ``window``: where its registers
    begin."""
    identity = link.read_register("ID", window)
    if identity != ID:
        raise LinkError(f"{link.port}: the board must hold a Dovetail accelerator (ID {ID:#x}, not {identity:#x})")
    version = link.read_register("VERSION", window)
    if version != VERSION:
        raise LinkError(
            f"{link.port}: the bitstream must have version {VERSION} of the instruction set, not {version};"
            " build it again"
        )
    found = link.read_register("CONFIG_HASH_LO", window) | link.read_register("CONFIG_HASH_HI", window) << 32
    if found != config.hash:
        names = [f", the preset {name}" for name in PRESETS if Config.load(name).hash == found][:1]
        raise LinkError(
            f"{link.port}: the bitstream must be of configuration {config.hash:016x}, not"
            f" {found:016x}{''.join(names)}; compile for that one with --config, or `dovetail build` this one"
        )
    if link.read_register("STATUS", window) & STATUS_BUSY.mask:
        raise LinkError(f"{link.port}: the board must be idle, not in a run of before; reset it")


def check_room(link: Link, memory: Bytes) -> None:
    """Raise LinkError where a board has not as much memory, ValueError where it is none."""
    if memory.dtype != np.uint8 or memory.ndim != 1 or len(memory) % PAGE:
        raise ValueError(f"memory must be bytes, a multiple of {PAGE}")
    size = link.board.memory_bytes
    if len(memory) > size:
        raise LinkError(
            f"the program needs {format_bytes(len(memory))} of memory, the board has {format_bytes(size)}: take a"
            " smaller network, or build the board with more memory"
        )


def wait_for(link: Link, bound: int) -> int:
    """The interrupts, as soon as one is high. ``bound``: cycles that it takes at most. Raises LinkError where it takes
    far more."""
    waited, limit = 0, SLACK * bound + MARGIN
    while True:
        interrupts = link.wait(min(WAIT_CYCLES, limit - waited))
        if interrupts:
            return interrupts
        waited += WAIT_CYCLES
        if waited >= limit:
            raise LinkError(f"{link.port}: the run did not end after {limit:,} cycles; it takes {bound:,} at most")
