"""Keeps built simulators below a size: the least recently used go first, and none that a process is using.

A build is a sealed folder with one library (see `dovetail.isa.common.sealed`). A damaged one is not loaded, but built
again.
"""

import fcntl
import os
import re
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

from dovetail.isa.common.sealed import discard, is_sound, made, read_note, sweep, write_note

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


def default_cache() -> Path:
    """Where builds are kept unless a caller says otherwise: ``$XDG_CACHE_HOME/dovetail`` or ``~/.cache/dovetail``."""
    base = os.environ.get("XDG_CACHE_HOME")
    return (Path(base) if base else Path.home() / ".cache") / "dovetail"


def library_path(cache: Path, digest: str) -> Path:
    """Where the library of a design with this hash is, or would be."""
    return cache / digest / LIBRARY


def noted(note: Path) -> Path | None:
    """The library that a note names; None where there is no note, or one that is damaged."""
    digest = read_note(note)
    return library_path(note.parent, digest) if digest and _DIGEST.fullmatch(digest) else None


def noted_library(cache: Path, name: str, build: Callable[[], Path]) -> Path:
    """The library that ``build`` gives. The note ``name`` in the cache remembers which one that was, since writing
    Verilog takes seconds; the name must tell whatever decides the design."""
    note = cache / name
    known = noted(note)
    if known is not None and hold(known):
        return known
    library = build()
    write_note(note, library.parent.name)
    return library


def built(cache: Path, digest: str, build: Callable[[Path], str]) -> Path:
    """The library of a design with this hash, in use by this process. If there is none, ``build`` leaves it in an empty
    folder and names the file; that may evict old ones."""
    library = library_path(cache, digest)
    if hold(library):
        return library
    while not hold(library):  # another process may evict it at once
        made(library.parent, lambda work: {build(work): LIBRARY})
    trim(cache)
    return library


def hold(library: Path) -> bool:
    """Take a library into use; it is not removed until the process ends. False if there is none, or a damaged one."""
    try:
        file = library.open("rb")
    except OSError:
        return False
    fcntl.flock(file, fcntl.LOCK_SH)
    found = os.fstat(file.fileno())
    if not found.st_nlink or not is_sound(library.parent):  # removed in between, or damaged
        file.close()
        return False
    with suppress(PermissionError):  # another user's cache
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
    """Remove builds until the rest is not larger than ``limit`` bytes; those that were removed. What killed builds have
    left goes as well."""
    sweep(cache)
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
            discard(folder)
    except BlockingIOError:
        return False
    except FileNotFoundError:
        pass  # another process was faster
    return True


def _forget(cache: Path) -> None:
    for note in cache.glob(_NOTES):
        library = noted(note)
        if library is None or not library.exists():
            note.unlink(missing_ok=True)
