"""A simulated board at the end of a serial port: its frames, its memory, and programs in the model's cycles."""

import random
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from dovetail.cosim.rtl.board import SimulatedBoard
from dovetail.hw.board.memory import BoardMemory
from dovetail.isa.config.resolved import Config
from dovetail.isa.host import HOST_REGISTERS, ID
from dovetail.isa.instructions.table import Cause
from dovetail.isa.link import (
    REQUEST_HEADER,
    SYNC,
    Board,
    Opcode,
    Response,
    Status,
    blocks,
    read_response,
    request,
    with_crc,
)
from dovetail.sw.model.accelerator import Model
from dovetail.sw.random.programs.broken import illegal_program
from dovetail.sw.random.programs.legal import RandomProgram, legal_program

CONFIG = Config.load("small")
MEMORY = BoardMemory("bram", 96 << 10)
DIVISOR = 4


def frame(opcode: int, address: int = 0, payload: bytes = b"", length: int = 0) -> bytes:
    """A request, also one that cannot be; its tag is 9."""
    header = with_crc(REQUEST_HEADER.pack(opcode | 9 << 4, address, len(payload) or length))
    return bytes([SYNC]) + (with_crc(header + payload) if payload else header)


class Host:
    """Speaks frames over an open port, and nothing more."""

    def __init__(self, serial: Any) -> None:
        self.serial = serial
        self.tag = 0

    def send(self, frame: bytes) -> Response:
        self.serial.write(frame)
        return read_response(self.serial.read)

    def ask(self, opcode: Opcode, address: int = 0, payload: bytes = b"", length: int = 0) -> bytes:
        """The payload of the response, which must be good."""
        self.tag = (self.tag + 1) % 16
        response = self.send(request(opcode, tag=self.tag, address=address, payload=payload, length=length))
        assert (response.status, response.tag) == (Status.OK, self.tag)
        return response.payload

    def write(self, address: int, data: bytes) -> None:
        for start, size in blocks(address, len(data)):
            self.ask(Opcode.WRITE, start, data[start - address : start - address + size])

    def read(self, address: int, size: int) -> bytes:
        return b"".join(self.ask(Opcode.READ, start, length=n) for start, n in blocks(address, size))

    def write_register(self, name: str, value: int) -> None:
        self.ask(Opcode.WRITE_REGISTER, HOST_REGISTERS[name].offset, value.to_bytes(4, "little"))

    def read_register(self, name: str) -> int:
        return int.from_bytes(self.ask(Opcode.READ_REGISTER, HOST_REGISTERS[name].offset, length=4), "little")

    def run(self, program: RandomProgram, before: bytes) -> tuple[bytes, int, int]:
        """Memory afterwards, cycles, and cause of a fault; ``before`` is what memory holds, if known."""
        memory = program.memory.tobytes()
        for start, size in blocks(0, len(memory)):
            if memory[start : start + size] != before[start : start + size]:
                self.write(start, memory[start : start + size])
        for name, value in (("PROGRAM", program.program), ("PAGES", program.pages), ("BASE", program.base)):
            self.write_register(name, value)
        self.ask(Opcode.START, 1)
        assert self.ask(Opcode.WAIT, 10_000_000) == (1).to_bytes(4, "little")
        cycles = self.read_register("CYCLES_LO") | self.read_register("CYCLES_HI") << 32
        return self.read(0, len(program.memory)), cycles, self.read_register("CAUSE")


@pytest.fixture(scope="module")
def board(build_cache: Path) -> Iterator[SimulatedBoard]:
    with SimulatedBoard(CONFIG, memory=MEMORY, cache=build_cache, divisor=DIVISOR) as board:
        yield board
        assert board.dropped == 0


@pytest.fixture
def host(board: SimulatedBoard) -> Iterator[Host]:
    pyserial = pytest.importorskip("serial", reason="pyserial is not installed")
    with pyserial.Serial(board.port, board.baud, timeout=10) as serial:
        host = Host(serial)
        yield host
        host.ask(Opcode.PING)  # whatever a test did, the board answers


def test_ping(host: Host, board: SimulatedBoard) -> None:
    answer = Board.unpack(host.ask(Opcode.PING))
    assert answer == Board(version=2, memory_bytes=MEMORY.bytes, clock_hz=board.clock_hz)


def test_memory(host: Host) -> None:
    data = random.Random(1).randbytes(MEMORY.bytes)
    host.write(0, data)
    assert host.read(0, MEMORY.bytes) == data
    host.write(4092, b"abcdefgh")
    assert host.read(4088, 16) == data[4088:4092] + b"abcdefgh" + data[4100:4104]


def test_registers(host: Host) -> None:
    assert host.read_register("ID") == ID
    assert host.read_register("CONFIG_HASH_LO") | host.read_register("CONFIG_HASH_HI") << 32 == CONFIG.hash
    host.write_register("BASE", 0xABCDE000)
    assert host.read_register("BASE") == 0xABCDE000


