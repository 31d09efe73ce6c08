"""Energy of a run: events times the energy of each, by a table that names its source (docs/energy.md).

The energy of a compiled network, by component and by layer, is an estimate; it says what it counts and what not.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import pairwise
from math import log
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dovetail.isa.common.html import html_table
from dovetail.isa.common.toml import parse_toml
from dovetail.isa.config.resolved import Config
from dovetail.isa.instructions.table import PAGE_BYTES, WORD_BYTES
from dovetail.sw.analysis.cost.activity import EVENTS, activity_of, layer_activity
from dovetail.sw.errors import DovetailError

if TYPE_CHECKING:
    from dovetail.sw.runtime.compiled_network import CompiledNetwork

FOLDER = Path(__file__).parent / "tables"
TABLES = tuple(sorted(path.stem for path in FOLDER.glob("*.toml")))
"""Tables that come with Dovetail, by name."""
DEFAULT_TABLE = "45nm"

ACCUMULATOR_BYTES = 512
"""A lane's accumulators: two buffers of 64 words of 32 bits."""
PAGE_BUFFER_BYTES = 2 * PAGE_BYTES
MAX_PJ = 1e12
"""The most that a table may say: a joule."""
MAX_POWER = 4
"""Of a memory's size: the steepest law that its energy may follow."""
MAX_BITS = 1 << 16
MAX_BYTES = 1 << 40
WIDE_PRODUCTS = 2
"""Products of 32-bit numbers that a lane of the vector unit forms per result."""
ERROR = "error not known, nothing was measured"
"""Of every energy: the tables are of published figures, no chip was measured."""
COMPONENTS: Mapping[str, str] = {
    "array": "products and sums of the array",
    "accumulators": "reads, writes and sums of the accumulators",
    "requantise": "the array's requantiser",
    "vector": "the vector unit",
    "sram": "accesses of the SRAM",
    "dram": "what is moved from and to system memory",
    "instructions": "fetches, and their page buffers",
    "cycles": "leakage and clock, where the table has them",
}
"""Parts of `Energy`, and what they are of."""
NOT_COUNTED = ("the host", "registers, control and wires", "the clock tree and leakage")
"""What no table has figures for, the last only where its ``[cycle]`` is 0."""


class EnergyError(DovetailError):
    """An energy table breaks a rule; the text names the key, the rule and the value."""


@dataclass(frozen=True)
class Energy:
    """Energy of one inference in pJ. ``parts``: by name, adding up to ``total``."""

    total: float
    parts: Mapping[str, float]


@dataclass(frozen=True)
class EnergyTable:
    """Energies in pJ.

    Parameters
    ----------
    name, technology, source: what the table is called, what it is true for, and who says so.
    multiply, add, multiply_wide: product of two int8, sum and product of two 32-bit integers.
    dram_byte: a byte from or to system memory.
    sram_bits, sram: access of so many bits: (bytes of the memory, pJ), by size.
    cycle_multiplier, cycle_sram_byte: per cycle, multiplier and byte, whatever happens.
    """

    name: str
    technology: str
    source: str
    multiply: float
    add: float
    multiply_wide: float
    dram_byte: float
    sram_bits: int
    sram: tuple[tuple[int, float], ...]
    cycle_multiplier: float = 0.0
    cycle_sram_byte: float = 0.0

    def access(self, size: int, bits: int) -> float:
        """An access of ``bits`` bits to a memory of ``size`` bytes.

        A power law of the size between two points of the table, and beyond the last ones the same law as there;
        proportional to the bits.
        """
        points = self.sram
        if len(points) == 1:
            return points[0][1] * bits / self.sram_bits
        n = next((n for n, (upper, _) in enumerate(points[1:-1]) if size <= upper), len(points) - 2)
        low, at_low = points[n]
        grown: float = (size / low) ** _power(points[n], points[n + 1])
        return at_low * grown * bits / self.sram_bits


