"""Random programs on model and RTL over many configurations, in several processes.

A campaign is reproducible: what it runs and what it reports follow from its seeds alone.
"""

import multiprocessing
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

from dovetail.cosim.compare.fuzz import Case, random_case, random_memory, save, shrink
from dovetail.cosim.compare.lockstep import Lockstep
from dovetail.cosim.coverage.bins import Counts, cover, executed_words
from dovetail.cosim.rtl.rtl_engine import FORMS
from dovetail.isa.config.resolved import Config
from dovetail.isa.instructions.table import Cause, Op
from dovetail.isa.timing.timeline import Timeline

T = TypeVar("T")

MAX_FAILURES = 3
"""Differing programs after which a configuration is given up: each one costs hundreds of runs to shrink."""
_STRIDE = 1_000_000
"""Seeds of cases: room for configurations within a campaign, and for programs within a configuration."""


@dataclass(frozen=True)
class Share:
    """A configuration's part of a campaign; ``number`` is its place, ``count`` the most operations of a program,
    ``form`` the RTL's."""

    number: int
    config: Config
    seed: int
    programs: int
    count: int
    form: str = FORMS[0]

    def seeds(self) -> range:
        """A seed per program; no two shares of any campaigns have one in common."""
        first = (self.seed * _STRIDE + self.number) * _STRIDE
        return range(first, first + self.programs)


@dataclass(frozen=True)
class Difference:
    """A case on which the engines differ: its seed, what differs first, and the file of the shrunk case."""

    seed: int
    text: str
    path: Path | None


@dataclass
class Tally:
    """What a share did. ``operations`` are those that were started, ``words`` what the front end went through."""

    programs: int = 0
    operations: int = 0
    words: int = 0
    cycles: int = 0
    opcodes: Counter[Op] = field(default_factory=Counter)
    causes: Counter[Cause] = field(default_factory=Counter)
    coverage: Counts = field(default_factory=Counter)
    differences: list[Difference] = field(default_factory=list)

    def run(self, pair: Lockstep, seed: int, count: int) -> tuple[Case, str]:
        """Run and count the program of a seed, of at most ``count`` operations: its case, and what differs first."""
        case = random_case(pair.config.replace(memory=random_memory(pair.config, seed)), seed, count=count)
        text = difference(case, pair)
        if pair.latest is not None:
            self.add(case, pair.latest.timeline)
        return case, text

    def add(self, case: Case, timeline: Timeline) -> None:
        """Count a program."""
        started = [Op(op) for op in timeline.op[~timeline.is_fetch].tolist()]
        self.programs += 1
        self.operations += len(started)
        self.words += executed_words(case.program.words, timeline)
        self.cycles += timeline.cycles
        self.opcodes.update(started)
        self.causes[timeline.fault.cause if timeline.fault else Cause.NONE] += 1
        self.coverage += cover(case.program.config, case.program.words, timeline, case.program.base)

    def __iadd__(self, other: "Tally") -> "Tally":
        self.programs += other.programs
        self.operations += other.operations
        self.words += other.words
        self.cycles += other.cycles
        self.opcodes += other.opcodes
        self.causes += other.causes
        self.coverage += other.coverage
        self.differences += other.differences
        return self


def shares(configs: Sequence[Config], *, seed: int, programs: int, count: int, form: str = FORMS[0]) -> list[Share]:
    """``programs`` shared out among ``configs``."""
    each, rest = divmod(programs, len(configs))
    return [Share(n, config, seed, each + (n < rest), count, form) for n, config in enumerate(configs)]


def run_share(share: Share, cache: Path, folder: Path | None) -> Tally:
    """Run a configuration's programs; what differs is shrunk and saved in ``folder``."""
    tally = Tally()
    if not share.programs:
        return tally
    pair = Lockstep(share.config, cache=cache, form=share.form)
    for seed in share.seeds():
        case, text = tally.run(pair, seed, share.count)
        if text:
            tally.differences.append(_keep(case, pair, seed, text, folder))
            if len(tally.differences) == MAX_FAILURES:
                break
    return tally


def run_campaign(
    parts: Sequence[Share], *, cache: Path, folder: Path | None = None, jobs: int = 2
) -> Iterator[tuple[Share, Tally]]:
    """Each share with what it did, in their order, as soon as it is there.

    Raises
    ------
    ToolError
        When Verilator or the C++ compiler is missing or fails.
    """
    results = in_processes(run_share, [(share, cache, folder) for share in parts], jobs)
    yield from zip(parts, results, strict=True)


def in_processes(function: Callable[..., T], arguments: Sequence[tuple[Any, ...]], jobs: int) -> Iterator[T]:
    """Results of a module's function, in order, from up to ``jobs`` processes."""
    if jobs == 1 or len(arguments) == 1:
        yield from (function(*each) for each in arguments)
        return
    with ProcessPoolExecutor(jobs, mp_context=multiprocessing.get_context("spawn")) as pool:
        futures = [pool.submit(function, *each) for each in arguments]
        try:
            for future in futures:
                yield future.result()
        finally:
            pool.shutdown(cancel_futures=True)


def difference(case: Case, pair: Lockstep) -> str:
    """The first difference, empty when there is none. An engine that breaks down differs as well."""
    try:
        return case.run(pair).first_difference
    except Exception as error:
        pair.reset()
        return f"{type(error).__name__}: {error}"


def _keep(case: Case, pair: Lockstep, seed: int, text: str, folder: Path | None) -> Difference:
    """Shrink and save a case that differs."""
    if folder is None:
        return Difference(seed, text, None)
    small = shrink(case, lambda candidate: bool(difference(candidate, pair)))
    now = difference(small, pair)
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"seed-{seed}.toml"
    save(path, small, f"{now or text}\nSeed {seed}, before shrinking: {text}")
    return Difference(seed, text, path)
