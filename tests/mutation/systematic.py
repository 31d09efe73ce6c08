"""Mutants of the accelerator's Amaranth code: which ones does nobody notice?

    python -m tests.mutation.systematic --results out/mutants.jsonl [--minutes N] [--programs N] [--files ...]
    python -m tests.mutation.systematic --results out/mutants.jsonl --units [--minutes N]
    python -m tests.mutation.systematic --results out/mutants.jsonl --report docs/mutants.md

All mutants of ``mutants.py`` are built into one Verilated model, each behind a switch, of the form that is synthesised,
and into a second one of the simulation form with a wider memory. Each one runs random programs, then faults, in
lockstep with the model until something differs, on the first and, if it survives, on the second. Mutants come in a
random order (``--seed``), so a run that is stopped has a sample of all files. What is done is in ``--results``, a line
per mutant, and is not done again as long as the mutant's file is the same. ``--units`` plants the survivors, one after
the other, for the unit tests of their file. ``--report`` writes the table; those of ``survivors.toml`` change nothing.
"""

import argparse
import ctypes
import hashlib
import json
import multiprocessing
import os
import random
import subprocess
import sys
import tempfile
import time
import tomllib
from collections import Counter
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from tests.mutation import mutants
from tests.mutation.mutants import Mutant, Mutator

ROOT = Path(__file__).resolve().parents[2]
EXPLAINED = Path(__file__).with_name("survivors.toml")
LEFT_OUT = {"memory/cells.py"}
"""Files that are not mutated: half of it is the platform that loses what is read while it is written."""
DPI = {
    "mutant.cpp": """\
static int number = 0;
extern "C" int mutant_number() { return number; }
extern "C" __attribute__((visibility("default"))) void mutant_set(int n) { number = n; }
"""
}
FIRST_PROGRAMS = 40
"""Programs of up to :data:`SHORT` operations that every mutant gets; those that survive them get longer ones."""
SHORT, LONG = 10, 40
LOOK = 10
"""Programs from one look at all of SRAM to the next."""


@dataclass(frozen=True)
class Outcome:
    """What became of a mutant. ``by``: what noticed it; empty for a survivor. ``programs``: how many ran."""

    mutant: Mutant
    file_hash: str
    by: str
    programs: int
    unit_tests: str = ""

    def line(self) -> str:
        return json.dumps(vars(self))


def file_hash(file: str) -> str:
    """Of a file below hw/."""
    return hashlib.sha256((ROOT / "hw" / file).read_bytes()).hexdigest()[:12]


def load(results: Path) -> dict[Mutant, Outcome]:
    """The outcomes that still hold; later lines win."""
    found: dict[Mutant, Outcome] = {}
    for line in results.read_text().splitlines() if results.exists() else ():
        row = json.loads(line)
        file, at, column, what = row.pop("mutant")
        outcome = Outcome((file, at, column, what), **row)
        if (ROOT / "hw" / file).exists() and outcome.file_hash == file_hash(file):
            found[outcome.mutant] = outcome
    return found


# --- the models with all mutants -------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Built:
    """A Verilated accelerator: its configuration and form, the library, and which mutants it has. ``name`` begins what
    an outcome says of it."""

    name: str
    config: Any
    form: str
    library: Path
    mutants: frozenset[Mutant]


def models() -> list[tuple[str, Any, str]]:
    """Name, configuration and form of each. The second one has what the first one lacks: several records and less than
    a matrix row in a word, several words of weights, gated clocks, and enables of reads. The third one has several
    pixel lanes, two rows of softmax and four of norm, of 16 bits, at a time, and parameters of a run; results of two
    pixels leave together in the fourth one."""
    from dovetail.isa.config.resolved import Config
    from dovetail.sw.random.programs.configurations import WHOLE

    wide = Config(
        ic_lanes=2,
        oc_lanes=33,
        sram="80 KiB",
        banks=5,
        stripe=6,
        requant_lanes=3,
        vector_lanes=5,
        bus=64,
        outstanding=4,
    )
    rows = Config(
        ic_lanes=3,
        oc_lanes=4,
        pixel_lanes=2,
        sram="64 KiB",
        banks=4,
        stripe=6,
        requant_lanes=3,
        vector_lanes=8,
        softmax=2,
        norm=4,
        norm_bits=16,
        parameters=3,
        bus=64,
        outstanding=3,
    )
    pairs = Config(ic_lanes=1, oc_lanes=8, pixel_lanes=2, sram="32 KiB", banks=4, requant_lanes=16, vector_lanes=1)
    return [
        ("", WHOLE, "fpga"),
        ("simulation form: ", wide, "simulation"),
        ("rows: ", rows, "fpga"),
        ("pairs: ", pairs, "fpga"),
    ]


