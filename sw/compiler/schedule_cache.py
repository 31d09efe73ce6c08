"""Remembers schedules across processes and networks, in one SQLite file per version of the compiler.

A schedule follows from its key (layer, configuration, space, effort) and from this compiler's source, so it does not
matter for the outcome whether it was remembered. Whatever goes wrong with the file, schedules are searched for again.
"""

import hashlib
import json
import sqlite3
from contextlib import closing
from functools import lru_cache
from pathlib import Path
from typing import Any

import dovetail.isa
import dovetail.sw

PATIENCE = 5.0
"""Seconds to wait for another process that writes."""


@lru_cache(maxsize=1)
def version() -> str:
    """Hash of the source that schedules and their prices follow from: instruction set, timing, compiler."""
    isa, sw = (Path(package.__path__[0]) for package in (dovetail.isa, dovetail.sw))
    digest = hashlib.sha256()
    for path in [*sorted(isa.rglob("*.py")), *sorted((sw / "compiler").rglob("*.py")), sw / "hazards.py"]:
        digest.update(path.name.encode() + b"\0" + path.read_bytes())
    return digest.hexdigest()[:16]


class ScheduleCache:
    """Values by key, both anything that JSON can express, in a file below ``folder``. Safe in parallel processes."""

    def __init__(self, folder: Path) -> None:
        self.path = Path(folder) / _file_of(version())

    def get(self, key: Any) -> Any:
        """The value of a key; None when there is none, or none that can be read."""
        name = _digest(key)
        try:
            with closing(sqlite3.connect(f"{self.path.absolute().as_uri()}?mode=ro", PATIENCE, uri=True)) as file:
                row = file.execute("SELECT value, digest FROM schedules WHERE name = ?", (name,)).fetchone()
        except sqlite3.OperationalError:  # there is no file or table yet, or it stays locked
            return None
        except sqlite3.DatabaseError:
            self._discard()
            return None
        if row is None or row[1] != _digest([name, row[0]]):
            return None
        return json.loads(row[0])

    def put(self, key: Any, value: Any) -> None:
        """Remember a value, if that is possible."""
        name, text = _digest(key), json.dumps(value)
        try:
            if not self.path.exists():
                self._start()
            with closing(sqlite3.connect(self.path, PATIENCE)) as file, file:
                file.execute("PRAGMA synchronous = OFF")
                file.execute("CREATE TABLE IF NOT EXISTS schedules (name TEXT PRIMARY KEY, value TEXT, digest TEXT)")
                row = name, text, _digest([name, text])
                file.execute("INSERT OR REPLACE INTO schedules VALUES (?, ?, ?)", row)
        except sqlite3.OperationalError:
            return
        except sqlite3.DatabaseError:
            self._discard()
        except OSError:
            return

    def _start(self) -> None:
        """Make the folder, and remove what other versions of the compiler have left there."""
        self.path.parent.mkdir(parents=True, exist_ok=True)
        for old in set(self.path.parent.glob(_file_of("*"))) - {self.path}:
            old.unlink(missing_ok=True)

    def _discard(self) -> None:
        """Remove a damaged file; the next value starts a new one."""
        try:
            self.path.unlink(missing_ok=True)
        except OSError:
            return


def _file_of(name: str) -> str:
    return f"schedules-{name}.sqlite"


def _digest(value: Any) -> str:
    return hashlib.sha256(json.dumps(value, sort_keys=True).encode()).hexdigest()


_caches: list[ScheduleCache] = []


def use(folder: Path | None) -> None:
    """Keep the schedules of this process below ``folder`` from now on; None, as at the start: nowhere."""
    _caches[:] = [ScheduleCache(folder)] if folder else []


def current() -> ScheduleCache | None:
    """The cache that :func:`use` named."""
    return _caches[0] if _caches else None