def test_wait_without_a_program(host: Host, board: SimulatedBoard) -> None:
    host.write_register("STATUS", 2)
    before = board.cycles
    assert host.ask(Opcode.WAIT, 50_000) == bytes(4)
    assert 50_000 < board.cycles - before < 60_000


@pytest.mark.parametrize(
    "status, opcode, address, payload, length",
    [
        (Status.OPCODE, 0, 0, b"", 0),
        (Status.OPCODE, 8, 0, b"", 4),
        (Status.RANGE, Opcode.READ, 0, b"", 0),
        (Status.RANGE, Opcode.READ, 2, b"", 4),
        (Status.RANGE, Opcode.READ, 0, b"", 6),
        (Status.RANGE, Opcode.READ, 0, b"", 1028),
        (Status.RANGE, Opcode.READ, 4, b"", 1024),
        (Status.RANGE, Opcode.READ, 0, b"", 0x8004),
        (Status.RANGE, Opcode.READ, MEMORY.bytes, b"", 4),
        (Status.RANGE, Opcode.READ, 0x8000_0000, b"", 4),
        (Status.RANGE, Opcode.WRITE, MEMORY.bytes, b"abcd", 0),
        (Status.RANGE, Opcode.WRITE, 1020, b"abcdefgh", 0),
        (Status.RANGE, Opcode.WRITE, 0, b"abc", 0),
        (Status.RANGE, Opcode.WRITE_REGISTER, 0x20, b"abcdefgh", 0),
        (Status.RANGE, Opcode.READ_REGISTER, 0x1000, b"", 4),
        (Status.RANGE, Opcode.READ_REGISTER, 0, b"", 8),
        (Status.BUS, Opcode.READ_REGISTER, 0x800, b"", 4),
        (Status.BUS, Opcode.WRITE_REGISTER, 0x800, b"abcd", 0),
    ],
)
def test_requests_that_are_refused(
    host: Host, status: Status, opcode: Opcode, address: int, payload: bytes, length: int
) -> None:
    before = host.read(0, 1024)
    assert host.send(frame(opcode, address, payload, length)) == Response(status, 9, b"")
    assert host.read(0, 1024) == before


@pytest.mark.parametrize("byte", range(1, 20))
def test_a_broken_byte(host: Host, byte: int) -> None:
    host.write(0, bytes(range(64)))
    data = bytearray(frame(Opcode.WRITE, 16, b"\xff" * 8))
    data[byte] ^= 1 << byte % 8
    assert host.send(bytes(data)).status == Status.CRC
    # Nothing but the eight bytes can have been written, and only if the header was whole.
    after = host.read(0, 64)
    assert after[:16] + after[24:] == bytes(range(16)) + bytes(range(24, 64))
    assert byte >= 10 or after == bytes(range(64))


@pytest.mark.parametrize("size", [1, 2, 8, 9, 10, 12, 15, 18, 19])
def test_a_frame_that_is_cut_off(host: Host, size: int) -> None:
    assert host.send(frame(Opcode.WRITE, 16, b"\xff" * 8)[:size]).status == Status.CRC


def test_a_register_is_written_by_whole_frames_only(host: Host) -> None:
    host.write_register("PAGES", 5)
    data = bytearray(frame(Opcode.WRITE_REGISTER, HOST_REGISTERS["PAGES"].offset, b"\7\0\0\0"))
    data[-1] ^= 1
    assert host.send(bytes(data)).status == Status.CRC
    assert host.read_register("PAGES") == 5


def test_noise_between_frames(host: Host) -> None:
    noise = bytes(n for n in random.Random(2).randbytes(300) if n != SYNC)
    assert host.send(noise + frame(Opcode.PING)).status == Status.OK
    # Noise that looks like the beginning of a frame takes the frame behind it with it.
    assert host.send(bytes([SYNC]) + frame(Opcode.PING)).status == Status.CRC
    assert host.send(frame(Opcode.PING)).status == Status.OK


def test_the_last_request_s_fault_shows(host: Host, board: SimulatedBoard) -> None:
    assert host.send(frame(0)).status == Status.OPCODE and board.fault
    assert host.send(frame(Opcode.PING)).status == Status.OK and not board.fault


def test_programs_in_the_model_s_cycles(host: Host) -> None:
    """Bytes, cycles and faults, also of programs that leave memory, whose end is that of the board's."""
    model = Model(CONFIG.replace(memory=MEMORY.timing))
    legal, illegal = random.Random(1), random.Random(2)
    programs = [legal_program(legal, CONFIG, count=6) for _ in range(3)]
    programs += [illegal_program(illegal, CONFIG, count=3, ways=("bus",)) for _ in range(2)]
    held, causes = b"", []
    for program in programs:
        memory = np.zeros(MEMORY.bytes, np.uint8)
        memory[: program.memory.size] = program.memory
        held, cycles, cause = host.run(replace(program, memory=memory), held)
        expected = model.run(memory, *program.arguments)
        assert held == memory.tobytes()
        assert cycles == expected.cycles
        assert cause == (expected.fault.cause if expected.fault else 0)
        causes.append(cause)
    assert causes == [0, 0, 0, Cause.BUS_WRITE, Cause.BUS_READ]
