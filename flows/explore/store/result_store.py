"""The result store: what networks cost on configurations, kept in an SQLite file and read while a sweep writes it."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from functools import lru_cache
from itertools import groupby
from operator import itemgetter
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import dovetail.cosim
import dovetail.hw
from dovetail.flows.explore.pricing.cost import Cost, Outcome
from dovetail.flows.explore.results.row import Row, row_of
from dovetail.flows.explore.results.sweep_results import Results
from dovetail.flows.explore.space import space_json
from dovetail.flows.explore.space.design_space import Point, Space
from dovetail.flows.explore.store.database import Database, StoreError


@dataclass(frozen=True)
class Sweep:
    """A sweep of a store.

    ``networks``: ids in the store, in the order of the space's workloads; ``options``, ``version``: of the compiler;
    ``total``: points that its search will look at, 0 if unknown; ``started``, ``finished``: UTC, the latter empty
    while it runs or after it was stopped.
    """

    id: int
    space: Space
    networks: tuple[int, ...]
    options: str
    version: str
    total: int
    started: str
    finished: str


@dataclass(frozen=True)
class Network:
    """A network of a store; ``hash``: SHA-256 of its bytes, sizes of inputs and external data included."""

    name: str
    source: str
    hash: str


@dataclass(frozen=True)
class Confirmation:
    """What the RTL said about a network on a configuration; ``detail``: the first difference. ``made``: UTC."""

    equal: bool
    detail: str
    made: str


class Store:
    """Results by network, configuration, memory timing, options and version of the compiler.

    Parameters
    ----------
    path: the file.
    write: make it if there is none; else it is only read, also while a sweep writes.

    Raises
    ------
    StoreError: as do all methods when the file is no store, of a newer schema, locked, full or damaged.
    """

    def __init__(self, path: str | Path, *, write: bool = False) -> None:
        self.path = Path(path)
        self.database = Database(self.path, write=write)
        self._rows: dict[int, Row] = {}
        self._rows_of = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Close the file."""
        self.database.close()

    # --- sweeps ------------------------------------------------------------------------------------------------

    def sweeps(self) -> list[Sweep]:
        """Every sweep, the latest last."""
        query = "SELECT id, space, networks, options, version, total, started, finished FROM sweeps ORDER BY id"
        with self.database.content():
            return [_sweep(row) for row in self.database.rows(query)]

    def sweep(self, number: int | None = None) -> Sweep:
        """A sweep by its id, or the latest."""
        found = [sweep for sweep in self.sweeps() if number in (None, sweep.id)]
        if not found:
            wanted = "a sweep" if number is None else f"a sweep {number}"
            raise StoreError(f"{self.path}: store must have {wanted}; start one with `dovetail sweep`")
        return found[-1]

    def results(self, sweep: int | None = None) -> Results:
        """The rows of a sweep (the latest without ``sweep``) that are done by now, in the order of their numbers.

        Cheap to call again: what was read once is remembered.
        """
        of = self.sweep(sweep)
        with self.database.content():
            return self._results(of)

    def _results(self, of: Sweep) -> Results:
        if self._rows_of != of.id:
            self._rows, self._rows_of = {}, of.id
        verdicts = self.confirmed(of.id)
        rows = []
        for number, outcomes in self._outcomes(of):
            if number not in self._rows or self._rows[number].error:  # a point that was lost may have been priced since
                self._rows[number] = row_from(of.space, of.space.point(number), outcomes)
            told = [verdicts.get((number, network)) for network in range(len(of.networks))]
            rows.append(replace(self._rows[number], confirmed=_confirmed(told)))
        return Results(of.space, tuple(rows), of.total).marked()

    def _outcomes(self, sweep: Sweep) -> Iterator[tuple[int, list[Outcome]]]:
        """(number, outcomes of the networks) of the points that are done; no outcomes: there is no configuration."""
        marks = ", ".join("?" * len(sweep.networks))
        query = f"""
            SELECT v.number, v.configuration, r.network, r.cost, r.error, r.lost, r.seconds
            FROM visits v LEFT JOIN results r ON r.configuration = v.configuration AND r.network IN ({marks})
                AND r.options = ? AND r.version = ?
            WHERE v.sweep = ? ORDER BY v.number"""
        found = self.database.rows(query, (*sweep.networks, sweep.options, sweep.version, sweep.id))
        for number, group in groupby(found, key=itemgetter(0)):
            rows = list(group)
            if rows[0][1] is None:
                yield number, []
                continue
            known = {row[2]: row[3:] for row in rows if row[2] is not None}
            if known.keys() >= set(sweep.networks):
                yield number, [outcome_of(*known[network]) for network in sweep.networks]

    def networks(self, sweep: Sweep) -> list[Network]:
        """The networks of a sweep, in the order of its space's workloads."""
        query = "SELECT name, source, hash FROM networks WHERE id = ?"
        with self.database.content():
            return [Network(*self.database.rows(query, (number,))[0]) for number in sweep.networks]

    # --- confirmation on RTL -----------------------------------------------------------------------------------

    def confirm(
        self,
        number: int,
        equal: bool,
        detail: str = "",
        *,
        network: int = 0,
        sweep: int | None = None,
    ) -> None:
        """Keep what the RTL said about a point of a sweep.

        Parameters
        ----------
        number: of the point within the space.
        equal: whether every byte and every cycle was the same; ``detail``: the first difference if not.
        network: which of the space's workloads.
        sweep: its id; the latest without.
        """
        of = self.sweep(sweep)
        found = self.database.rows("SELECT configuration FROM visits WHERE sweep = ? AND number = ?", (of.id, number))
        if not found or found[0][0] is None:
            raise StoreError(f"{self.path}: point must be one with a cost, not {number}")
        values = (of.networks[network], found[0][0], of.options, of.version, equal, detail, hardware(), now())
        with self.database.transaction() as file:
            file.execute("INSERT OR REPLACE INTO confirmations VALUES (?, ?, ?, ?, ?, ?, ?, ?)", values)

    def confirmed(self, sweep: int | None = None) -> Mapping[tuple[int, int], Confirmation]:
        """What today's RTL said about points of a sweep (the latest without), by (number, index of the workload)."""
        of = self.sweep(sweep)
        query = """
            SELECT v.number, c.network, c.equal, c.detail, c.made
            FROM visits v JOIN confirmations c ON c.configuration = v.configuration
            WHERE v.sweep = ? AND c.options = ? AND c.version = ? AND c.hardware = ?"""
        found = self.database.rows(query, (of.id, of.options, of.version, hardware()))
        return {
            (number, index): Confirmation(bool(equal), *told)
            for number, network, equal, *told in found
            for index, own in enumerate(of.networks)
            if own == network
        }


