"""What every bench uses inside the simulator: options, clock and reset, random pauses, an in-order scoreboard."""

import json
import random
from collections import deque
from collections.abc import Callable, Iterator
from typing import Any, Generic, TypeVar

import cocotb
from cocotb.clock import Clock
from cocotb.triggers import RisingEdge

from dovetail.isa.config.resolved import Config

OPTIONS = "dovetail"
"""Name of the plusarg that carries the options of a run to its tests."""
PERIOD = 10
"""Nanoseconds of a clock cycle."""
RESET_CYCLES = 3
"""Cycles of reset; the accelerator in the form for simulation takes it a cycle late."""

T = TypeVar("T")


def options() -> dict[str, Any]:
    """What was given to :func:`~dovetail.cosim.benches.runner.run` as options."""
    values: dict[str, Any] = json.loads(str(cocotb.plusargs.get(OPTIONS, "{}")))
    return values


def config() -> Config:
    """The configuration in the options, TOML text under ``config``."""
    return Config.from_toml(options()["config"])


def rng(salt: int = 0) -> random.Random:
    """Random numbers of this run's ``seed``; each user takes a salt of its own."""
    return random.Random(int(options().get("seed", 1)) << 8 | salt)


async def start(dut: Any) -> None:
    """Start the clock and reset the design. Drivers may be made before."""
    Clock(dut.clk, PERIOD, unit="ns").start()
    if hasattr(dut, "rst"):
        dut.rst.value = 1
        await cycles(dut, RESET_CYCLES)
        dut.rst.value = 0
    await cycles(dut, 2)


async def cycles(dut: Any, count: int) -> None:
    """Wait."""
    for _ in range(count):
        await RisingEdge(dut.clk)


async def until(dut: Any, condition: Callable[[], bool], *, limit: int, what: str) -> int:
    """Wait until ``condition`` holds at a clock edge; the cycles it took. Fails after ``limit`` cycles."""
    for n in range(limit):
        await RisingEdge(dut.clk)
        if condition():
            return n + 1
    raise AssertionError(f"{what} did not come within {limit} cycles")


def pauses(numbers: random.Random, share: float = 0.5, longest: int = 8) -> Iterator[bool]:
    """Without end, whether to pause in a cycle: ``share`` of all, in runs of up to ``longest`` cycles."""
    if not 0 <= share < 1:
        raise ValueError(f"share must be at least 0 and below 1, not {share}")
    while True:
        for _ in range(numbers.randint(1, longest)):
            yield False
        if share:
            mean = (1 + longest) / 2 * share / (1 - share)
            for _ in range(round(numbers.uniform(0, 2 * mean))):
                yield True


class Scoreboard(Generic[T]):
    """What must come, in order.

    Parameters
    ----------
    name
        For the messages.
    show
        Makes text of an item.
    """

    def __init__(self, name: str, show: Callable[[T], str] = repr) -> None:
        self.name, self._show = name, show
        self._expected: deque[T] = deque()
        self.count = 0
        """Items checked."""

    def expect(self, item: T) -> None:
        """This comes after all that was expected before."""
        self._expected.append(item)

    def check(self, item: T) -> None:
        """This came. Raises AssertionError unless it is what was expected next."""
        if not self._expected:
            raise AssertionError(f"{self.name}: item {self.count} came, but nothing was expected: {self._show(item)}")
        wanted = self._expected.popleft()
        if item != wanted:
            raise AssertionError(f"{self.name}: item {self.count} must be {self._show(wanted)}, not {self._show(item)}")
        self.count += 1

    @property
    def empty(self) -> bool:
        """Everything expected has come."""
        return not self._expected
