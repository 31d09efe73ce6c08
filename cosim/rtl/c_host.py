"""C applications on the Verilated accelerator: the sources that drive hardware, on another host.

An application gets its hardware from ``dovetail_host_open`` (see ``dovetail_host.h``). Here that function is in
``c_host.c``: it hands out registers, interrupt and memory of the RTL, in the build that the engine ``rtl`` uses.
"""

import shutil
import tempfile
from collections.abc import Mapping
from importlib.resources import files
from pathlib import Path

from dovetail.cosim.rtl.block import driver
from dovetail.cosim.rtl.rtl_engine import accelerator_library
from dovetail.isa.common.cplusplus import ToolError, run_tool, tool_failure
from dovetail.isa.config.resolved import Config
from dovetail.isa.timing.memories.models import numbers_of
from dovetail.sw.export.driver_files import driver_files

FLAGS = ("-std=c99", "-Wall", "-Wextra", "-Werror", "-pedantic", "-O2")
"""The ones that users of the driver should be able to take."""


def c_compiler() -> str:
    """The C compiler. Raises :class:`ToolError`."""
    path = shutil.which("gcc") or shutil.which("cc")
    if path is None:
        raise ToolError("gcc is not on PATH; C applications need a C compiler (Debian: apt install gcc)")
    return path


def c_program(
    config: Config, sources: Mapping[str, str], output: Path, *, cache: Path, defines: Mapping[str, str] | None = None
) -> Path:
    """Compile an application with the driver, for ``config`` and the timing of its memory.

    Parameters
    ----------
    config
        The accelerator.
    sources
        Text by file name, headers as well. They may include every file of the driver; one of them has ``main``.
    output
        The executable to write. The simulator is put beside it, with ``.so`` behind its name; they move together.
    cache
        Folder of the RTL builds; the first use of a configuration compiles for some seconds.
    defines
        Macros for all sources.

    Raises
    ------
    ToolError
        A tool is missing, or the sources do not compile.
    """
    kind, timing = numbers_of(config.memory)
    macros = {
        "MEMORY_KIND": kind,
        "MEMORY_TIMING": ",".join(map(str, timing.tolist())),
        **(defines or {}),
    }
    library = output.with_name(f"{output.name}.so")
    library.unlink(missing_ok=True)  # a process may be using it
    shutil.copyfile(accelerator_library(config, cache), library)
    host = {name: driver(name) for name in ("c_host.c", "accelerator.h")}
    texts = {**driver_files(config), **host, **sources}
    with tempfile.TemporaryDirectory() as folder:
        for name, text in texts.items():
            (Path(folder) / name).write_text(text)
        command = [c_compiler(), *FLAGS, *(f"-D{name}={value}" for name, value in macros.items())]
        command += [name for name in sorted(texts) if name.endswith(".c")]
        command += ["-o", str(output.resolve()), "-L", str(library.parent.resolve()), f"-l:{library.name}", "-lm"]
        command += ["-Wl,-rpath,$ORIGIN"]
        done = run_tool(command, Path(folder))
    if done.returncode:
        raise tool_failure(command, done)
    return output


def example_sources() -> dict[str, str]:
    """The example application without a host: it runs a program file, see ``main.c``."""
    folder = files("dovetail.sw.export").joinpath("c/driver/examples")
    return {name: folder.joinpath(name).read_text() for name in ("main.c", "network.c", "network.h")}
