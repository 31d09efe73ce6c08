"""The host's registers behind AXI4-Lite: the one table of names, offsets and bits, for RTL, drivers and manual."""

from dataclasses import dataclass

from dovetail.isa.config.given import MAX_PARAMETERS
from dovetail.isa.instructions.table import Field, Unit

ID = 0x6C746F64
"""Value of the ID register: ``dotl`` in ASCII, little-endian."""
VERSION = 7
"""Version of the instruction set and of this table."""
ADDRESS_BITS = 12
"""Address bits of the AXI4-Lite port."""
OKAY, SLVERR, DECERR = 0, 2, 3
"""AXI responses: done; no such register (it reads as zero, a write does nothing); nobody is at this address."""
STALLS = ("BUSY", "CONFIG", "TOKEN", "IDLE")
"""What each unit counts, one of them in every cycle of a run; modulo 2^32."""


@dataclass(frozen=True)
class HostField(Field):
    """A field of a register. ``access``: of :data:`ACCESS`."""

    access: str = "r"


@dataclass(frozen=True)
class HostRegister:
    """A 32-bit register at byte ``offset``. ``access`` is ``"r"`` (read only) or ``"rw"``. Only bits ``low`` to
    ``low + width - 1`` are there, others read as zero. ``reset``: its value after a reset; ``None``: the configuration
    decides. ``parameter``: its number among the registers PARAM; only accelerators with as many ``parameters`` have
    it."""

    name: str
    offset: int
    access: str
    doc: str
    fields: tuple[HostField, ...] = ()
    low: int = 0
    width: int = 32
    reset: int | None = 0
    parameter: int = 0

    @property
    def parts(self) -> tuple[HostField, ...]:
        """Its fields; all of it as one field ``value`` where it has none."""
        return self.fields or (HostField("value", self.low, self.width, self.doc, self.access),)


ACCESS = {
    "r": "read only",
    "rw": "read and write",
    "pulse": "writing 1 does something once; reads as 0",
    "w1c": "read; writing 1 clears",
}
"""What a host may do with a field."""
CONTROL_START = HostField("start", 0, 1, "write 1: start the program; ignored while busy; reads as 0", "pulse")
CONTROL_IRQ = HostField("irq_enable", 1, 1, "interrupt when a run has ended", "rw")
STATUS_BUSY = HostField("busy", 0, 1, "a run is under way")
STATUS_DONE = HostField(
    "done", 1, 1, "a run has ended, well or with a fault; write 1 to clear (and the interrupt with it)", "w1c"
)
STATUS_FAULT = HostField("fault", 2, 1, "the last run ended with a fault")


def _table() -> tuple[HostRegister, ...]:
    rows = [
        HostRegister("ID", 0x000, "r", "identity, a constant", reset=ID),
        HostRegister("VERSION", 0x004, "r", "version of the instruction set, a constant", reset=VERSION),
        HostRegister("CONFIG_HASH_LO", 0x008, "r", "bits 31:0 of the configuration's hash", reset=None),
        HostRegister("CONFIG_HASH_HI", 0x00C, "r", "bits 63:32 of the configuration's hash", reset=None),
        HostRegister("CONTROL", 0x010, "rw", "start and interrupt enable", (CONTROL_START, CONTROL_IRQ)),
        HostRegister("STATUS", 0x014, "rw", "state of the engine", (STATUS_BUSY, STATUS_DONE, STATUS_FAULT)),
        HostRegister("CAUSE", 0x018, "r", "why the last run stopped; 0 when it ran to its END", width=4),
        HostRegister("FAULT_PC", 0x01C, "r", "word index of the faulting instruction (page index for BUS_FETCH)"),
        HostRegister(
            "PROGRAM",
            0x020,
            "rw",
            "system memory address of the program; bits 9:0 read as zero; writes while busy are ignored",
            low=10,
            width=22,
        ),
        HostRegister("PAGES", 0x024, "rw", "pages of the program, 23 bits; writes while busy are ignored", width=23),
        HostRegister(
            "BASE",
            0x028,
            "rw",
            "added to every MEM_ADDR; bits 11:0 read as zero; writes while busy are ignored",
            low=12,
            width=20,
        ),
        HostRegister("CYCLES_LO", 0x030, "r", "cycles of the run, bits 31:0"),
        HostRegister("CYCLES_HI", 0x034, "r", "cycles of the run, bits 63:32"),
    ]
    meaning = {
        "BUSY": "cycles with an operation or fetch in the unit",
        "CONFIG": "cycles that took a CFG or a satisfied SYNC from the queue",
        "TOKEN": "cycles waiting for another unit",
        "IDLE": "cycles with an empty queue, or halted",
    }
    for unit in Unit:
        for n, stall in enumerate(STALLS):
            rows.append(
                HostRegister(f"{unit.name}_{stall}", 0x040 + 16 * unit + 4 * n, "r", f"{unit.name}: {meaning[stall]}")
            )
    for number in range(1, MAX_PARAMETERS + 1):
        doc = f"added to the values of words whose param is {number}; writes while busy are ignored"
        rows.append(HostRegister(f"PARAM{number}", 0x080 + 4 * number, "rw", doc, parameter=number))
    return tuple(rows)


HOST_REGISTERS: dict[str, HostRegister] = {r.name: r for r in _table()}
"""Those of an accelerator with all parameters."""


def host_registers(parameters: int = 0) -> dict[str, HostRegister]:
    """The registers of an accelerator with so many registers PARAM."""
    return {name: register for name, register in HOST_REGISTERS.items() if register.parameter <= parameters}
