"""Frames of the host link: as they are on the wire, and what a broken one does."""

from io import BytesIO

import pytest

from dovetail.isa.link import (
    BLOCK,
    Board,
    FrameError,
    Opcode,
    Response,
    Status,
    blocks,
    read_response,
    request,
    response,
)


def crc16(data: bytes) -> int:
    """Bit by bit: polynomial 0x1021, from 0xFFFF, most significant bit first."""
    crc = 0xFFFF
    for byte in data:
        crc ^= byte << 8
        for _ in range(8):
            crc = (crc << 1 ^ 0x1021 if crc & 0x8000 else crc << 1) & 0xFFFF
    return crc


def test_a_request_on_the_wire() -> None:
    frame = request(Opcode.READ, tag=5, address=0x12345678, length=0x100)
    assert frame[:8] == bytes([0xD7, 0x53, 0x78, 0x56, 0x34, 0x12, 0x00, 0x01])
    assert frame[8:] == crc16(frame[1:8]).to_bytes(2, "big")


def test_a_payload_comes_after_the_header_s_crc_and_has_its_own() -> None:
    frame = request(Opcode.WRITE, tag=0, address=8, payload=b"\1\2\3\4")
    assert frame[:8] == bytes([0xD7, 0x02, 8, 0, 0, 0, 4, 0])
    assert frame[8:10] == crc16(frame[1:8]).to_bytes(2, "big")
    assert frame[10:14] == b"\1\2\3\4"
    assert frame[14:] == crc16(frame[1:14]).to_bytes(2, "big") and len(frame) == 16


def test_a_response_on_the_wire() -> None:
    frame = response(Status.OK, tag=15, payload=b"abcd")
    assert frame[:8] == b"\xd7\xf0\x04\x00abcd" and frame[8:] == crc16(frame[1:8]).to_bytes(2, "big")


def test_responses_are_read_back_after_noise() -> None:
    stream = BytesIO(b"\x00\xff" + response(Status.OK, tag=3, payload=b"12345678") + response(Status.BUS, tag=4))
    assert read_response(stream.read) == Response(Status.OK, 3, b"12345678")
    assert read_response(stream.read) == Response(Status.BUS, 4, b"")


@pytest.mark.parametrize("byte", range(1, 10))
def test_a_response_with_a_broken_byte_is_refused(byte: int) -> None:
    frame = bytearray(response(Status.OK, tag=3, payload=b"abcd"))
    frame[byte] ^= 0x10
    with pytest.raises(FrameError):
        read_response(BytesIO(frame).read)


@pytest.mark.parametrize(
    "frame, text",
    [
        (b"", "does not answer"),
        (response(Status.OK, tag=0, payload=b"abcd")[:-1], "not to the end"),
        (b"\xd7\x00\x04\x04", "a response of 1028 bytes; 1024 are the most"),
        (response(Status.OK, tag=0)[:-1] + b"\0", "wrong CRC"),
        (response(9, tag=0), "unknown status 9"),  # type: ignore[arg-type]
    ],
)
def test_what_is_no_response(frame: bytes, text: str) -> None:
    with pytest.raises(FrameError, match=text):
        read_response(BytesIO(frame).read)


def test_board() -> None:
    board = Board(version=2, memory_bytes=65536, clock_hz=25_000_000, memory=3, accelerators=2)
    assert Board.unpack(board.pack()) == board
    with pytest.raises(FrameError, match="must be 16 bytes, not 4"):
        Board.unpack(board.pack()[:4])
    assert Board.unpack(b"\1\0\0\0" + bytes(8)).version == 1  # shorter


def test_blocks_end_at_multiples_of_1024() -> None:
    assert list(blocks(1000, 2072)) == [(1000, 24), (1024, BLOCK), (2048, BLOCK)]
    assert list(blocks(4, 8)) == [(4, 8)] and list(blocks(4, 0)) == []
    with pytest.raises(ValueError, match="multiples of 4"):
        list(blocks(2, 8))


def test_requests_that_cannot_be() -> None:
    with pytest.raises(ValueError, match="WRITE needs a payload"):
        request(Opcode.WRITE, tag=0)
    with pytest.raises(ValueError, match="PING has no payload"):
        request(Opcode.PING, tag=0, payload=b"abcd")
    with pytest.raises(ValueError, match=r"tag must be 0\.\.15, not 16"):
        request(Opcode.PING, tag=16)