def build(mutator: Mutator, cache: Path) -> list[Built]:
    """The Verilated accelerators with their mutants."""
    found = []
    for name, config, form in models():
        mutator.met.clear()
        library = build_one(mutator, cache, config, form)
        found.append(Built(name, config, form, library, frozenset(mutator.met)))
    return found


def build_one(mutator: Mutator, cache: Path, config: Any, form: str) -> Path:
    """The library of an accelerator with its mutants."""
    from amaranth.back import verilog
    from amaranth.hdl import Value, ValueCastable
    from amaranth.hdl._ir import PortDirection
    from amaranth.lib import wiring

    from dovetail.cosim.rtl import rtl_engine
    from dovetail.cosim.rtl.verilate import verilate
    from dovetail.hw import verilog as hw_verilog

    def convert(design: Any, name: str, platform: object = None) -> str:
        ports: dict[str, Any] = {"mutant": (mutator.select, PortDirection.Input)}
        for path, member, value in design.signature.flatten(design):
            value = value.as_value() if isinstance(value, ValueCastable) else value
            if isinstance(value, Value):
                way = PortDirection.Input if member.flow == wiring.In else PortDirection.Output
                ports["__".join(map(str, path))] = value, way
        text: str = verilog.convert(
            design, name=name, platform=platform, ports=ports, emit_src=False, strip_internal_attrs=True
        )
        return text

    hw_verilog._convert = convert
    design = rtl_engine.accelerator_design(config, form=form)
    files = dict(design.verilog)
    top = f"{rtl_engine.TOP}.v"
    bits = mutants.SELECT_BITS
    files[top] = (
        files[top]
        .replace(
            "  reg reset = 1;\n",
            f'  import "DPI-C" function int mutant_number();\n  reg [{bits - 1}:0] mutant;\n'
            f"  initial mutant = {bits}'(mutant_number());\n  reg reset = 1;\n",
        )
        .replace(" core(", " core(.mutant(mutant), ")
    )
    files = {name.replace(".v", ".sv") if name == top else name: text for name, text in files.items()}
    design = replace(design, verilog=files, driver={**design.driver, **DPI})
    return verilate(design, cache)


class Bench:
    """The Verilated mutants beside what the model says of a list of programs."""

    def __init__(self, built: Built) -> None:
        from dovetail.cosim.compare.lockstep import Lockstep
        from dovetail.cosim.rtl import rtl_engine
        from dovetail.sw.model.accelerator import Model

        def accelerator_library(*_: Any, **__: Any) -> Path:
            return built.library

        rtl_engine.accelerator_library = accelerator_library
        self.built = built
        self.config = built.config
        self.pair = Lockstep(built.config, cache=built.library.parent, form=built.form)
        self.switch = ctypes.CDLL(str(built.library)).mutant_set
        self.model = Model(built.config)
        self.prepared: list[tuple[Any, Any, Any]] = []

    def select(self, number: int) -> None:
        """As after power-up, with a mutant, or with 0, with none."""
        self.switch(number)
        self.pair.rtl.reset()

    def _program(self, n: int) -> tuple[Any, Any, Any]:
        """The n-th program, how the model runs it on the SRAM that the one before has left, and SRAM after it."""
        from dovetail.cosim.compare.fuzz import random_case, random_timing
        from dovetail.sw.model.accelerator import Model

        while len(self.prepared) <= n:
            at = len(self.prepared)
            timing = self.config.replace(memory=random_timing(at))
            program = random_case(timing, at, count=SHORT if at < FIRST_PROGRAMS else LONG).program
            sram = self.model.read_sram()
            self.model = Model(timing)
            self.model.write_sram(sram)
            result = self.model.run(program.memory.copy(), *program.arguments)
            self.prepared.append((program, result, self.model.read_sram()))
        return self.prepared[n]

    def notices(self, n: int) -> bool:
        """Whether the n-th program, after those before it, shows a difference. SRAM is looked at now and then only:
        moving all of it takes longer than most programs."""
        from dovetail.cosim.compare.lockstep import compare
        from dovetail.cosim.rtl.rtl_engine import RtlError

        program, result, sram = self._program(n)
        rtl_engine = self.pair.rtl
        rtl_engine.timing = program.config.memory
        try:
            rtl_engine.limit = 2 * result.cycles + 1000
            got = rtl_engine.run(program.memory.copy(), *program.arguments)
            if not compare(result, got).equal:
                return True
            rtl_engine.limit = 100_000
            return (n + 1) % LOOK == 0 and bool((rtl_engine.read_sram() != sram).any())
        except RtlError:
            return True

    def faults(self, programs: int = 3) -> str:
        """What kind of fault of `dovetail faults` shows a difference; empty: none. From power-up to power-up."""
        from dovetail.cosim.compare import faults
        from dovetail.sw.model.accelerator import Model
        from dovetail.sw.random.programs.legal import legal_program

        for kind, provoke in faults.KINDS.items():
            for seed in range(programs):
                rng = random.Random(f"{kind} {seed}")
                self.pair.reset()
                self.pair.model = Model(self.pair.rtl.config)
                program = legal_program(rng, self.config, count=rng.randint(2, 6))
                try:
                    _, text = provoke(self.pair, faults.setting_of(program, seed + 1), rng)
                    text = text or faults.next_program(self.pair, rng)
                except Exception as error:
                    text = type(error).__name__
                if text:
                    return f"faults: {kind}"
        return ""

    def outcome(self, number: int, programs: int) -> tuple[str, int]:
        """What notices a mutant (nothing: empty), and how many programs ran: some short ones, faults, ``programs`` long
        ones."""
        self.select(number)
        last = FIRST_PROGRAMS + programs
        for n in range(last):
            if self.notices(n):
                return f"{self.built.name}program {n}", n + 1
        by = self.faults()
        return by and self.built.name + by, last


