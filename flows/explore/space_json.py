"""A space as text, for the store: every field of it, nothing that refers to another file's folder or to defaults."""

from __future__ import annotations

import json
from dataclasses import fields
from typing import Any

from dovetail.flows.explore.space import Plan, Space, Workload
from dovetail.isa.config import Config


def dump(space: Space) -> str:
    """One JSON object; equal spaces give equal text."""
    data = {field.name: getattr(space, field.name) for field in fields(space)}
    workloads = [{field.name: getattr(w, field.name) for field in fields(w)} for w in space.workloads]
    data |= {"workloads": workloads, "base": space.base.to_dict(), "search": vars(space.search)}
    return json.dumps(data, default=_plain)


def load(text: str) -> Space:
    """The inverse of :func:`dump`."""
    data = json.loads(text)
    workloads = tuple(
        Workload(**{**w, "shapes": {name: tuple(sizes) for name, sizes in w["shapes"].items()}})
        for w in data["workloads"]
    )
    axes = {name: tuple(map(_frozen, values)) for name, values in data["axes"].items()}
    rest = {name: _frozen(value) for name, value in data.items()}
    base, plan = Config.from_dict(data["base"]), Plan(**data["search"])
    return Space(**{**rest, "workloads": workloads, "base": base, "axes": axes, "search": plan})


def _frozen(value: Any) -> Any:
    return tuple(map(_frozen, value)) if isinstance(value, list) else value


def _plain(value: Any) -> Any:
    if hasattr(value, "items"):
        return dict(value)
    return str(value)
