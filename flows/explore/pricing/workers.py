"""Where points are priced: processes of this machine or of a Dask cluster, a bounded number of points at a time."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Protocol

from dovetail.flows.explore.pricing.cost import Outcome
from dovetail.flows.explore.space.deployment import Design
from dovetail.sw.errors import DovetailError

AHEAD = 2
"""Points per worker in flight: the one it prices, and the next."""
DIED = "the worker died (out of memory?)"
"""Error of a point that kills its workers."""


class WorkersError(DovetailError):
    """There are no workers, or none left."""


@dataclass(eq=False)
class Task:
    """A network, by its hash, to be priced on a configuration.

    ``number``: of the point within the space; ``deaths``: workers that died of it so far.
    """

    number: int
    network: str
    config: Design
    deaths: int = field(default=0, init=False)


class Workers(Protocol):
    """Prices tasks somewhere else."""

    def room(self) -> int:
        """How many tasks they take now: enough to keep every worker busy, but only a few each."""
        ...

    def submit(self, task: Task) -> None:
        """Take a task."""
        ...

    def wait(self) -> list[tuple[Task, Outcome]]:
        """The tasks that have come to an end since the last call, at least one. Raises WorkersError, VersionError."""
        ...

    def close(self) -> None:
        """Stop, and drop the tasks under way."""
        ...
