"""A space as the store keeps it: complete, without the files and presets it was made from."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from pathlib import Path
from typing import Any

from dovetail.flows.explore.space.deployment import Deployment
from dovetail.flows.explore.space.design_space import Plan, Space, Workload
from dovetail.isa.config.resolved import Config
from dovetail.sw.analysis.cost.energy import TABLES
from dovetail.sw.compiler.partition.host_cost import HostCost, default_host
from dovetail.sw.frontend import ZOO


def dump(space: Space) -> str:
    """One JSON object. Files are named from the root, so that a sweep can go on in another folder."""
    data = _plain(space)
    for workload in data["workloads"]:
        workload["source"] = _absolute(workload["source"])
    data["search"]["storage"] = _absolute(data["search"]["storage"])
    if data["energy_table"] not in TABLES:
        data["energy_table"] = _absolute(data["energy_table"])
    return json.dumps(data)


def load(text: str) -> Space:
    """The inverse of :func:`dump`."""
    data = {name: _frozen(value) for name, value in json.loads(text).items()}
    workloads = tuple(Workload(**workload) for workload in data["workloads"])
    of = Deployment if "accelerators" in data["base"] else Config
    base, plan = of.from_dict(data["base"]), Plan(**data["search"])
    given = data.get("host_cost")  # stores made before there was one have none
    host_cost = HostCost.from_dict(given) if given else default_host()
    return Space(**{**data, "workloads": workloads, "base": base, "search": plan, "host_cost": host_cost})


def _absolute(file: str) -> str:
    """A file from the root; built-in networks, URLs and nothing as they are."""
    return file if not file or file.startswith(ZOO) or "://" in file else str(Path(file).absolute())


def _plain(value: Any) -> Any:
    if isinstance(value, Config | Deployment):
        return value.to_dict()
    if is_dataclass(value):
        return {field.name: _plain(getattr(value, field.name)) for field in fields(value)}
    if isinstance(value, Mapping):
        return {name: _plain(inner) for name, inner in value.items()}
    return [_plain(inner) for inner in value] if isinstance(value, list | tuple) else value


def _frozen(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {name: _frozen(inner) for name, inner in value.items()}
    return tuple(map(_frozen, value)) if isinstance(value, list) else value