def load_table(source: str | Path) -> EnergyTable:
    """A table that comes with Dovetail (`TABLES`), by name, or a TOML file. Raises `EnergyError`."""
    path = FOLDER / f"{source}.toml" if str(source) in TABLES else Path(source)
    try:
        data = parse_toml(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise EnergyError(
            f"{source}: energy table must be a TOML file or one of {', '.join(TABLES)} ({error.strerror})"
        ) from None
    except ValueError as error:  # of TOML, of its encoding, or a path that no file has
        raise EnergyError(f"{source}: energy table must be TOML: {error}") from None
    try:
        return table_of(data)
    except EnergyError as error:
        raise EnergyError(f"{source}: {error}") from None


def table_of(data: Mapping[str, Any]) -> EnergyTable:
    """A table from what its TOML says. Raises `EnergyError`."""
    _known(data, "", ("name", "technology", "source", "pj", "sram", "cycle"))
    pj, sram, cycle = (_table(data, key) for key in ("pj", "sram", "cycle"))
    _known(pj, "pj.", ("multiply", "add", "multiply_wide", "dram_byte"))
    _known(sram, "sram.", ("bits", "bytes", "pj"))
    _known(cycle, "cycle.", ("multiplier", "sram_byte"))
    return EnergyTable(
        name=_text(data, "name"),
        technology=_text(data, "technology"),
        source=_text(data, "source"),
        multiply=_energy(pj, "pj.", "multiply"),
        add=_energy(pj, "pj.", "add"),
        multiply_wide=_energy(pj, "pj.", "multiply_wide"),
        dram_byte=_energy(pj, "pj.", "dram_byte"),
        sram_bits=_bits(sram),
        sram=_points(sram),
        cycle_multiplier=_energy(cycle, "cycle.", "multiplier", 0.0),
        cycle_sram_byte=_energy(cycle, "cycle.", "sram_byte", 0.0),
    )


def energy_of(config: Config, activity: Mapping[str, int], cycles: int, table: EnergyTable) -> Energy:
    """Energy of a run of ``cycles`` cycles with the given `dovetail.sw.analysis.cost.activity` counts."""
    word = table.access(config.bank_bytes, 8 * config.word_bytes)
    sum_ = table.access(ACCUMULATOR_BYTES, 32)
    line = table.access(PAGE_BUFFER_BYTES, 8 * WORD_BYTES)
    beats = activity["dram_read_beats"] + activity["dram_write_beats"]
    accesses = sum(count for name, count in activity.items() if name.startswith("sram_"))
    fetched = activity["fetched_words"]
    parts = {
        "array": activity["multiplies"] * (table.multiply + table.add),
        "accumulators": activity["accumulates"] * table.add + activity["accumulator_visits"] * 2 * sum_,
        "requantise": activity["requantises"] * (table.multiply_wide + 2 * table.add),
        "vector": activity["vector_taps"] * table.add
        + activity["vector_results"] * (WIDE_PRODUCTS * table.multiply_wide + 2 * table.add),
        "sram": accesses * word,
        "dram": beats * config.bus_bytes * table.dram_byte,
        "instructions": fetched * (WORD_BYTES * table.dram_byte + 2 * line),
        "cycles": cycles * (config.macs_per_cycle * table.cycle_multiplier + config.sram * table.cycle_sram_byte),
    }
    return Energy(sum(parts.values()), parts)


def _known(data: Mapping[str, Any], prefix: str, names: tuple[str, ...]) -> None:
    for name in data:
        if name not in names:
            known = ", ".join(prefix + n for n in names)
            raise EnergyError(f"{prefix}{name} is not a key of an energy table; known: {known}")


def _table(data: Mapping[str, Any], key: str) -> Mapping[str, Any]:
    value = data.get(key, {})
    if not isinstance(value, dict):
        raise EnergyError(f"{key} must be a table, not {value!r}")
    return value


def _shown(value: Any) -> str:
    return "missing" if value is None else repr(value)


def _text(data: Mapping[str, Any], key: str) -> str:
    value = data.get(key)
    if not isinstance(value, str) or not value:
        raise EnergyError(f"{key} must be a text, not {_shown(value)}")
    return value


def _number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and 0 <= value <= MAX_PJ


def _whole(value: Any, most: int) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and 0 < value <= most


def _energy(data: Mapping[str, Any], prefix: str, key: str, default: float | None = None) -> float:
    value = data.get(key, default)
    if not _number(value):
        raise EnergyError(f"{prefix}{key} must be a number of pJ, 0..{MAX_PJ:g}, not {_shown(value)}")
    return float(value)


def _bits(sram: Mapping[str, Any]) -> int:
    value: Any = sram.get("bits")
    if not _whole(value, MAX_BITS):
        raise EnergyError(f"sram.bits must be the bits of an access, 1..{MAX_BITS}, not {_shown(value)}")
    return int(value)


def _points(sram: Mapping[str, Any]) -> tuple[tuple[int, float], ...]:
    sizes, energies = sram.get("bytes"), sram.get("pj")
    if not isinstance(sizes, list) or not sizes or not all(_whole(size, MAX_BYTES) for size in sizes):
        raise EnergyError(f"sram.bytes must be a list of integers, 1..{MAX_BYTES}, not {_shown(sizes)}")
    if not isinstance(energies, list) or not all(_number(energy) and energy > 0 for energy in energies):
        raise EnergyError(f"sram.pj must be a list of numbers above 0, up to {MAX_PJ:g}, not {_shown(energies)}")
    if len(sizes) != len(energies):
        raise EnergyError(f"sram.pj must have as many numbers as sram.bytes, {len(sizes)}, not {len(energies)}")
    if sorted(set(sizes)) != sizes:
        raise EnergyError(f"sram.bytes must grow from one to the next, not {sizes}")
    points = tuple(zip(sizes, map(float, energies), strict=True))
    for one, other in pairwise(points):
        if abs(_power(one, other)) > MAX_POWER:
            raise EnergyError(
                f"sram.pj must change by at most the size to the power of {MAX_POWER}, not from {one[1]:g} pJ of"
                f" {one[0]} bytes to {other[1]:g} pJ of {other[0]}"
            )
    return points


def _power(low: tuple[int, float], high: tuple[int, float]) -> float:
    """Of the size, that the energy follows from one point of a table to the next."""
    return log(high[1] / low[1]) / log(high[0] / low[0])


@dataclass(frozen=True)
class LayerEnergy:
    """A layer's share, in pJ; ``energy.parts`` by `COMPONENTS`."""

    name: str
    kind: str
    energy: Energy


@dataclass(frozen=True)
class EnergyReport:
    """Energy of one inference in pJ.

    ``whole`` is that of the layers and of ``instructions`` (fetches, which belong to no layer), part by part.
    """

    table: EnergyTable
    whole: Energy
    instructions: float
    layers: tuple[LayerEnergy, ...]

    def __repr__(self) -> str:
        most = ", ".join(f"{name} {share:.0%}" for name, share in list(self.shares.items())[:3])
        return f"<EnergyReport {_micro(self.whole.total):,.4g} µJ by {self.table.name}, estimated: {most}>"

    def _repr_html_(self) -> str:
        rows = [
            (name, f"{_micro(self.whole.parts[name]):,.4g}", f"{share:.1%}", COMPONENTS[name])
            for name, share in self.shares.items()
        ]
        title = f"{_micro(self.whole.total):,.4g} µJ by {self.table.name}, estimated"
        note = f"{ERROR}; not counted: {', '.join(self.not_counted)}"
        return html_table(title, ("component", "µJ", "share", "what it is"), "lrrl", rows, note)

    @property
    def not_counted(self) -> tuple[str, ...]:
        """What is not in the total."""
        table = self.table
        return NOT_COUNTED[:-1] if table.cycle_multiplier or table.cycle_sram_byte else NOT_COUNTED

    @property
    def shares(self) -> dict[str, float]:
        """Part of the total by component, the most first; those with none are left out."""
        most = sorted(self.whole.parts.items(), key=lambda item: -item[1])
        return {name: pj / self.whole.total for name, pj in most if pj}

    def to_dict(self) -> dict[str, Any]:
        """What JSON can express, in µJ."""
        return {
            "unit": "µJ",
            "table": self.table.name,
            "error": ERROR,
            "total": _micro(self.whole.total),
            "components": {name: _micro(pj) for name, pj in self.whole.parts.items()},
            "instructions": _micro(self.instructions),
            "layers": [
                {
                    "name": layer.name,
                    "kind": layer.kind,
                    "total": _micro(layer.energy.total),
                    "components": {name: _micro(pj) for name, pj in layer.energy.parts.items()},
                }
                for layer in self.layers
            ],
            "not_counted": list(self.not_counted),
        }


def energy_report(compiled: CompiledNetwork, table: EnergyTable | None = None) -> EnergyReport:
    """The energy of one inference; ``table``: the one that comes with Dovetail when left out.

    Raises DovetailError for the microcoded accelerator, whose events are not counted.
    """
    table = table or load_table(DEFAULT_TABLE)
    config, report = compiled.config, compiled.report()
    activity = activity_of(compiled)
    layers = tuple(
        LayerEnergy(layer.name, layer.kind, energy_of(config, events, layer.cycles, table))
        for layer, events in zip(report.layers, layer_activity(compiled), strict=True)
    )
    fetches = dict.fromkeys(EVENTS, 0) | {"fetched_words": activity["fetched_words"]}
    return EnergyReport(
        table, energy_of(config, activity, report.cycles, table), energy_of(config, fetches, 0, table).total, layers
    )


def _micro(pj: float) -> float:
    return pj * 1e-6
