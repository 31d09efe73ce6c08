"""Ports of a board's system memory: AXI4 for the accelerator, words for the host link."""

from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from dovetail.hw.common.axi import AxiRead, AxiWrite
from dovetail.isa.link import WORD

OKAY, DECERR = 0, 3
"""AXI responses: done; there is no memory at this address."""


class LinkMemory(wiring.Signature):
    """Words of 4 bytes, seen from the link. A request is taken when ``ready`` and stays as it is until then, its
    address until the next one; the data of a read come with ``answer``, in a later cycle. One request at a time."""

    def __init__(self, memory_bytes: int) -> None:
        self.memory_bytes = memory_bytes
        super().__init__(
            {
                "valid": Out(1),
                "write": Out(1),
                "address": Out(range(memory_bytes // WORD)),
                "data": Out(32),
                "ready": In(1),
                "answer": In(1),
                "read_data": In(32),
            }
        )


class SystemMemory(wiring.Signature):
    """A memory of ``memory_bytes`` bytes from address 0 on, seen from its users: AXI4 with ``bus`` data bits, and the
    link. The manager on AXI4 must always take read data and answers (``rready``, ``bready``), as the accelerator does.
    """

    def __init__(self, bus: int, memory_bytes: int) -> None:
        self.bus = bus
        self.memory_bytes = memory_bytes
        read, write = AxiRead(bus), AxiWrite(bus)
        super().__init__({"read": Out(read), "write": Out(write), "link": Out(LinkMemory(memory_bytes))})


def check_size(memory_bytes: int) -> None:
    """Raises ValueError unless a burst is always inside or outside a memory of this size."""
    if memory_bytes < 4096 or memory_bytes % 4096:
        raise ValueError(f"memory must be a multiple of 4096 bytes, not {memory_bytes}")
