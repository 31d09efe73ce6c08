"""Programs for the SoC's processor: C sources become bytes in memory, by the compiler of the Python package ziglang."""

import importlib.util
import os
import struct
import sys
import tempfile
from collections.abc import Mapping, Sequence
from importlib.resources import files
from pathlib import Path

from dovetail.hw.soc.design import PERIPHERAL, REGISTERS
from dovetail.hw.soc.peripheral import Register
from dovetail.isa.common.cplusplus import ToolError, run_tool, tool_failure

HOST_BYTES = 16 << 20
"""Of memory, from address 0 on, for the program, its variables and its stack."""
LINKER = "soc.ld"
MAIN = 0xFFFF_FFFF
"""The mark of main()."""
TRAP = 0x100
"""What is added to the cause of a trap in the status with which the program ends."""
FLAGS = (
    *(
        "-target",
        "riscv32-freestanding",
        "-mcpu=generic_rv32+m",
        "-O2",
        "-std=c99",
        "-ffreestanding",
        "-ffunction-sections",
    ),
    *("-ffp-contract=off", "-fno-sanitize=undefined", "-Wall", "-Wextra", "-Werror"),
)
"""RV32IM, without compressed instructions; floats are computed by functions, as C says."""
_HEADER = struct.Struct("<16sHHIIIIIHHHHHH")
_SEGMENT = struct.Struct("<8I")
_LOAD = 1


def runtime_files() -> dict[str, str]:
    """The start file, the linker's script, headers, and for an inference the host and the main function, by name."""
    return {path.name: path.read_text() for path in files("dovetail.cosim.soc").joinpath("c").iterdir()}


def soc_header(addresses: Mapping[str, str]) -> str:
    """The text of ``soc.h``: registers, and further macros."""
    macros = {
        "ACCELERATOR": f"{REGISTERS:#x}",
        **{register.name: f"{PERIPHERAL + register:#x}" for register in Register},
        "MARK_MAIN": f"{MAIN:#x}",
        "TRAP": f"{TRAP:#x}",
        **addresses,
    }
    return "".join(f"#define SOC_{name} {value}\n" for name, value in macros.items())


def compile_program(sources: Mapping[str, str], defines: Sequence[str], cache: Path) -> list[tuple[int, bytes]]:
    """(address, bytes) of a program's parts.

    Parameters
    ----------
    sources
        Text by file name; those that end in ``.c`` or ``.S`` are compiled. ``soc.h`` is among them.
    defines
        Macros, ``NAME=value``.
    cache
        Folder in which the compiler keeps its runtime library.

    Raises
    ------
    ToolError
        The compiler is missing, or the sources do not compile.
    """
    if importlib.util.find_spec("ziglang") is None:
        raise ToolError('the SoC needs a compiler for RISC-V: pip install "dovetail[soc]"')
    texts = {name: text for name, text in runtime_files().items() if not name.endswith(".c")} | dict(sources)
    texts[LINKER] = texts[LINKER].replace("HOST_BYTES", str(HOST_BYTES))
    with tempfile.TemporaryDirectory() as folder:
        for name, text in texts.items():
            (Path(folder) / name).write_text(text)
        command = ["zig", "cc", *FLAGS, *(f"-D{define}" for define in defines), "-I."]
        command += sorted(name for name in texts if name.endswith((".c", ".S")))
        command += ["-T", LINKER, "-static", "-Wl,--gc-sections", "-o", "program.elf"]
        keep = {f"ZIG_{which}_CACHE_DIR": str(Path(cache).absolute() / "zig") for which in ("GLOBAL", "LOCAL")}
        python = [sys.executable, "-m", "ziglang"]
        done = run_tool([*python, *command[1:]], Path(folder), environment={**os.environ, **keep})
        if done.returncode:
            raise tool_failure(command, done)
        return loaded_parts((Path(folder) / "program.elf").read_bytes())


def loaded_parts(elf: bytes) -> list[tuple[int, bytes]]:
    """(address, bytes) of what an ELF file of 32 bits has in memory."""
    first, size, count = (_HEADER.unpack_from(elf)[n] for n in (5, 9, 10))
    parts = []
    for number in range(count):
        kind, offset, _, address, held, *_ = _SEGMENT.unpack_from(elf, first + number * size)
        if kind == _LOAD and held:
            parts.append((address, elf[offset : offset + held]))
    return parts
