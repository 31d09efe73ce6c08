"""The regression table: builds whose frequency must not fall and whose resources must not grow by more than 5 %."""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from dovetail.flows.fpga.builder import Options
from dovetail.flows.fpga.design.boards import RESOURCES, board_of
from dovetail.flows.fpga.design.pll import MHZ
from dovetail.flows.fpga.flow import Request, finish, memory_of, prepare
from dovetail.flows.fpga.record import Build
from dovetail.flows.output.reply import Report
from dovetail.isa.common.files import write_atomically
from dovetail.isa.config.resolved import Config
from dovetail.isa.link import BAUD
from dovetail.sw.errors import DovetailError

TOLERANCE = 0.05
"""Share by which a frequency may fall, or a resource grow."""


@dataclass(frozen=True)
class Figures:
    """What a build gave, without dates and places.

    ``design``: hash of the design, its constraints and options; ``tools``: versions by name; ``seeds``: MHz of the
    slowest clock by seed, 0 where it failed; ``seed``: the best, to which the rest belongs; ``used``: by resource.
    """

    config_hash: str
    part: str
    design: str
    tools: Mapping[str, str]
    seeds: Mapping[str, float]
    seed: int
    used: Mapping[str, int]
    fmax: float
    met: bool

    @classmethod
    def of(cls, build: Build) -> Figures:
        """The figures of a build."""
        return cls(
            f"{build.config.hash:016x}",
            build.target.board.part.name,
            build.design,
            build.tools,
            {str(seed): fmax for seed, fmax in build.seeds.items()},
            build.seed,
            build.placed.used,
            build.fmax,
            build.met,
        )


@dataclass(frozen=True)
class Entry:
    """A line of the table. ``config``: preset or file; ``memory``: as ``bram:64KiB``; ``figures``: None before the
    first build."""

    name: str
    config: str
    board: str
    frequency_mhz: float
    memory: str
    seeds: int = 1
    synthesis: tuple[str, ...] = ()
    placement: tuple[str, ...] = ()
    figures: Figures | None = None

    def request(self, jobs: int) -> Request:
        """What to build. Raises DovetailError and ConfigError."""
        return Request(
            Config.load(self.config),
            board_of(self.board),
            round(self.frequency_mhz * MHZ),
            memory_of(self.memory),
            BAUD,
            Options(tuple(range(1, self.seeds + 1)), jobs, self.synthesis, self.placement),
            force=True,
        )

    def to_dict(self) -> dict[str, Any]:
        """As JSON has it, without the name."""
        data = {key: value for key, value in vars(self).items() if key not in ("name", "figures")}
        return data | {"figures": None if self.figures is None else vars(self.figures)}


@dataclass(frozen=True)
class Verdict:
    """The verdict on an entry. ``worse``: figures that got worse; ``change``: all changes."""

    entry: Entry
    worse: tuple[str, ...]
    change: str


def load(path: Path) -> list[Entry]:
    """The entries of a table. Raises DovetailError for a file that is none."""
    try:
        return [_entry(name, data) for name, data in json.loads(path.read_text()).items()]
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
        raise DovetailError(f"{path}: must be a table of builds, see `dovetail docs build` ({error})") from None


def _entry(name: str, data: Mapping[str, Any]) -> Entry:
    figures = data.get("figures")
    lists = {key: tuple(data.get(key, ())) for key in ("synthesis", "placement")}
    return Entry(**{**data, "name": name, **lists, "figures": None if figures is None else Figures(**figures)})


def save(path: Path, entries: list[Entry]) -> None:
    """Write a table."""
    write_atomically(path, json.dumps({entry.name: entry.to_dict() for entry in entries}, indent=1) + "\n")


def worse(old: Figures, new: Figures) -> list[str]:
    """What fell or grew by more than the tolerance, with the numbers."""
    found = []
    if new.fmax < old.fmax * (1 - TOLERANCE):
        found.append(f"Fmax fell by {1 - new.fmax / old.fmax:.1%}, from {old.fmax:.2f} to {new.fmax:.2f} MHz")
    for name, title in RESOURCES.items():
        before, after = old.used.get(name, 0), new.used.get(name, 0)
        if after > before * (1 + TOLERANCE):
            share = f"by {after / before - 1:.1%}, " if before else ""
            found.append(f"{title} grew {share}from {before:,} to {after:,}")
    return found


