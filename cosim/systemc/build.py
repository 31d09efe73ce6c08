"""From a configuration to the executable platform: the folder's own Makefile, kept in the builds' cache."""

import os
import shutil
import subprocess
from pathlib import Path

from dovetail.cosim.rtl.build_cache import built, noted_library
from dovetail.cosim.rtl.rtl_engine import sources_hash
from dovetail.cosim.rtl.verilate import LAYOUT, ToolError, hash_of, machine, tool_failure, verilator_root
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
    tools = f"{systemc} {FLAGS}"

    def platform() -> Path:
        texts = platform_files(config)
        digest = hash_of(LAYOUT, tools, machine(), *(part for name in sorted(texts) for part in (name, texts[name])))

        def build(work: Path) -> str:
            for name, text in texts.items():
                (work / name).write_text(text)
            _make(work, systemc, cache / f"{digest}.log")
            return "platform"

        return built(cache, digest, build)

    return noted_library(cache, f"accelerator-{sources_hash(config, tools, makefile())}", platform)


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
        raise tool_failure(command, done, log)
