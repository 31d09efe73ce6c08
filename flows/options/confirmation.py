"""``--confirm`` of a sweep: run its points on the RTL, with the plan before and the verdicts after."""

from __future__ import annotations

import argparse
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from dovetail.flows.explore.confirm import MOST, Plan, Verdict, chosen, confirm, plan
from dovetail.flows.explore.progress import clock
from dovetail.flows.explore.store.result_store import Store
from dovetail.isa.common.build_cache import default_cache

SHOWN = 10
"""Differences that are told in full."""


Count = int | Literal["all"]
"""How many points; ``"all"`` of them."""


@dataclass(frozen=True)
class Confirmed:
    """The outcome for a report: ``data`` for JSON, ``lines`` for people, ``code`` for the shell."""

    data: dict[str, Any]
    lines: list[str]
    code: int


def confirm_sweep(
    store: Store, count: Count, *, jobs: int = MOST, schedules: Path | None = None, shown: bool = True
) -> Confirmed:
    """Confirm points of the store's latest sweep on the RTL: the ``count`` best, and as many at random.

    ``shown``: with the plan and a progress bar on stderr.

    Raises ToolError or ConfirmError.
    """
    cache = default_cache()
    todo = plan(store, chosen(store.results(), None if count == "all" else count), cache)
    columns = (TextColumn("on the RTL"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(*columns, console=Console(stderr=True), disable=not shown) as bar:
        if shown:
            print(told(todo, jobs), file=sys.stderr)
        task = bar.add_task("", total=len(todo.checks))

        def notify(done: int, verdict: Verdict) -> None:
            bar.update(task, completed=done)

        found = confirm(store, todo, cache=cache, jobs=jobs, schedules=schedules, notify=notify)
    points = len(todo.points)
    wrong = len({number for number, _ in found})
    differences = [line for _, line in found]
    data = {"points": points, "equal": points - wrong, "builds": todo.builds, "differences": differences}
    verdict = f"DIFFERENT: {wrong} of {points} points" if wrong else f"EQUAL: {points} points"
    return Confirmed(data, [f"RTL          {verdict}", *differences[:SHOWN]], int(wrong > 0))


def told(todo: Plan, jobs: int) -> str:
    """The plan in a line."""
    return (
        f"on the RTL: points {len(todo.points)} ({todo.known} known), builds {todo.builds} ({todo.missing} to be made),"
        f" about {clock(todo.seconds(jobs))}"
    )


def read_count(text: str) -> Count:
    """The argument of ``--confirm``. Raises argparse.ArgumentTypeError."""
    if text != "all" and not (text.isdigit() and int(text)):
        raise argparse.ArgumentTypeError(f"must be a number of points above 0, or all, not {text!r}")
    return "all" if text == "all" else int(text)
