"""The weights file: what lies in shared memory before a network runs, without the bytes that are zero."""

from __future__ import annotations

import struct
import zlib
from collections.abc import Iterator

import numpy as np

from dovetail.isa.program import Program

MAGIC, VERSION = b"DOVEWGTS", 1
_HEADER = struct.Struct("<8sIIQII")
_SECTION = struct.Struct("<II")
_CRC = struct.Struct("<I")
_GAP = 64
"""Zero bytes that are worth a section of their own behind them."""


def weights_file(program: Program) -> bytes:
    """The file of a program; ``dovetail_weights.h`` describes it."""
    sections = [section for offset, data in sorted(program.images) for section in _sections(offset, data)]
    size = _HEADER.size + sum(_SECTION.size + len(data) for _, data in sections) + _CRC.size
    header = _HEADER.pack(MAGIC, VERSION, len(sections), program.config.hash, program.memory_bytes, size)
    table = b"".join(_SECTION.pack(offset, len(data)) for offset, data in sections)
    body = b"".join((header, table, *(data for _, data in sections)))
    return body + _CRC.pack(zlib.crc32(body))


def crc_of(file: bytes) -> int:
    """The checksum at a file's end."""
    (crc,) = _CRC.unpack(file[-_CRC.size :])
    return int(crc)


def _sections(offset: int, data: bytes) -> Iterator[tuple[int, bytes]]:
    """(offset, bytes) of an image, cut where there are many zeros."""
    used = np.flatnonzero(np.frombuffer(data, np.uint8))
    for part in np.split(used, np.flatnonzero(np.diff(used) > _GAP) + 1):
        if part.size:
            first, last = int(part[0]), int(part[-1])
            yield offset + first, data[first : last + 1]
