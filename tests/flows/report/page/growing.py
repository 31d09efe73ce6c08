"""A store that a sweep would fill, filled step by step."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from threading import Thread
from typing import Self

from dovetail.flows.explore.pricing.cost import Cost, Outcome
from dovetail.flows.explore.space import networks
from dovetail.flows.explore.space.design_space import Space
from dovetail.flows.explore.store.recorder import Recorder
from dovetail.flows.explore.store.result_store import Store
from dovetail.flows.report.page.live import Live
from dovetail.flows.report.page.server import Server
from dovetail.isa.config.resolved import Config


class Growing:
    """A sweep of a space whose points are put into a new store by hand.

    Parameters
    ----------
    path: of the store.
    space: of one network.
    price: the cost of a configuration; raises ValueError for one that fails.
    """

    def __init__(self, path: Path, space: Space, price: Callable[[Config], Cost]) -> None:
        self.path, self.space, self._price = path, space, price
        self._closed = False
        self._store = Store(path, write=True)
        self._network = networks.read(space.workloads[0])
        self._recorder = Recorder(self._store, space, [self._network], len(space))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Let another sweep have the store; the second time nothing happens."""
        if not self._closed:
            self._closed = True
            self._recorder.__exit__(None, None, None)
            self._store.close()

    def put(self, numbers: Sequence[int]) -> None:
        """Price points and store them."""
        for point in map(self.space.point, numbers):
            self._recorder.visit([point])
            if isinstance(point.config, Config):
                self._recorder.put(self._network.hash, point.config, self._outcome(point.config))

    def lose(self, number: int) -> None:
        """Store that the worker of a point died."""
        point = self.space.point(number)
        assert point.config
        self._recorder.visit([point])
        self._recorder.put(self._network.hash, point.config, Outcome(None, "the worker ended", lost=True))

    def _outcome(self, config: Config) -> Outcome:
        try:
            return Outcome(self._price(config), seconds=0.1)
        except ValueError as error:
            return Outcome(None, str(error), seconds=0.1)

    def finish(self) -> None:
        """The sweep has come to its end."""
        self._recorder.finish()


@contextmanager
def served(path: Path) -> Iterator[Server]:
    """A server of the live page of a store, on a port of its own, until the end of the block."""
    with Store(path) as store, Server(Live(store), "127.0.0.1", 0) as running:
        thread = Thread(target=running.serve_forever, args=(0.05,))
        thread.start()
        yield running
        running.shutdown()
        thread.join()
