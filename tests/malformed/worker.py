"""Takes cases one after the other; any may bring this program down, so it runs as a child with limits.

    python -m tests.malformed.worker FORMAT SEED FIRST LAST

Prints a JSON line ahead of each case, and one with what became of it.
"""

from __future__ import annotations

import json
import os
import resource
import signal
import sys
import tempfile
import time
import zlib
from contextlib import redirect_stderr, redirect_stdout
from io import StringIO
from pathlib import Path
from types import FrameType
from typing import Any

import numpy as np

SECONDS = 20
"""Of processor time."""
MEMORY = 12 << 30
"""Bytes of address space; libraries reserve much that they do not use."""


class Late(BaseException):
    """Not an Exception, which readers turn into errors of their own."""


def late(signal_number: int, frame: FrameType | None) -> None:
    raise Late


def main(name: str, seed: int, first: int, last: int) -> None:
    os.environ["DOVETAIL_SCHEDULES"] = "off"
    from tests.malformed import formats

    resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
    signal.signal(signal.SIGPROF, late)
    folder = Path(tempfile.mkdtemp(prefix="malformed-"))
    tempfile.tempdir = str(folder / "out")
    os.environ["TMPDIR"] = tempfile.tempdir
    warm = formats.FORMATS[name]
    tempfile.tempdir = None
    warm.sound()
    said = sys.stdout
    for number in range(first, last):
        random = np.random.default_rng([seed, zlib.crc32(name.encode()), number])
        files, action = formats.case(name, random, number)
        formats.clear(folder)
        for file, data in files.items():
            (folder / file).parent.mkdir(parents=True, exist_ok=True)
            (folder / file).write_bytes(data)
        os.chdir(folder)
        print(json.dumps({"begins": number}), file=said, flush=True)
        record = {"number": number, **taken(action, folder)}
        print(json.dumps(record), file=said, flush=True)


def taken(action: Any, folder: Path) -> dict[str, Any]:
    """What became of an action."""
    from dovetail.flows.cli import main as command
    from dovetail.flows.output.trouble import USER_ERRORS, message

    out, err = StringIO(), StringIO()
    before = _memory(reset=True)
    start = time.process_time()
    signal.setitimer(signal.ITIMER_PROF, SECONDS)
    try:
        with redirect_stdout(out), redirect_stderr(err):
            if callable(action):
                action(folder)
                outcome = "0"
            else:
                outcome = str(command(list(action)))
    except Late:
        outcome = "late"
    except SystemExit as end:
        outcome = f"exit {end.code}"
    except USER_ERRORS as error:
        outcome, text = "2", message(error)
        err.write(f"dovetail: error: {text}\n")
    except BaseException as error:
        outcome = f"leak {type(error).__name__}: {error}"
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
    left = sorted(str(path.relative_to(folder)) for path in (folder / "out").rglob("*"))
    strange = [name for name in left if name.endswith(".tmp")] if outcome in ("0", "1") else left
    return {
        "action": action.__name__ if callable(action) else " ".join(action),
        "outcome": outcome,
        "error": err.getvalue()[-5000:],
        "seconds": round(time.process_time() - start, 2),
        "growth": max(0, _memory() - before),
        "left": strange,
    }


def _memory(reset: bool = False) -> int:
    """MiB of the largest resident size since the last reset; now, with a reset."""
    if reset:
        Path("/proc/self/clear_refs").write_text("5")
    text = Path("/proc/self/status").read_text()
    return int(text.split("VmHWM:")[1].split()[0]) >> 10


if __name__ == "__main__":
    main(sys.argv[1], *map(int, sys.argv[2:5]))
