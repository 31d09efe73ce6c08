"""From a configuration to the executable platform: where SystemC is, and the platform's own Makefile, kept in the
builds' cache.

Headers and library of SystemC come with no Python package: the wheel ``systemc`` has headers only.
"""

import os
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path

from dovetail.cosim.rtl.rtl_engine import sources_hash
from dovetail.cosim.rtl.verilate import LAYOUT, machine, verilator_root
from dovetail.cosim.systemc.folder import makefile, platform_files
from dovetail.isa.common.build_cache import built, noted_library
from dovetail.isa.common.cplusplus import ToolError, compiler, hash_of, run_tool, tool_failure
from dovetail.isa.config.given import MemoryTiming
from dovetail.isa.config.resolved import Config

VERSION = "#include <sysc/kernel/sc_ver.h>\nVERSION SC_VERSION_MAJOR SC_VERSION_MINOR SC_VERSION_PATCH\n"
FLAGS = ("FAST=-O3 -march=native", "SLOW=-O0")
"""For this machine."""
JOBS = 2
"""Compilers at a time."""


@dataclass(frozen=True)
class SystemC:
    """An installation. ``prefix``: its folder, None where the compiler finds it; ``version`` such as ``2.3.4``."""

    prefix: Path | None
    version: str


def find_systemc(prefix: Path | None = None) -> SystemC:
    """SystemC in ``prefix`` (its ``include`` and ``lib*``), or where the compiler looks. Raises :class:`ToolError`."""
    if prefix is not None:
        if not (prefix / "include" / "systemc").exists() or not list(prefix.glob("lib*/libsystemc.*")):
            raise ToolError(f"SystemC's folder must have include/systemc and lib*/libsystemc.*, not {prefix}")
        return SystemC(prefix, _version([f"-I{prefix / 'include'}"]))
    asked = [[compiler(), f"-print-file-name=libsystemc.{kind}"] for kind in ("so", "a")]
    found = [subprocess.run(command, text=True, capture_output=True).stdout.strip() for command in asked]
    version = _version([])
    if not version or not any(Path(path).is_absolute() for path in found):
        raise ToolError(
            "SystemC is not installed: apt install libsystemc-dev (Debian), or give its folder with --systemc;"
            " the Python package systemc has headers only"
        )
    return SystemC(None, version)


def _version(flags: list[str]) -> str:
    """What the headers say; empty if there are none."""
    command = [compiler(), "-E", "-P", "-x", "c++", "-std=gnu++17", *flags, "-"]
    text = subprocess.run(command, input=VERSION, text=True, capture_output=True).stdout
    words = text.partition("VERSION ")[2].split()
    return ".".join(words)


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
    done = run_tool(command, work, environment=env)
    if done.returncode:
        raise tool_failure(command, done, log)
