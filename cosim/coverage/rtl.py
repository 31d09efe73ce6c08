"""Line, branch and toggle coverage of the generated Verilog, as Verilator counts it, and reasons for what is left."""

import random
import re
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import groupby
from pathlib import Path, PurePath

from dovetail.cosim.compare.campaign import Tally, difference
from dovetail.cosim.compare.faults import KINDS, run_seed
from dovetail.cosim.compare.fuzz import Case
from dovetail.cosim.compare.lockstep import Lockstep
from dovetail.cosim.rtl.rtl_engine import RtlEngine, accelerator_design
from dovetail.cosim.rtl.verilate import COVERAGE
from dovetail.isa.config.resolved import Config
from dovetail.isa.host import CONTROL_IRQ, ID, VERSION, host_registers
from dovetail.sw.random.programs.broken import illegal_program

LINE, BRANCH, TOGGLE = KINDS_OF_POINTS = ("line", "branch", "toggle")

REASONS = (
    (
        r"\.(array|vector)_control$",
        r"fault\[|failed = ",
        "one control for all units: only LOAD and STORE have bus errors",
    ),
    (r"\.drain\.walk$", r"back|kept", "one walk for all: the one over results never goes back"),
    (r"\.store\.registers$", r"fetching", "one block for LOAD and STORE: only LOAD fetches pages"),
)
"""(module, lines, reason): regular expressions for what no program can reach, and why."""


@dataclass(frozen=True)
class Point:
    """Something that Verilator counts: its kind, file, lines, module, how often it happened, and what tells it from
    others on the same lines."""

    kind: str
    file: str
    lines: tuple[int, ...]
    module: str
    count: int
    name: str = ""


@dataclass(frozen=True)
class Hole:
    """Adjacent lines that were never executed: the number of the first, how many, and their text. ``reason`` is empty
    where :data:`REASONS` has none."""

    module: str
    line: int
    lines: int
    text: str
    reason: str


@dataclass
class Totals:
    """Points per kind: (covered, all)."""

    covered: dict[str, int] = field(default_factory=lambda: dict.fromkeys(KINDS_OF_POINTS, 0))
    all: dict[str, int] = field(default_factory=lambda: dict.fromkeys(KINDS_OF_POINTS, 0))

    def add(self, kind: str, covered: bool) -> None:
        """Count one."""
        self.all[kind] += 1
        self.covered[kind] += covered

    def share(self, kind: str) -> float:
        """What is covered of a kind; 1 where there is none."""
        return self.covered[kind] / self.all[kind] if self.all[kind] else 1.0


@dataclass(frozen=True)
class RtlCoverage:
    """Coverage of one design; ``modules`` by name, ``total`` of all; the points and the Verilog that it comes from."""

    modules: Mapping[str, Totals]
    total: Totals
    holes: tuple[Hole, ...]
    points: Sequence[Point] = ()
    verilog: Mapping[str, str] = field(default_factory=dict)

    @property
    def unexplained(self) -> list[Hole]:
        """Holes without a reason."""
        return [hole for hole in self.holes if not hole.reason]


def read_points(texts: Iterable[str]) -> list[Point]:
    """The points of files that Verilator wrote for one design, their counts added up."""
    counts: dict[tuple[str, str, tuple[int, ...], str, str], int] = defaultdict(int)
    for line in (line for text in texts for line in text.splitlines()):
        if not line.startswith("C '"):
            continue
        keys, count = line[3:].rsplit("' ", 1)
        values = dict(part.split("\x02", 1) for part in keys.split("\x01") if part)
        kind, module = values["page"].removeprefix("v_").split("/", 1)
        lines = tuple(_lines(values.get("S") or values["l"]))
        file = PurePath(values["f"]).name  # of a cocotb run it is a path
        counts[kind, file, lines, module, values["n"] + values["o"]] += int(count)
    return [Point(*key[:4], count, key[4]) for key, count in counts.items()]


