"""A sweep: points (configurations with labels), records (what a point costs), and the pool that makes them."""

from __future__ import annotations

import multiprocessing
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass
from typing import Any

from dovetail.flows.parameters import PARAMETERS, changed, flat, product_of
from dovetail.isa.config import Config, ConfigError
from dovetail.sw.errors import first_line

STUDY: Mapping[str, Sequence[Any]] = {
    "pe": (64, 128),
    "sram": (512 << 10, 1 << 20, 256 << 20),
    "dataflow": ("input", "output"),
    "depthwise": ("none", "emulated", "native"),
}
"""The reference study: 36 configurations."""


@dataclass(frozen=True)
class Point:
    """A configuration of a sweep. ``axes``: the values of what varies, by parameter name, outermost first.

    ``config`` is None, and ``error`` says why, where the combination breaks a rule of the configuration.
    """

    axes: Mapping[str, Any]
    config: Config | None
    error: str = ""

    @property
    def label(self) -> str:
        """The axes in one line."""
        named = (f"{PARAMETERS[n].title or n} {PARAMETERS[n].show(v)}" for n, v in self.axes.items())
        return ", ".join(named) or "as configured"


@dataclass(frozen=True)
class Cost:
    """What a network costs on a configuration.

    ``kinds``: cycles per kind of layer, in the order of the network; they add up to ``cycles``. ``macs`` and
    ``bound_cycles`` (the roofline) count the accelerator's layers; ``host`` are (name, kind, MACs) of the nodes
    that the host runs.
    """

    cycles: int
    macs: int
    bound_cycles: int
    dram_bytes: int
    kinds: Mapping[str, int]
    host: tuple[tuple[str, str, int], ...] = ()


Evaluate = Callable[[Config], Cost]
"""Prices a configuration; a module-level function or a picklable object, for the processes of the pool."""


@dataclass(frozen=True)
class Record:
    """The outcome of a point: a cost, or the reason why there is none."""

    point: Point
    cost: Cost | None
    error: str = ""
    seconds: float = 0.0

    @property
    def utilisation(self) -> float:
        """MACs over what the multipliers could do in that time."""
        if self.cost is None or self.point.config is None or not self.cost.cycles:
            return 0.0
        return self.cost.macs / (self.cost.cycles * self.point.config.macs_per_cycle)

    @property
    def roofline(self) -> float:
        """Cycles over the roofline bound; 1 is the best there is."""
        return self.cost.cycles / self.cost.bound_cycles if self.cost and self.cost.bound_cycles else 0.0

    def row(self, kinds: Sequence[str]) -> dict[str, Any]:
        """The record as a line of the CSV; ``kinds`` are the columns of cycles per kind."""
        config, cost = self.point.config, self.cost
        row: dict[str, Any] = {}
        row |= flat(config) if config else {name: self.point.axes.get(name, "") for name in PARAMETERS}
        row["config_hash"] = f"{config.hash:016x}" if config else ""
        row["cycles"] = cost.cycles if cost else ""
        row["macs"] = cost.macs if cost else ""
        row["utilisation"] = round(self.utilisation, 6) if cost else ""
        row["bound_cycles"] = cost.bound_cycles if cost else ""
        row["roofline_ratio"] = round(self.roofline, 6) if cost else ""
        row["dram_bytes"] = cost.dram_bytes if cost else ""
        row["host_nodes"] = len(cost.host) if cost else ""
        row["host_macs"] = sum(macs for _, _, macs in cost.host) if cost else ""
        row |= {f"cycles_{kind}": cost.kinds.get(kind, 0) if cost else "" for kind in kinds}
        return row | {"error": self.error, "seconds": round(self.seconds, 4)}


def points_of(base: Config, lists: Mapping[str, Sequence[Any]]) -> list[Point]:
    """All combinations of the listed values on top of ``base``. Axes are the parameters with several values."""
    points = []
    for values in product_of(lists):
        axes = {name: value for name, value in values.items() if len(lists[name]) > 1}
        try:
            points.append(Point(axes, changed(base, values)))
        except ConfigError as error:
            points.append(Point(axes, None, str(error)))
    return points


def run_point(evaluate: Evaluate, point: Point) -> Record:
    """Price one point; whatever goes wrong is the record's reason."""
    if point.config is None:
        return Record(point, None, point.error)
    start = time.perf_counter()
    try:
        cost = evaluate(point.config)
    except Exception as error:  # a sweep goes on: one bad point must not cost the others
        return Record(point, None, first_line(error), time.perf_counter() - start)
    return Record(point, cost, "", time.perf_counter() - start)


def run_points(evaluate: Evaluate, points: Sequence[Point], jobs: int) -> Iterator[tuple[int, Record]]:
    """(index, record) of every point as it is done, on ``jobs`` processes (1: in this one)."""
    if jobs == 1 or len(points) == 1:
        for index, point in enumerate(points):
            yield index, run_point(evaluate, point)
        return
    context = multiprocessing.get_context("spawn")  # fork would copy the threads of the numeric libraries
    with ProcessPoolExecutor(min(jobs, len(points)), context, _start, (evaluate,)) as pool:
        waiting: dict[Future[Record], int] = {pool.submit(_work, p): i for i, p in enumerate(points)}
        try:
            while waiting:
                done, _ = wait(waiting, return_when=FIRST_COMPLETED)
                for future in done:
                    index = waiting.pop(future)
                    try:
                        yield index, future.result()
                    except BrokenProcessPool:
                        yield index, Record(points[index], None, "the worker process ended (out of memory?)")
        finally:
            for future in waiting:
                future.cancel()


_worker: list[Evaluate] = []
"""The evaluator of a pool's process, sent once and not with each point."""


def _start(evaluate: Evaluate) -> None:
    _worker[:] = [evaluate]


def _work(point: Point) -> Record:
    return run_point(_worker[0], point)