def work(built: list[Built], tasks: list[tuple[Outcome, int]], programs: int, results: Path, deadline: float) -> None:
    """In a process of its own, since a mutant may end it: the outcome of each task."""
    benches = [Bench(one) for one in built]
    for bench in benches:
        by, _ = bench.outcome(0, programs)
        if by:
            raise SystemExit(f"the design without a mutant must agree with the model, but: {by}")
    for task, number in tasks:
        if time.time() > deadline:
            break
        results.with_suffix(".now").write_text(json.dumps(task.mutant))
        by, ran = "", 0
        for bench in benches:
            if not by and task.mutant in bench.built.mutants:
                by, more = bench.outcome(number, programs)
                ran += more
        with results.open("a") as file:
            file.write(replace(task, by=by, programs=ran).line() + "\n")
    results.with_suffix(".now").unlink(missing_ok=True)


def run(mutator: Mutator, args: argparse.Namespace) -> None:
    """All mutants that have no outcome, in a random order, until time is up."""
    built = build(mutator, args.cache or args.results.parent / "cache")
    numbers = mutator.numbers
    if not args.files:  # a report is of all files
        args.results.with_suffix(".mutants").write_text("\n".join(json.dumps(m) for m in sorted(numbers)) + "\n")
    order = sorted(m for m in numbers if m[0] not in LEFT_OUT)
    hashes = {file: file_hash(file) for file in {m[0] for m in order}}  # files may change in the meantime
    random.Random(args.seed).shuffle(order)
    deadline = time.time() + 60 * args.minutes
    context = multiprocessing.get_context("spawn")
    now = args.results.with_suffix(".now")
    while time.time() < deadline:
        done = load(args.results)
        tasks = [(Outcome(m, hashes[m[0]], "", 0), numbers[m]) for m in order if m not in done]
        print(f"{len(order) - len(tasks)} of {len(order)} mutants have an outcome", flush=True)
        if not tasks:
            return
        process = context.Process(target=work, args=(built, tasks, args.programs, args.results, deadline))
        process.start()
        process.join()
        if process.exitcode and now.exists():
            file, line, column, what = json.loads(now.read_text())
            mutant = file, line, column, what
            with args.results.open("a") as out:
                out.write(Outcome(mutant, hashes[file], "the simulator broke down", 0).line() + "\n")
        elif process.exitcode:
            raise SystemExit(f"the worker failed with exit code {process.exitcode}")


# --- unit tests for survivors -----------------------------------------------------------------------------------

