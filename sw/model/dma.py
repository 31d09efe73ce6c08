"""LOAD and STORE: strided transfers between system memory and SRAM."""

from collections.abc import Iterator
from functools import partial

import numpy as np

from dovetail.isa.config.resolved import Config
from dovetail.isa.instructions.checks import View
from dovetail.isa.instructions.table import Op
from dovetail.isa.timing.dma import bursts
from dovetail.isa.timing.memory import ADDRESS_SPACE
from dovetail.sw.model.base import Bytes, Plans, Sram, SystemMemory, UnitModel, strided


class Transfer:
    """The addresses of one DMA instruction's registers."""

    def __init__(self, config: Config, registers: View) -> None:
        r = registers
        self.modulus = 1 << config.offset_bits
        self.memory = r["MEM_ADDR"]
        self.memory_row, self.memory_plane = r["MEM_ROW_STEP"], r["MEM_PLANE_STEP"]
        self.address, self.size = r.region("SRAM")
        self.sram_row, self.sram_plane = r["SRAM_ROW_STEP"] % self.modulus, r["SRAM_PLANE_STEP"] % self.modulus
        self.length = r["LENGTH"]
        self.rows, self.planes = r["COUNT", "rows"], r["COUNT", "planes"]
        self.shape = (self.planes, self.rows, self.length)

        memory_span = self._span(self.memory_row, self.memory_plane)
        sram_span = self._span(self.sram_row, self.sram_plane)
        self.memory_end = memory_span[1]
        # Whether each side is free of overlaps within itself; whether the region holds all of it.
        self.memory_apart, self.sram_apart = memory_span[0], sram_span[0]
        self.inside = sram_span[1] <= self.size

    def _span(self, row_step: int, plane_step: int) -> tuple[bool, int]:
        """(whether no byte occurs twice, bytes from the first to past the last), when no address wraps."""
        row_end = (self.rows - 1) * row_step + self.length
        apart = (self.rows == 1 or row_step >= self.length) and (self.planes == 1 or plane_step >= row_end)
        return apart, (self.planes - 1) * plane_step + row_end

    def views(self, sram: Sram, memory: SystemMemory, *, to_memory: bool) -> tuple[Bytes, Bytes] | None:
        """([planes, rows, length] of memory and of SRAM), if they lie wholly inside and the target does not overlap
        itself; else None."""
        start = (memory.base + self.memory) % ADDRESS_SPACE
        apart = self.memory_apart if to_memory else self.sram_apart
        if not apart or not self.inside or not memory.answers(start, self.memory_end):
            return None
        return (
            strided(memory.data, start, self.shape, (self.memory_plane, self.memory_row, 1)),
            strided(sram.data, self.address, self.shape, (self.sram_plane, self.sram_row, 1)),
        )

    def beats(self, base: int, bus_bytes: int) -> Iterator[tuple[int, int, int]]:
        """(system memory address, region offset, bytes) of every beat, in order."""
        for plane in range(self.planes):
            for row in range(self.rows):
                start = (base + self.memory + plane * self.memory_plane + row * self.memory_row) % ADDRESS_SPACE
                offset = plane * self.sram_plane + row * self.sram_row
                for address, size, _ in bursts(start, self.length, bus_bytes):
                    end = address + size
                    while address < end:
                        stop = min(end, (address // bus_bytes + 1) * bus_bytes)
                        yield address % ADDRESS_SPACE, (offset + address - start) % self.modulus, stop - address
                        address = stop


class DmaModel(UnitModel):
    """What both DMA units keep: transfers by their registers."""

    def __init__(self, config: Config) -> None:
        super().__init__(config)
        self.transfers = Plans(partial(_transfer, config))


def _transfer(config: Config, op: Op, registers: View) -> Transfer:
    return Transfer(config, registers)


class LoadModel(DmaModel):
    """The load unit."""

    def execute(self, op: Op, registers: View, sram: Sram, memory: SystemMemory) -> None:
        transfer = self.transfers.of(op, registers)
        views = transfer.views(sram, memory, to_memory=False)
        if views:
            views[1][:] = views[0]
        else:
            self._by_beats(transfer, sram, memory)
        sram.touch(transfer.address, transfer.size)

    def _by_beats(self, transfer: Transfer, sram: Sram, memory: SystemMemory) -> None:
        for address, offset, size in transfer.beats(memory.base, self.config.bus_bytes):
            if not memory.answers(address, size):
                return
            if offset + size <= transfer.size:
                at = transfer.address + offset
                sram.data[at : at + size] = memory.data[address : address + size]


class StoreModel(DmaModel):
    """The store unit."""

    def execute(self, op: Op, registers: View, sram: Sram, memory: SystemMemory) -> None:
        transfer = self.transfers.of(op, registers)
        views = transfer.views(sram, memory, to_memory=True)
        if views:
            views[0][:] = views[1]
        else:
            self._by_beats(transfer, sram, memory)

    def _by_beats(self, transfer: Transfer, sram: Sram, memory: SystemMemory) -> None:
        for address, offset, size in transfer.beats(memory.base, self.config.bus_bytes):
            if not memory.answers(address, size):
                continue
            if offset + size <= transfer.size:
                at = transfer.address + offset
                memory.data[address : address + size] = sram.data[at : at + size]
            else:
                memory.data[address : address + size] = np.uint8(0)
