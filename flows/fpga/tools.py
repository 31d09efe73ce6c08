"""The programs that make a bitstream: native ones where they are on PATH, else those of the Python packages."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from shutil import which
from sys import executable

from dovetail.flows.fpga.design.boards import EXTRA
from dovetail.sw.errors import DovetailError

PREFIX = "yowasp-"
"""Prefix of YoWASP's programs."""
SECONDS = 120
"""Limit for a program that is asked for its version; the first start of a YoWASP one compiles it."""
LEAST = {"yosys": (0, 50), "nextpnr-ecp5": (0, 8), "nextpnr-ice40": (0, 8), "nextpnr-himbaechel-gowin": (0, 9)}
"""Least versions of native programs; distributions carry older ones, and YoWASP's are then used."""
TOLD = 600
"""Characters of a program's message that an error repeats."""


class BuildError(DovetailError):
    """A bitstream cannot be made; the text says why, with numbers, and what to change."""


@dataclass(frozen=True)
class Tool:
    """A program. ``command``: its words; ``version``: what it says about itself, empty if nothing."""

    name: str
    command: tuple[str, ...]
    version: str


def find(names: Sequence[str], given: Mapping[str, str]) -> dict[str, Tool]:
    """The programs by name. ``given``: commands of the user's choice, by name. Raises BuildError naming all missing."""
    found = {name: _tool(name, given.get(name, "")) for name in names}
    if missing := [name for name, tool in found.items() if tool is None]:
        verb = "is" if len(missing) == 1 else "are"
        raise BuildError(
            f"{', '.join(missing)} {verb} not installed, neither on PATH nor as {PREFIX}{missing[0]}; the extra fpga"
            f" has what is needed: {EXTRA}"
        )
    return {name: tool for name, tool in found.items() if tool is not None}


def run(tool: Tool, arguments: Sequence[str], folder: Path) -> subprocess.CompletedProcess[str]:
    """Run a program in a folder; whether it succeeded is in the result. Raises BuildError when it does not start."""
    try:
        done = subprocess.run([*tool.command, *arguments], cwd=folder, text=True, capture_output=True, errors="replace")
    except OSError as error:
        raise BuildError(f"{tool.command[0]}: must be a program that runs {tool.name} ({error.strerror})") from None
    if done.returncode < 0:
        raise BuildError(f"{tool.name} was ended by signal {-done.returncode}; 9 comes where memory runs out")
    return done


def complaint(done: subprocess.CompletedProcess[str]) -> str:
    """The errors in a failed program's output, or else its last lines."""
    text = (done.stderr + done.stdout).strip()
    errors = re.findall(r"^ERROR: .*", text, re.MULTILINE)
    return (" ".join(errors)[:TOLD] if errors else text[-TOLD:]) or f"ended with code {done.returncode}"


def _tool(name: str, given: str) -> Tool | None:
    """The program that the user names; the native one if it is new enough; YoWASP's; the native one."""
    try:
        words = tuple(shlex.split(given))
    except ValueError as error:
        raise BuildError(f"{given}: must be a command that runs {name} ({error})") from None
    if words:
        if os.sep in words[0]:  # it runs in another folder
            words = (str(Path(words[0]).absolute()), *words[1:])
        return Tool(name, words, _version(name, words))
    beside = [Path(executable).with_name(word) for word in (PREFIX + name, name)]  # `gowin_pack` has no prefix
    wheels = [str(path) for path in beside if path.exists()]
    paths = (which(name), wheels[0] if wheels else which(PREFIX + name))
    native, wheel = (Tool(name, (path,), _version(name, (path,))) if path else None for path in paths)
    if native and (wheel is None or _numbers(native.version) >= LEAST.get(name, ())):
        return native
    return wheel


def _numbers(version: str) -> tuple[int, ...]:
    """The first two numbers of a version."""
    return tuple(map(int, re.findall(r"\d+", version)[:2]))


def _version(name: str, words: tuple[str, ...]) -> str:
    """A program's version in one line, or empty."""
    try:
        done = subprocess.run(
            [*words, "--version"],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=SECONDS,
            errors="replace",
        )
    except (OSError, subprocess.SubprocessError):
        raise BuildError(f"{words[0]}: must be a program that runs {name}; it does not start") from None
    found = re.search(r"(?:Version (?:nextpnr-)?|Yosys )([\w.+-]+)(?: \(git sha1 (\w+))?", done.stdout + done.stderr)
    if done.returncode or not found:
        return ""
    return f"{found[1]} ({found[2]})" if found[2] else found[1]
