"""Atomic file writes: a reader sees the old content or the new one, never a part, even after a crash."""

import os
import secrets
import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from errno import EINVAL, EISDIR, ENOENT, ENOTDIR
from pathlib import Path


def write_atomically(path: str | Path, data: bytes | str) -> None:
    """Write ``data`` to ``path`` by way of a temporary file in the same folder, which an error removes again.

    The temporary file's name cannot be guessed, and it is on the disk before it takes the place.

    Raises OSError with the place when the folder is missing or not writable, or the place is a folder, device or pipe.
    """
    write_together({Path(path): data})


def write_together(files: Mapping[Path, bytes | str]) -> None:
    """Write several files as :func:`write_atomically` does; none takes its place before all are on the disk.

    Raises OSError as that does.
    """
    written: list[tuple[Path, Path]] = []
    try:
        for path, data in files.items():
            written.append(_prepared(path, data.encode() if isinstance(data, str) else data))
        for temporary, target in written:
            os.replace(temporary, target)
    except BaseException:
        for temporary, _ in written:
            with suppress(OSError):
                temporary.unlink(missing_ok=True)
        raise


def _prepared(target: Path, data: bytes) -> tuple[Path, Path]:
    """The temporary file that holds the data, and where it goes."""
    if not target.parent.is_dir():
        raise FileNotFoundError(ENOENT, "its folder must exist before the file is written", str(target))
    if target.is_dir():
        raise IsADirectoryError(EISDIR, "must be a file to write, not a folder", str(target))
    if target.exists() and not target.is_file():  # /dev/null itself would be replaced
        raise OSError(EINVAL, "must be a regular file to write, not a device or pipe", str(target))
    temporary = temporary_name(target)
    try:
        with open(temporary, "xb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
    except BaseException as error:
        with suppress(OSError):
            temporary.unlink(missing_ok=True)
        if isinstance(error, OSError):
            error.filename = str(target)  # what the user named
        raise
    return temporary, target


@contextmanager
def written_whole(folder: Path) -> Iterator[Path]:
    """A folder to write files into; at the end they take their places in ``folder``, which is made with its parents.

    After an error nothing is left of it. Raises OSError, also at once where ``folder`` is a file.
    """
    if folder.exists() and not folder.is_dir():
        raise NotADirectoryError(ENOTDIR, "must be a folder to write into, not a file", str(folder))
    above = next(parent for parent in folder.absolute().parents if parent.is_dir())
    temporary = temporary_name(above / folder.name)
    temporary.mkdir()
    try:
        yield temporary
        folder.mkdir(parents=True, exist_ok=True)
        for path in sorted(temporary.iterdir()):
            os.replace(path, folder / path.name)
    finally:
        shutil.rmtree(temporary, ignore_errors=True)


def temporary_name(target: Path) -> Path:
    """An unused name beside ``target`` that cannot be guessed."""
    return target.with_name(f".{target.name[:200]}.{secrets.token_hex(8)}.tmp")


def flush_to_disk(path: Path) -> None:
    """Wait until a file's bytes, or a folder's entries, are on the disk."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
