"""The model as the process behind the timed view: ``python -m dovetail.cosim.systemc.server config.toml``.

It talks on stdin and stdout in little-endian numbers; each side sends and then waits for the other:

    view: the configuration's hash (u64), program, pages, base (u32 each)              start a run
    server: n (u32), n times first page, pages (u32 each)                              read system memory
    view: per range a mask per page (u64, a bit per 64 bytes that answer), the pages of 4096 bytes each
    ... as often as needed, then ...
    server: 0 (u32), Outcome, its Transfers in order of their starts, the data of each that writes

Outcome and Transfer are the structures of ``dovetail_server.h``. End of file ends the process. SRAM keeps its contents
from run to run, as it does in hardware; what a run finds in system memory is what was there when it started.
"""

import os
import struct
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import IO

import numpy as np

from dovetail.isa.config.given import ConfigError
from dovetail.isa.config.resolved import Config
from dovetail.isa.instructions.checks import View
from dovetail.isa.instructions.table import PAGE_BYTES, Op, Unit
from dovetail.isa.timing.dma import Shape
from dovetail.isa.timing.memory import ADDRESS_SPACE, BROKEN_BYTES
from dovetail.isa.timing.run import time_program
from dovetail.isa.timing.timeline import FETCH, Timeline
from dovetail.sw.errors import DovetailError
from dovetail.sw.model.accelerator import Model
from dovetail.sw.model.base import Sram, SystemMemory
from dovetail.sw.model.dma import StoreModel, Transfer
from dovetail.sw.runtime.engine import Bytes

PAGE = 4096
BLOCKS = PAGE // BROKEN_BYTES
REQUEST = struct.Struct("<Q3I")
OUTCOME = struct.Struct("<Q2I16II")
TRANSFER = struct.Struct("<I2Q6I")
PROGRAMS = 64
"""Programs of which is remembered what they touch."""
CHUNK = 64
"""Pages of memory that are read at a time in search of a program's end."""


class _Store(StoreModel):
    """The store unit; it remembers what each operation leaves in system memory."""

    def __init__(self, config: Config) -> None:
        super().__init__(config)
        self.stored: list[bytes] = []

    def execute(self, op: Op, registers: View, sram: Sram, memory: SystemMemory) -> None:
        super().execute(op, registers, sram, memory)
        transfer = self.transfers.of(op, registers)
        views = transfer.views(sram, memory, to_memory=True)
        if views:
            self.stored.append(views[0].tobytes())
        else:
            rows = (memory.data[a : a + transfer.length].tobytes() for a in _rows(transfer, memory.base))
            self.stored.append(b"".join(row.ljust(transfer.length, b"\0") for row in rows))


def _rows(transfer: Transfer, base: int) -> Iterator[int]:
    steps = transfer.memory_row, transfer.memory_plane
    return Shape(base + transfer.memory, transfer.rows, transfer.planes, *steps, transfer.length).starts()


class _SparseMemory:
    """The part of system memory that a run touches, at its addresses; read from the view page by page."""

    def __init__(self, source: IO[bytes], sink: IO[bytes]) -> None:
        self._source, self._sink = source, sink
        self._masks: dict[int, int] = {}
        self._pages: dict[int, bytes] = {}

    def read(self, pages: Sequence[int]) -> None:
        """Fetch pages by number, unless they are there."""
        ranges: list[list[int]] = []
        for page in sorted(set(pages) - set(self._masks)):
            if ranges and page == sum(ranges[-1]):
                ranges[-1][1] += 1
            else:
                ranges.append([page, 1])
        if not ranges:
            return
        self._sink.write(struct.pack(f"<I{2 * len(ranges)}I", len(ranges), *(n for r in ranges for n in r)))
        self._sink.flush()
        for first, count in ranges:
            masks = struct.unpack(f"<{count}Q", _read(self._source, 8 * count))
            data = _read(self._source, PAGE * count)
            for n, mask in enumerate(masks):
                self._masks[first + n] = mask
                if mask:
                    self._pages[first + n] = data[n * PAGE : (n + 1) * PAGE]

    def bytes(self, address: int, size: int) -> bytes:
        """Bytes that have been read; zeros where memory does not answer."""
        first, past = address // PAGE, -(-(address + size) // PAGE)
        text = b"".join(self._pages.get(page, bytes(PAGE)) for page in range(first, past))
        return text[address - first * PAGE :][:size]

    def contents(self) -> tuple[Bytes, tuple[tuple[int, int], ...]]:
        """Memory up to the last page that answers, and the parts of it that do not."""
        size = (max(self._pages, default=0) + 1) * PAGE
        data = np.zeros(size, np.uint8)  # the operating system provides only what is touched
        broken = []
        for page, mask in sorted(self._masks.items()):
            start = page * PAGE
            if start >= size:
                continue
            if mask:
                data[start : start + PAGE] = np.frombuffer(self._pages[page], np.uint8)
            broken += [(start + n * BROKEN_BYTES, BROKEN_BYTES) for n in range(BLOCKS) if not mask >> n & 1]
        return data, tuple(broken)


