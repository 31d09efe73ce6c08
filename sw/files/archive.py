"""Zip archives whose members are stored as they are. Equal members give equal bytes."""

from __future__ import annotations

import zipfile
from collections.abc import Mapping
from io import BytesIO

_NEVER = (1980, 1, 1, 0, 0, 0)
"""The time that every member carries: the first that a zip archive can."""


class ArchiveError(ValueError):
    """An archive of another form than :func:`archive` makes."""


def archive(members: Mapping[str, bytes]) -> bytes:
    """The archive of members by name."""
    buffer = BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_STORED) as file:
        for name, content in members.items():
            info = zipfile.ZipInfo(name, _NEVER)
            info.create_system = 3
            file.writestr(info, content)
    return buffer.getvalue()


def members_of(data: bytes) -> dict[str, bytes]:
    """The inverse of :func:`archive`.

    Raises
    ------
    ArchiveError
        Members are compressed, or lie over each other: an archive that would take more memory than its size.
    Exception
        What zipfile raises for damage, undocumented.
    """
    with zipfile.ZipFile(BytesIO(data)) as file:
        packed = [info.filename for info in file.infolist() if info.compress_type != zipfile.ZIP_STORED]
        if packed:
            raise ArchiveError(f"members must be stored, not compressed, as {packed[0]!r} is")
        if sum(info.file_size for info in file.infolist()) > len(data):
            raise ArchiveError("members must lie beside each other, not over each other")
        return {info.filename: file.read(info) for info in file.infolist()}
