"""Writing files so that a reader sees the old content or the new one, never a part."""

import os
from errno import EISDIR, ENOENT
from pathlib import Path


def write_atomically(path: str | Path, data: bytes | str) -> None:
    """Write ``data`` to ``path`` by way of a temporary file in the same folder, which an error removes again.

    Raises OSError with the place when the folder is missing or not writable, or the place is a folder itself.
    """
    target = Path(path)
    if not target.parent.is_dir():
        raise FileNotFoundError(ENOENT, "its folder must exist before the file is written", str(path))
    if target.is_dir():
        raise IsADirectoryError(EISDIR, "must be a file to write, not a folder", str(path))
    temporary = target.with_name(f".{target.name}.{os.getpid()}.tmp")
    try:
        temporary.write_bytes(data.encode() if isinstance(data, str) else data)
        os.replace(temporary, target)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise
