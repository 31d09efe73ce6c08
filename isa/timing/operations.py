"""What the timing engine must know of operations: durations, checks, claims and bus errors.

:class:`Rules` has them one by one, :class:`Operations` all of a program at once, as arrays: a column holds one
register's values, one element per operation of a unit, in program order.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import product, repeat
from typing import cast, overload

import numpy as np
import numpy.typing as npt

from dovetail.isa.config.resolved import Config
from dovetail.isa.instructions.checks import (
    INDEX,
    READS,
    REGIONS,
    Region,
    View,
    check,
    claim,
    columns_of,
    failures,
    in_its_own_way,
    multiplier_of,
    pairs_of,
    regions,
    result_pairs_of,
    rows_of,
    sets_of,
    share_byte,
    skip_of,
)
from dovetail.isa.instructions.table import INSTRUCTIONS, PAGE_BYTES, REGISTERS, Cause, Op, Unit, unit_of
from dovetail.isa.timing.array import NOTHING, Free, array_duration, array_durations, matrix_reads
from dovetail.isa.timing.core import engine
from dovetail.isa.timing.depthwise import depthwise_duration, depthwise_durations
from dovetail.isa.timing.dma import BOUNDARY, Shape, last_beat, read_duration, write_duration
from dovetail.isa.timing.memory import Broken, answers
from dovetail.isa.timing.microcoded.durations import microcoded_duration, verified
from dovetail.isa.timing.sequencer import CHECK, UNIT_OF, Fields
from dovetail.isa.timing.timeline import FETCH, Int64s
from dovetail.isa.timing.vector import groups_of, vector_duration, vector_reads


@dataclass(frozen=True)
class Rule:
    """What the engine must know of an operation with given registers."""

    duration: int
    cause: Cause
    reads: int  # banks
    writes: int
    sources: tuple[Region, ...] = ()
    targets: tuple[Region, ...] = ()

    def races(self, other: "Rule") -> bool:
        """Whether one of the two writes bytes of SRAM that the other reads."""
        pairs = (*product(self.targets, other.sources), *product(other.targets, self.sources))
        return any(share_byte(*pair) for pair in pairs)


_MAX_RULES = 1 << 14
_MAX_CONFIGURATIONS = 8


class Rules:
    """Durations, checks and claims of operations for one configuration, remembered by their registers."""

    def __init__(self, config: Config) -> None:
        self.config = config
        self.known: dict[tuple[int, tuple[int, ...]], Rule] = {}
        self.durations: dict[bytes, int] = {}
        """By opcode and whatever registers durations depend on, 32 bits each."""
        self.fetch = read_duration(config, Shape(0, 1, 1, 0, 0, PAGE_BYTES))

    def find(self, key: tuple[int, tuple[int, ...]]) -> Rule:
        """The rule for (opcode, registers); a new one is remembered."""
        op = Op(key[0])
        unit = INSTRUCTIONS[op].unit
        assert unit is not None
        view = View(unit, key[1])
        cause = check(self.config, op, view)
        claims = None if cause else claim(self.config, op, view)
        if claims is None or claims.twice:
            cause = cause or Cause.BANK_CONFLICT
            rule = Rule(verified(op, cause) if self.config.serial else CHECK, cause, 0, 0)
        else:
            spaces, cycles = regions(op, view), duration(self.config, op, view)
            rule = Rule(cycles, Cause.NONE, claims.reads, claims.writes, spaces.reads, spaces.writes)
        if len(self.known) >= _MAX_RULES:
            self.known.clear()
        self.known[key] = rule
        return rule

    def remember(self, key: bytes, cycles: int) -> int:
        """Keep a duration; gives it back."""
        if len(self.durations) >= _MAX_RULES:
            self.durations.clear()
        self.durations[key] = cycles
        return cycles


_rules: dict[Config, Rules] = {}


def rules_of(config: Config) -> Rules:
    rules = _rules.get(config)
    if rules is None:
        if len(_rules) >= _MAX_CONFIGURATIONS:
            _rules.clear()
        rules = _rules[config] = Rules(config)
    return rules


def forget() -> None:
    """Drop every duration that is remembered, for measurements."""
    _rules.clear()
    for rule in (array_durations, depthwise_durations, last_beat, vector_duration):
        rule.cache_clear()


def duration(config: Config, op: Op, view: View, free: Free = NOTHING) -> int:
    """Cycles from start to end of an operation that passes its checks; ``free``: what takes the array no time."""
    if config.serial:
        return microcoded_duration(config, op, view)
    row = INSTRUCTIONS[op]
    if row.moves:
        return (read_duration if row.unit == Unit.LOAD else write_duration)(config, Shape.of(view))
    if row.unit == Unit.VECTOR:
        groups, reads = groups_of(config, op, view), vector_reads(op, view)
        rounding = view["MODE", "rounding"]
        return vector_duration(
            config, op, groups=groups, blocks=view["BLOCKS", "count"], reads=reads, rounding=rounding
        )
    if row.depthwise:
        return depthwise_duration(
            config,
            kh=view["GEOMETRY", "kh"],
            kw=view["GEOMETRY", "kw"],
            sets=sets_of(op, view),
            slide=view["MODE", "slide"],
            height=view["TILE", "height"],
            width=view["TILE", "width"],
            stripe=view["STRIPE", "pixels"],
            blocks=view["BLOCKS", "count"],
            last=view["BLOCKS", "last"],
            accumulate=bool(view["MODE", "accumulate"]),
            int32=bool(view["MODE", "int32"]),
            multiplier=multiplier_of(op, view),
            columns=columns_of(config, op, view),
            rows=rows_of(op, view),
            skip=skip_of(op, view),
            free=free,
        )
    reads = matrix_reads(config, transposed=bool(view["B_FORM", "transposed"])) if row.matrix else 0
    return array_duration(
        config,
        taps=view.taps,
        kc=view["KC", "blocks"],
        group=view["KC", "group"] + 1,
        pixels=view.pixels,
        stripe=view["STRIPE", "pixels"],
        blocks=view["BLOCKS", "count"],
        last=view["BLOCKS", "last"],
        accumulate=bool(view["MODE", "accumulate"]),
        matrix_rows=reads,
        pairs=pairs_of(config, op, view),
        result_pairs=result_pairs_of(config, op, view),
        free=free,
    )


def bus_error(op: int, registers: Sequence[int], base: int, memory_bytes: int, broken: Broken = ()) -> bool:
    """Whether a transfer leaves the ``memory_bytes`` that answer, from address 0 on, or meets a ``broken`` part."""
    shape = Shape.of(View(unit_of(op), registers), base)
    return not all(answers(start, shape.length, memory_bytes, broken) for start in shape.starts())


_Rows = list[tuple[int, ...]]

_PLACES = {
    unit: tuple(
        r.index
        for name, r in registers.items()
        if name.startswith("SRAM_") or (name.endswith("_ADDR") and name != "MEM_ADDR")
    )
    for unit, registers in REGISTERS.items()
}
"""Registers that no duration depends on: where regions of SRAM begin, and all that transfers have for SRAM."""


class UnitOperations:
    """The operations of one unit.

    Parameters
    ----------
    unit
        The unit.
    places
        Their numbers among all operations of the program.
    ops
        Their opcodes.
    columns
        The unit's registers, in the order of their index.
    """

    def __init__(self, unit: Unit, places: Int64s, ops: Int64s, columns: Sequence[Int64s]) -> None:
        self.unit, self.places, self.ops, self.columns = unit, places, ops, columns

    def rows(self) -> _Rows:
        """The registers of each operation."""
        return list(zip(*(column.tolist() for column in self.columns), strict=True))

    def verify(self, config: Config, causes: Int64s, spaces: Int64s) -> None:
        """Note in ``causes`` and ``spaces``, of all operations of the program, what `Operations` says of its own."""
        mode = INDEX[self.unit].get("MODE")
        kinds = self.ops if mode is None else self.ops | self.columns[mode] << 8
        for kind in np.unique(kinds).tolist():
            members = np.flatnonzero(kinds == kind)
            values: list[Int64s | int] = [column[members] for column in self.columns]
            if mode is not None:
                values[mode] = kind >> 8
            op, view = Op(kind & 0xFF), View(self.unit, cast(Sequence[int], values))
            declared = regions(op, view)
            found, places = np.zeros(len(members), np.int64), self.places[members]
            checks = [*failures(config, op, view), (Cause.BANK_CONFLICT, in_its_own_way(config, declared))]
            for cause, fails in reversed(checks):
                found[fails] = cause
            causes[places] = found
            for number, region in (*enumerate(declared.reads), *enumerate(declared.writes, READS)):
                spaces[places, number] = np.stack(cast(Sequence[Int64s], region), axis=-1)

    def durations(self, rules: Rules, passes: npt.NDArray[np.bool_]) -> Int64s:
        """Cycles of those that pass their checks, `CHECK` of others."""
        columns = [column for index, column in enumerate(self.columns) if index not in _PLACES[self.unit]]
        if self.unit in (Unit.LOAD, Unit.STORE):
            columns[INDEX[self.unit]["MEM_ADDR"]] = columns[INDEX[self.unit]["MEM_ADDR"]] % BOUNDARY
        table = np.stack([self.ops, *columns], axis=1, dtype=np.uint32, casting="unsafe")
        keys: list[bytes] = table.view(f"V{table.itemsize * table.shape[1]}").ravel().tolist()
        known = rules.durations
        cycles = np.fromiter(map(known.get, keys, repeat(-1)), np.int64, len(keys))
        for place in np.flatnonzero(passes & (cycles < 0)).tolist():
            found = known.get(keys[place])
            if found is None:
                view = View(self.unit, [int(column[place]) for column in self.columns])
                found = rules.remember(keys[place], duration(rules.config, Op(int(self.ops[place])), view))
            cycles[place] = found
        return np.where(passes, cycles, CHECK)


class Operations:
    """The operations among a program's ``words``, which the front end dispatches all; one element each.

    ``pcs``, ``ops``, ``units``: word index, opcode, number of the unit.
    """

    def __init__(self, words: npt.NDArray[np.uint64]) -> None:
        code = Fields.of(words).code
        units = UNIT_OF[code]
        self.pcs = np.flatnonzero(units >= 0)
        self.ops, self.units = code[self.pcs].astype(np.int64), units[self.pcs]
        places = [np.flatnonzero(self.units == unit) for unit in Unit]
        columns = [
            np.zeros((len(REGISTERS[unit]), len(mine)), np.int64) for unit, mine in zip(Unit, places, strict=True)
        ]
        engine.registers(words, columns)
        self.of_units = [
            UnitOperations(unit, mine, self.ops[mine], list(columns[unit]))
            for unit, mine in zip(Unit, places, strict=True)
            if len(mine)
        ]

    def __len__(self) -> int:
        return len(self.pcs)

    def registers(self) -> _Rows:
        """The registers of each operation's unit."""
        found: _Rows = [()] * len(self)
        for mine in self.of_units:
            for place, row in zip(mine.places.tolist(), mine.rows(), strict=True):
                found[place] = row
        return found

    def verify(self, config: Config) -> tuple[Int64s, Int64s]:
        """Why operations fail their own checks, conflicts with themselves included, 0 where they pass; and the regions
        that they claim, of shape (operations, `REGIONS`, 2): address and bytes, 0 where there is none; those that they
        read come first."""
        causes, spaces = np.zeros(len(self), np.int64), np.zeros((len(self), REGIONS, 2), np.int64)
        for mine in self.of_units:
            mine.verify(config, causes, spaces)
        return causes, spaces

    def durations(self, rules: Rules, causes: Int64s) -> Int64s:
        """Cycles from start to end."""
        cycles = np.zeros(len(self), np.int64)
        for mine in self.of_units:
            cycles[mine.places] = mine.durations(rules, causes[mine.places] == 0)
        return cycles

    def shapes(self, base: int) -> Int64s:
        """The `Shape` of each transfer, a row each; 0 of what is none. ``base``: what addresses are relative to."""
        shapes = np.zeros((len(self), len(Shape._fields)), np.int64)
        for mine in self.of_units:
            if mine.unit in (Unit.LOAD, Unit.STORE):
                view = View(mine.unit, cast(Sequence[int], mine.columns))
                shapes[mine.places] = np.stack(cast(Sequence[Int64s], Shape.of(view, base)), axis=-1)
        return shapes

    def memory_ends(self) -> Int64s:
        """Of transfers one past the last byte of system memory, from BASE on, if no address wraps; -1 of the others."""
        ends = np.full(len(self), -1)
        for mine in self.of_units:
            if mine.unit in (Unit.LOAD, Unit.STORE):
                ends[mine.places] = Shape.of(View(mine.unit, cast(Sequence[int], mine.columns))).end
        return ends


class Rows(Sequence[tuple[int, ...]]):
    """The registers that the elements of a timeline see, worked out when somebody asks.

    Parameters
    ----------
    operations
        Those of the program.
    ops, pcs
        Of each element the opcode, or `FETCH`, and the word.
    """

    def __init__(self, operations: Operations, ops: Int64s, pcs: Int64s) -> None:
        self._operations, self._ops, self._pcs = operations, ops, pcs

    @cached_property
    def _rows(self) -> _Rows:
        rows, numbers = self._operations.registers(), np.searchsorted(self._operations.pcs, self._pcs)
        return [rows[n] if op != FETCH else () for n, op in zip(numbers.tolist(), self._ops.tolist(), strict=True)]

    def __len__(self) -> int:
        return len(self._ops)

    @overload
    def __getitem__(self, at: int) -> tuple[int, ...]: ...

    @overload
    def __getitem__(self, at: slice) -> _Rows: ...

    def __getitem__(self, at: int | slice) -> tuple[int, ...] | _Rows:
        return self._rows[at]
