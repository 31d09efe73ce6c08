"""Energy of a compiled network by component and by layer: an estimate, with what it counts and what it does not."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from dovetail.isa.common.html import html_table
from dovetail.sw.analysis.cost.activity import EVENTS, activity_of, layer_activity
from dovetail.sw.analysis.cost.energy import DEFAULT_TABLE, Energy, EnergyTable, energy_of, load_table

if TYPE_CHECKING:
    from dovetail.sw.runtime.compiled_network import CompiledNetwork

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
