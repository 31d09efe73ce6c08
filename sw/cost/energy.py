"""Energy of a run: events times the energy of each, by a table that says where its figures come from."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from dovetail.isa.config import Config


@dataclass(frozen=True)
class Energy:
    """Energy of one inference in pJ. ``parts``: by name, adding up to ``total``."""

    total: float
    parts: Mapping[str, float]


@dataclass(frozen=True)
class EnergyTable:
    """Energies of events. ``name``: what the table is called, ``technology`` and ``source``: what it is true for."""

    name: str
    technology: str
    source: str


def load_table(source: str | Path) -> EnergyTable:
    """A table that comes with Dovetail (`TABLES`), by name, or a TOML file. Raises DovetailError with the key."""
    raise NotImplementedError(source)


def energy_of(config: Config, activity: Mapping[str, int], cycles: int, table: EnergyTable) -> Energy:
    """Energy of a run of ``cycles`` cycles with the given `dovetail.sw.cost.activity` counts."""
    raise NotImplementedError(config)
