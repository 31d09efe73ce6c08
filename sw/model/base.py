"""What the units of the model share: SRAM, system memory, and the interface of a unit."""

import itertools
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

import numpy as np
import numpy.typing as npt

from dovetail.isa.config.resolved import Config
from dovetail.isa.instructions.checks import View
from dovetail.isa.instructions.table import Op
from dovetail.isa.timing.memory import Broken, answers

Bytes = npt.NDArray[np.uint8]
Int8s = npt.NDArray[np.int8]

_PAGE_SHIFT = 10
_MOST_PLANS = 1 << 15

PlanT = TypeVar("PlanT")

_clock = itertools.count(1)
"""Of all SRAMs together: what one remembers of its age means nothing else in another."""


class Sram:
    """On-chip memory. ``data`` may be written anywhere as long as :meth:`touch` is told."""

    def __init__(self, size: int) -> None:
        self.data: Bytes = np.zeros(size, np.uint8)
        """The bytes; the operating system provides them as they are written."""
        self._written: npt.NDArray[np.int64] = np.zeros((size >> _PAGE_SHIFT) + 1, np.int64)

    def touch(self, address: int, size: int) -> None:
        """Take note of a write to ``size`` bytes at ``address``."""
        self._written[address >> _PAGE_SHIFT : (address + size - 1 >> _PAGE_SHIFT) + 1] = next(_clock)

    def age(self, address: int, size: int) -> int:
        """A number that grows when any of these bytes (or a neighbour) is written; 0 while they are zero."""
        return int(self._written[address >> _PAGE_SHIFT : (address + size - 1 >> _PAGE_SHIFT) + 1].max())

    def signed(self, address: int, size: int) -> Int8s:
        """A view of a region as int8."""
        return self.data[address : address + size].view(np.int8)


@dataclass(frozen=True)
class SystemMemory:
    """Memory behind the bus: ``data`` from address 0 on; what lies beyond answers with an error, and what is ``broken``
    too."""

    data: Bytes
    base: int
    broken: Broken = ()

    def answers(self, address: int, size: int) -> bool:
        """Whether an access gives no error."""
        return answers(address, size, len(self.data), self.broken)


class UnitModel(ABC):
    """One unit. To probe or replace one, give :class:`~dovetail.sw.model.accelerator.Model` a subclass's."""

    def __init__(self, config: Config) -> None:
        self.config = config

    @abstractmethod
    def execute(self, op: Op, registers: View, sram: Sram, memory: SystemMemory) -> None:
        """Carry out an operation that has passed its checks."""


class Plans(Generic[PlanT]):
    """What operations do, as ``make`` finds it from opcode and registers; all is forgotten when it is too much."""

    def __init__(self, make: Callable[[Op, View], PlanT]) -> None:
        self._make = make
        self._known: dict[tuple[Op, tuple[int, ...]], PlanT] = {}

    def of(self, op: Op, registers: View) -> PlanT:
        """The plan of an operation."""
        key = (op, tuple(registers.values))
        plan = self._known.get(key)
        if plan is None:
            if len(self._known) > _MOST_PLANS:
                self._known.clear()
            plan = self._known[key] = self._make(op, registers)
        return plan


def strided(
    buffer: npt.NDArray[Any], offset: int, shape: tuple[int, ...], strides: tuple[int, ...]
) -> npt.NDArray[Any]:
    """A view of a contiguous array's memory, ``offset`` and ``strides`` in bytes; ValueError where it leaves it.

    Much faster than NumPy's ``as_strided``, and checked.
    """
    return np.ndarray(shape, buffer.dtype, buffer, offset, strides)


def gathered(
    region: Int8s, offset: npt.NDArray[np.int64], *, item: int, zero: int, valid: npt.NDArray[np.bool_] | None = None
) -> npt.NDArray[Any]:
    """Values of ``item`` bytes (1 or 4) at any offsets of a region; int8 that lie outside, or are not ``valid``, are
    ``zero``, int32 that do not lie wholly inside are 0."""
    inside = offset + item <= len(region)
    if valid is not None:
        inside &= valid
    if item == 1:
        return np.where(inside, region[np.where(inside, offset, 0)], np.int8(zero))
    contents = np.zeros((*offset.shape, item), np.int8)
    contents[inside] = region[offset[inside][:, None] + np.arange(item)]
    return np.asarray(contents.view("<i4")[..., 0])
