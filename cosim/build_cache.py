"""Keeps built simulators below a size: the least recently used go first, and none that a process is using."""

import fcntl
import os
import re
import shutil
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

LIMIT = 1 << 30
"""Bytes of builds that a cache keeps: more than a thousand accelerators."""
LIBRARY = "dut.so"
_DIGEST = re.compile(r"[0-9a-f]{32}")
_NOTES = "accelerator-*"
"""Files that name the build of a configuration."""

_held: dict[tuple[int, int], BinaryIO] = {}
"""Libraries in use, open and locked, by device and inode."""


@dataclass(frozen=True)
class Build:
    """A built simulator. ``used``: seconds since the epoch, when a process took it into use last."""

    folder: Path
    bytes: int
    used: float


def hold(library: Path) -> bool:
    """Take a library into use until the process ends: nobody removes it. False if there is none."""
    try:
        file = library.open("rb")
    except FileNotFoundError:
        return False
    fcntl.flock(file, fcntl.LOCK_SH)
    found = os.fstat(file.fileno())
    if not found.st_nlink:  # it was removed in between
        file.close()
        return False
    with suppress(PermissionError):  # a cache of somebody else
        os.utime(file.fileno())
    if _held.setdefault((found.st_dev, found.st_ino), file) is not file:
        file.close()
    return True


def builds(cache: Path) -> list[Build]:
    """The builds of a cache, the least recently used first."""
    found = []
    for folder in cache.iterdir() if cache.is_dir() else ():
        if _DIGEST.fullmatch(folder.name):
            try:
                status = (folder / LIBRARY).stat()
            except FileNotFoundError:
                continue
            found.append(Build(folder, status.st_size, status.st_mtime))
    return sorted(found, key=lambda build: (build.used, build.folder))


def trim(cache: Path, limit: int = LIMIT) -> list[Build]:
    """Remove builds until the rest is not larger than ``limit`` bytes; those that were removed."""
    kept = builds(cache)
    size = sum(build.bytes for build in kept)
    removed = []
    for build in kept:
        if size <= limit:
            break
        if _remove(build.folder):
            removed.append(build)
            size -= build.bytes
    if removed:
        _forget(cache)
    return removed


def _remove(folder: Path) -> bool:
    """Remove a build unless a process uses it: whether it is gone."""
    try:
        with open(folder / LIBRARY, "rb") as file:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            shutil.rmtree(folder)
    except BlockingIOError:
        return False
    except FileNotFoundError:
        pass  # another process was faster
    return True


def _forget(cache: Path) -> None:
    """Remove the notes that name builds which are gone."""
    for note in cache.glob(_NOTES):
        try:
            if not (cache / note.read_text() / LIBRARY).exists():
                note.unlink()
        except FileNotFoundError:
            continue
