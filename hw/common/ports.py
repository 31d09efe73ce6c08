"""Signatures that several hardware blocks share: SRAM ports and the border between a unit's control and its core."""

from types import SimpleNamespace
from typing import Any

from amaranth import Cat, Value, unsigned
from amaranth.lib import data, enum, wiring
from amaranth.lib.wiring import In, Out
from amaranth.utils import exact_log2

from dovetail.isa.config.resolved import RESULT_STEPS, Config
from dovetail.isa.instructions.checks import built
from dovetail.isa.instructions.table import Unit


class SramRead(wiring.Signature):
    """Read port, seen from the reader. ``data`` holds the ``word_bytes`` bytes from ``addr`` on (byte 0 lowest),
    SRAM_READ cycles after ``addr`` was presented with ``en``; any byte alignment. Addresses wrap at the SRAM size, or
    the power of two above it."""

    def __init__(self, config: Config) -> None:
        self.config = config
        super().__init__(
            {
                "en": Out(1),
                "addr": Out((config.sram - 1).bit_length()),
                "data": In(8 * config.word_bytes),
            }
        )


class SramWrite(wiring.Signature):
    """Write port, seen from the writer: the low ``size`` bytes of ``data`` go to ``addr`` and up. A read presented two
    or more cycles later sees them.

    Where results of two pixels may leave together (``Config.result_pairs``) ARRAY also writes the ``size`` bytes that
    are ``apart`` blocks of ``oc_lanes`` further up, unless that is 0; with ``skips`` these alone."""

    def __init__(self, config: Config) -> None:
        self.config = config
        super().__init__(
            {
                "en": Out(1),
                "addr": Out((config.sram - 1).bit_length()),
                "size": Out(range(config.word_bytes + 1)),
                "data": Out(8 * config.word_bytes),
                **({"apart": Out(range(RESULT_STEPS + 1)), "skips": Out(1)} if config.result_pairs else {}),
            }
        )


class Span(data.StructLayout):
    """If ``valid``, the bytes of SRAM from ``start`` to before ``end``."""

    def __init__(self, config: Config) -> None:
        super().__init__({"start": range(config.sram), "end": range(config.sram + 1), "valid": 1})


def sources(config: Config, unit: Unit) -> int:
    """How many spans an operation of the unit reads at most. A span that it also writes is not counted: another writer
    of it would need the same bank's write port."""
    if unit == Unit.VECTOR:
        return config.vector + any(row.reads_b for row in built(config, unit))
    return {Unit.LOAD: 0, Unit.ARRAY: 2 + config.matmul, Unit.STORE: 1}[unit]


def targets(config: Config, unit: Unit) -> int:
    """How many spans an operation of the unit writes."""
    return {Unit.LOAD: 1, Unit.ARRAY: 1, Unit.VECTOR: int(config.vector), Unit.STORE: 0}[unit]


class Claims(wiring.Signature):
    """What an operation needs of the SRAM: masks of the banks whose read port (``reads``) and write port (``writes``)
    it claims, and the bytes that it reads (``sources``) and writes (``target``). A unit drives as many spans as it has
    (:func:`sources`, :func:`targets`)."""

    def __init__(self, config: Config) -> None:
        self.config = config
        super().__init__(
            {
                "reads": Out(config.banks),
                "writes": Out(config.banks),
                "sources": Out(Span(config)).array(max(sources(config, unit) for unit in Unit)),
                "target": Out(Span(config)),
            }
        )


class EntryKind(enum.Enum, shape=2):
    """What a queue entry is."""

    CFG = 0
    WAIT = 1
    OP = 2
    FETCH = 3


class Entry(data.Struct):
    """A queue entry. ``code``: register index or opcode; ``waits``: unit to wait for, a bit each; ``value``: register
    value, completion count to reach (signed: none if negative), or the fetch's system memory address; ``pc``: word
    index in the program (page index for FETCH)."""

    kind: EntryKind
    code: unsigned(8)
    waits: unsigned(4)
    value: unsigned(32)
    pc: unsigned(32)


GROUP = 8
"""Registers of a unit are written in groups of so many."""


class Front(data.Struct):
    """The front of a queue, from :func:`front`: an :class:`Entry`, and what would take long to see from it. ``group``,
    ``place``: as :class:`ConfigPort` has them, of the register that a CFG writes; ``works``: it is an operation or
    fetch. Without an entry ``group`` and ``works`` are 0."""

    kind: EntryKind
    code: unsigned(8)
    waits: unsigned(4)
    value: unsigned(32)
    pc: unsigned(32)
    group: unsigned(GROUP)
    place: unsigned(GROUP)
    works: 1


def front(entry: Any, valid: Any) -> Value:
    """A :class:`Front` with this entry, if ``valid``."""
    bits = exact_log2(GROUP)
    group, place = entry.code[bits : 2 * bits], entry.code[:bits]
    writes = valid & (entry.kind == EntryKind.CFG)
    return Cat(
        entry,
        *(writes & (group == n) for n in range(GROUP)),
        *(place == n for n in range(GROUP)),
        valid & ((entry.kind == EntryKind.OP) | (entry.kind == EntryKind.FETCH)),
    )


class ConfigPort(wiring.Signature):
    """Writes a unit's registers: with ``en``, ``value`` to the n-th of the g-th :data:`GROUP` of them, of which bit g
    of ``group`` and bit n of ``place`` are set; to none, if no bit of ``group`` is. A write may last some cycles; the
    one with ``due`` is its last. ``clear`` zeroes all."""

    def __init__(self) -> None:
        super().__init__(
            {"clear": Out(1), "en": Out(1), "due": Out(1), "group": Out(GROUP), "place": Out(GROUP), "value": Out(32)},
        )


class Check(wiring.Signature):
    """Writes of a unit's registers, and the checks of an operation, seen from the unit's control.

    Control pulses ``start`` with ``op`` and ``fetch`` in the pop cycle t; ``address`` holds the entry's value. In cycle
    v = t + CHECK the unit shows ``cause`` (static checks; 0 if none), from v - 1 to the end the operation's claims. Of
    a region beyond the SRAM these are those of the low bits.
    """

    def __init__(self, config: Config) -> None:
        self.config = config
        super().__init__(
            {
                "cfg": Out(ConfigPort()),
                "start": Out(1),
                "op": Out(8),
                "fetch": Out(1),
                "address": Out(32),
                "cause": In(4),
                **Claims(config).flip().members,
            }
        )


class Core(wiring.Signature):
    """Border between unit control (this side) and the core that does a unit's work: :class:`Check`, and the work.

    In cycle v control answers with ``go`` when the instruction may work, from v + 1 on. Without ``go`` the core returns
    to idle. The core pulses ``done`` in its end cycle, with ``error`` if the bus answered with an error.
    """

    def __init__(self, config: Config) -> None:
        self.config = config
        super().__init__({**Check(config).members, "go": Out(1), "done": In(1), "error": In(1)})


def part(interface: Any, signature: Any, prefix: str = "") -> Any:
    """Those members of a larger interface that ``signature`` names, as an interface for ``wiring.connect``. In the
    larger one their names begin with ``prefix``."""
    members = {name: interface.signature.members[prefix + name] for name in signature.members}
    attributes = {name: getattr(interface, prefix + name) for name in members}
    return SimpleNamespace(signature=wiring.Signature(members), **attributes)
