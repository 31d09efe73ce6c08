"""The host's end of a board's serial port: requests, repeated until they have arrived whole."""

import errno
from typing import Any

from dovetail.isa.host import HOST_REGISTERS, STATUS_BUSY, STATUS_DONE
from dovetail.isa.link import (
    BAUD,
    CHARACTER_BITS,
    IDLE_BITS,
    TAGS,
    VERSION,
    WORD,
    Board,
    FrameError,
    Opcode,
    Status,
    blocks,
    read_response,
    request,
)
from dovetail.sw.errors import DovetailError

PATIENCE = 1.0
"""Seconds that an answer may take beyond the time of its bits and of what it waits for."""
ATTEMPTS = 5
"""Times that a request is sent before the link is given up."""
SETTLING = 32
"""Reads after which a line that does not become silent is given up."""
FRAME_BYTES = 16
"""Bytes around a payload, at least those of both frames."""


class LinkError(DovetailError):
    """The board cannot be reached, does not answer, or refuses what it is asked."""


class Link:
    """Memory and host registers of a board, by way of :mod:`dovetail.isa.link`. A context manager.

    Parameters
    ----------
    port
        Name of the serial port; where there is only one, None will do.
    baud
        Bits per second, those of the bitstream.
    patience
        Seconds after which an answer that should be there counts as lost.

    Members
    -------
    board
        What the board says of itself.
    repeated
        Requests that had to be sent again.

    Raises
    ------
    LinkError
        One line that says what is wrong with port or board; every method may raise it.
    """

    def __init__(self, port: str | None = None, baud: int = BAUD, *, patience: float = PATIENCE) -> None:
        self.port = port or only_port()
        self.baud = baud
        self.patience = patience
        self.repeated = 0
        self._tag = 0
        self._serial = _open(self.port, baud)
        try:
            self._settle()
            self.board = Board.unpack(self._ask(Opcode.PING))
        except (LinkError, FrameError) as error:
            self.close()
            raise LinkError(
                f"{self.port}: no board answers at {baud} baud; check cable, power, bitstream and --baud ({error})"
            ) from None
        if self.board.version != VERSION:
            self.close()
            raise LinkError(
                f"{self.port}: the bitstream must speak version {VERSION} of the host link, not {self.board.version};"
                " build it again"
            )

    def __enter__(self) -> "Link":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Give the port back."""
        self._serial.close()

    # --- requests ------------------------------------------------------------------------------------------------

    def write(self, address: int, data: bytes) -> None:
        """Write memory; ``address`` and the length are multiples of 4."""
        for start, size in blocks(address, len(data)):
            self._ask(Opcode.WRITE, start, data[start - address : start - address + size])

    def read(self, address: int, size: int) -> bytes:
        """Read memory; ``address`` and ``size`` are multiples of 4."""
        return b"".join(self._ask(Opcode.READ, start, length=count) for start, count in blocks(address, size))

    def write_register(self, name: str, value: int, window: int = 0) -> None:
        """Write a host register, by its name in :data:`~dovetail.isa.host.HOST_REGISTERS`; ``window``: where those of
        the accelerator begin, on a board with several."""
        self._ask(Opcode.WRITE_REGISTER, window + HOST_REGISTERS[name].offset, value.to_bytes(WORD, "little"))

    def read_register(self, name: str, window: int = 0) -> int:
        """A host register's value."""
        payload = self._ask(Opcode.READ_REGISTER, window + HOST_REGISTERS[name].offset, length=WORD)
        return int.from_bytes(payload, "little")

    def start(self, accelerators: int = 1, window: int = 0) -> None:
        """Start the programs that the registers name, exactly once, with interrupts enabled. ``accelerators``: a bit
        for each; ``window``: of the lowest of them. STATUS.done must be clear: it tells whether a start happened whose
        answer was lost."""
        for _ in range(ATTEMPTS):
            try:
                self._once(Opcode.START, accelerators)
                return
            except FrameError:
                self._again()
            if self.read_register("STATUS", window) & (STATUS_BUSY.mask | STATUS_DONE.mask):
                return
        raise self._gave_up(Opcode.START, "no start was answered")

    def wait(self, cycles: int) -> int:
        """The interrupts, a bit for each accelerator, as soon as one is high or ``cycles`` cycles of the board's clock
        have passed."""
        seconds = cycles / self.board.clock_hz
        return int.from_bytes(self._ask(Opcode.WAIT, cycles, seconds=seconds), "little")

    # --- frames --------------------------------------------------------------------------------------------------

    def _ask(
        self, opcode: Opcode, address: int = 0, payload: bytes = b"", *, length: int = 0, seconds: float = 0
    ) -> bytes:
        """The payload of the response to a request, which may be carried out more than once."""
        failure = ""
        for _ in range(ATTEMPTS):
            try:
                return self._once(opcode, address, payload, length, seconds)
            except FrameError as error:
                failure = str(error)
                self._again()
        raise self._gave_up(opcode, failure)

    def _once(
        self, opcode: Opcode, address: int = 0, payload: bytes = b"", length: int = 0, seconds: float = 0
    ) -> bytes:
        """Send a request. Raises FrameError where it or its response did not arrive whole, LinkError where the board
        refuses it."""
        self._tag = (self._tag + 1) % TAGS
        frame = request(opcode, tag=self._tag, address=address, payload=payload, length=length)
        transfer = (len(frame) + length + FRAME_BYTES) * CHARACTER_BITS / self.baud
        try:
            self._serial.timeout = self._serial.write_timeout = self.patience + transfer + seconds
            self._serial.write(frame)
            while True:
                response = read_response(self._serial.read)
                if response.status == Status.CRC:
                    raise FrameError("the board received a broken request")
                if response.tag == self._tag:
                    break
        except OSError as error:  # pyserial's errors are such
            raise LinkError(f"{self.port}: the connection is lost: {error}") from None
        if response.status != Status.OK:
            raise LinkError(f"{self.port}: the board refuses {opcode.name} at {address:#x}: {response.status.name}")
        return response.payload

    def _again(self) -> None:
        self.repeated += 1
        self._settle()

    def _settle(self) -> None:
        """Discard what still comes, until the board has given up any frame that it had begun to receive."""
        try:
            self._serial.timeout = 2 * IDLE_BITS / self.baud
            if all(self._serial.read(1 << 12) for _ in range(SETTLING)):
                raise LinkError(f"{self.port}: must be silent between requests, not send without an end")
        except OSError as error:
            raise LinkError(f"{self.port}: the connection is lost: {error}") from None

    def _gave_up(self, opcode: Opcode, failure: str) -> LinkError:
        return LinkError(f"{self.port}: {opcode.name} failed {ATTEMPTS} times: {failure}")


