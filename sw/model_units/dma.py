"""LOAD and STORE: strided transfers between system memory and SRAM."""

from collections.abc import Iterator

import numpy as np
from numpy.lib.stride_tricks import as_strided

from dovetail.isa.checks import View
from dovetail.isa.instructions import Op
from dovetail.isa.timing.dma import bursts
from dovetail.sw.model_units.base import Bytes, Sram, SystemMemory, UnitModel

_WRAP = 1 << 32


class Transfer:
    """The addresses of one DMA instruction's registers."""

    def __init__(self, registers: View) -> None:
        r = registers
        self.memory = r["MEM_ADDR"]
        self.memory_row, self.memory_plane = r["MEM_ROW_STEP"], r["MEM_PLANE_STEP"]
        self.address, self.size = r.region("SRAM")
        self.sram_row, self.sram_plane = r["SRAM_ROW_STEP"], r["SRAM_PLANE_STEP"]
        self.length = r["LENGTH"]
        self.rows, self.planes = r["COUNT", "rows"], r["COUNT", "planes"]
        self.shape = (self.planes, self.rows, self.length)

    def _disjoint(self, row_step: int, plane_step: int) -> bool:
        row_span = (self.rows - 1) * row_step + self.length
        return (self.rows == 1 or row_step >= self.length) and (self.planes == 1 or plane_step >= row_span)

    def _end(self, row_step: int, plane_step: int) -> int:
        return (self.planes - 1) * plane_step + (self.rows - 1) * row_step + self.length

    def views(self, sram: Sram, memory: SystemMemory, *, to_memory: bool) -> tuple[Bytes, Bytes] | None:
        """([planes, rows, length] of memory and of SRAM), if they lie wholly inside and the target does not overlap
        itself; else None."""
        target = (self.memory_row, self.memory_plane) if to_memory else (self.sram_row, self.sram_plane)
        start = (memory.base + self.memory) % _WRAP
        if (
            not self._disjoint(*target)
            or start + self._end(self.memory_row, self.memory_plane) > len(memory.data)
            or self._end(self.sram_row, self.sram_plane) > self.size
        ):
            return None
        return (
            as_strided(memory.data[start:], self.shape, (self.memory_plane, self.memory_row, 1)),
            as_strided(sram.data[self.address :], self.shape, (self.sram_plane, self.sram_row, 1)),
        )

    def beats(self, base: int, bus_bytes: int) -> Iterator[tuple[int, int, int]]:
        """(system memory address, region offset, bytes) of every beat, in order."""
        for plane in range(self.planes):
            for row in range(self.rows):
                start = (base + self.memory + plane * self.memory_plane + row * self.memory_row) % _WRAP
                offset = plane * self.sram_plane + row * self.sram_row
                for address, size, _ in bursts(start, self.length, bus_bytes):
                    end = address + size
                    while address < end:
                        stop = min(end, (address // bus_bytes + 1) * bus_bytes)
                        yield address % _WRAP, (offset + address - start) % _WRAP, stop - address
                        address = stop


class LoadModel(UnitModel):
    """The load unit."""

    def execute(self, op: Op, registers: View, sram: Sram, memory: SystemMemory) -> None:
        transfer = Transfer(registers)
        views = transfer.views(sram, memory, to_memory=False)
        if views:
            views[1][:] = views[0]
        else:
            self._by_beats(transfer, sram, memory)
        sram.touch(transfer.address, transfer.size)

    def _by_beats(self, transfer: Transfer, sram: Sram, memory: SystemMemory) -> None:
        for address, offset, size in transfer.beats(memory.base, self.config.bus_bytes):
            if address + size > len(memory.data):
                return
            if offset + size <= transfer.size:
                at = transfer.address + offset
                sram.data[at : at + size] = memory.data[address : address + size]


class StoreModel(UnitModel):
    """The store unit."""

    def execute(self, op: Op, registers: View, sram: Sram, memory: SystemMemory) -> None:
        transfer = Transfer(registers)
        views = transfer.views(sram, memory, to_memory=True)
        if views:
            views[0][:] = views[1]
        else:
            self._by_beats(transfer, sram, memory)

    def _by_beats(self, transfer: Transfer, sram: Sram, memory: SystemMemory) -> None:
        for address, offset, size in transfer.beats(memory.base, self.config.bus_bytes):
            if address + size > len(memory.data):
                continue
            if offset + size <= transfer.size:
                at = transfer.address + offset
                memory.data[address : address + size] = sram.data[at : at + size]
            else:
                memory.data[address : address + size] = np.uint8(0)
