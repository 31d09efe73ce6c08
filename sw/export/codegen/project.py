"""Everything of a generated project: its files from templates, the driver, the kernels that it needs, the weights."""

from __future__ import annotations

import re
import struct
import zlib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path
from string import Template
from textwrap import indent

import numpy as np

import dovetail
from dovetail.isa.common.files import write_atomically
from dovetail.isa.program import Program
from dovetail.sw.errors import NetworkError
from dovetail.sw.export.codegen.c_text import comment, identifier, lines_of, number, printable
from dovetail.sw.export.codegen.inference import C_TYPES, Array, Inference, inference_of
from dovetail.sw.export.codegen.writer import ALIGN
from dovetail.sw.export.driver_files import ISA_HEADER, driver_files
from dovetail.sw.runtime.compiled_network import CompiledNetwork

PREFIX = "inference"
"""What the names of a network's files, functions, types and macros begin with, unless the user says otherwise."""
DRIVER = ("dovetail.h", "dovetail.c", "dovetail_host.h", ISA_HEADER, "uio.c", "barrier.h")
KEEPS = (
    "    int keeps; /* whether SRAM has what the last inference left there. Make it 0 where the accelerator has run"
    " something else or was reset */\n"
)
"""A member, where something stays in SRAM from run to run."""
_FUNCTION = re.compile(r"^(?:void|int) (dovetail_\w+)\(", re.MULTILINE)
"""A kernel, in its file."""
SHARED = ("dovetail_walk.h", "dovetail_float.h")
"""What only some kernels include; the other files of this prefix are part of every project."""


class _Text(Template):
    """A template with @@ in front of its names: C and Make have no other use for it."""

    delimiter = "@@"
    idpattern = "[a-z_]+"


@dataclass(frozen=True)
class Project:
    """A generated project.

    ``files``: bytes by name; ``weights``: name of the weights file; ``weights_bytes``, ``memory_bytes``,
    ``scratch_bytes``: of the weights file, of shared and of scratch memory; ``state_bytes``: of the variables, which
    lie in these; ``kernels``: C files of the kernels in use; ``inexact``: nodes whose float kernel may round in another
    way than the runtime.
    """

    files: Mapping[str, bytes]
    weights: str
    weights_bytes: int
    memory_bytes: int
    scratch_bytes: int
    state_bytes: int
    kernels: tuple[str, ...]
    inexact: tuple[str, ...]

    def write(self, folder: Path) -> None:
        """Write all files into a folder, which is made. Raises OSError."""
        folder.mkdir(parents=True, exist_ok=True)
        for name, data in self.files.items():
            write_atomically(folder / name, data)


def project_of(compiled: CompiledNetwork, *, embed: bool = False, prefix: str = PREFIX) -> Project:
    """Generate the project of a compiled network.

    Parameters
    ----------
    embed
        The weights file as a C array, too.
    prefix
        What the names of the network's files, functions, types and macros begin with; those of two networks in one
        program must differ.

    Raises
    ------
    NetworkError
        The prefix is no name for that.
        A node of the host has no kernel; names the node, its operator and the way out.
    """
    check_prefix(prefix)
    inference = inference_of(compiled)
    weights = weights_file(compiled.program)
    title = _title(compiled, prefix)
    available = _kernels()
    common = {name: text for name, text in available.items() if name.startswith("dovetail_") and name not in SHARED}
    kernels = {
        name: text
        for name, text in available.items()
        if name not in (*common, *SHARED) and not inference.functions.isdisjoint(_FUNCTION.findall(text))
    }
    sources = [f"{prefix}.c", "dovetail.c", *(name for name in (*common, *kernels) if name.endswith(".c"))]
    driver = driver_files(compiled.config, examples=True)
    texts = {
        f"{prefix}.h": _header(title, compiled, inference, len(weights), embed),
        f"{prefix}.c": _source(title, compiled, inference, crc_of(weights)),
        "main.c": _main(title, inference),
        **{name: driver[name] for name in DRIVER},
        **common,
        **kernels,
    }
    for name in SHARED:
        if any(f'#include "{name}"' in text for text in kernels.values()):
            texts[name] = available[name]
    if inference.constants:
        texts[f"{prefix}_data.h"] = _data(title, inference)
    if embed:
        texts[f"{prefix}_weights.c"] = _embedded(title, weights)
        sources.append(f"{prefix}_weights.c")
    texts["Makefile"] = _fill(
        "Makefile",
        prefix=prefix,
        objects=" ".join(name.replace(".c", ".o") for name in sources),
        libraries="-lm" if any("#include <math.h>" in text for text in kernels.values()) else "",
    )
    return Project(
        {**{name: text.encode() for name, text in texts.items()}, f"{prefix}_weights.bin": weights},
        f"{prefix}_weights.bin",
        len(weights),
        compiled.code.memory_bytes,
        inference.scratch_bytes,
        inference.state_bytes,
        tuple(kernels),
        inference.inexact,
    )