UNIT_TESTS = {
    "tests/cosim/rtl/test_scaling.py": ("array/requantiser", "vector/rescale", "common/scaler"),
    "tests/hw/array/test_unit.py": ("array/", "common/walk", "common/clocking"),
    "tests/hw/vector/test_softmax.py": ("vector/softmax", "vector/passes", "vector/scaling"),
    "tests/hw/vector/test_norm.py": ("vector/norm", "vector/passes", "vector/scaling"),
    "tests/hw/vector/test_unit.py": ("vector/", "common/walk"),
    "tests/hw/array/test_requantiser.py": ("array/requantiser", "common/scaler"),
    "tests/hw/vector/test_rescale.py": ("vector/rescale", "common/scaler"),
    "tests/hw/sequencer/test_control.py": ("sequencer/",),
    "tests/hw/sequencer/test_frontend.py": ("sequencer/frontend", "sequencer/queue"),
    "tests/hw/host/test_registers.py": ("host/",),
    "tests/hw/dma/test_load.py": ("dma/",),
    "tests/hw/dma/test_store.py": ("dma/",),
    "tests/hw/memory/test_sram.py": ("memory/sram",),
    "tests/hw/test_accelerator.py": ("accelerator", "sequencer/", "host/", "common/regions"),
}
"""Test files, and the beginnings of the names below hw/ of what each one tests."""
UNIT_SECONDS = 1800
"""After which a test counts as failed: far more than it takes on a busy machine, so that the mutant is the cause."""
TESTS_FAILED = 1
"""pytest's exit code when tests ran and some failed."""


def planted(mutant: Mutant) -> str:
    """The unit test that fails with a mutant in the code; empty if none does."""
    for test, names in UNIT_TESTS.items():
        if not mutant[0].startswith(names):
            continue
        with tempfile.TemporaryDirectory() as folder:
            environment = os.environ | {"DOVETAIL_MUTANT": json.dumps(mutant), "PYTHONPATH": path_of_modules()}
            command = [
                sys.executable,
                "-m",
                "pytest",
                "-q",
                "-x",
                "-p",
                "tests.mutation.plant",
                "-o",
                f"cache_dir={folder}",
            ]
            try:
                code = subprocess.run(
                    [*command, test], cwd=ROOT, env=environment, capture_output=True, timeout=UNIT_SECONDS
                ).returncode
            except subprocess.TimeoutExpired:
                code = TESTS_FAILED
        if code == TESTS_FAILED:
            return test
        if code:
            raise SystemExit(f"{test} could not be run: pytest ended with {code}")
    return ""


def path_of_modules() -> str:
    """PYTHONPATH for the project and its tests."""
    return os.pathsep.join([str(ROOT / ".pkg"), str(ROOT)])


def run_units(args: argparse.Namespace) -> None:
    """Plant the survivors without an explanation that no unit test has seen yet."""
    deadline = time.time() + 60 * args.minutes
    why = reasons()
    order = [o for o in load(args.results).values() if not o.by and not o.unit_tests]
    order = [o for o in order if (o.mutant[0], code_at(o.mutant), o.mutant[3]) not in why]
    random.Random(args.seed).shuffle(order)
    for outcome in order:
        if time.time() > deadline:
            return
        test = planted(outcome.mutant)
        after = replace(outcome, by=test, unit_tests="ran")
        print(f"{'killed  ' if test else 'SURVIVES'} {' '.join(map(str, outcome.mutant))} {test}", flush=True)
        with args.results.open("a") as file:
            file.write(after.line() + "\n")


# --- the report --------------------------------------------------------------------------------------------------


def code_at(mutant: Mutant) -> str:
    """The line of a mutant."""
    return (ROOT / "hw" / mutant[0]).read_text().splitlines()[mutant[1] - 1].strip()


def reasons() -> dict[tuple[str, str, str], str]:
    """Why a survivor changes nothing that anybody could notice, by file, line of code and what is wrong."""
    rows = tomllib.loads(EXPLAINED.read_text())["survivor"]
    return {(row["file"], row["code"], row["what"]): row["why"] for row in rows}


