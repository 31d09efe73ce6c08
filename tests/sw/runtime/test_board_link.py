"""The host's end of the link against a board in Python, over a line that breaks bytes; and what is said of ports."""

import os
import pty
import random
import sys
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

from dovetail.isa.config.resolved import Config
from dovetail.isa.host import HOST_REGISTERS, ID, STATUS_BUSY, STATUS_DONE, VERSION
from dovetail.isa.instructions.table import Op, to_bytes
from dovetail.isa.link import BLOCK, REQUEST_HEADER, SYNC, Board, Opcode, Status, response, with_crc
from dovetail.isa.link import VERSION as LINK_VERSION
from dovetail.sw.runtime.board import link as module
from dovetail.sw.runtime.board.board_engine import BoardEngine
from dovetail.sw.runtime.board.link import ATTEMPTS, Link, LinkError
from dovetail.sw.runtime.engines import create

MEMORY = 8192
Line = Callable[[bytes], bytes]
"""What comes out of a line for what goes in."""


class FakeBoard:
    """A serial port with a board behind it, in the same thread: what no answer comes to is a time-out at once."""

    def __init__(self) -> None:
        self.there: Line = lambda data: data
        self.back: Line = lambda data: data
        self.memory = bytearray(MEMORY)
        self.registers = dict.fromkeys((r.offset for r in HOST_REGISTERS.values()), 0)
        self.starts = 0
        self.timeout = self.write_timeout = 0.0
        self.closed = False
        self.version = LINK_VERSION
        self._pending = b""

    def close(self) -> None:
        self.closed = True

    def read(self, count: int) -> bytes:
        data, self._pending = self._pending[:count], self._pending[count:]
        return data

    def write(self, data: bytes) -> None:
        self._pending += self.back(self._answer(self.there(data)))

    def _answer(self, data: bytes) -> bytes:
        """What the board sends for a frame; a broken one is answered with CRC."""
        header, rest = data[1:10], data[10:]
        if data[:1] != bytes([SYNC]) or with_crc(header[:7]) != header:
            return response(Status.CRC, tag=0)
        code, address, length = REQUEST_HEADER.unpack(header[:7])
        opcode, tag = Opcode(code % 16), code // 16
        if rest and with_crc(header + rest[:-2]) != header + rest:
            return response(Status.CRC, tag=tag)
        payload = rest[:-2]
        if opcode == Opcode.PING:
            return response(Status.OK, tag=tag, payload=Board(self.version, MEMORY, 1000).pack())
        if opcode in (Opcode.WRITE, Opcode.READ) and address + length > MEMORY:
            return response(Status.RANGE, tag=tag)
        if opcode == Opcode.WRITE:
            self.memory[address : address + length] = payload
        elif opcode == Opcode.READ:
            return response(Status.OK, tag=tag, payload=bytes(self.memory[address : address + length]))
        elif opcode == Opcode.WRITE_REGISTER:
            self.registers[address] = int.from_bytes(payload, "little")
        elif opcode == Opcode.READ_REGISTER:
            return response(Status.OK, tag=tag, payload=self.registers[address].to_bytes(4, "little"))
        elif opcode == Opcode.START:
            self.starts += 1
            self.registers[HOST_REGISTERS["STATUS"].offset] = STATUS_DONE.mask
        else:
            return response(Status.OK, tag=tag, payload=(1).to_bytes(4, "little"))
        return response(Status.OK, tag=tag)


@pytest.fixture
def board(monkeypatch: pytest.MonkeyPatch) -> FakeBoard:
    fake = FakeBoard()
    monkeypatch.setattr(module, "_open", lambda port, baud: fake)
    return fake


@pytest.fixture
def link(board: FakeBoard) -> Iterator[Link]:
    with Link("fake") as link:
        yield link
    assert board.closed


def breaking(probability: float, seed: int) -> Line:
    """A line that flips a bit, drops a byte or adds one, in that part of all frames."""
    rng = random.Random(seed)

    def carry(data: bytes) -> bytes:
        if not data or rng.random() >= probability:
            return data
        at = rng.randrange(len(data))
        flipped = bytes([data[at] ^ 1 << rng.randrange(8)])
        return data[:at] + rng.choice((flipped, b"", data[at : at + 1] * 2)) + data[at + 1 :]

    return carry


def once(line: Line) -> Line:
    """``line`` for one frame, a good one afterwards."""
    lines = [line]
    return lambda data: lines.pop()(data) if lines else data


def test_blocks_are_not_crossed(board: FakeBoard, link: Link) -> None:
    data = random.Random(0).randbytes(3000)
    sizes: list[int] = []

    def there(frame: bytes) -> bytes:
        sizes.append(REQUEST_HEADER.unpack(frame[1:8])[2])
        return frame

    board.there = there
    link.write(1000, data)
    assert sizes == [24, BLOCK, BLOCK, 3000 - 24 - 2 * BLOCK]
    assert bytes(board.memory[1000:4000]) == link.read(1000, 3000) == data


@pytest.mark.parametrize("seed", range(10))
def test_broken_bytes_cost_time_only(board: FakeBoard, link: Link, seed: int) -> None:
    board.there, board.back = breaking(0.1, seed), breaking(0.1, seed + 1000)
    data = random.Random(seed).randbytes(MEMORY)
    for first in range(0, MEMORY, 512):
        link.write(first, data[first : first + 512])
    assert bytes(board.memory) == data
    assert link.read(0, MEMORY) == data
    link.write_register("PAGES", 5)
    assert link.read_register("PAGES") == 5
    assert link.repeated > 0


@pytest.mark.parametrize("lost", ["request", "response"])
def test_a_start_happens_once(board: FakeBoard, link: Link, lost: str) -> None:
    setattr(board, "there" if lost == "request" else "back", once(lambda data: data[:1]))
    link.start()
    assert board.starts == 1
    assert link.repeated == 1