def _kernels() -> dict[str, str]:
    folder = files("dovetail.sw.export").joinpath("c/kernels")
    return {path.name: path.read_text() for path in sorted(folder.iterdir(), key=lambda path: path.name)}


def _resource(folder: str, name: str) -> str:
    return files("dovetail.sw.export").joinpath(folder, name).read_text()


def _fill(template: str, **values: object) -> str:
    return _Text(_resource("codegen/templates", template)).substitute(values)


def check_prefix(prefix: str) -> None:
    """Raise NetworkError unless names of the network's own can begin so, and no file of the driver is called so."""
    if not re.fullmatch("[A-Za-z][A-Za-z0-9_]{0,31}", prefix) or identifier(prefix) != prefix.lower().strip("_"):
        raise NetworkError(f"prefix must be a C name of up to 32 letters, digits and underscores, not {prefix!r}")
    others = {Path(name).stem for name in (*DRIVER, *_kernels())} | {"main"}
    if prefix in others or prefix.startswith("dovetail"):
        raise NetworkError(f"prefix must differ from the names of the driver and the kernels, unlike {prefix!r}")


def _title(compiled: CompiledNetwork, prefix: str) -> dict[str, str]:
    return {
        "prefix": prefix,
        "macro": prefix.upper(),
        "network": printable(compiled.graph.name),
        "hash": f"0x{compiled.config.hash:016x}",
        "version": dovetail.__version__,
    }


def _header(
    title: Mapping[str, str], compiled: CompiledNetwork, inference: Inference, weights_bytes: int, embed: bool
) -> str:
    prefix, macro = title["prefix"], title["macro"]
    ranges = {one.name: f", {one.low} to {one.high}" for one in compiled.code.parameters.inputs}
    embedded = f"\n#define {macro}_EMBEDDED\nextern const uint8_t {prefix}_weights[{macro}_WEIGHTS_BYTES];\n"
    return _fill(
        "inference.h",
        **title,
        memory_bytes=compiled.code.memory_bytes,
        scratch_bytes=inference.scratch_bytes,
        weights_bytes=weights_bytes,
        cycles=compiled.report().cycles,
        bound=max((segment.bound for segment in compiled.program.segments), default=0),
        align=ALIGN,
        embedded=embedded if embed else "",
        scratch_note=", kept between runs" if "SCRATCH(" in "".join(inference.reset) else "",
        kept=_fill("reset.h", **title) if inference.reset else "",
        keeps=KEEPS if compiled.code.keeps else "",
        ports="\n".join(
            _ports(macro, "INPUT", inference.inputs, ranges) + _ports(macro, "OUTPUT", inference.outputs, {})
        ),
        inputs="".join(f"    const {C_TYPES[a.port.dtype]} *{a.member};\n" for a in inference.inputs),
        outputs="".join(f"    {C_TYPES[a.port.dtype]} *{a.member};\n" for a in inference.outputs),
    )


def _ports(macro: str, kind: str, arrays: Iterable[Array], ranges: Mapping[str, str]) -> list[str]:
    """``ranges``: what is said of tensors whose numbers have a range of their own."""
    lines = []
    for array in arrays:
        port, name = array.port, f"{macro}_{array.member.upper()}"
        shape = "".join(f"[{size}]" for size in port.shape)
        lines += [
            comment(f"{kind.lower()} {port.name}: {port.dtype} {shape}{ranges.get(port.tensor, '')}"),
            f"#define {name}_ELEMENTS {array.elements}u",
        ]
        if port.scale is not None:
            lines += [f"#define {name}_SCALE {number(port.scale)}", f"#define {name}_ZERO_POINT ({port.zero_point})"]
    total = sum(array.elements * array.item_bytes for array in arrays)
    return [*lines, f"#define {macro}_{kind}_BYTES {total}u /* of all {kind.lower()}s */", ""]


