"""Builds in a result store: what configurations take of a board's part, and how fast they are there."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from dovetail.flows.explore.store.recorder import configuration_id
from dovetail.flows.explore.store.result_store import Store, now
from dovetail.flows.fpga.record import Build

COLUMNS = (
    "board", "part", "memory", "clock", "lut", "ff", "dsp", "bram", "spram", "fmax", "met", "seed", "seeds", "path",
    "design", "tools", "made",
)  # fmt: skip
JSON = ("seeds", "path", "tools")


@dataclass(frozen=True)
class StoredBuild:
    """A build of a store. ``hash``: of the configuration; ``values``: its columns in the table ``builds``, by name."""

    hash: str
    parameters: Mapping[str, Any]
    values: Mapping[str, Any]


def put_build(store: Store, build: Build) -> None:
    """Keep a build, in place of one of the same design by the same tools. Raises StoreError."""
    used, path = build.placed.used, build.placed.path
    values = {
        "board": build.target.board.name,
        "part": build.target.board.part.name,
        "memory": build.memory,
        "clock": build.target.clock,
        **{name: used.get(name, 0) for name in ("lut", "ff", "dsp", "bram", "spram")},
        "fmax": build.fmax,
        "met": build.met,
        "seed": build.seed,
        "seeds": json.dumps({str(seed): fmax for seed, fmax in build.seeds.items()}),
        "path": json.dumps(path.to_dict() if path else {}),
        "design": build.design,
        "tools": json.dumps(dict(build.tools), sort_keys=True),
        "made": now(),
    }
    with store.database.transaction() as file:
        names = ("configuration", *COLUMNS)
        row = (configuration_id(file, build.config), *(values[name] for name in COLUMNS))
        marks = ", ".join("?" * len(names))
        file.execute(f"INSERT OR REPLACE INTO builds ({', '.join(names)}) VALUES ({marks})", row)


def builds(store: Store) -> list[StoredBuild]:
    """All builds, the latest last; none in a store of a schema without them. Raises StoreError."""
    if not store.database.rows("SELECT 1 FROM sqlite_master WHERE name = 'builds'"):
        return []
    columns = ", ".join(f"b.{name}" for name in COLUMNS)
    query = f"""
        SELECT c.hash, c.parameters, {columns} FROM builds b JOIN configurations c ON c.id = b.configuration
        ORDER BY b.id"""
    found = []
    with store.database.content():
        for config_hash, parameters, *row in store.database.rows(query):
            values = dict(zip(COLUMNS, row, strict=True))
            values |= {name: json.loads(values[name]) for name in JSON} | {"met": bool(values["met"])}
            found.append(StoredBuild(config_hash, json.loads(parameters), values))
    return found
