"""A SystemC platform behind the engine interface: a process whose simulated host plays a script."""

import json
import shlex
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np

from dovetail.cosim.systemc.build import SystemC, build_platform, find_systemc
from dovetail.isa.common.cplusplus import ToolError
from dovetail.isa.config.given import ConfigError, MemoryTiming
from dovetail.isa.config.resolved import Config
from dovetail.isa.host import HOST_REGISTERS
from dovetail.isa.instructions.parameters import check_values
from dovetail.sw.runtime.engine import Bytes, DeviceEngine, RunResult, without_timeline

WORDS = 60
"""Of what a platform that fails has said, in the error."""
SERVER = "dovetail.cosim.systemc.server"


class SystemCEngine(DeviceEngine):
    """The accelerator on the platform of ``main.cpp``; an :class:`~dovetail.sw.runtime.engine.Engine` whose timeline is
    empty.

    Parameters
    ----------
    config
        The accelerator. Configurations that differ in ``memory`` only share a build.
    cache
        Folder of the builds; the first use of a configuration compiles for a minute or more.
    view
        The timed view instead of RTL.
    systemc
        The installation; looked for without.
    options
        More options of the platform, such as ``--poll``.

    Members
    -------
    broken
        (address, bytes) of parts of system memory that answer with bus errors, multiples of 64.
    latest
        What the platform said of the latest run: times in picoseconds, seconds that it took, registers by offset.

    Raises
    ------
    ToolError
        SystemC, Verilator, make or the C++ compiler is missing or fails, or the platform does.
    """

    def __init__(
        self,
        config: Config,
        *,
        cache: Path,
        view: bool = False,
        systemc: SystemC | None = None,
        options: tuple[str, ...] = (),
    ) -> None:
        self._config = config
        self.broken: tuple[tuple[int, int], ...] = ()
        self.latest: dict[str, Any] = {}
        self._folder = tempfile.TemporaryDirectory(prefix="dovetail-systemc-")
        folder = Path(self._folder.name)
        memory = config.memory
        if not isinstance(memory, MemoryTiming):
            raise ConfigError(f"memory must be fixed on the SystemC platform, not {memory.label}")
        if config.parameters:
            raise ConfigError(f"parameters must be 0 on the SystemC platform, not {config.parameters}")
        command = [str(build_platform(config, cache, systemc or find_systemc()).resolve()), *options]
        command += ["--memory", f"{memory.read_latency}:{memory.write_latency}:{memory.beat_cycles}"]
        if view:
            (folder / "config.toml").write_text(config.to_toml())
            command += ["--view", shlex.join([sys.executable, "-m", SERVER, "config.toml"])]
        self._command = command
        self._process: subprocess.Popen[str] | None = None

    def close(self) -> None:
        """End the process. Another run starts a new one, as after power-up."""
        self.holds = None
        if self._process is not None:
            self._process.communicate()
            self._process = None

    reset = close

    def _run_copy(self, memory: Bytes) -> None:
        latest, broken, self.broken = self.latest, self.broken, ()
        self.run(memory, 0, 1)
        self.latest, self.broken = latest, broken

    def run(self, memory: Bytes, program: int, pages: int, base: int = 0, parameters: Sequence[int] = ()) -> RunResult:
        """Run a program; see :class:`dovetail.sw.runtime.engine.Engine`. Raises ToolError when the platform fails."""
        check_values(self._config, parameters)
        self.holds = None
        folder = Path(self._folder.name)
        memory.tofile(folder / "image.bin")
        broken = "".join(f" {address}:{size}" for address, size in self.broken)
        self.play(f"load image.bin{broken}")
        self.latest = self.play(f"run {program}:{pages}:{base}")
        self.play("save memory.bin")
        memory[:] = np.fromfile(folder / "memory.bin", np.uint8)
        values = {int(offset): value for offset, value in self.latest["registers"].items()}
        return without_timeline(memory, lambda name: values[HOST_REGISTERS[name].offset])

    def play(self, line: str) -> dict[str, Any]:
        """A line of the platform's script, and its answer. Raises ToolError when the platform fails."""
        if self._process is None:
            self._process = subprocess.Popen(
                self._command,
                cwd=self._folder.name,
                text=True,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
            )
        process = self._process
        assert process.stdin is not None and process.stdout is not None
        said: list[str] = []
        with suppress(BrokenPipeError):
            process.stdin.write(line + "\n")
            process.stdin.flush()
        for answer in process.stdout:
            if answer.startswith("{"):
                found: dict[str, Any] = json.loads(answer)
                return found
            said += answer.split()
        self._process = None
        process.wait()
        raise ToolError(f"the SystemC platform has ended: {' '.join(said[-WORDS:])}")
