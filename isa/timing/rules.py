"""What the timing engine must know of an operation: its duration, its failed check or its claims, its bus errors."""

from collections.abc import Sequence
from dataclasses import dataclass

from dovetail.isa.config.resolved import Config
from dovetail.isa.instructions.checks import Region, View, check, claim, input_blocks, multiplier_of, regions
from dovetail.isa.instructions.table import INSTRUCTIONS, PAGE_BYTES, Cause, Op, Unit, unit_of
from dovetail.isa.timing.array import NOTHING, Free, array_duration, array_durations, matrix_reads
from dovetail.isa.timing.dma import last_beat, read_duration, row_addresses, write_duration
from dovetail.isa.timing.memory import ADDRESS_SPACE, Broken, answers
from dovetail.isa.timing.microcoded.durations import microcoded_duration, verified
from dovetail.isa.timing.sequencer import CHECK
from dovetail.isa.timing.vector import vector_duration, vector_reads


@dataclass(frozen=True)
class Rule:
    """What the engine must know of an operation with given registers."""

    duration: int
    cause: Cause
    reads: int  # banks
    writes: int
    top: int = -ADDRESS_SPACE  # past the last byte of system memory, from BASE, if no address wraps
    sources: tuple[Region, ...] = ()
    targets: tuple[Region, ...] = ()

    def races(self, other: "Rule") -> bool:
        """Whether one of the two writes bytes of SRAM that the other reads."""
        for writer, reader in ((self, other), (other, self)):
            for a, n in writer.targets:
                for b, m in reader.sources:
                    if a < b + m and b < a + n:
                        return True
        return False


IDLE = Rule(0, Cause.NONE, 0, 0)
"""Of a unit that does nothing."""


_MAX_RULES = 1 << 14
_MAX_CONFIGURATIONS = 8


class Rules:
    """Durations, checks and claims of operations for one configuration, remembered by their registers."""

    def __init__(self, config: Config) -> None:
        self.config = config
        self.known: dict[tuple[int, tuple[int, ...]], Rule] = {}
        self.durations: dict[tuple[int, ...], int] = {}
        """By opcode and whatever registers durations depend on."""
        self.fetch = read_duration(config, 0, 1, 1, 0, 0, PAGE_BYTES)

    def find(self, key: tuple[int, tuple[int, ...]]) -> Rule:
        """The rule for (opcode, registers); a new one is remembered."""
        op = Op(key[0])
        unit = INSTRUCTIONS[op].unit
        assert unit is not None
        view = View(unit, key[1])
        cause = check(self.config, op, view)
        if cause:
            rule = Rule(self._failed(op, cause), cause, 0, 0)
        else:
            claims = claim(self.config, op, view)
            if claims.twice:
                rule = Rule(self._failed(op, Cause.BANK_CONFLICT), Cause.BANK_CONFLICT, 0, 0)
            else:
                top = memory_end(view) if unit in (Unit.LOAD, Unit.STORE) else -ADDRESS_SPACE
                spaces = regions(op, view)
                rule = Rule(
                    duration(self.config, op, view),
                    Cause.NONE,
                    claims.reads,
                    claims.writes,
                    top,
                    spaces.reads,
                    spaces.writes,
                )
        if len(self.known) >= _MAX_RULES:
            self.known.clear()
        self.known[key] = rule
        return rule

    def _failed(self, op: Op, cause: Cause) -> int:
        """Duration of an operation that fails a check."""
        return verified(op, cause) if self.config.serial else CHECK

    def remember(self, key: tuple[int, ...], cycles: int) -> int:
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
    for rule in (array_duration, array_durations, last_beat, vector_duration):
        rule.cache_clear()


def duration(config: Config, op: Op, view: View, free: Free = NOTHING) -> int:
    """Cycles from start to end of an operation that passes its checks; ``free``: what takes the array no time."""
    if config.serial:
        return microcoded_duration(config, op, view)
    row = INSTRUCTIONS[op]
    if row.moves:
        rule = read_duration if row.unit == Unit.LOAD else write_duration
        return rule(
            config,
            view["MEM_ADDR"] % 4096,
            view["COUNT", "rows"],
            view["COUNT", "planes"],
            view["MEM_ROW_STEP"],
            view["MEM_PLANE_STEP"],
            view["LENGTH"],
        )
    pixels = view["TILE", "height"] * view["TILE", "width"]
    if row.unit == Unit.VECTOR:
        reads = vector_reads(op, view)
        return vector_duration(config, op, pixels=pixels, blocks=view["BLOCKS", "count"], reads=reads)
    reads = matrix_reads(config, transposed=bool(view["B_FORM", "transposed"])) if row.matrix else 0
    return array_duration(
        config,
        depthwise=row.depthwise,
        taps=view["GEOMETRY", "kh"] * view["GEOMETRY", "kw"],
        kc=input_blocks(op, view),
        pixels=pixels,
        stripe=view["STRIPE", "pixels"],
        blocks=view["BLOCKS", "count"],
        last=view["BLOCKS", "last"],
        accumulate=bool(view["MODE", "accumulate"]),
        multiplier=multiplier_of(op, view),
        matrix_rows=reads,
        free=free,
    )


def memory_end(view: View) -> int:
    """Of a transfer one past the last byte of system memory, from BASE on, if no address wraps."""
    planes = (view["COUNT", "planes"] - 1) * view["MEM_PLANE_STEP"]
    rows = (view["COUNT", "rows"] - 1) * view["MEM_ROW_STEP"]
    return view["MEM_ADDR"] + planes + rows + view["LENGTH"]


def bus_error(op: int, registers: Sequence[int], base: int, memory_bytes: int, broken: Broken = ()) -> bool:
    """Whether a transfer leaves the ``memory_bytes`` that answer, from address 0 on, or meets a ``broken`` part."""
    view = View(unit_of(op), registers)
    length = view["LENGTH"]
    rows = row_addresses(
        base + view["MEM_ADDR"],
        view["COUNT", "rows"],
        view["COUNT", "planes"],
        view["MEM_ROW_STEP"],
        view["MEM_PLANE_STEP"],
    )
    return not all(answers(start, length, memory_bytes, broken) for start in rows)
