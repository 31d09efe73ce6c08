"""What all tests share: isolation, builds, shares of the slow tests, and a summary that names what did not run."""

import gc
from collections import Counter, defaultdict
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest

GARBAGE = (100_000, 20, 100)
"""Objects, and collections, after which garbage is looked for."""
NOT_RUN = pytest.StashKey[set[str]]()
"""Tests that another share runs."""


@pytest.fixture(autouse=True)
def no_schedules_from_elsewhere(monkeypatch: pytest.MonkeyPatch) -> None:
    """The command would keep schedules in the user's folder, and find there what other runs have left."""
    monkeypatch.setenv("DOVETAIL_SCHEDULES", "off")


@pytest.fixture(scope="session")
def build_cache(pytestconfig: pytest.Config) -> Path:
    """Builds of the tests stay in pytest's own cache: a second run compiles nothing."""
    assert pytestconfig.cache is not None
    return Path(pytestconfig.cache.mkdir("dovetail-builds"))


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add ``--share``."""
    parser.addoption("--share", metavar="K/N", type=share_of, help="of the tests, the share K of N, 1..N")


def pytest_configure(config: pytest.Config) -> None:
    """Nothing is left out so far. Python looks for cycles of garbage less often than it would: tests that simulate
    hardware spend a sixth of their time on it, as most of the many objects of a design stay."""
    config.stash[NOT_RUN] = set()
    gc.set_threshold(*GARBAGE)


def share_of(text: str) -> tuple[int, int]:
    """(K, N) of ``K/N``. Raises ValueError."""
    number, total = map(int, text.split("/"))
    if not 1 <= number <= total:
        raise ValueError(f"share must be K/N with K in 1..N, not {text}")
    return number, total


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Keep this run's share. Neighbours, which take about as long as each other, are dealt out in turn."""
    if config.option.share is None:
        return
    number, total = config.option.share
    others = [item for index, item in enumerate(items) if index % total != number - 1]
    items[:] = [item for index, item in enumerate(items) if index % total == number - 1]
    config.hook.pytest_deselected(items=others)
    config.stash[NOT_RUN] |= {item.nodeid for item in others}


@pytest.hookimpl(trylast=True)
def pytest_sessionfinish(session: pytest.Session) -> None:
    """A worker of pytest-xdist tells what it left out; only workers collect."""
    output: dict[str, Any] | None = getattr(session.config, "workeroutput", None)
    if output is not None:
        left = session.config.stash[NOT_RUN]
        output["not_run"] = sorted(left)


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node: Any) -> None:
    """Take what a worker left out."""
    node.config.stash[NOT_RUN].update(getattr(node, "workeroutput", {}).get("not_run", ()))


def pytest_terminal_summary(terminalreporter: Any, config: pytest.Config) -> None:
    """Say what was skipped and why, a line per reason, and name what other shares run."""
    reasons = Counter(str(report.longrepr[2]) for report in terminalreporter.stats.get("skipped", ()))
    for reason, count in sorted(reasons.items()):
        terminalreporter.write_line(f"not run: {count} tests skipped: {reason.removeprefix('Skipped: ')}")
    left = config.stash[NOT_RUN]
    if left:
        terminalreporter.section(f"not run: {len(left)} tests of other shares")
        for line in named(left):
            terminalreporter.write_line(line)


def named(tests: Iterable[str]) -> list[str]:
    """A line per test function, with its parameters in brackets."""
    functions: dict[str, list[str]] = defaultdict(list)
    for test in sorted(tests):
        function, bracket, parameters = test.partition("[")
        functions[function] += [parameters.removesuffix("]")] if bracket else []
    return [f"{name}[{', '.join(found)}]" if found else name for name, found in functions.items()]