def test_a_late_response_is_not_taken_for_another(board: FakeBoard, link: Link) -> None:
    board.memory[:8] = b"oldtextA"
    earlier = response(Status.OK, tag=(link._tag - 1) % 16, payload=b"late")
    board.back = lambda data: earlier + data
    assert link.read(0, 8) == b"oldtextA"


def test_a_line_that_breaks_everything_is_given_up(board: FakeBoard, link: Link) -> None:
    board.back = lambda data: b""
    with pytest.raises(LinkError, match=rf"fake: READ failed {ATTEMPTS} times: the board does not answer"):
        link.read(0, 4)
    with pytest.raises(LinkError, match=rf"fake: READ_REGISTER failed {ATTEMPTS} times"):
        link.start()


def test_what_the_board_refuses_is_said(link: Link) -> None:
    with pytest.raises(LinkError, match="fake: the board refuses READ at 0x2000: RANGE"):
        link.read(MEMORY, 4)


def test_a_connection_that_is_lost(board: FakeBoard, link: Link, monkeypatch: pytest.MonkeyPatch) -> None:
    def unplugged(count: int) -> bytes:
        raise OSError("device disconnected")

    monkeypatch.setattr(board, "read", unplugged)
    with pytest.raises(LinkError, match="fake: the connection is lost: device disconnected"):
        link.read_register("ID")


def test_no_board_at_the_port(board: FakeBoard) -> None:
    board.back = lambda data: b""
    with pytest.raises(
        LinkError, match="fake: no board answers at 9600 baud; check cable, power, bitstream and --baud"
    ):
        Link("fake", 9600)
    assert board.closed


def test_a_device_that_sends_without_an_end(board: FakeBoard, link: Link, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(board, "read", lambda count: b"a" * count)
    with pytest.raises(LinkError, match="fake: must be silent between requests, not send without an end"):
        link.read_register("ID")
    with pytest.raises(LinkError, match="fake: no board answers at 1000000 baud"):
        Link("fake")


def test_a_run_that_was_given_up_is_not_taken_for_the_next(board: FakeBoard) -> None:
    config = Config()
    found = {
        "ID": ID,
        "VERSION": VERSION,
        "CONFIG_HASH_LO": config.hash & 0xFFFF_FFFF,
        "CONFIG_HASH_HI": config.hash >> 32,
    }
    board.registers.update({HOST_REGISTERS[name].offset: value for name, value in found.items()})
    program = np.zeros(4096, np.uint8)
    program[:8] = np.frombuffer(to_bytes([int(Op.END)])[:8], np.uint8)
    with BoardEngine(config, "fake") as engine:
        assert engine.run(program.copy(), 0, 1).fault is None
        board.back = lambda data: b""
        with pytest.raises(LinkError, match="failed"):
            engine.run(program.copy(), 0, 1)
        board.back = lambda data: data
        board.registers[HOST_REGISTERS["STATUS"].offset] = STATUS_BUSY.mask
        with pytest.raises(LinkError, match="fake: the board must be idle, not in a run of before; reset it"):
            engine.run(program.copy(), 0, 1)
        board.registers[HOST_REGISTERS["STATUS"].offset] = 0
        assert engine.run(program.copy(), 0, 1).fault is None


def test_another_version_of_the_link(board: FakeBoard) -> None:
    board.version = 1
    with pytest.raises(LinkError, match="version 2 of the host link, not 1; build it again"):
        Link("fake")
    assert board.closed


def test_wait(link: Link) -> None:
    assert link.wait(100) == 1


# --- ports --------------------------------------------------------------------------------------------------------


@pytest.fixture
def terminal() -> Iterator[str]:
    pytest.importorskip("serial", reason="pyserial is not installed")
    far, near = pty.openpty()
    yield os.ttyname(near)
    os.close(far)
    os.close(near)


def test_a_port_in_use(terminal: str) -> None:
    import serial

    with (
        serial.Serial(terminal, exclusive=True),
        pytest.raises(LinkError, match=f"{terminal}: the port is used by another program; close that"),
    ):
        Link(terminal)


def test_a_port_with_nothing_behind(terminal: str) -> None:
    with pytest.raises(LinkError, match=f"{terminal}: no board answers at 1000000 baud"):
        Link(terminal, patience=0.001)


def test_a_port_that_is_not_there(terminal: str) -> None:
    with pytest.raises(LinkError, match="/dev/none: there is no such port; those of USB devices: "):
        Link("/dev/none")
    with pytest.raises(LinkError, match="baud must be above 0, not 0"):
        Link(terminal, 0)


@pytest.mark.parametrize(("found", "text"), [([], "none"), (["/dev/a", "/dev/b"], "/dev/a, /dev/b")])
def test_which_port(monkeypatch: pytest.MonkeyPatch, found: list[str], text: str) -> None:
    monkeypatch.setattr(module, "ports", lambda: found)
    with pytest.raises(LinkError, match=f"--port must name the board's serial port, .*: {text}"):
        Link()


def test_the_only_port_is_taken(board: FakeBoard, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "ports", lambda: ["/dev/only"])
    assert Link().port == "/dev/only"


def test_without_pyserial(monkeypatch: pytest.MonkeyPatch) -> None:
    absent: Any = None
    monkeypatch.setitem(sys.modules, "serial", absent)
    with pytest.raises(LinkError, match=r'engine board needs pyserial: pip install "dovetail\[board\]"'):
        Link("/dev/any")


def test_the_engine_by_name(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "ports", list)
    with pytest.raises(LinkError, match="--port must name the board's serial port"):
        create("board", Config())
