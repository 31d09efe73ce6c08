"""From a configuration to the executable platform: the folder's own Makefile, kept in the builds' cache."""

import hashlib
import os
import shutil
import subprocess
from pathlib import Path

from dovetail.cosim.rtl.build_cache import hold, library_path, noted, trim
from dovetail.cosim.rtl.rtl_engine import sources_hash
from dovetail.cosim.rtl.sealed import locked, workplace, write_note
from dovetail.cosim.rtl.verilate import LAYOUT, LOG_LINES, ToolError, machine, publish_library, verilator_root
from dovetail.cosim.systemc.folder import makefile, platform_files
from dovetail.cosim.systemc.library import SystemC
from dovetail.isa.config.given import MemoryTiming
from dovetail.isa.config.resolved import Config

FLAGS = ("FAST=-O3 -march=native", "SLOW=-O0")
"""For this machine."""
JOBS = 2
"""Compilers at a time."""


def make() -> str:
    """GNU make. Raises :class:`ToolError`."""
    path = shutil.which("make")
    if path is None:
        raise ToolError("make is not on PATH; the SystemC platform needs it (Debian: apt install make)")
    return path


def build_platform(config: Config, cache: Path, systemc: SystemC) -> Path:
    """The platform of ``config``, an executable in ``cache``, built there if it is not (some minutes for a large one).
    Configurations that differ in ``memory`` only share it. Raises :class:`ToolError`."""
    config = config.replace(memory=MemoryTiming())
    built = f"{systemc} {FLAGS}"
    note = cache / f"accelerator-{sources_hash(config, built, makefile())}"
    known = noted(note)
    if known is not None and hold(known):
        return known
    texts = platform_files(config)
    digest = _hash(LAYOUT, built, machine(), *(part for name in sorted(texts) for part in (name, texts[name])))
    executable = library_path(cache, digest)
    with locked(executable.parent):
        if not hold(executable):
            with workplace(cache) as work:
                for name, text in texts.items():
                    (work / name).write_text(text)
                _make(work, systemc, executable.parent.with_suffix(".log"))
                publish_library(work, "platform", executable.parent)
    write_note(note, digest)
    trim(cache)
    return executable


def _hash(*parts: str) -> str:
    digest = hashlib.sha256()
    for part in parts:
        digest.update(f"{len(part)}\n{part}".encode())
    return digest.hexdigest()[:32]


def _make(work: Path, systemc: SystemC, log: Path) -> None:
    """Run the Makefile in ``work``. A failure leaves its output in ``log``."""
    root = verilator_root()
    command = [make(), f"-j{JOBS}", f"VERILATOR={root / 'bin' / 'verilator_bin'}", f"VERILATOR_ROOT={root}", *FLAGS]
    command += [f"SYSTEMC={systemc.prefix.resolve()}"] if systemc.prefix else []
    # Under another make, do not inherit its options.
    env = {name: value for name, value in os.environ.items() if name not in ("MAKEFLAGS", "MFLAGS", "MAKELEVEL")}
    done = subprocess.run(
        command, cwd=work, env=env, text=True, errors="replace", stdout=subprocess.PIPE, stderr=subprocess.STDOUT
    )
    if done.returncode:
        log.write_text(" ".join(command) + "\n" + done.stdout)
        tail = "\n".join(done.stdout.splitlines()[-LOG_LINES:])
        raise ToolError(f"make failed with exit code {done.returncode}; log: {log}\n{tail}")
