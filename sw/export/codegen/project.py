"""Everything of a generated project: its files, from templates, the driver and the kernels that it needs."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path
from string import Template
from textwrap import indent

import dovetail
from dovetail.isa.common.files import write_atomically
from dovetail.sw.errors import NetworkError
from dovetail.sw.export.codegen.c_text import comment, identifier, lines_of, number, printable
from dovetail.sw.export.codegen.inference import C_TYPES, Array, Schedule, schedule_of
from dovetail.sw.export.codegen.storage import ALIGN
from dovetail.sw.export.codegen.weights_file import crc_of, weights_file
from dovetail.sw.export.driver_files import ISA_HEADER, driver_files
from dovetail.sw.runtime.compiled_network import CompiledNetwork

PREFIX = "inference"
"""What the names of a network's files, functions, types and macros begin with, unless the user says otherwise."""
DRIVER = ("dovetail.h", "dovetail.c", "dovetail_host.h", ISA_HEADER, "uio.c", "barrier.h")
COMMON = (
    "dovetail_arithmetic.h",
    "dovetail_arithmetic.c",
    "dovetail_kernels.h",
    "dovetail_weights.h",
    "dovetail_weights.c",
)
KERNELS: Mapping[str, tuple[str, ...]] = {
    "convolution.c": ("convolve",),
    "depthwise.c": ("convolve_depthwise",),
    "pooling.c": ("pool_average", "pool_maximum", "mean"),
    "matrices.c": ("multiply_matrices",),
    "elementwise.c": ("sum", "multiply", "rescale", "look_up", "flip"),
    "movement.c": ("move", "gather", "pad"),
    "conversion.c": ("quantise", "dequantise"),
    "softmax.c": ("softmax",),
    "softmax_table.c": ("softmax_table",),
    "float_normalisation.c": ("softmax_float", "layer_norm"),
    "float_elementwise.c": ("float_pairs",),
}
"""Files of the kernels, and the functions in them without their prefix."""
_WALK = "dovetail_walk.h"
_WALKERS = ("elementwise.c", "movement.c", "float_elementwise.c")
_MATHEMATICAL = "float_normalisation.c"


class _Text(Template):
    """A template with @@ in front of its names: C and Make have no other use for it."""

    delimiter = "@@"
    idpattern = "[a-z_]+"


@dataclass(frozen=True)
class Project:
    """A generated project.

    ``files``: bytes by name; ``weights``: name of the weights file; ``weights_bytes``, ``memory_bytes``,
    ``scratch_bytes``: of the weights file, of shared and of scratch memory; ``kernels``: C files of the kernels in use;
    ``inexact``: nodes whose float kernel may round
    in another way than the runtime.
    """

    files: Mapping[str, bytes]
    weights: str
    weights_bytes: int
    memory_bytes: int
    scratch_bytes: int
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
    if compiled.graph.states:
        raise NetworkError(
            f"{compiled.graph.name}: network must have no variables, not {compiled.graph.states[0].name!r}: generated C"
            " keeps nothing between runs; `dovetail run` and the Python library do"
        )
    schedule = schedule_of(compiled)
    weights = weights_file(compiled.program)
    title = _title(compiled, prefix)
    kernels = tuple(
        name for name, functions in KERNELS.items() if schedule.functions & {f"dovetail_{text}" for text in functions}
    )
    sources = [f"{prefix}.c", "dovetail.c", *(name for name in (*COMMON, *kernels) if name.endswith(".c"))]
    driver = driver_files(compiled.config, examples=True)
    texts = {
        f"{prefix}.h": _header(title, compiled, schedule, len(weights), embed),
        f"{prefix}.c": _source(title, compiled, schedule, crc_of(weights)),
        "main.c": _main(title, schedule),
        **{name: driver[name] for name in DRIVER},
        **{name: _resource("c/kernels", name) for name in (*COMMON, *kernels)},
    }
    if not set(_WALKERS).isdisjoint(kernels):
        texts[_WALK] = _resource("c/kernels", _WALK)
    if schedule.constants:
        texts[f"{prefix}_data.h"] = _data(title, schedule)
    if embed:
        texts[f"{prefix}_weights.c"] = _embedded(title, weights)
        sources.append(f"{prefix}_weights.c")
    texts["Makefile"] = _fill(
        "Makefile",
        prefix=prefix,
        objects=" ".join(name.replace(".c", ".o") for name in sources),
        libraries="-lm" if _MATHEMATICAL in kernels else "",
    )
    return Project(
        {**{name: text.encode() for name, text in texts.items()}, f"{prefix}_weights.bin": weights},
        f"{prefix}_weights.bin",
        len(weights),
        compiled.code.memory_bytes,
        schedule.scratch_bytes,
        kernels,
        schedule.inexact,
    )