def _source(title: Mapping[str, str], compiled: CompiledNetwork, inference: Inference, crc: int) -> str:
    segments = bool(compiled.code.segments)
    body = "\n".join(inference.lines)
    variables = [*_memories(body), *(["int status;"] if segments else [])]
    variables += ["uint32_t skipped; /* pages */"] if "skipped" in body else []
    return _fill(
        "inference.c",
        **title,
        data=f'#include "{title["prefix"]}_data.h"\n' if inference.constants else "",
        crc=f"0x{crc:08x}",
        align=ALIGN,
        run_segment=_fill("run_segment.c", prefix=title["prefix"]) if segments else "",
        reset=_reset(title, inference) if inference.reset else "",
        start=_fill("start.c", **title) if inference.reset else "",
        statements=indent("\n".join([*variables, "inference->cycles = 0;", body]), "    "),
    )


def _memories(body: str) -> list[str]:
    """Definitions of the memories that statements name."""
    memory = ["uint8_t *const memory = inference->memory.address;"] if "MEMORY(" in body else []
    return [*memory, *(["uint8_t *const scratch = inference->scratch;"] if "SCRATCH(" in body else [])]


def _reset(title: Mapping[str, str], inference: Inference) -> str:
    """The function that gives variables their initial values."""
    body = "\n".join(inference.reset)
    return _fill(
        "reset.c", **title, statements=indent("\n".join([*_memories(body), "int status = DOVETAIL_OK;", body]), "    ")
    )


def _main(title: Mapping[str, str], inference: Inference) -> str:
    arrays = {array: f"input_{array.member}" for array in inference.inputs}
    arrays |= {array: f"output_{array.member}" for array in inference.outputs}
    inputs, outputs = ([arrays[array] for array in ports] for ports in (inference.inputs, inference.outputs))
    return _fill(
        "main.c",
        **title,
        arrays="\n".join(
            f"static {C_TYPES[array.port.dtype]} {name}[{array.elements}];" for array, name in arrays.items()
        ),
        reads="\n".join(f"    bytes += fread({name}, 1, sizeof {name}, file);" for name in inputs),
        writes="\n".join(f"    bytes += fwrite({name}, 1, sizeof {name}, file);" for name in outputs),
        input_names=", ".join(inputs),
        output_names=", ".join(outputs),
    )


def _data(title: Mapping[str, str], inference: Inference) -> str:
    about = comment(f"Constants of the host's part of {title['network']}, for {title['prefix']}.c alone.")
    return f'{about}\n#include <math.h>\n\n#include "dovetail_kernels.h"\n\n{inference.constants}'


def _embedded(title: Mapping[str, str], weights: bytes) -> str:
    prefix = title["prefix"]
    about = comment(f"{prefix}_weights.bin as an array.")
    return f'{about}\n#include "{prefix}.h"\n\nconst uint8_t {prefix}_weights[] = {{\n{lines_of(weights)}\n}};\n'


MAGIC, VERSION = b"DOVEWGTS", 1
_HEAD = struct.Struct("<8sIIQII")
_SECTION = struct.Struct("<II")
_CRC = struct.Struct("<I")
_GAP = 64
"""Zero bytes that are worth a section of their own behind them."""


def weights_file(program: Program) -> bytes:
    """The file of a program; ``dovetail_weights.h`` describes it."""
    sections = [section for offset, data in sorted(program.images) for section in _sections(offset, data)]
    size = _HEAD.size + sum(_SECTION.size + len(data) for _, data in sections) + _CRC.size
    header = _HEAD.pack(MAGIC, VERSION, len(sections), program.config.hash, program.memory_bytes, size)
    table = b"".join(_SECTION.pack(offset, len(data)) for offset, data in sections)
    body = b"".join((header, table, *(data for _, data in sections)))
    return body + _CRC.pack(zlib.crc32(body))


def crc_of(file: bytes) -> int:
    """The checksum at a file's end."""
    (crc,) = _CRC.unpack(file[-_CRC.size :])
    return int(crc)


def _sections(offset: int, data: bytes) -> Iterator[tuple[int, bytes]]:
    """(offset, bytes) of an image, cut where there are many zeros."""
    used = np.flatnonzero(np.frombuffer(data, np.uint8))
    for part in np.split(used, np.flatnonzero(np.diff(used) > _GAP) + 1):
        if part.size:
            first, last = int(part[0]), int(part[-1])
            yield offset + first, data[first : last + 1]