def _lines(text: str) -> Iterable[int]:
    """Of ``"3-5,9"``."""
    for part in text.split(","):
        first, _, last = part.partition("-")
        yield from range(int(first), int(last or first) + 1)


def analyse(points: Sequence[Point], verilog: Mapping[str, str]) -> RtlCoverage:
    """Totals by module, and the holes in ``verilog``. A line is covered if anything on it has happened."""
    executed: dict[tuple[str, int], bool] = defaultdict(bool)
    owner: dict[tuple[str, int], str] = {}
    modules: dict[str, Totals] = defaultdict(Totals)
    total = Totals()
    for point in points:
        if point.kind != LINE:
            modules[point.module].add(point.kind, point.count > 0)
            total.add(point.kind, point.count > 0)
        if point.kind != TOGGLE:
            for number in point.lines:
                executed[point.file, number] |= point.count > 0
                owner[point.file, number] = point.module
    for place, covered in executed.items():
        modules[owner[place]].add(LINE, covered)
        total.add(LINE, covered)
    texts = {name: text.splitlines() for name, text in verilog.items()}
    missing = sorted(place for place, covered in executed.items() if not covered)
    holes = []
    for (module, file, _), places in groupby(
        enumerate(missing), lambda item: (owner[item[1]], item[1][0], item[1][1] - item[0])
    ):
        numbers = [number for _, (_, number) in places]
        text = " ".join(texts[file][n - 1].strip() for n in range(numbers[0] - 1, numbers[-1] + 1))
        holes.append(Hole(module, numbers[0], len(numbers), text, reason(module, text)))
    return RtlCoverage(dict(sorted(modules.items())), total, tuple(holes), points, verilog)


def reason(module: str, text: str) -> str:
    """Why lines cannot be reached; empty if :data:`REASONS` does not say."""
    found = (why for where, what, why in REASONS if re.search(where, module) and re.search(what, text))
    return next(found, "")


def cover_rtl(
    config: Config, *, seed: int, programs: int, faults: int, count: int, toggle: bool, cache: Path
) -> tuple[Tally, list[str], RtlCoverage]:
    """Run random programs, every kind of fault and host accesses on the model and on RTL that counts what it covers:
    what was run, what was wrong, what was covered."""
    flags = COVERAGE if toggle else COVERAGE[:1]
    pair = Lockstep(config, cache=cache, coverage=flags)
    tally = Tally()
    wrong = list(host_accesses(pair.rtl))
    for n in range(seed * programs, (seed + 1) * programs):
        _, text = tally.run(pair, n, count)
        wrong += [f"seed {n}: {text}"] if text else []
        # Registers beyond the limits of the configuration are rare in programs that are broken in any way.
        case = Case(illegal_program(random.Random(n), config, ways=("limits",)))
        text = difference(case, pair)
        wrong += [f"limits, seed {n}: {text}"] if text else []
    for kind in KINDS:
        for n in range(seed * faults, (seed + 1) * faults):
            _, text = run_seed(pair, kind, n)
            wrong += [f"{kind}, seed {n}: {text}"] if text else []
    return tally, wrong, analyse(read_points(pair.rtl.covered()), accelerator_design(config).verilog)


def host_accesses(rtl: RtlEngine) -> Iterable[str]:
    """Read and write every host register, and places where there is none; what is wrong with the answers."""
    rtl.pulse_reset()
    expected = {"ID": ID, "VERSION": VERSION}
    expected |= {"CONFIG_HASH_LO": rtl.config.hash & 0xFFFF_FFFF, "CONFIG_HASH_HI": rtl.config.hash >> 32}
    for _ in range(2):
        for name in host_registers(rtl.config.parameters):
            value = rtl.read_register(name)
            if value != expected.get(name, 0):
                yield f"{name} must be {expected.get(name, 0):#x}, not {value:#x}"
            # What the host may set is set and cleared; all else ignores both.
            rtl.write_register(name, CONTROL_IRQ.mask if name == "CONTROL" else 0xFFFF_FFFF)
            rtl.write_register(name, 0)