def _resource(folder: str, name: str) -> str:
    return files("dovetail.sw.export").joinpath(folder, name).read_text()


def _fill(template: str, **values: object) -> str:
    return _Text(_resource("codegen/templates", template)).substitute(values)


def check_prefix(prefix: str) -> None:
    """Raise NetworkError unless names of the network's own can begin so, and no file of the driver is called so."""
    if not re.fullmatch("[A-Za-z][A-Za-z0-9_]{0,31}", prefix) or identifier(prefix) != prefix.lower().strip("_"):
        raise NetworkError(f"prefix must be a C name of up to 32 letters, digits and underscores, not {prefix!r}")
    others = {Path(name).stem for name in (*DRIVER, *COMMON, *KERNELS)} | {"main"}
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
    title: Mapping[str, str], compiled: CompiledNetwork, schedule: Schedule, weights_bytes: int, embed: bool
) -> str:
    prefix, macro = title["prefix"], title["macro"]
    embedded = f"\n#define {macro}_EMBEDDED\nextern const uint8_t {prefix}_weights[{macro}_WEIGHTS_BYTES];\n"
    return _fill(
        "inference.h",
        **title,
        memory_bytes=compiled.code.memory_bytes,
        scratch_bytes=schedule.scratch_bytes,
        weights_bytes=weights_bytes,
        cycles=compiled.report().cycles,
        bound=max((segment.bound for segment in compiled.program.segments), default=0),
        align=ALIGN,
        embedded=embedded if embed else "",
        ports="\n".join(_ports(macro, "INPUT", schedule.inputs) + _ports(macro, "OUTPUT", schedule.outputs)),
        inputs="".join(f"    const {C_TYPES[a.port.dtype]} *{a.member};\n" for a in schedule.inputs),
        outputs="".join(f"    {C_TYPES[a.port.dtype]} *{a.member};\n" for a in schedule.outputs),
    )


def _ports(macro: str, kind: str, arrays: Iterable[Array]) -> list[str]:
    lines = []
    for array in arrays:
        port, name = array.port, f"{macro}_{array.member.upper()}"
        shape = "".join(f"[{size}]" for size in port.shape)
        lines += [
            comment(f"{kind.lower()} {port.name}: {port.dtype} {shape}"),
            f"#define {name}_ELEMENTS {array.elements}u",
        ]
        if port.scale is not None:
            lines += [f"#define {name}_SCALE {number(port.scale)}", f"#define {name}_ZERO_POINT ({port.zero_point})"]
    total = sum(array.elements * array.item_bytes for array in arrays)
    return [*lines, f"#define {macro}_{kind}_BYTES {total}u /* of all {kind.lower()}s */", ""]


def _source(title: Mapping[str, str], compiled: CompiledNetwork, schedule: Schedule, crc: int) -> str:
    segments = bool(compiled.code.segments)
    body = "\n".join(schedule.lines)
    variables = ["uint8_t *const memory = inference->memory.address;"] if "MEMORY(" in body else []
    variables += ["uint8_t *const scratch = inference->scratch;"] if "SCRATCH(" in body else []
    variables += ["int status;"] if segments else []
    return _fill(
        "inference.c",
        **title,
        data=f'#include "{title["prefix"]}_data.h"\n' if schedule.constants else "",
        crc=f"0x{crc:08x}",
        align=ALIGN,
        run_segment=_fill("run_segment.c", prefix=title["prefix"]) if segments else "",
        statements=indent("\n".join([*variables, "inference->cycles = 0;", body]), "    "),
    )


def _main(title: Mapping[str, str], schedule: Schedule) -> str:
    arrays = {array: f"input_{array.member}" for array in schedule.inputs}
    arrays |= {array: f"output_{array.member}" for array in schedule.outputs}
    inputs, outputs = ([arrays[array] for array in ports] for ports in (schedule.inputs, schedule.outputs))
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


def _data(title: Mapping[str, str], schedule: Schedule) -> str:
    about = comment(f"Constants of the host's part of {title['network']}, for {title['prefix']}.c alone.")
    return f'{about}\n#include <math.h>\n\n#include "dovetail_kernels.h"\n\n{schedule.constants}'


def _embedded(title: Mapping[str, str], weights: bytes) -> str:
    prefix = title["prefix"]
    about = comment(f"{prefix}_weights.bin as an array.")
    return f'{about}\n#include "{prefix}.h"\n\nconst uint8_t {prefix}_weights[] = {{\n{lines_of(weights)}\n}};\n'
