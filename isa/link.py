"""The host link of a board: frames over a UART (8 data bits, no parity, 1 stop bit), for gateware and drivers.

All numbers are little-endian but the CRCs, which go most significant byte first: then the CRC of a frame with its CRC
is 0.

    request:  SYNC, opcode + 16 * tag (1), address (4), length (2), CRC (2) [, payload (length), CRC (2)]
    response: SYNC, status + 16 * tag (1), length (2), payload (length), CRC (2)

A CRC is that of everything between SYNC and itself. The header of a request has one of its own, so that no payload goes
to an address that is not certain; only WRITE and WRITE_REGISTER have a payload. The board takes one request at a time
and repeats its tag in the response: a response with another tag belongs to an earlier request.

A request that is broken, cut off or refused is answered when the line has been idle for :data:`IDLE_BITS`; then the
board waits for SYNC again. Bytes before SYNC are ignored. Until the response has come the host sends nothing more.
"""

from binascii import crc_hqx
from collections.abc import Callable, Iterator
from dataclasses import astuple, dataclass
from enum import IntEnum
from struct import Struct

VERSION = 2
"""Version of these frames."""
BAUD = 1_000_000
"""Bits per second, unless something else is said."""
SYNC = 0xD7
"""First byte of every frame."""
MEMORIES = ("bram", "spram", "sdram", "sdram32")
"""Kinds of a board's memory; see :class:`dovetail.hw.board.memory.BoardMemory`."""
BLOCK = 1024
"""Bytes of the longest payload; no READ or WRITE crosses a multiple of it."""
NOISE = 2 * BLOCK
"""The most bytes that the host skips before a response; a device that sends more is not a board."""
WORD = 4
"""Addresses and lengths are multiples of this many bytes."""
TAGS = 16
IDLE_BITS = 8192
"""Bit times without a start bit after which a frame that has begun is given up."""
CHARACTER_BITS = 10
"""Bit times of a byte: start bit, eight data bits from the lowest on, stop bit."""
SETTLED, SETTLED_JOINED = 6, 8
"""Cycles from the refresh with which a board's memory forgets its history to cycle 0 of the run that START begins; the
second number of the first one on a board with a system."""
START_GAP = 7
"""Cycles from the beginning of a run to that of the next one that the same START begins."""
CRC_START = 0xFFFF
"""What CRC-16 starts from; its polynomial is 0x1021."""


class Opcode(IntEnum):
    """What a request asks for."""

    PING = 1
    """What is there: the payload of the response is that of :class:`Board`."""
    WRITE = 2
    """Write the payload, 4 to 1024 bytes within a block of 1024, to memory at ``address``. If a payload is corrupted,
    some of it may have been written."""
    READ = 3
    """Read ``length`` bytes of memory from ``address`` on."""
    WRITE_REGISTER = 4
    """Write the payload, 4 bytes, to the host register at offset ``address``."""
    READ_REGISTER = 5
    """Read the host register at offset ``address``; ``length`` is 4."""
    START = 6
    """Write 1 to CONTROL.start and CONTROL.irq_enable of those accelerators whose bits are set in ``address``, from the
    lowest on. If none is running, memory forgets its history before. Before repeating it because no response came,
    read STATUS: the programs may be running, or be done."""
    WAIT = 7
    """Answer when an interrupt is high, or after ``address`` clock cycles: 4 bytes, a bit for each accelerator's."""


class Status(IntEnum):
    """How a request went. Only OK has a payload."""

    OK = 0
    CRC = 1
    """The request was corrupted or incomplete; send it again."""
    OPCODE = 2
    """There is no such opcode."""
    RANGE = 3
    """Address or length is not a multiple of 4, beyond memory, or crosses a block; a register takes 4 bytes."""
    BUS = 4
    """There is no such host register."""


PAYLOADS = frozenset({Opcode.WRITE, Opcode.WRITE_REGISTER})
"""Requests with a payload; the ``length`` of others is that of the response."""

