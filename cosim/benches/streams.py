"""Ready/valid streams: a driver with random idle, a sink with random back-pressure, a monitor that checks the rules.

A stream ``name`` has the signals ``name__valid``, ``name__ready``, ``name__payload``. Once valid, it stays so with the
same payload until it is taken (Amaranth RFC 61). A payload that is a structure is an integer here; ``shape.const(...)``
and ``shape.from_bits(...)`` of Amaranth convert.
"""

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from itertools import repeat
from typing import Any

import cocotb
from cocotb.triggers import RisingEdge


class _Stream:
    """The signals of a stream."""

    def __init__(self, dut: Any, name: str) -> None:
        self.dut, self.name = dut, name
        self.valid, self.ready = getattr(dut, f"{name}__valid"), getattr(dut, f"{name}__ready")
        payload = f"{name}__payload"
        self.payload = getattr(dut, payload) if hasattr(dut, payload) else None

    def _value(self) -> int:
        return 0 if self.payload is None else int(self.payload.value)


class StreamDriver(_Stream):
    """Sends payloads into a stream.

    Parameters
    ----------
    idle
        Per cycle without an item on the stream, whether to stay idle although there is one to send.
    """

    def __init__(self, dut: Any, name: str, *, idle: Iterable[bool] = repeat(False)) -> None:
        super().__init__(dut, name)
        self._idle: Iterator[bool] = iter(idle)
        self._items: deque[int] = deque()
        self.valid.value = 0
        cocotb.start_soon(self._run())

    def send(self, *payloads: int) -> None:
        """Send these after all others; returns at once."""
        self._items.extend(payloads)

    @property
    def waiting(self) -> int:
        """Payloads not yet on the stream."""
        return len(self._items)

    async def _run(self) -> None:
        busy = False
        while True:
            await RisingEdge(self.dut.clk)
            if busy and not self.ready.value:
                continue
            busy = bool(self._items) and not next(self._idle)
            self.valid.value = int(busy)
            if busy:
                payload = self._items.popleft()
                if self.payload is not None:
                    self.payload.value = payload


class StreamSink(_Stream):
    """Takes from a stream whenever ``stall`` gives false."""

    def __init__(self, dut: Any, name: str, *, stall: Iterable[bool] = repeat(False)) -> None:
        super().__init__(dut, name)
        self._stall = iter(stall)
        self.ready.value = 0
        cocotb.start_soon(self._run())

    async def _run(self) -> None:
        while True:
            await RisingEdge(self.dut.clk)
            self.ready.value = int(not next(self._stall))


class StreamMonitor(_Stream):
    """Watches a stream and calls ``report`` with each payload that is taken.

    Raises AssertionError when valid goes away or the payload changes before it is taken. ``dropped`` says in which
    cycles that is right (while the stream is being cleared).
    """

    def __init__(
        self, dut: Any, name: str, report: Callable[[int], None], *, dropped: Callable[[], bool] = lambda: False
    ) -> None:
        super().__init__(dut, name)
        self._report, self._dropped = report, dropped
        self.taken = self.stalled = self.idle = 0
        """Cycles with a transfer, with one that waits, with none."""
        cocotb.start_soon(self._run())

    async def _run(self) -> None:
        waiting: int | None = None
        while True:
            await RisingEdge(self.dut.clk)
            if self.dut.rst.value:
                waiting = None
                continue
            valid, ready = bool(self.valid.value), bool(self.ready.value)
            if waiting is not None:
                assert valid, f"{self.name}: valid went away before the payload was taken"
                assert self._value() == waiting, f"{self.name}: the payload changed before it was taken"
            waiting = None
            if valid and ready:
                self.taken += 1
                self._report(self._value())
            elif valid:
                self.stalled += 1
                waiting = None if self._dropped() else self._value()
            else:
                self.idle += 1
