"""The interconnect: several AXI4 managers, one memory."""

from collections.abc import Sequence
from typing import Any, NamedTuple

from amaranth import Module, Signal
from amaranth.lib import data, wiring
from amaranth.lib.wiring import In, Out

from dovetail.hw.common.axi import AxiRead, AxiWrite
from dovetail.hw.system.channels import Address, Addresses, WriteBeat, WriteData, id_bits
from dovetail.hw.system.width import Widener, queue_of

MAX_MANAGERS = 16


class Manager(NamedTuple):
    """A manager's port: data bits, and the bursts that it has in flight at most, of each direction."""

    bus: int
    outstanding: int


class Interconnect(wiring.Component):
    """Joins managers to a memory: reads and writes apart, addresses in round robin, beats in whole bursts.

    A manager has one id; at the memory its number is the id. Read data and responses find their manager by the id, so
    a memory may answer different managers in any order. Write data go to memory in the order in which it has taken
    their addresses.

    Managers must be as the accelerator is: INCR bursts of whole beats, at most ``outstanding`` in flight; write data
    behind the acceptance of their address, in order; read data and responses always taken. (The proofs ``load`` and
    ``store`` show all this.) A manager narrower than the memory keeps its beats: they are narrow at the memory too,
    on the lanes that the address says.

    Parameters
    ----------
    managers: 1..16 of them.
    bus: data bits of the memory; that of the widest manager if left out.

    Members
    -------
    read0, write0, ...: the managers.
    memory_read, memory_write: the memory, with ids; all outputs from registers. Read data and responses are always
        taken.

    Latency
    -------
    See :mod:`dovetail.isa.timing.interconnect`. Without others in the way, an address takes 2 cycles, a beat and a
    response 1. No input leads to an output without a register.

    Raises
    ------
    ValueError
        When there are no managers or too many, or one is wider than the memory.
    """

    def __init__(self, managers: Sequence[Manager], *, bus: int | None = None) -> None:
        if not 1 <= len(managers) <= MAX_MANAGERS:
            raise ValueError(f"managers must be 1..{MAX_MANAGERS}, not {len(managers)}")
        widest = max(manager.bus for manager in managers)
        if bus is not None and bus < widest:
            raise ValueError(f"bus must be at least that of the widest manager, {widest}, not {bus}")
        self.managers = tuple(managers)
        self.bus = widest if bus is None else bus
        bits = id_bits(len(managers))
        members: dict[str, Any] = {
            "memory_read": Out(AxiRead(self.bus, bits)),
            "memory_write": Out(AxiWrite(self.bus, bits)),
        }
        for k, manager in enumerate(managers):
            members[f"read{k}"] = In(AxiRead(manager.bus))
            members[f"write{k}"] = In(AxiWrite(manager.bus))
        super().__init__(members)

    @property
    def in_flight(self) -> int:
        """Bursts of a direction that all managers have in flight at most."""
        return sum(manager.outstanding for manager in self.managers)

    def elaborate(self, platform: object) -> Module:
        m = Module()
        reads, writes = [], []
        for k, manager in enumerate(self.managers):
            read, write = (wiring.flipped(getattr(self, f"{way}{k}")) for way in ("read", "write"))
            if manager.bus < self.bus:
                widener = Widener(manager.bus, self.bus, outstanding=manager.outstanding)
                m.submodules[f"widener{k}"] = widener
                wiring.connect(m, read, widener.narrow_read)
                wiring.connect(m, write, widener.narrow_write)
                read, write = widener.wide_read, widener.wide_write
            reads.append(read)
            writes.append(write)
        self._read(m, reads)
        self._write(m, writes)
        return m

    def _addresses(self, m: Module, channel: str, managers: Sequence[Any], memory: Any) -> Addresses:
        """The channel ``"ar"`` or ``"aw"``."""
        m.submodules[f"{channel}_channel"] = addresses = Addresses(len(managers))

        def parts(port: Any, payload: Any) -> list[tuple[Any, Any]]:
            return [(getattr(port, channel + name), payload[name]) for name, _ in Address.as_shape()]

        for manager, i in zip(managers, addresses.i, strict=True):
            m.d.comb += [i.valid.eq(getattr(manager, f"{channel}valid"))]
            m.d.comb += [getattr(manager, f"{channel}ready").eq(i.ready)]
            m.d.comb += [there.eq(given) for given, there in parts(manager, i.payload)]
        o = addresses.o
        m.d.comb += [getattr(memory, f"{channel}valid").eq(o.valid), getattr(memory, f"{channel}id").eq(o.payload.id)]
        m.d.comb += [o.ready.eq(getattr(memory, f"{channel}ready"))]
        m.d.comb += [there.eq(given) for there, given in parts(memory, o.payload.address)]
        return addresses

    def _read(self, m: Module, managers: Sequence[Any]) -> None:
        memory = self.memory_read
        self._addresses(m, "ar", managers, memory)
        came = Signal(data.StructLayout({"data": self.bus, "resp": 2, "last": 1}), name="r")
        m.d.comb += memory.rready.eq(1)
        m.d.sync += [came.data.eq(memory.rdata), came.resp.eq(memory.rresp), came.last.eq(memory.rlast)]
        for k, manager in enumerate(managers):
            m.d.sync += manager.rvalid.eq(memory.rvalid & (memory.rid == k))
            m.d.comb += [manager.rdata.eq(came.data), manager.rresp.eq(came.resp), manager.rlast.eq(came.last)]

    def _write(self, m: Module, managers: Sequence[Any]) -> None:
        memory = self.memory_write
        addresses = self._addresses(m, "aw", managers, memory)
        m.submodules.order = order = queue_of(self.in_flight, id_bits(len(managers)))
        m.submodules.beats = beats = WriteData(len(managers), self.bus)
        taken = addresses.o.valid & addresses.o.ready
        m.d.comb += [order.i.valid.eq(taken), order.i.payload.eq(addresses.o.payload.id)]
        wiring.connect(m, order.o, beats.turns)

        def parts(port: Any, payload: Any) -> list[tuple[Any, Any]]:
            return [(getattr(port, f"w{name}"), payload[name]) for name, _ in WriteBeat(self.bus)]

        response = Signal(2)
        m.d.sync += response.eq(memory.bresp)
        for k, (manager, i) in enumerate(zip(managers, beats.i, strict=True)):
            m.d.comb += [i.valid.eq(manager.wvalid), manager.wready.eq(i.ready), manager.bresp.eq(response)]
            m.d.comb += [there.eq(given) for given, there in parts(manager, i.payload)]
            m.d.sync += manager.bvalid.eq(memory.bvalid & (memory.bid == k))
        m.d.comb += [memory.wvalid.eq(beats.o.valid), beats.o.ready.eq(memory.wready), memory.bready.eq(1)]
        m.d.comb += [there.eq(given) for there, given in parts(memory, beats.o.payload)]