REQUEST_HEADER = Struct("<BIH")
RESPONSE_HEADER = Struct("<BH")
_BOARD = Struct("<IIIBBxx")
_CRC = Struct(">H")


class FrameError(ValueError):
    """What came is no response; the text says why."""


@dataclass(frozen=True)
class Board:
    """What answers a PING: version of the link, bytes of memory from address 0 on, clock in Hz, number of the memory's
    kind in :data:`MEMORIES`, and of accelerators."""

    version: int
    memory_bytes: int
    clock_hz: int
    memory: int = 0
    accelerators: int = 1

    def pack(self) -> bytes:
        """Payload of the response."""
        return _BOARD.pack(*astuple(self))

    @classmethod
    def unpack(cls, payload: bytes) -> "Board":
        """The inverse of :meth:`pack`; of a board of another version, the version only. Raises :class:`FrameError`."""
        version = int.from_bytes(payload[:WORD], "little")
        if len(payload) >= WORD and version != VERSION:
            return cls(version, 0, 0)
        if len(payload) != _BOARD.size:
            raise FrameError(f"the payload of PING must be {_BOARD.size} bytes, not {len(payload)}")
        return cls(*_BOARD.unpack(payload))


@dataclass(frozen=True)
class Response:
    """A response whose CRC is right."""

    status: Status
    tag: int
    payload: bytes


def with_crc(data: bytes) -> bytes:
    """``data`` and its CRC."""
    return data + _CRC.pack(crc_hqx(data, CRC_START))


def request(opcode: Opcode, *, tag: int, address: int = 0, payload: bytes = b"", length: int = 0) -> bytes:
    """A request. ``length`` is that of the response, for READ and READ_REGISTER; a payload has its own."""
    if not 0 <= tag < TAGS:
        raise ValueError(f"tag must be 0..{TAGS - 1}, not {tag}")
    if bool(payload) != (opcode in PAYLOADS):
        raise ValueError(f"{opcode.name} {'needs a' if opcode in PAYLOADS else 'has no'} payload")
    data = with_crc(REQUEST_HEADER.pack(opcode | tag << 4, address, len(payload) or length))
    return bytes([SYNC]) + (with_crc(data + payload) if payload else data)


def response(status: Status, *, tag: int, payload: bytes = b"") -> bytes:
    """A response, as the board sends it."""
    return bytes([SYNC]) + with_crc(RESPONSE_HEADER.pack(status | tag << 4, len(payload)) + payload)


def read_response(read: Callable[[int], bytes]) -> Response:
    """The next response from ``read``, which gives up to that many bytes, fewer when no more came in time.

    Raises :class:`FrameError` when it is broken or does not come; what came is then lost.
    """

    def take(count: int) -> bytes:
        data = read(count)
        if len(data) < count:
            raise FrameError("the board does not answer, or not to the end")
        return data

    if not any(take(1) == bytes([SYNC]) for _ in range(NOISE)):
        raise FrameError(f"no response begins in {NOISE} bytes")
    header = take(RESPONSE_HEADER.size)
    code, length = RESPONSE_HEADER.unpack(header)
    if length > BLOCK:
        raise FrameError(f"a response of {length} bytes; {BLOCK} are the most")
    body = take(length + _CRC.size)
    if crc_hqx(header + body, CRC_START):
        raise FrameError("a response with a wrong CRC")
    try:
        status = Status(code % TAGS)
    except ValueError:
        raise FrameError(f"a response with the unknown status {code % TAGS}") from None
    return Response(status, code // TAGS, body[:length])


def blocks(address: int, size: int) -> Iterator[tuple[int, int]]:
    """(address, bytes) of the READ or WRITE requests for ``size`` bytes from ``address`` on, multiples of 4."""
    if address % WORD or size % WORD:
        raise ValueError(f"address and size must be multiples of {WORD}, not {address} and {size}")
    end = address + size
    while address < end:
        stop = min(end, (address // BLOCK + 1) * BLOCK)
        yield address, stop - address
        address = stop