# --- ports ------------------------------------------------------------------------------------------------------


def _serial() -> Any:
    try:
        import serial
    except ImportError:
        raise LinkError('engine board needs pyserial: pip install "dovetail[board]"') from None
    return serial


def ports() -> list[str]:
    """The serial ports of USB devices. Raises LinkError without pyserial."""
    _serial()
    from serial.tools import list_ports

    return sorted(port.device for port in list_ports.comports() if port.vid is not None)


def only_port() -> str:
    """The serial port of the only USB device that has one. Raises LinkError."""
    found = ports()
    if len(found) != 1:
        raise LinkError(
            f"--port must name the board's serial port, for there is not exactly one: {', '.join(found) or 'none'}"
        )
    return found[0]


def _open(port: str, baud: int) -> Any:
    serial = _serial()
    if baud <= 0:
        raise LinkError(f"baud must be above 0, not {baud}")
    try:
        return serial.Serial(port, baud, exclusive=True)
    except (serial.SerialException, OSError, ValueError) as error:
        number = getattr(error, "errno", None)
        if number in (errno.EAGAIN, errno.EBUSY):
            raise LinkError(f"{port}: the port is used by another program; close that") from None
        if number == errno.EACCES:
            raise LinkError(f"{port}: you may not use the port; on Linux join the group dialout") from None
        if number == errno.ENOENT:
            known = ", ".join(ports()) or "none"
            raise LinkError(f"{port}: there is no such port; those of USB devices: {known}") from None
        raise LinkError(f"{port}: the port cannot be used: {error}") from None
