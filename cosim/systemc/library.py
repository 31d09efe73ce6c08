"""Where SystemC is: headers and library, which no Python package brings (the wheel ``systemc`` has headers only)."""

import subprocess
from dataclasses import dataclass
from pathlib import Path

from dovetail.cosim.rtl.verilate import ToolError, compiler

VERSION = "#include <sysc/kernel/sc_ver.h>\nVERSION SC_VERSION_MAJOR SC_VERSION_MINOR SC_VERSION_PATCH\n"


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
