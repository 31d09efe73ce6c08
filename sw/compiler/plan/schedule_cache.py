"""Remembers schedules across processes and networks, in one SQLite file per version of the compiler.

A schedule follows from its key (layer, configuration, space, effort) and from this compiler's source, so it does not
matter for the outcome whether it was remembered. Whatever goes wrong with the file, schedules are searched for again.
"""

import hashlib
import json
import sqlite3
import time
from contextlib import closing
from functools import lru_cache
from pathlib import Path
from typing import Any

import dovetail.isa
import dovetail.sw

PATIENCE = 5.0
"""Seconds to wait for another process that writes, and for an answer."""
_STEPS = 100_000
"""SQLite's instructions between looks at the time."""


@lru_cache(maxsize=1)
def version() -> str:
    """Hash of the source that schedules and their prices follow from: instruction set, timing, compiler."""
    isa, sw = (Path(package.__path__[0]) for package in (dovetail.isa, dovetail.sw))
    digest = hashlib.sha256()
    for path in [*sorted(isa.rglob("*.py")), *sorted((sw / "compiler").rglob("*.py"))]:
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
                _guard(file)
                row = file.execute("SELECT value, digest FROM schedules WHERE name = ?", (name,)).fetchone()
        except sqlite3.OperationalError as error:  # there is no file or table yet, it stays locked, or takes too long
            if getattr(error, "sqlite_errorname", "") == "SQLITE_INTERRUPT":  # no table of ours: do not wait again
                self._discard()
            return None
        except (sqlite3.DatabaseError, UnicodeError):
            self._discard()
            return None
        except OSError:
            return None
        try:
            return None if row is None or row[1] != _digest([name, row[0]]) else json.loads(row[0])
        except (TypeError, ValueError, RecursionError):  # another form than was written
            return None

    def put(self, key: Any, value: Any) -> None:
        """Remember a value, if that is possible."""
        name, text = _digest(key), json.dumps(value)
        try:
            if not self.path.exists():
                self._start()
            with closing(sqlite3.connect(self.path, PATIENCE)) as file, file:
                _guard(file)
                file.execute("PRAGMA synchronous = OFF")
                file.execute("CREATE TABLE IF NOT EXISTS schedules (name TEXT PRIMARY KEY, value TEXT, digest TEXT)")
                row = name, text, _digest([name, text])
                file.execute("INSERT OR REPLACE INTO schedules VALUES (?, ?, ?)", row)
        except sqlite3.OperationalError as error:
            if getattr(error, "sqlite_errorname", "") == "SQLITE_INTERRUPT":
                self._discard()
        except (sqlite3.DatabaseError, UnicodeError):
            self._discard()
        except OSError:
            return

    def _start(self) -> None:
        """Make the folder, for its user alone, and remove what other versions of the compiler have left there."""
        self.path.parent.parent.mkdir(parents=True, exist_ok=True)
        self.path.parent.mkdir(mode=0o700, exist_ok=True)
        for old in set(self.path.parent.glob(_file_of("*"))) - {self.path}:
            old.unlink(missing_ok=True)

    def _discard(self) -> None:
        """Remove a damaged file; the next value starts a new one."""
        try:
            self.path.unlink(missing_ok=True)
        except OSError:
            return


def _guard(file: sqlite3.Connection) -> None:
    """Nothing in an untrusted file's schema may run by itself or for long."""
    file.execute("PRAGMA trusted_schema = OFF")
    end = time.monotonic() + PATIENCE
    file.set_progress_handler(lambda: time.monotonic() > end, _STEPS)


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
