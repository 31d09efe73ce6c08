"""Signatures that several hardware blocks share: SRAM ports and the border between a unit's control and its core."""

from amaranth import unsigned
from amaranth.lib import data, enum, wiring
from amaranth.lib.wiring import In, Out

from dovetail.isa.config.resolved import Config
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
    or more cycles later sees them."""

    def __init__(self, config: Config) -> None:
        self.config = config
        super().__init__(
            {
                "en": Out(1),
                "addr": Out((config.sram - 1).bit_length()),
                "size": Out(range(config.word_bytes + 1)),
                "data": Out(8 * config.word_bytes),
            }
        )


class Span(data.StructLayout):
    """If ``valid``, the bytes of SRAM from ``start`` to before ``end``."""

    def __init__(self, config: Config) -> None:
        super().__init__({"start": range(config.sram), "end": range(config.sram + 1), "valid": 1})


def sources(config: Config, unit: Unit) -> int:
    """How many spans an operation of the unit reads at most, without the one that it writes as well: who else writes
    there needs the same bank's write port."""
    if unit == Unit.VECTOR:
        return config.vector + any(row.reads_b for row in built(config, unit))
    return {Unit.LOAD: 0, Unit.ARRAY: 2 + config.matmul, Unit.STORE: 1}[unit]


def targets(config: Config, unit: Unit) -> int:
    """How many spans an operation of the unit writes."""
    return {Unit.LOAD: 1, Unit.ARRAY: 1, Unit.VECTOR: int(config.vector), Unit.STORE: 0}[unit]


def spans(config: Config) -> dict[str, wiring.Member]:
    """Members ``sources`` and ``target``: what an operation reads and writes, for units of every kind. A unit drives as
    many as it has (:func:`sources`, :func:`targets`)."""
    return {
        "sources": Out(Span(config)).array(max(sources(config, unit) for unit in Unit)),
        "target": Out(Span(config)),
    }


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


class ConfigPort(wiring.Signature):
    """Writes a unit's registers: with ``en``, ``value`` to the one at ``index``; ``clear`` zeroes all."""

    def __init__(self) -> None:
        super().__init__({"clear": Out(1), "en": Out(1), "index": Out(6), "value": Out(32)})


class Core(wiring.Signature):
    """Border between unit control (this side) and the core that does a unit's work.

    Control pulses ``start`` with ``op`` and ``fetch`` in the pop cycle t (``address`` holds the entry's value).
    In cycle v = t + CHECK the core shows ``cause`` (static checks; 0 if none); control answers in the same cycle with
    ``go`` when the instruction may work, from v + 1 on. Without ``go`` the core returns to idle. The core pulses
    ``done`` in its end cycle, with ``error`` if the bus answered with an error. ``cfg`` writes its registers.
    From cycle v - 1 to the end the core shows the bank masks it claims (``reads``, ``writes``) and what it reads and
    writes (``sources``, ``target``); of a region beyond the SRAM the low bits.
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
                "go": Out(1),
                "cause": In(4),
                "reads": In(config.banks),
                "writes": In(config.banks),
                **{name: member.flip() for name, member in spans(config).items()},
                "done": In(1),
                "error": In(1),
            }
        )