def change(old: Figures, new: Figures) -> str:
    """All that is different, in a line."""
    pairs = [("Fmax", old.fmax, new.fmax)]
    pairs += [(title, old.used.get(name, 0), new.used.get(name, 0)) for name, title in RESOURCES.items()]
    pairs = [pair for pair in pairs if pair[1] != pair[2]]
    told = [f"{title} {before:,} to {after:,}" for title, before, after in pairs]
    tools = {tool: (old.tools.get(tool, "?"), now) for tool, now in new.tools.items()}
    told += [f"{tool} {before} to {now}" for tool, (before, now) in tools.items() if before != now]
    return ", ".join(told) or "the same figures"


def run_entries(
    path: Path,
    only: Collection[str],
    folder: Path,
    given: Mapping[str, str],
    say: Callable[[str], None],
    jobs: int,
    *,
    update: bool,
) -> Report:
    """Build what has changed since the table was written, below a folder.

    ``only``: names of entries, all without; ``update``: keep the new figures, each at once. The exit code of a check
    is 1 if anything is worse. Raises DovetailError.
    """
    entries = load(path)
    if unknown := set(only) - {entry.name for entry in entries}:
        raise DovetailError(f"{path}: --only must be one of {', '.join(e.name for e in entries)}, not {min(unknown)}")
    verdicts = []
    for place, entry in enumerate(entries):
        if only and entry.name not in only:
            continue
        say(f"{entry.name}: {entry.config} on {entry.board}")
        verdict = judge(entry, folder / entry.name, given, say, jobs)
        verdicts.append(verdict)
        if update and verdict.entry.figures is not None:
            entries[place] = verdict.entry
            save(path, entries)
    bad = [verdict for verdict in verdicts if verdict.worse]
    lines = [
        f"{verdict.entry.name}: {'; '.join(verdict.worse) if verdict.worse else verdict.change}" for verdict in verdicts
    ]
    if bad and not update:
        names = ", ".join(verdict.entry.name for verdict in bad)
        lines.append(f"worse than {path}: {names}; where it must be so, --update keeps the new figures")
    data = {
        "ok": not bad,
        "entries": {v.entry.name: {"worse": list(v.worse), "change": v.change, **v.entry.to_dict()} for v in verdicts},
    }
    return Report(data, lines, int(bool(bad) and not update))


def judge(entry: Entry, folder: Path, given: Mapping[str, str], say: Callable[[str], None], jobs: int) -> Verdict:
    """Build an entry, unless its design and tools are those of its figures, and compare."""
    prepared = prepare(entry.request(jobs), folder, given, say)
    old = entry.figures
    tools = {name: tool.version for name, tool in prepared.builder.tools.items()}
    if old is not None and (old.design, old.tools, len(old.seeds)) == (prepared.design, tools, entry.seeds):
        return Verdict(entry, (), "same design, same tools: not built again")
    try:
        record, _ = finish(prepared)
    except DovetailError as error:
        return Verdict(entry, (str(error),), "")
    new = replace(entry, figures=(figures := Figures.of(record)))
    if old is None:
        return Verdict(new, (), f"new: {figures.fmax:.2f} MHz")
    return Verdict(new, tuple(worse(old, figures)), change(old, figures))


def markdown(entries: list[Entry]) -> Iterator[str]:
    """The lines of the table in docs/build.md."""
    yield "| | configuration | board, part | clock | LUT | FF | DSP | BRAM | Fmax | seed |"
    yield "|---" * 10 + "|"
    for entry in entries:
        f = entry.figures
        if f is None:
            continue
        used = " | ".join(f"{f.used.get(name, 0):,}" for name in ("lut", "ff", "dsp", "bram"))
        yield (
            f"| {entry.name} | `{entry.config}` | {entry.board}, {f.part} | {entry.frequency_mhz:g} MHz"
            f"{'' if f.met else ', missed'} | {used} | {f.fmax:.1f} MHz | {f.seed} of {entry.seeds} |"
        )