class ModelServer:
    """The model behind the view's messages.

    Parameters
    ----------
    config
        The accelerator and the timing of its memory.
    source, sink
        Where messages come from and go to.
    """

    def __init__(self, config: Config, source: IO[bytes], sink: IO[bytes]) -> None:
        self._config = config
        self._source, self._sink = source, sink
        self._store = _Store(config)
        self._model = Model(config, units={Unit.STORE: self._store})
        self._known: dict[tuple[bytes, int, int], list[int]] = {}  # what programs touch

    def serve(self) -> None:
        """Answer until the other side ends."""
        while request := self._source.read(REQUEST.size):
            self._run(*REQUEST.unpack(request))

    def _run(self, config_hash: int, program: int, pages: int, base: int) -> None:
        if config_hash != self._config.hash:
            raise DovetailError(
                f"configuration must be the platform's ({config_hash:016x}), not {self._config.hash:016x}"
            )
        memory = _SparseMemory(self._source, self._sink)
        words = self._program(memory, program, pages)
        memory.read(self._touched(words, program, base))
        data, broken = memory.contents()
        self._store.stored.clear()
        if pages:
            self._model.broken = broken
            timeline = self._model.run(data, program, len(words) // PAGE_BYTES, base).timeline
        else:
            timeline = time_program(self._config, b"", address=program, base=base, memory_bytes=len(data))
        self._answer(timeline, program, base)

    def _program(self, memory: _SparseMemory, program: int, pages: int) -> bytes:
        """The program up to its END and the page after that, which is fetched as well."""
        read = 0
        while read < pages:
            last = min(read + CHUNK, pages)
            memory.read(_pages(program + read * PAGE_BYTES, (last - read) * PAGE_BYTES))
            codes = memory.bytes(program + read * PAGE_BYTES, (last - read) * PAGE_BYTES)[::8]
            end = codes.find(int(Op.END))
            if end >= 0:
                last = min(read + end * 8 // PAGE_BYTES + 2, pages)
                memory.read(_pages(program + (last - 1) * PAGE_BYTES, PAGE_BYTES))
                return memory.bytes(program, last * PAGE_BYTES)
            read = last
        return memory.bytes(program, pages * PAGE_BYTES)

    def _touched(self, words: bytes, program: int, base: int) -> list[int]:
        """Pages of system memory that the program's transfers touch, if no part of memory is broken."""
        known = self._known.get((words, program, base))
        if known is not None:
            return known
        timeline = time_program(self._config, words, address=program, base=base, memory_bytes=ADDRESS_SPACE)
        found: set[int] = set()
        for n in _transfers(timeline):
            if timeline.op[n] == FETCH:
                continue
            transfer = self._transfer(timeline, n)
            for address in _rows(transfer, base):
                found.update(_pages(address, transfer.length))
        if len(self._known) == PROGRAMS:
            self._known.clear()
        self._known[words, program, base] = sorted(found)
        return self._known[words, program, base]

    def _answer(self, timeline: Timeline, program: int, base: int) -> None:
        counters = [n for unit in Unit for c in (timeline.counters[unit],) for n in (c.busy, c.config, c.token, c.idle)]
        counters = [count & 0xFFFF_FFFF for count in counters]
        fault = timeline.fault
        transfers = _transfers(timeline)
        head = OUTCOME.pack(
            timeline.cycles, fault.cause if fault else 0, fault.pc if fault else 0, *counters, len(transfers)
        )
        rows = [self._row(timeline, n, program, base) for n in transfers]
        self._sink.write(b"".join([bytes(4), head, *rows, *self._store.stored]))
        self._sink.flush()

    def _row(self, timeline: Timeline, n: int, program: int, base: int) -> bytes:
        start, end = int(timeline.start[n]), int(timeline.end[n])
        if timeline.op[n] == FETCH:
            address = (program + int(timeline.pc[n]) * PAGE_BYTES) % ADDRESS_SPACE
            return TRANSFER.pack(0, start, end, address, 1, 1, 0, 0, PAGE_BYTES)
        t = self._transfer(timeline, n)
        address = (base + t.memory) % ADDRESS_SPACE
        write = int(timeline.unit[n] == Unit.STORE)
        return TRANSFER.pack(write, start, end, address, t.rows, t.planes, t.memory_row, t.memory_plane, t.length)

    def _transfer(self, timeline: Timeline, n: int) -> Transfer:
        return self._store.transfers.of(Op(timeline.op[n]), _registers(timeline, n))


def _transfers(timeline: Timeline) -> list[int]:
    """Elements that use the bus, in the order of their starts."""
    uses = (timeline.unit == Unit.LOAD) | (timeline.unit == Unit.STORE)
    order = np.argsort(timeline.start, kind="stable")
    found: list[int] = order[(uses & timeline.works)[order]].tolist()
    return found


def _registers(timeline: Timeline, n: int) -> View:
    return View(Unit(int(timeline.unit[n])), timeline.registers[n])


def _pages(address: int, size: int) -> list[int]:
    """Numbers of the pages that hold some bytes; addresses wrap."""
    return [page % (ADDRESS_SPACE // PAGE) for page in range(address // PAGE, (address + size - 1) // PAGE + 1)]


def _read(source: IO[bytes], size: int) -> bytes:
    data = source.read(size)
    if len(data) != size:
        raise EOFError("the view has ended in the middle of a run")
    return data


def main(argv: Sequence[str]) -> int:
    """Serve the configuration file that ``argv`` names on stdin and stdout; what libraries print goes to stderr. The
    exit code: 0, or 2 for an error of the user's."""
    (path,) = argv
    try:
        config = Config.load(Path(path))
        with os.fdopen(os.dup(0), "rb") as source, os.fdopen(os.dup(1), "wb") as sink:
            os.dup2(2, 1)
            ModelServer(config, source, sink).serve()
    except (ConfigError, DovetailError) as error:
        print(f"dovetail: error: {error}", file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
