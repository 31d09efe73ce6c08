"""One sweep at a time per store."""

from __future__ import annotations

import fcntl
import os
from contextlib import suppress
from pathlib import Path

from dovetail.flows.explore.store.database import StoreError


class SweepLock:
    """Held from construction to :meth:`release`, or to the end of the process, however that ends.

    It is a file beside the store, since SQLite's own locks would keep readers out.

    Raises
    ------
    StoreError: another process holds it.
    """

    def __init__(self, store: Path) -> None:
        self.path = store.with_name(f"{store.name}-lock")
        self._file = self._take()

    def release(self) -> None:
        """Let others sweep."""
        self.path.unlink(missing_ok=True)
        os.close(self._file)

    def _take(self) -> int:
        while True:
            try:
                file = os.open(self.path, os.O_RDWR | os.O_CREAT, 0o666)
            except OSError as error:
                raise StoreError(f"{self.path}: must be a file that can be written, not: {error.strerror}") from error
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                os.close(file)
                store = self.path.with_name(self.path.name.removesuffix("-lock"))
                raise StoreError(
                    f"{store}: store must have one sweep at a time, and another is running; wait for it, or name"
                    " another file by --store"
                ) from None
            with suppress(FileNotFoundError):
                if os.path.samestat(os.fstat(file), self.path.stat()):
                    return file
            os.close(file)  # the sweep before this one has just removed it
