"""The portable network file: a quantised network once, from which programs for any configuration are made later.

A zip archive, its members stored as they are: ``manifest.yaml``, the network's ONNX or TFLite file, and perhaps a
sample. ``docs/network-file.md`` describes it; `dovetail.sw.files.packing` writes it.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from dovetail.sw.errors import NetworkError, first_line
from dovetail.sw.files.archive import ArchiveError, members_of
from dovetail.sw.files.arrays import parse_array
from dovetail.sw.files.manifest import parse_yaml
from dovetail.sw.network.layout import Array

FORMAT, VERSION = "dovetail-network", 1
MANIFEST = "manifest.yaml"
MAGIC = b"PK\x03\x04"


@dataclass(frozen=True)
class Sample:
    """An input by name, and what the network makes of it, as the network's file declares them."""

    inputs: dict[str, Array]
    outputs: dict[str, Array]


@dataclass(frozen=True)
class Portable:
    """What a portable network file holds; ``data``: the ONNX or TFLite file."""

    name: str
    data: bytes
    sample: Sample | None
    manifest: Mapping[str, Any]


def is_portable(data: bytes) -> bool:
    """Whether the bytes begin like a portable network file."""
    return data.startswith(MAGIC)


def sha256(data: bytes) -> str:
    """The hash of a file in hexadecimal digits."""
    return hashlib.sha256(data).hexdigest()


def unpack(data: bytes, where: str) -> Portable:
    """Read a portable network file; `where` names it in errors.

    Raises
    ------
    NetworkError
        It is damaged, something else, or of a newer version.
    """
    try:
        members = members_of(data)
        manifest = parse_yaml(members[MANIFEST])
        if manifest["format"] != FORMAT:
            raise NetworkError(f"{where}: format must be {FORMAT}, not {manifest['format']!r}")
        if manifest["version"] > VERSION:
            raise NetworkError(
                f"{where}: format version must be at most {VERSION}, not {manifest['version']}; update Dovetail"
            )
        network = members[manifest["network"]["file"]]
        if sha256(network) != manifest["network"]["sha256"]:
            raise NetworkError(f"{where}: the network in it must have the manifest's hash, not another; pack it again")
        return Portable(str(manifest["name"]), network, _sample(manifest.get("sample"), members), manifest)
    except NetworkError:
        raise
    except ArchiveError as error:
        raise NetworkError(f"{where}: {error}") from None
    except KeyError as error:
        raise NetworkError(f"{where}: must be a portable network file, not a zip archive without {error}") from error
    except Exception as error:  # a damaged archive, manifest or array fails anywhere in its reader
        raise NetworkError(
            f"{where}: portable network file must be complete, not damaged ({first_line(error)})"
        ) from error


def _sample(entries: Mapping[str, Any] | None, members: Mapping[str, bytes]) -> Sample | None:
    if not entries:
        return None
    inputs, outputs = (
        {str(name): parse_array(members[file]) for name, file in entries[side].items()}
        for side in ("inputs", "outputs")
    )
    return Sample(inputs, outputs)
