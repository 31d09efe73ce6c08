"""Folders and notes of a cache, with hashes of their content: what is damaged is noticed before it is used.

A folder appears in one step. Its file ``seal`` has the SHA-256 of every other file. A note holds its text and the hash
of the text. Both are on the disk before they get their names. What is damaged is kept for a day under ``damaged-*``.
Builders work in folders ``build-*``, locked as long as they live, so the leftovers of a killed one are recognised and
removed. Only the user may look into a cache: its libraries are code.
"""

import fcntl
import hashlib
import os
import secrets
import shutil
import stat
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path

from dovetail.isa.common.files import flush_to_disk, write_atomically

SEAL = "seal"
WORK, DAMAGED = "build-", "damaged-"
"""How the names of folders begin in which somebody builds, and of those that were put aside."""
DAMAGED_SECONDS = 24 * 3600
"""How long what was damaged is kept for a look."""
LEAST_AGE = 60
"""Seconds after which an unlocked working folder counts as a leftover."""
_NOTE_BYTES = 1 << 20
"""More than the text of any note."""


def private(folder: Path) -> Path:
    """Make a folder of a cache that only its user may enter; one of this user's that others may write is closed."""
    if not folder.is_dir():
        folder.parent.mkdir(parents=True, exist_ok=True)
        folder.mkdir(mode=0o700, exist_ok=True)
    found = folder.stat()
    if found.st_uid == os.getuid() and found.st_mode & 0o022 and not found.st_mode & stat.S_ISVTX:
        folder.chmod(0o700)
    return folder


# --- locks and work -----------------------------------------------------------------------------


@contextmanager
def locked(folder: Path) -> Iterator[None]:
    """Hold the lock file beside ``folder``: the second builder waits and then finds the result."""
    private(folder.parent)
    path = folder.with_suffix(".lock")
    while True:
        with open(path, "w") as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            if _is(file.fileno(), path):  # else the one before has removed it
                try:
                    yield
                finally:
                    path.unlink(missing_ok=True)
                return


def _is(handle: int, path: Path) -> bool:
    try:
        return os.path.samestat(os.fstat(handle), path.stat())
    except FileNotFoundError:
        return False


@contextmanager
def workplace(cache: Path) -> Iterator[Path]:
    """An empty folder in ``cache`` to build in, with a name that cannot be guessed; it is removed at the end."""
    work = Path(tempfile.mkdtemp(prefix=WORK, dir=private(cache)))
    handle = os.open(work, os.O_RDONLY)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX)
        yield work
    finally:
        os.close(handle)
        shutil.rmtree(work, ignore_errors=True)


def sweep(cache: Path) -> list[Path]:
    """Remove what killed builds have left, and what was put aside long ago; those folders and files."""
    now, removed = time.time(), []
    for path in cache.iterdir() if cache.is_dir() else ():
        with suppress(OSError):  # another process was faster, or it belongs to another user
            age = now - path.lstat().st_mtime
            if path.name.startswith(WORK):
                gone = age > LEAST_AGE and _unlocked(path)
            elif path.name.startswith(DAMAGED):
                gone = age > DAMAGED_SECONDS
            else:
                gone = path.suffix == ".lock" and age > LEAST_AGE and _unlocked(path)
            if gone:
                discard(path)
                removed.append(path)
    return removed


def _unlocked(path: Path) -> bool:
    handle = os.open(path, os.O_RDONLY | os.O_NOFOLLOW)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    finally:
        os.close(handle)
    return True


def discard(path: Path) -> None:
    """Remove a folder, out of the way in one step first, or a file."""
    if path.is_symlink() or not path.is_dir():
        path.unlink(missing_ok=True)
        return
    aside = _aside(path)
    path.rename(aside)
    shutil.rmtree(aside)


def _aside(path: Path) -> Path:
    return path.with_name(f"{DAMAGED}{path.name.removeprefix(DAMAGED)[:64]}-{secrets.token_hex(4)}")


# --- folders ------------------------------------------------------------------------------------


def seal(folder: Path) -> None:
    """Note the hashes of the folder's files, once those are on the disk."""
    lines = []
    for path in sorted(folder.iterdir()):
        flush_to_disk(path)
        lines.append(f"{_hash_of(path)}  {path.name}\n")
    write_atomically(folder / SEAL, "".join(lines))
    flush_to_disk(folder)


def is_sound(folder: Path) -> bool:
    """Whether a folder holds what it was sealed with."""
    try:
        lines = (folder / SEAL).read_bytes().decode().splitlines()
        kept = dict(line.split("  ", 1)[::-1] for line in lines)
        found = {path.name for path in folder.iterdir()} - {SEAL}
        return found == set(kept) and all(_hash_of(folder / name) == digest for name, digest in kept.items())
    except (OSError, ValueError):
        return False


def _hash_of(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def made(folder: Path, make: Callable[[Path], Mapping[str, str]]) -> Path:
    """``folder``, made unless it is there and sound; safe in parallel processes. ``make`` works in an empty folder and
    says which of its files are kept, each with its new name."""
    if is_sound(folder):
        return folder
    with locked(folder):
        if not is_sound(folder):
            with workplace(folder.parent) as work:
                files, ready = make(work), work / "ready"
                ready.mkdir(mode=0o700)
                for name, new in files.items():
                    (work / name).rename(ready / new)
                seal(ready)
                publish(ready, folder)
    return folder


def publish(work: Path, target: Path) -> None:
    """Make the sealed folder ``work`` appear as ``target`` in one step; what is damaged there is put aside. The caller
    holds the lock of ``target``."""
    if target.exists() or target.is_symlink():
        damaged = _aside(target)
        target.rename(damaged)
        os.utime(damaged, follow_symlinks=False)
    work.rename(target)
    flush_to_disk(target.parent)


# --- notes --------------------------------------------------------------------------------------


def write_note(note: Path, text: str) -> None:
    """Write a small text into a cache."""
    private(note.parent)
    write_atomically(note, f"{_note_hash(note, text)}\n{text}")


def read_note(note: Path) -> str | None:
    """The text of a note; None if there is none, or not the one that was written."""
    try:
        with note.open("rb") as file:
            digest, _, text = file.read(_NOTE_BYTES).decode().partition("\n")
    except (OSError, UnicodeDecodeError):
        return None
    return text if digest == _note_hash(note, text) else None


def _note_hash(note: Path, text: str) -> str:
    return hashlib.sha256(f"{note.name}\n{text}".encode()).hexdigest()
