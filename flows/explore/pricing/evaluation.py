"""What a worker does: evaluate a network on a configuration or a system, and report its version of Dovetail."""

from __future__ import annotations

import hashlib
import time
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from threading import Lock
from typing import Any

import dovetail.isa
import dovetail.sw
from dovetail.flows.explore.pricing import systems
from dovetail.flows.explore.pricing.cost import Cost, Outcome
from dovetail.flows.explore.space.deployment import Deployment, Design
from dovetail.flows.explore.space.networks import SpaceNetwork
from dovetail.isa.common.garbage import uncollected
from dovetail.sw.analysis.cost.activity import activity_of
from dovetail.sw.compiler.partition.host_cost import HostCost
from dovetail.sw.compiler.plan import schedule_cache
from dovetail.sw.errors import DovetailError, first_line
from dovetail.sw.network.ir import Graph
from dovetail.sw.runtime.compiled_network import compile_network

SOURCES = (".py", ".cpp", ".h", ".toml")
"""Suffixes of the source that determines costs."""


class VersionError(DovetailError):
    """A worker has another version of Dovetail."""


@lru_cache(maxsize=1)
def version() -> str:
    """Hash of the source that determines costs: instruction set, timing, front ends, compiler, cost models."""
    digest = hashlib.sha256()
    for package in (dovetail.isa, dovetail.sw):
        folder = Path(package.__path__[0])
        for path in sorted(path for path in folder.rglob("*") if path.suffix in SOURCES):
            digest.update(str(path.relative_to(folder)).encode() + b"\0" + path.read_bytes())
    for name in (__file__, systems.__file__):
        digest.update(Path(name).read_bytes())
    return digest.hexdigest()[:16]


def price(graph: Graph, config: Design, *, effort: int = 0, host: HostCost | None = None, **compiler: Any) -> Cost:
    """The cost of one inference: exact cycles of the accelerator, and an estimate for the host.

    ``effort``, ``host``, ``compiler``: as of `compile_network`; a plan for a system has the first two.

    Raises CompileError where the network does not fit the configuration.
    """
    if isinstance(config, Deployment):
        return systems.price_on_system(graph, config, effort, host)
    compiled = compile_network(graph, config, effort=effort, host=host, **compiler)
    report, activity = compiled.report(), activity_of(compiled)
    nodes = {node.name: node for node in graph.nodes}
    return Cost(
        cycles=report.cycles,
        macs=report.macs,
        bound_cycles=report.bound,
        read_bytes=activity["dram_read_bytes"],
        write_bytes=activity["dram_write_bytes"],
        kinds=report.by_kind(),
        host=tuple((name, nodes[name].op, graph.macs(nodes[name])) for name in report.host),
        activity=activity,
        host_cycles=report.host_work.cycles,
    )


@dataclass(frozen=True)
class Session:
    """What a worker must know of a sweep. It is sent to each worker once.

    ``networks`` by hash; ``compiler``: what it is told (`Space.compiler`); ``schedules``: folder of the schedule cache;
    ``version``: of the Dovetail that started the sweep; ``name``: unique, as a cluster may work for several sweeps.
    """

    name: str
    networks: Mapping[str, SpaceNetwork]
    compiler: Mapping[str, Any]
    schedules: Path | None
    version: str


_sessions: dict[str, Session] = {}
_one_at_a_time = Lock()
"""The compiler's caches are not thread-safe, and a cluster's workers may have several threads."""


def begin(session: Session) -> None:
    """Take part in a sweep."""
    _sessions[session.name] = session


def end(name: str) -> None:
    """Forget a sweep."""
    _sessions.pop(name, None)


def evaluate(name: str, network: str, config: Design) -> Outcome:
    """Price a network of a sweep, by its hash. Any failure becomes the outcome's error.

    Raises VersionError: that concerns all points.
    """
    session = _sessions[name]
    if version() != session.version:
        raise VersionError(
            f"workers must have the Dovetail that started the sweep ({session.version}), not {version()}; install the"
            " same source there, and start workers anew when it changes"
        )
    with _one_at_a_time, uncollected():  # collecting takes a fifth of the compiler's time
        schedule_cache.use(session.schedules)
        start = time.thread_time()
        try:
            cost = price(session.networks[network].graph, config, **session.compiler)
        except Exception as error:  # a sweep goes on: one bad point must not cost the others
            lost = isinstance(error, MemoryError)
            return Outcome(None, first_line(error), lost, time.thread_time() - start)
        return Outcome(cost, seconds=time.thread_time() - start)
