"""Points of a sweep of systems as files, which other commands take as ``--system``."""

from __future__ import annotations

import json
import shlex
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from dovetail.flows.explore.results.row import Row
from dovetail.flows.explore.space.deployment import Deployment
from dovetail.flows.explore.space.design_space import Space
from dovetail.isa.common.files import write_atomically
from dovetail.isa.common.sizes import format_bytes
from dovetail.isa.config.memory import table_of
from dovetail.sw.compiler.options import MODES

FOLDER, POINT = "systems", "point-{}.toml"


def write_systems(folder: Path, space: Space, rows: Iterable[Row]) -> Path | None:
    """Write a file for each point, and one for each configuration beside it, below ``folder``; those of points of
    earlier sweeps are removed. Returns their folder, None if no point is a system. Raises OSError.
    """
    files: dict[str, str] = {}
    for row in rows:
        if isinstance(row.config, Deployment):
            files |= _files(space, row.number, row.config)
    place = folder / FOLDER
    for old in place.glob(POINT.format("*")):
        if old.name not in files:
            old.unlink()
    if not files:
        return None
    place.mkdir(exist_ok=True)
    for name, text in files.items():
        write_atomically(place / name, text)
    return place


def _files(space: Space, number: int, deployment: Deployment) -> dict[str, str]:
    """The texts of a system's file and of its configurations, by name."""
    system, name = deployment.system, POINT.format(number)
    configs = {config: f"{config.hash:016x}.toml" for config in deployment.configs}
    lines = [f"# Point {number}: {deployment.accelerators}."]
    for workload in space.workloads:
        words = ["dovetail", "run", workload.source, "--system", name, "--effort", str(space.effort)]
        words += [word for of, sizes in workload.shapes.items() for word in ("--shape", f"{of}={_sizes(sizes)}")]
        if deployment.mode != MODES[0]:
            words += ["--mode", deployment.mode, "--inferences", str(deployment.inferences)]
        lines.append(f"# {shlex.join(words)}")
    for part in system.accelerators:
        given = {"config": configs[part.config], "registers": part.registers}
        lines += _table(f"accelerators.{json.dumps(part.name)}", given)
    lines += _table("interconnect", {"bus": system.memory_bus})
    lines += _table("memory", {**table_of(system.memory), "size": format_bytes(system.memory_bytes)})
    lines += _table("host", {"reaction": system.reaction})
    return {name: "\n".join(lines) + "\n"} | {file: config.to_toml() for config, file in configs.items()}


def _sizes(sizes: Iterable[int]) -> str:
    return "x".join(map(str, sizes))


def _table(name: str, values: Mapping[str, Any]) -> list[str]:
    return ["", f"[{name}]", *(f"{key} = {json.dumps(value)}" for key, value in values.items())]
