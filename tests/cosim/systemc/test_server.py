"""The model's process behind SystemC's timed view, without SystemC: its messages, memory, outcome and transfers."""

import random
import socket
import struct
import subprocess
import sys
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest

from dovetail.cosim.compare.fuzz import random_case
from dovetail.cosim.systemc.server import OUTCOME, PAGE, REQUEST, TRANSFER, ModelServer
from dovetail.isa.config.resolved import Config
from dovetail.isa.instructions.table import PAGE_BYTES, Cause, Op, to_bytes
from dovetail.isa.timing.timeline import Fault
from dovetail.sw.model.accelerator import Model
from dovetail.sw.runtime.engine import Bytes

CONFIG = Config.load("small")
BLOCK = 64


@dataclass
class Row:
    """A transfer of the outcome, with what it writes."""

    write: int
    start: int
    end: int
    address: int
    rows: int
    planes: int
    row_step: int
    plane_step: int
    length: int
    data: bytes = b""

    def carry_out(self, memory: Bytes, broken: tuple[tuple[int, int], ...]) -> None:
        """Write what it writes; not in broken parts, nor beyond the end."""
        data = np.frombuffer(self.data, np.uint8).reshape(self.planes, self.rows, self.length)
        for plane in range(self.planes):
            for row in range(self.rows):
                address = self.address + plane * self.plane_step + row * self.row_step
                places = (address + np.arange(self.length)) % (1 << 32)
                fine = places < len(memory)
                for start, size in broken:
                    fine &= (places < start) | (places >= start + size)
                memory[places[fine]] = data[plane, row][fine]


@dataclass
class Outcome:
    """What the server says of a run."""

    cycles: int
    fault: Fault | None
    counters: list[int]
    rows: list[Row]
    read: int  # pages of memory that it asked for


class FakeView:
    """The other side of the server's messages."""

    def __init__(self) -> None:
        ours, theirs = socket.socketpair()
        self._socket, self._theirs = ours, theirs
        self._source = ours.makefile("rb")
        server = ModelServer(CONFIG, theirs.makefile("rb"), theirs.makefile("wb"))
        self._thread = threading.Thread(target=server.serve)
        self._thread.start()

    def close(self) -> None:
        self._socket.shutdown(socket.SHUT_RDWR)
        self._thread.join()
        self._source.close()
        self._socket.close()
        self._theirs.close()

    def _numbers(self, text: str) -> tuple[int, ...]:
        return struct.unpack(text, self._source.read(struct.calcsize(text)))

    def run(
        self, memory: Bytes, program: int, pages: int, base: int, broken: tuple[tuple[int, int], ...] = ()
    ) -> Outcome:
        answers = np.ones(len(memory) // BLOCK, bool)
        for start, size in broken:
            answers[start // BLOCK : (start + size) // BLOCK] = False
        self._socket.sendall(REQUEST.pack(CONFIG.hash, program, pages, base))
        read = 0
        while (ranges := self._numbers("<I")[0]) != 0:
            wanted = self._numbers(f"<{2 * ranges}I")
            for first, count in zip(wanted[::2], wanted[1::2], strict=True):
                read += count
                masks, data = [], b""
                for page in range(first, first + count):
                    found = answers[page * PAGE // BLOCK : (page + 1) * PAGE // BLOCK].tolist()
                    masks.append(sum(1 << n for n, fine in enumerate(found) if fine))
                    data += memory[page * PAGE : (page + 1) * PAGE].tobytes().ljust(PAGE, b"\0")
                self._socket.sendall(struct.pack(f"<{count}Q", *masks) + data)
        cycles, cause, pc, *rest = OUTCOME.unpack(self._source.read(OUTCOME.size))
        rows = [Row(*TRANSFER.unpack(self._source.read(TRANSFER.size))) for _ in range(rest[-1])]
        for row in rows:
            if row.write:
                row.data = self._source.read(row.rows * row.planes * row.length)
        return Outcome(cycles, Fault(Cause(cause), pc) if cause else None, rest[:-1], rows, read)


@pytest.fixture
def view() -> Iterator[FakeView]:
    view = FakeView()
    yield view
    view.close()


def test_runs_are_the_models(view: FakeView) -> None:
    """Cycles, counters, fault; and whoever carries the transfers out has the model's memory. SRAM stays from run to
    run."""
    model = Model(CONFIG)
    faults = set()
    for seed in range(60):
        p = random_case(CONFIG, seed).program
        rng = random.Random(seed)
        blocks = len(p.memory) // BLOCK
        broken = tuple((BLOCK * rng.randrange(blocks - 40), BLOCK * rng.randint(1, 40)) for _ in range(seed % 3))
        model.broken = broken
        if model.time(p.memory, *p.arguments).cycles > 1_000_000:
            continue
        wanted = model.run(p.memory.copy(), *p.arguments)
        found = view.run(p.memory, p.program, p.pages, p.base, broken)
        assert (found.cycles, found.fault) == (wanted.cycles, wanted.fault), seed
        counters = [n for c in wanted.counters.values() for n in (c.busy, c.config, c.token, c.idle)]
        assert found.counters == counters
        memory = p.memory.copy()
        for row in found.rows:
            assert row.start < row.end < wanted.cycles
            if row.write:
                row.carry_out(memory, broken)
        assert np.array_equal(memory, wanted.memory), seed
        faults.add(found.fault.cause if found.fault else Cause.NONE)
    assert {Cause.NONE, Cause.BUS_READ, Cause.BUS_FETCH} <= faults


def test_only_what_a_program_touches_is_read(view: FakeView) -> None:
    """The pages up to END, however many the register names; at any address."""
    at = 0x1000_0000
    words = to_bytes([int(Op.END)])
    memory = np.zeros(at + 16 * PAGE, np.uint8)
    memory[at : at + len(words)] = np.frombuffer(words, np.uint8)
    found = view.run(memory, at, 0x7F_FFFF, 0)
    assert found.read == 16  # what is read at a time: 64 pages of a program
    assert found.fault is None
    assert [(row.address, row.length) for row in found.rows] == [(at, PAGE_BYTES), (at + PAGE_BYTES, PAGE_BYTES)]


def test_no_pages(view: FakeView) -> None:
    found = view.run(np.zeros(PAGE, np.uint8), 0, 0, 0)
    assert found.fault == Fault(Cause.NO_END, 0) and not found.rows


def test_no_memory(view: FakeView) -> None:
    found = view.run(np.zeros(PAGE, np.uint8), 1 << 20, 2, 0)
    assert found.fault == Fault(Cause.BUS_FETCH, 0)


def test_the_process(tmp_path: Path) -> None:
    """It takes a configuration file, and ends with its input."""
    (tmp_path / "config.toml").write_text(CONFIG.to_toml())
    command = [sys.executable, "-m", "dovetail.cosim.systemc.server", str(tmp_path / "config.toml")]
    done = subprocess.run(command, input=b"", capture_output=True)
    assert (done.returncode, done.stdout, done.stderr) == (0, b"", b"")
    done = subprocess.run(command, input=REQUEST.pack(1, 0, 1, 0), capture_output=True)
    assert (done.returncode, done.stdout) == (2, b"")
    wanted = f"dovetail: error: configuration must be the platform's (0000000000000001), not {CONFIG.hash:016x}\n"
    assert done.stderr.decode() == wanted
