"""The writing side of a result store: one sweep, point by point."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from types import TracebackType
from typing import Any, Self

from dovetail.flows.explore.pricing.cost import Outcome
from dovetail.flows.explore.pricing.evaluation import version
from dovetail.flows.explore.space import space_json
from dovetail.flows.explore.space.deployment import Design
from dovetail.flows.explore.space.design_space import Point, Space
from dovetail.flows.explore.space.networks import SpaceNetwork
from dovetail.flows.explore.store.lock import SweepLock
from dovetail.flows.explore.store.result_store import Store, Sweep, now, outcome_of
from dovetail.isa.config.given import MemoryTiming
from dovetail.sw.compiler.partition.host_cost import default_host


@dataclass(frozen=True)
class Known:
    """What the store has for a point.

    ``outcomes``: by the hash of the network, those of this compiler and options; ``outdated``: whether it has one that
    another version of the compiler made, and none of this one.
    """

    outcomes: Mapping[str, Outcome]
    outdated: bool


class Recorder:
    """Keeps a sweep in a store. What a method was given is safe when it returns, even if the process is killed.

    Parameters
    ----------
    store: open for writing.
    space: of the sweep.
    networks: of the space's workloads, in their order.
    total: points that the search will look at, 0 if unknown.
    resumed: the sweep to continue, if it had the same networks, options and compiler; otherwise a new one begins.

    Raises
    ------
    StoreError: another sweep is being kept in this store, or it cannot be written; the methods as well.
    """

    def __init__(
        self, store: Store, space: Space, networks: Sequence[SpaceNetwork], total: int, resumed: Sweep | None = None
    ) -> None:
        self._file = store.database
        self._options = options_of(space)
        self._lock = SweepLock(store.path)
        try:
            with self._file.transaction() as file:
                self._networks = {network.hash: _network_id(file, network) for network in networks}
                ids = tuple(self._networks[network.hash] for network in networks)
                same = resumed and (resumed.networks, resumed.options, resumed.version) == (
                    ids,
                    self._options,
                    version(),
                )
                self.sweep = resumed.id if resumed and same else self._begin(file, space, ids, total)
        except BaseException:
            self._lock.release()
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._lock.release()

    def visit(self, points: Sequence[Point]) -> list[Known]:
        """Note that the sweep looks at these points, and see what is known of them."""
        with self._file.transaction() as file:
            return [self._visit(file, point) for point in points]

    def put(self, network: str, config: Design, outcome: Outcome) -> None:
        """Keep an outcome; ``network``: its hash."""
        cost = None if outcome.cost is None else json.dumps(outcome.cost.to_dict())
        with self._file.transaction() as file:
            key = self._networks[network], configuration_id(file, config), self._options, version()
            values = (*key, cost, outcome.error, outcome.lost, outcome.seconds)
            file.execute(
                "INSERT OR REPLACE INTO results (network, configuration, options, version, cost, error, lost, seconds)"
                " VALUES (?, ?, ?, ?, ?, ?, ?, ?)",
                values,
            )

    def finish(self) -> None:
        """Note that the search has come to its end."""
        with self._file.transaction() as file:
            file.execute("UPDATE sweeps SET finished = ? WHERE id = ?", (now(), self.sweep))

    def _begin(self, file: sqlite3.Connection, space: Space, networks: Sequence[int], total: int) -> int:
        values = (space_json.dump(space), json.dumps(networks), self._options, version(), total, now())
        cursor = file.execute(
            "INSERT INTO sweeps (space, networks, options, version, total, started) VALUES (?, ?, ?, ?, ?, ?)", values
        )
        return int(cursor.lastrowid or 0)

    def _visit(self, file: sqlite3.Connection, point: Point) -> Known:
        configuration = None if point.config is None else configuration_id(file, point.config)
        values = (self.sweep, point.number, configuration)
        file.execute("INSERT OR IGNORE INTO visits (sweep, number, configuration) VALUES (?, ?, ?)", values)
        outcomes: dict[str, Outcome] = {}
        others = 0
        for name, network in self._networks.items():
            found = file.execute(
                "SELECT version = ? AS ours, cost, error, lost, seconds FROM results"
                " WHERE network = ? AND configuration = ? AND options = ? ORDER BY ours DESC",
                (version(), network, configuration, self._options),
            ).fetchall()
            if found and found[0][0] and not found[0][3]:
                with self._file.content():
                    outcomes[name] = outcome_of(*found[0][1:])
            elif any(not ours for ours, *_ in found):
                others += 1
        return Known(outcomes, others > 0)


def options_of(space: Space) -> str:
    """JSON of what the compiler is told in a space, by which results are found again."""
    options: dict[str, Any] = {"effort": space.effort, "tiling": space.tiling}
    if space.host_cost != default_host():
        options["host_cost"] = asdict(space.host_cost)
    if space.keep_weights:
        options["keep_weights"] = True
    return json.dumps(options, sort_keys=True)


def _network_id(file: sqlite3.Connection, network: SpaceNetwork) -> int:
    values = (network.hash, network.name, network.source)
    file.execute("INSERT OR IGNORE INTO networks (hash, name, source) VALUES (?, ?, ?)", values)
    return int(file.execute("SELECT id FROM networks WHERE hash = ?", values[:1]).fetchone()[0])


def configuration_id(file: sqlite3.Connection, config: Design) -> int:
    """The id of a configuration with its memory timing in a store, which has it from then on."""
    memory = config.memory
    text = "/".join(map(str, vars(memory).values())) if isinstance(memory, MemoryTiming) else repr(memory)
    key = f"{config.hash:016x}", text
    find = "SELECT id FROM configurations WHERE hash = ? AND memory = ?"
    if found := file.execute(find, key).fetchone():
        return int(found[0])
    values = (*key, json.dumps(config.to_dict()))
    file.execute("INSERT INTO configurations (hash, memory, parameters) VALUES (?, ?, ?)", values)
    return int(file.execute(find, key).fetchone()[0])
