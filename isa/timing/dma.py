"""Timing of the load and store units and of instruction fetch, with the memory behind the bus.

A transfer is rows of bytes; a row is cut into bursts at 256 beats and at 4 KiB boundaries. Memory answers in
order: a burst's first beat comes ``read_latency`` after its address at the earliest, beats are ``beat_cycles``
apart. Read and write channels do not disturb each other. Times are exact for that memory.
"""

from collections.abc import Iterator
from functools import lru_cache

from dovetail.isa.config import Config
from dovetail.isa.timing.common import CHECK

MAX_BURST = 256
"""Beats of the longest burst."""
BOUNDARY = 4096
"""No burst crosses a multiple of this many bytes."""

ADDRESS = 2
"""Cycles from an instruction's verification to its first burst's address, and the least between two addresses."""
READ_END = 4
"""Cycles from the last beat of a read to the end of the instruction."""
WRITE_FIRST = 7
"""Cycles from an instruction's verification to the earliest first write beat."""
WRITE_END = 2
"""Cycles from the last response to the end of the instruction."""


def bursts(address: int, length: int, bus_bytes: int) -> Iterator[tuple[int, int, int]]:
    """(first byte address, bytes, beats) of each burst of one row."""
    end = address + length
    while address < end:
        stop = min(end, (address // BOUNDARY + 1) * BOUNDARY, (address // bus_bytes + MAX_BURST) * bus_bytes)
        yield address, stop - address, -(-stop // bus_bytes) - address // bus_bytes
        address = stop


def row_addresses(address: int, rows: int, planes: int, row_step: int, plane_step: int) -> Iterator[int]:
    """System memory address of each row, modulo 2^32."""
    for plane in range(planes):
        for row in range(rows):
            yield (address + plane * plane_step + row * row_step) & 0xFFFF_FFFF


def _beats(
    config: Config, address: int, rows: int, planes: int, row_step: int, plane_step: int, length: int
) -> Iterator[int]:
    for start in row_addresses(address, rows, planes, row_step, plane_step):
        for _, _, beats in bursts(start, length, config.bus_bytes):
            yield beats


@lru_cache(maxsize=65536)
def read_duration(
    config: Config, address: int, rows: int, planes: int, row_step: int, plane_step: int, length: int
) -> int:
    """Cycles from start to end of a DMA_READ or a fetch; ``address`` matters modulo 4096 only."""
    memory = config.memory
    issue = CHECK
    data = -memory.beat_cycles
    ends = [-1] * config.outstanding
    for n, beats in enumerate(_beats(config, address, rows, planes, row_step, plane_step, length)):
        slot = n % config.outstanding
        issue = max(issue + ADDRESS, ends[slot] + 1)
        data = max(issue + memory.read_latency, data + memory.beat_cycles) + (beats - 1) * memory.beat_cycles
        ends[slot] = data
    return data + READ_END


@lru_cache(maxsize=65536)
def write_duration(
    config: Config, address: int, rows: int, planes: int, row_step: int, plane_step: int, length: int
) -> int:
    """Cycles from start to end of a DMA_WRITE; ``address`` matters modulo 4096 only."""
    memory = config.memory
    issue = CHECK
    data = CHECK + WRITE_FIRST - memory.beat_cycles
    ends = [-1] * config.outstanding
    for n, beats in enumerate(_beats(config, address, rows, planes, row_step, plane_step, length)):
        slot = n % config.outstanding
        issue = max(issue + ADDRESS, ends[slot] + 1)
        data = max(issue + 1, data + memory.beat_cycles) + (beats - 1) * memory.beat_cycles
        ends[slot] = data + memory.write_latency
    return max(ends) + WRITE_END
