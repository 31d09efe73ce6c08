"""The SQLite file behind a result store: opened, made or refused, with errors that a user can act on."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager, suppress
from functools import cache
from pathlib import Path
from threading import RLock
from time import process_time
from typing import Any

from dovetail.flows.explore.store.schema import APPLICATION, SCRIPTS
from dovetail.sw.errors import DovetailError, first_line

PATIENCE = 30.0
"""Seconds to wait for another program that writes."""

LIMIT = 20.0
"""Seconds of processor time that a question to a store may take."""
_STEPS = 1_000_000
"""SQLite's instructions between looks at the time."""
_CONTENT = (ValueError, TypeError, LookupError, AttributeError, ArithmeticError, RecursionError)
"""Errors of reading a value of another form."""

_REASONS = {
    "SQLITE_INTERRUPT": "must be read within {limit:.0f} s; it is too large or not a sweep's (`dovetail docs limits`)",
    "SQLITE_BUSY": "must not be locked by another program for more than {patience:.0f} s",
    "SQLITE_READONLY": "must be writable; give another file by --store",
    "SQLITE_FULL": "must have room on its disk; what was stored is kept, so make room and continue with --resume",
    "SQLITE_NOTADB": "must be a result store, not another kind of file",
    "SQLITE_CORRUPT": "must be whole, not damaged; move it away to start anew",
    "SQLITE_CANTOPEN": "must be a file in a folder that can be read and written",
}


_LARGEST = 1.7976931348623157e308
"""Of finite numbers."""


@cache
def _wrong_values(schema: int) -> dict[str, str]:
    """By table of a schema the SQL condition of a row with a value that is not of its column's type, or not finite."""
    found = {}
    with closing(sqlite3.connect(":memory:")) as own:
        for script in SCRIPTS[:schema]:
            for statement in script:
                own.execute(statement)
        for (table,) in own.execute("SELECT name FROM sqlite_master WHERE type = 'table'").fetchall():
            rules = []
            for _, name, kind, needed, _, key in own.execute(f"PRAGMA table_info({table})").fetchall():
                kinds = f"'{kind.lower()}'" if needed or key else f"'{kind.lower()}', 'null'"
                rules.append(f"typeof({name}) NOT IN ({kinds})")
                rules += [f"abs({name}) > {_LARGEST}"] if kind == "REAL" else []
            found[table] = " OR ".join(rules)
    return found


class StoreError(DovetailError):
    """A result store that cannot be used; the text names the file, the rule and the way out."""


