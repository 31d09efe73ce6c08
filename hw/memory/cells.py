"""Block RAM without logic for a row that is read and written in the same cycle."""

from amaranth import Cat, Module, Mux, Signal, Value, ValueLike
from amaranth.lib import memory


def block_ram(*, width: int, depth: int) -> memory.Memory:
    """Memory for :func:`read_row`: ``depth`` rows of ``width`` bits."""
    return memory.Memory(shape=width, depth=depth, init=[], attrs={"no_rw_check": True})


class LosingRam:
    """A platform for simulation, to be elaborated with: bits that are written in the cycle of their read are returned
    inverted, so that logic which relies on them fails."""


def read_row(
    m: Module, cells: memory.Memory, *, name: str, addr: ValueLike, en: ValueLike = 1, platform: object = None
) -> Value:
    """The row at ``addr``, a cycle later; it stays where ``en`` is 0.

    Bits that are written in the cycle of their read are undefined: no logic may rely on them. A port of Amaranth's with
    a clock promises their old values instead, which block RAM does not: Yosys then makes it from a copy of what is
    written, a comparator, and a multiplexer behind every bit. A port without a clock and a register, as here, it takes
    for one port, and the memory's attribute says that it may be the plain one.
    """
    row = Signal(cells.shape, name=name, reset_less=True)
    read = cells.read_port(domain="comb")
    m.d.comb += read.addr.eq(addr)
    with m.If(en):
        m.d.sync += row.eq(read.data)
    if not isinstance(platform, LosingRam):
        return row
    (write,) = cells.write_ports
    written = Cat(bit.replicate(len(row) // len(write.en)) for bit in write.en)
    lost = Signal(len(row), name=f"{name}_lost")
    with m.If(en):
        m.d.sync += lost.eq(Mux(write.addr == addr, written, 0))
    return row ^ lost
