"""Results as flat records: the lines of results.csv and of ``--json``."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from dovetail.flows.explore.results.frame import Record
from dovetail.flows.explore.results.row import Row, energy_parts, known_of
from dovetail.flows.explore.space.deployment import Deployment, parameters_of
from dovetail.flows.explore.space.design_space import Space
from dovetail.flows.explore.space.metrics import area_doubt
from dovetail.sw.analysis.cost.energy import COMPONENTS

PLAN = {"plan_cycles": "plan_cycles", "alone_cycles": "alone", "lost_cycles": "lost", "job_cycles": "worked"}
"""Columns of a plan of a system, and what they are of :class:`~dovetail.flows.explore.pricing.cost.SystemCost`."""


def records_of(space: Space, rows: Sequence[Row], networks: Sequence[str]) -> list[Record]:
    """A record per row, all with the same keys: parameters, metrics, counts, verdicts.

    ``networks``: names of the space's workloads. The counts of several are told apart by these, and by their places
    where two have the same name (a file with inputs of two sizes). What depends on the machine, such as seconds, is
    left out: a sweep that was interrupted gives the same records.
    """
    kinds = [list(dict.fromkeys(k for row in rows if row.costs for k in row.costs[i].kinds))
             for i in range(len(networks))]  # fmt: skip
    names = [name if networks.count(name) == 1 else f"{name} {place}" for place, name in enumerate(networks, 1)]
    return [_record(space, row, names, kinds) for row in rows]


def _record(space: Space, row: Row, networks: Sequence[str], kinds: Sequence[Sequence[str]]) -> Record:
    record: Record = {"number": row.number, "network": " + ".join(networks), "tiling": space.tiling}
    record["effort"] = space.effort
    columns, built_in = space.columns, space.metrics_built_in
    record |= parameters_of(row.config) if row.config else {name: row.axes.get(name, "") for name in columns}
    record["config_hash"] = f"{row.config.hash:016x}" if row.config else ""
    record["clock"] = plain(row.clock)
    record |= {name: plain(row.values.get(name, "")) for name in built_in if name not in columns}
    parts = energy_parts(space, row.config, row.costs) if row.config and row.costs else {}
    record |= {f"energy_{name}": plain(parts[name]) if parts else "" for name in COMPONENTS}
    record |= _doubts(row)
    record |= {name: plain(row.values.get(name, "")) for name in space.known if name not in built_in}
    for index, network in enumerate(networks):
        cost = row.costs[index] if row.costs else None
        before = f"{network}." if len(networks) > 1 else ""
        names = ("cycles", "macs", "bound_cycles", "read_bytes", "write_bytes")
        record |= {f"{before}{name}": getattr(cost, name) if cost else "" for name in names}
        if isinstance(space.base, Deployment):
            system = cost.system if cost else None
            record |= {f"{before}{name}": getattr(system, of) if system else "" for name, of in PLAN.items()}
        host = cost.host_cycles if cost else None
        record[f"{before}host_cycles"] = "" if host is None else plain(space.host_cost.at(host, row.clock))
        record |= {
            f"{before}cycles_{kind.replace(' ', '_')}": cost.kinds.get(kind, 0) if cost else "" for kind in kinds[index]
        }
    record |= _slacks(space, row)
    verdicts = {"feasible": row.feasible, "front": row.front, "confirmed": row.confirmed, "error": row.error}
    return record | {name: int(v) if isinstance(v, bool) else v for name, v in verdicts.items()}


def _doubts(row: Row) -> Record:
    """The error of the estimated area as a share, or "unknown" outside of what was measured, and where that is; the
    smallest part with room, or "none". Tables of energies state no error."""
    if not row.values or row.config is None:
        return dict.fromkeys(("area_error", "area_outside", "part", "energy_error"), "")
    doubt = area_doubt(row.config)
    error = "unknown" if doubt.error is None else doubt.error
    return {
        "area_error": error,
        "area_outside": "; ".join(doubt.outside),
        "part": doubt.part or "none",
        "energy_error": "unknown" if "energy" in row.values else "",
    }


def _slacks(space: Space, row: Row) -> Record:
    """Room of each constraint, as a share of its limit."""
    slacks: Record = {}
    for rule in space.all_constraints:
        slack = rule.slack(known_of(space, row.number, row.config, row.values)) if row.values and row.config else None
        slacks[f"slack of {rule.text}"] = "" if slack is None else plain(float(slack))
    return slacks


def plain(value: Any) -> Any:
    """A number for tables: integers without a point, others with nine digits."""
    if not isinstance(value, float):
        return value
    return int(value) if value.is_integer() else float(f"{value:.9g}")