class Database:
    """A connection to a store's file; any thread may use it, one at a time.

    Parameters
    ----------
    path: the file.
    write: make it if there is none, and bring an older schema up to date; else it is only read.

    Raises
    ------
    StoreError: there is no such file, it is not a store, or of a newer schema; so do the methods, when reading or
        writing fails.
    """

    def __init__(self, path: Path, *, write: bool) -> None:
        self.path = path
        self._write = write
        self._lock = RLock()
        if path.is_dir():
            raise StoreError(f"{path}: store must be a file, not a folder; give the results.sqlite in it")
        if not (path.parent.is_dir() if write else path.is_file()):
            raise StoreError(
                f"{path}: store must be a file{' in a folder that exists' if write else ', there is none'}"
            )
        with self._errors():
            self._file = self._connect(write)
            try:
                self._prepare(write)
            except BaseException:
                self._file.close()
                raise

    def rows(self, query: str, values: Sequence[Any] = ()) -> list[tuple[Any, ...]]:
        """What a query finds."""
        with self._errors():
            self._deadline = process_time() + LIMIT
            return self._file.execute(query, values).fetchall()

    @contextmanager
    def content(self) -> Iterator[None]:
        """Turn errors about wrong values into a StoreError: the file is intact, but no sweep wrote this."""
        try:
            yield
        except StoreError:
            raise
        except (*_CONTENT, DovetailError) as error:
            raise StoreError(
                f"{self.path}: store must hold what a sweep wrote, not other values ({type(error).__name__}:"
                f" {first_line(error)[:100]}); move it away to start anew"
            ) from error

    @contextmanager
    def transaction(self) -> Iterator[sqlite3.Connection]:
        """A transaction: all or nothing, even if the process is killed."""
        with self._errors():
            self._file.execute("BEGIN IMMEDIATE")
            try:
                yield self._file
                self._file.execute("COMMIT")
            except BaseException:
                if self._file.in_transaction:
                    self._file.execute("ROLLBACK")
                raise

    def close(self) -> None:
        """Close the file. After the last writer it is one file, to be read also where nothing can be written."""
        with self._errors():
            if self._write:
                with suppress(sqlite3.OperationalError):  # somebody reads it
                    self._file.execute("PRAGMA busy_timeout = 0")
                    self._file.execute("PRAGMA journal_mode = DELETE")
            self._file.close()

    def _connect(self, write: bool) -> sqlite3.Connection:
        uri = f"{self.path.absolute().as_uri()}?mode={'rwc' if write else 'ro'}"
        file = sqlite3.connect(uri, PATIENCE, isolation_level=None, check_same_thread=False, uri=True)
        file.execute("PRAGMA trusted_schema = OFF")  # the file may be anybody's
        file.execute("PRAGMA cell_size_check = ON")
        self._deadline = process_time() + LIMIT
        if not write:  # writing waits for others
            file.set_progress_handler(lambda: process_time() > self._deadline, _STEPS)
        return file

    def _prepare(self, write: bool) -> None:
        """Check whose file it is, and its schema."""
        empty = not self._file.execute("SELECT count(*) FROM sqlite_master").fetchone()[0]
        if self._number("application_id") != APPLICATION and not empty:
            raise StoreError(f"{self.path}: store {_REASONS['SQLITE_NOTADB']}")
        if (schema := self._number("user_version")) > len(SCRIPTS):
            raise StoreError(
                f"{self.path}: store must be of schema {len(SCRIPTS)} or older, not {schema}; use the Dovetail that"
                " wrote it, or another file by --store"
            )
        self._check_schema(schema)
        self._check_values(schema)
        if not write:
            if empty:
                raise StoreError(f"{self.path}: store must have results; `dovetail sweep` was stopped before the first")
            return
        self._file.execute("PRAGMA journal_mode = WAL")
        self._file.execute("PRAGMA synchronous = NORMAL")  # no wait for the disk: only a power cut could lose the last
        if schema < len(SCRIPTS):
            self._update()

    def _check_schema(self, schema: int) -> None:
        """Check that the tables are exactly a sweep's, without views or triggers."""
        found = {name: text for kind, name, text in self._schema(self._file) if kind != "trigger"}
        with closing(sqlite3.connect(":memory:")) as own:
            for script in SCRIPTS[:schema]:
                for statement in script:
                    own.execute(statement)
            same = all(found.get(name) == text for _, name, text in self._schema(own))
        if not same or any(kind == "trigger" for kind, _, _ in self._schema(self._file)):
            raise StoreError(f"{self.path}: store {_REASONS['SQLITE_NOTADB']}")

    def _check_values(self, schema: int) -> None:
        """Check that values have the types of their columns, which SQLite does not enforce."""
        for table, wrong in _wrong_values(schema).items():
            if self._file.execute(f"SELECT EXISTS (SELECT 1 FROM {table} WHERE {wrong})").fetchone()[0]:
                raise StoreError(f"{self.path}: store {_REASONS['SQLITE_CORRUPT']}")

    @staticmethod
    def _schema(file: sqlite3.Connection) -> list[tuple[str, str, str]]:
        return file.execute("SELECT type, name, sql FROM sqlite_master WHERE sql IS NOT NULL").fetchall()

    def _update(self) -> None:
        """Run the scripts that the file lacks, unless another process just has."""
        with self.transaction() as file:
            for script in SCRIPTS[self._number("user_version") :]:
                for statement in script:
                    file.execute(statement)
            file.execute(f"PRAGMA application_id = {APPLICATION}")
            file.execute(f"PRAGMA user_version = {len(SCRIPTS)}")

    def _number(self, name: str) -> int:
        return int(self._file.execute(f"PRAGMA {name}").fetchone()[0])

    @contextmanager
    def _errors(self) -> Iterator[None]:
        with self._lock:
            try:
                yield
            except sqlite3.Error as error:
                name = getattr(error, "sqlite_errorname", "") or ""
                reason = next((text for key, text in _REASONS.items() if name.startswith(key)), "")
                told = (
                    reason.format(patience=PATIENCE, limit=LIMIT)
                    or f"must be a file to read and write, not: {first_line(error)}"
                )
                raise StoreError(f"{self.path}: store {told}") from error
            except (UnicodeError, OverflowError) as error:  # text that is none, also in SQLite's own message
                raise StoreError(f"{self.path}: store {_REASONS['SQLITE_CORRUPT']}") from error
