"""Which RTL it is that confirms points: as long as its sources stay the same, so do its verdicts."""

import hashlib
from functools import lru_cache
from pathlib import Path

import dovetail.cosim
import dovetail.hw


@lru_cache(maxsize=1)
def hardware() -> str:
    """Hash of the sources of the RTL and of what runs it."""
    digest = hashlib.sha256()
    for package in (dovetail.hw, dovetail.cosim):
        folder = Path(package.__path__[0])
        for path in sorted(p for p in folder.rglob("*") if p.suffix in (".py", ".v", ".cpp", ".h")):
            digest.update(str(path.relative_to(folder)).encode() + b"\0" + path.read_bytes())
    return digest.hexdigest()[:16]