def now() -> str:
    """The time as the store writes it."""
    return datetime.now(UTC).isoformat(" ", "seconds")


def outcome_of(cost: str | None, error: str, lost: int, seconds: float) -> Outcome:
    """An outcome from the columns of a result."""
    return Outcome(None if cost is None else Cost.from_dict(json.loads(cost)), error, bool(lost), seconds)


def _sweep(row: Sequence[Any]) -> Sweep:
    number, space, networks, options, version, total, started, finished = row
    ids = tuple(json.loads(networks))
    return Sweep(number, space_json.load(space), ids, options, version, total, started, finished or "")


def row_from(space: Space, point: Point, outcomes: Sequence[Outcome]) -> Row:
    """The row of a point; ``outcomes`` of the space's workloads, in their order."""
    costs = [outcome.cost for outcome in outcomes if outcome.cost]
    error = next((outcome.error for outcome in outcomes if outcome.error), "")
    return row_of(space, point, costs, error, sum(outcome.seconds for outcome in outcomes))


def _confirmed(told: Sequence[Confirmation | None]) -> str:
    """The verdict on a point from those on its networks."""
    if any(verdict and not verdict.equal for verdict in told):
        return "differs"
    return "equal" if all(told) else ""


@lru_cache(maxsize=1)
def hardware() -> str:
    """Hash of the sources of the RTL and of what runs it: as long as it stays, so do verdicts of a confirmation."""
    digest = hashlib.sha256()
    for package in (dovetail.hw, dovetail.cosim):
        folder = Path(package.__path__[0])
        for path in sorted(p for p in folder.rglob("*") if p.suffix in (".py", ".v", ".cpp", ".h")):
            digest.update(str(path.relative_to(folder)).encode() + b"\0" + path.read_bytes())
    return digest.hexdigest()[:16]