def report(known: list[Mutant], outcomes: dict[Mutant, Outcome]) -> str:
    """What was run, what survived, by file, as Markdown."""
    why = reasons()

    def reason(mutant: Mutant) -> str:
        return why.get((mutant[0], code_at(mutant), mutant[3]), "")

    rows: list[str] = []
    alive: list[Mutant] = []
    explained: list[Mutant] = []
    total: Counter[str] = Counter()
    complete: list[str] = []
    for file in sorted({m[0] for m in known}):
        here = [m for m in known if m[0] == file]
        count: Counter[str] = Counter(mutants=len(here))
        for mutant in here:
            outcome = outcomes.get(mutant)
            if outcome is None:
                continue
            count["run"] += 1
            kind = "programs"
            if outcome.by.startswith("tests/"):
                kind = "tests"
            elif not outcome.by:
                kind = "explained" if reason(mutant) else "alive"
                (explained if reason(mutant) else alive).append(mutant)
                count["waiting"] += kind == "alive" and not outcome.unit_tests
            count[kind] += 1
        total += count
        complete += [f"`{file}`"] if count["run"] == len(here) else []
        rows.append(_row(f"`hw/{file}`", count))
    sample = (
        f"all of {', '.join(complete)}, of the others a random sample" if complete else "a random sample of all files"
    )
    share = 100 * total["alive"] / max(1, total["run"])
    text = ["# Mutants of the RTL", ""]
    text += [
        "Made by `python -m tests.mutation.systematic --report docs/mutants.md`, from what its runs have found; see",
        "[verification](verification.md#systematic-mutants). Faults planted by hand are in [mutations](mutations.md).",
        "",
        f"Of {total['mutants']:,} mutants {total['run']:,} were run, {sample}.",
        f"Not run: {total['mutants'] - total['run']:,}.",
        f"Of those that were run {total['programs']:,} were noticed by random programs or faults in lockstep,",
        f"{total['tests']:,} more by unit tests; {total['explained']:,} change nothing that can be noticed;",
        f"**{total['alive']:,} survive unexplained ({share:.1f} %)**;",
        f"{total['waiting']:,} of them have not met the unit tests of their file yet.",
        "",
        "Not mutated: reset values, bounds of slices, Python around the hardware, the microcoded accelerator, boards.",
        "",
        "| file | mutants | run | lockstep | unit tests | explained | survive |",
        "|---|--:|--:|--:|--:|--:|--:|",
        *rows,
        _row("all", total),
        "",
        "## Survivors without an explanation",
        "",
        *_list(alive, dict.fromkeys(alive, "")),
        "",
        "## Survivors that change nothing",
        "",
        *_list(explained, {m: reason(m) for m in explained}),
        "",
    ]
    return "\n".join(text)


def _row(name: str, count: Counter[str]) -> str:
    columns = ("mutants", "run", "programs", "tests", "explained", "alive")
    return f"| {name} | " + " | ".join(f"{count[c]:,}" for c in columns) + " |"


def _list(chosen: list[Mutant], texts: dict[Mutant, str]) -> list[str]:
    lines = []
    for mutant in sorted(chosen):
        text = texts[mutant]
        lines.append(f"- `hw/{mutant[0]}`, {mutant[3]}: `{code_at(mutant)}`" + (f": {text}" if text else ""))
    return lines or ["None."]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--results", type=Path, required=True, help="outcomes, a line each; read, and added to")
    parser.add_argument("--cache", type=Path, help="folder of the build; default: beside the results")
    parser.add_argument("--minutes", type=float, default=600, help="stop after so long; default: %(default)s")
    parser.add_argument("--programs", type=int, default=60, help="long programs for survivors; default: %(default)s")
    parser.add_argument("--seed", type=int, default=1, help="of the order of mutants; default: %(default)s")
    parser.add_argument(
        "--units", action="store_true", help="plant survivors for the unit tests of their files instead"
    )
    parser.add_argument(
        "--files", nargs="+", metavar="FILE", help="only mutants of these, such as sequencer/queue.py: a quicker build"
    )
    parser.add_argument("--report", type=Path, metavar="FILE", help="write the table there instead")
    args = parser.parse_args()
    for file in args.files or ():
        if not (ROOT / "hw" / file).is_file():
            parser.error(f"--files must be files below hw, not {file}")
    known = args.results.with_suffix(".mutants")
    if args.report:
        rows = (json.loads(line) for line in known.read_text().splitlines())
        numbered = [(file, line, column, what) for file, line, column, what in rows if file not in LEFT_OUT]
        args.report.write_text(report(numbered, load(args.results)))
        return 0
    args.results.parent.mkdir(parents=True, exist_ok=True)
    if args.units:
        run_units(args)
        return 0
    run(mutants.install(Mutator(args.files)), args)
    return 0


if __name__ == "__main__":
    sys.exit(main())
