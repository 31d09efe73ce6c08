"""From C++ sources to a shared library that Python loads, kept in the cache of builds by the hash of all inputs."""

import ctypes
import hashlib
import os
import shutil
import subprocess
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from dovetail.isa.common.build_cache import LIBRARY, built

FLAGS = ("-std=gnu++17", "-O2", "-fPIC", "-fvisibility=hidden", "-shared")
LOG_LINES = 20
"""Lines of a failed tool's output in the error text."""


class ToolError(RuntimeError):
    """A tool is missing or failed; the text says what to install, or ends with the tool's last lines."""


def run_tool(
    command: Sequence[str],
    folder: Path,
    *,
    environment: Mapping[str, str] | None = None,
    before: Callable[[], None] | None = None,
    seconds: float | None = None,
) -> subprocess.CompletedProcess[str]:
    """Run a tool in ``folder``, in this ``environment`` instead of this process's; ``before`` is called in the new
    process. What it says on either stream is in ``stdout``. Raises subprocess.TimeoutExpired after so many ``seconds``.
    """
    return subprocess.run(
        command,
        cwd=folder,
        text=True,
        errors="replace",
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        env=environment,
        preexec_fn=before,
        timeout=seconds,
    )


def tool_failure(command: Sequence[str], done: subprocess.CompletedProcess[str], log: Path | None = None) -> ToolError:
    """The error of a tool that has failed. Its output goes to ``log``, if there is one."""
    if log:
        log.write_text(" ".join(command) + "\n" + done.stdout)
    tail = "\n".join(done.stdout.splitlines()[-LOG_LINES:])
    place = f"; log: {log}" if log else ""
    return ToolError(f"{Path(command[0]).name} failed with exit code {done.returncode}{place}\n{tail}")


def compiler() -> str:
    """The C++ compiler. Raises :class:`ToolError`."""
    path = shutil.which("g++")
    if path is None:
        raise ToolError("g++ is not on PATH; the RTL engine needs a C++ compiler (Debian: apt install g++)")
    return path


def hash_of(*parts: str) -> str:
    """Hash of some texts in their order."""
    return hashlib.sha256("".join(f"{len(part)}\n{part}" for part in parts).encode()).hexdigest()[:32]


def load(sources: Mapping[str, str], cache: Path) -> ctypes.CDLL:
    """The library of some C++ sources by file name, headers among them, compiled into ``cache`` if it is not there.
    Safe in parallel processes.

    Raises :class:`ToolError` where there is no compiler or it fails, OSError where the cache cannot be written.
    """
    tool = compiler()
    status = os.stat(tool)  # to ask it for its version would take longer than all else here
    identity = [os.path.realpath(tool), str(status.st_size), str(status.st_mtime_ns)]
    digest = hash_of(
        "library", *identity, *FLAGS, *(text for name in sorted(sources) for text in (name, sources[name]))
    )

    def build(work: Path) -> str:
        for name, text in sources.items():
            (work / name).write_text(text)
        command = [tool, *FLAGS, *sorted(name for name in sources if name.endswith(".cpp")), "-o", LIBRARY]
        done = run_tool(command, work)
        if done.returncode:
            raise tool_failure(command, done, cache / f"{digest}.log")
        return LIBRARY

    return ctypes.CDLL(str(built(cache, digest, build)))
