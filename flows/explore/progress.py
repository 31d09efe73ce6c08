"""The progress of a sweep on a terminal."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.progress import BarColumn, TextColumn
from rich.progress import Progress as Bar

from dovetail.flows.explore.sweep import Progress


@contextmanager
def progress_bar(*, shown: bool) -> Iterator[Callable[[Progress], None]]:
    """A function that updates a progress bar on stderr, which appears with the first point."""
    columns = (TextColumn("configurations"), BarColumn(), TextColumn("{task.description}"))
    bar = Bar(*columns, console=Console(stderr=True), disable=not shown)
    task = bar.add_task("", total=None)

    def notify(progress: Progress) -> None:
        bar.update(task, completed=progress.done, total=progress.total or None, description=told(progress))
        bar.start()

    try:
        yield notify
    finally:
        if bar.live.is_started:
            bar.stop()


def told(progress: Progress) -> str:
    """The progress in a line."""
    parts = [f"{progress.done:,}" + (f"/{progress.total:,}" if progress.total else "")]
    if progress.rate:
        parts.append(f"{progress.rate:.1f}/s")
    if progress.left and progress.done < progress.total:
        parts.append(f"{clock(progress.left)} left")
    parts += [f"{progress.reused:,} reused"] if progress.reused else []
    parts += [f"{progress.failed:,} failed"] if progress.failed else []
    return ", ".join(parts)


def clock(seconds: float) -> str:
    """``1:02:03``, or ``2:03``."""
    minutes, rest = divmod(round(seconds), 60)
    return f"{minutes // 60}:{minutes % 60:02}:{rest:02}" if minutes >= 60 else f"{minutes}:{rest:02}"
