"""Data for the page of a running sweep: new rows, and explanations of points."""

from __future__ import annotations

import time
from collections import OrderedDict
from pathlib import Path
from secrets import token_hex
from threading import BoundedSemaphore, Lock
from typing import Any

from dovetail.flows.explore.results.layers import explain_point
from dovetail.flows.explore.results.sweep_results import Results
from dovetail.flows.explore.store.result_store import Store, Sweep
from dovetail.flows.report.page.payload import header_of, rows_of, states_of
from dovetail.sw.errors import DovetailError, first_line

LEAST_AGE = 1.0
"""Seconds between two readings of the store, at least."""
REST = 9
"""Pause after reading the store, as a multiple of the time it took: the sweep needs the cores."""
KEPT = 100
"""Explanations that are remembered."""
WAITING = 6
"""Explanations that may be asked for at the same time; they are made one by one."""


class BusyError(DovetailError):
    """Too many explanations are asked for at once."""


class Live:
    """A store's sweep, as it grows. Any thread may use it.

    Parameters
    ----------
    store: open for reading.
    sweep: which one; without, the latest, also if it begins later.

    Raises
    ------
    StoreError: the store has no such sweep; the methods, when it cannot be read.
    """

    def __init__(self, store: Store, sweep: int | None = None) -> None:
        self._store = store
        self._wanted = sweep
        self._token = token_hex(8)
        self._lock = Lock()
        self._fresh_until = 0.0
        self._seen: tuple[Any, ...] = ()
        self._arrived: list[int] = []  # numbers of points as they came; again where a lost one was priced after all
        self._priced: dict[int, int] = {}  # scenarios of the points that came, 0 without a cost
        self._explaining = Lock()
        self._places = BoundedSemaphore(WAITING)
        self._explanations: OrderedDict[tuple[int, int], list[dict[str, Any]]] = OrderedDict()
        self._sweep: Sweep
        self._results: Results
        self._states: dict[str, Any]
        self._refresh()

    @property
    def title(self) -> str:
        """Of the page."""
        return str(header_of(self._results.space, "")["title"])

    def rows(self, after: int, session: str) -> dict[str, Any]:
        """The rows that a page lacks since ``after`` of a session, or all of them for another session."""
        with self._lock:
            self._refresh()
            ours = f"{self._token}-{self._sweep.id}"
            after = after if session == ours and after <= len(self._arrived) else 0
            by_number = {row.number: row for row in self._results.rows}
            message: dict[str, Any] = {
                "session": ours,
                "after": len(self._arrived),
                "total": self._results.total,
                "finished": bool(self._sweep.finished),
                "quiet": _quiet(self._store.path),
                "rows": rows_of(
                    self._results.space, (by_number[number] for number in dict.fromkeys(self._arrived[after:]))
                ),
                "states": self._states,
            }
            if session != ours:
                message["header"] = header_of(self._results.space, self._sweep.version)
            return message

    def explain(self, number: int) -> list[dict[str, Any]]:
        """The explanation of a point, one per network; it may have to be compiled first.

        Raises BusyError, or what `explain_point` raises.
        """
        with self._lock:
            sweep, space = self._sweep.id, self._results.space
            row = next((row for row in self._results.rows if row.number == number), None)
        if row is None or not row.costs:
            raise DovetailError(f"point must be one with a cost, not {number}")
        key = sweep, number
        if not self._places.acquire(blocking=False):
            raise BusyError(f"at most {WAITING} points are explained at once: select this one again in a moment")
        try:
            with self._explaining:
                if key not in self._explanations:
                    self._explanations[key] = explain_point(space, row.config)
                self._explanations.move_to_end(key)
                while len(self._explanations) > KEPT:
                    self._explanations.popitem(last=False)
                return self._explanations[key]
        finally:
            self._places.release()

    def _refresh(self) -> None:
        """Read the store again if it has changed and some time has passed."""
        start = time.monotonic()
        if start < self._fresh_until:
            return
        seen = (self._store.database.rows("PRAGMA data_version"),)
        if seen != self._seen:
            sweep = self._store.sweep(self._wanted)
            if not self._seen or sweep.id != self._sweep.id:
                self._arrived, self._priced = [], {}
            self._sweep, self._results = sweep, self._store.results(sweep.id).apart()
            self._states = states_of(self._results)
            priced = {row.number: row.scenarios * bool(row.costs) for row in self._results.rows}
            if not self._priced.keys() <= priced.keys():  # another scenario is the worst: the page begins anew
                self._token, self._arrived, self._priced = token_hex(8), [], {}
            self._arrived += [number for number, cost in priced.items() if self._priced.get(number) != cost]
            self._priced = priced
            self._seen = seen
        end = time.monotonic()
        self._fresh_until = end + max(LEAST_AGE, REST * (end - start))


def _quiet(store: Path) -> int:
    """Seconds since somebody wrote to a store: nothing else tells a sweep that was killed from one that runs."""
    files = [path.stat() for path in (store, store.with_name(f"{store.name}-wal")) if path.exists()]
    return max(0, int(time.time() - max(file.st_mtime for file in files if file.st_size)))


def told(error: BaseException) -> str:
    """The text of an error for a page."""
    return str(error) if isinstance(error, DovetailError) else first_line(error)
