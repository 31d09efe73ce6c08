"""What a program with parameters can do in any of its runs: transfers that stay where they belong, and cycles."""

from collections.abc import Collection, Iterable, Iterator

import numpy as np

from dovetail.isa.config.resolved import Config
from dovetail.isa.instructions.checks import INDEX, View
from dovetail.isa.instructions.parameters import names_parameter, resolve
from dovetail.isa.instructions.table import BY_NUMBER, CFG_REG, DMA_OPS, Op, Unit
from dovetail.isa.parameters import Parameters
from dovetail.isa.timing.dma import BOUNDARY, Shape
from dovetail.isa.timing.operations import Operations
from dovetail.isa.timing.run import cycle_bound
from dovetail.isa.timing.sequencer import Words, as_words

_NAMES = {**dict.fromkeys(DMA_OPS, "MEM_ADDR"), Unit.VECTOR: "OUT_ADDR"}
ADDRESSES = {BY_NUMBER[unit << 6 | INDEX[unit][name]].number for unit, name in _NAMES.items()}
"""Registers of which an operation's end in memory grows as they do; a transfer's duration depends on their place in a
page only, that of the vector unit's operations not at all."""


def _adds_to_addresses(words: Words) -> bool:
    """Whether parameters are added to addresses of system memory only."""
    program = as_words(words)
    named = program[names_parameter(program)]
    numbers = (named >> np.uint64(CFG_REG.low)).astype(np.int64) & (1 << CFG_REG.width) - 1
    return set(numbers.tolist()) <= ADDRESSES


def bound_of(config: Config, words: Words, parameters: Parameters) -> int:
    """Cycles that no run of a program exceeds, see :func:`~dovetail.isa.timing.run.cycle_bound`."""
    least = parameters.least
    if not _adds_to_addresses(words):
        return max(cycle_bound(config, words, values) for values in parameters.all_values())
    # A transfer has one address, so what parameters cost adds up; it depends on the place in a page.
    found = cycle_bound(config, words, least)
    more = 0
    for number in range(len(least)):
        places = {value % BOUNDARY: value for value in parameters.of_formula(number)}.values()
        others = ((*least[:number], value, *least[number + 1 :]) for value in places)
        more += max(cycle_bound(config, words, values) for values in others) - found
    return found + more


def _settings(words: Words, parameters: Parameters) -> Iterable[tuple[int, ...]]:
    """Values of the parameters that stand for all: where they are added to addresses only, the least and the greatest
    of each."""
    if not _adds_to_addresses(words):
        return parameters.all_values()
    ranges = [parameters.of_formula(number) for number in range(len(parameters.formulas))]
    return tuple(map(min, ranges)), tuple(map(max, ranges))


def faults_of(
    config: Config, words: Words, parameters: Parameters, stored: Collection[range], memory_bytes: int
) -> Iterator[str]:
    """What some run of a program would do that it must not, a line each: an operation that fails its checks, a transfer
    beyond the ``memory_bytes``, a STORE that is not within one of ``stored``."""
    program = as_words(words)
    end = int(np.flatnonzero(program & np.uint64(0xFF) == Op.END)[0])
    for values in _settings(words, parameters):
        operations = Operations(resolve(config, program[:end], values))
        causes, _ = operations.verify(config)
        text = f"with parameters {', '.join(map(str, values))}"
        for n in np.flatnonzero(causes).tolist():
            yield f"word {operations.pcs[n]} fails its checks {text}"
        for mine in operations.of_units:
            for place, row in zip(mine.places.tolist(), mine.rows(), strict=True) if mine.unit in DMA_OPS else ():
                shape = Shape.of(View(mine.unit, row))
                allowed = stored if mine.unit == Unit.STORE else [range(memory_bytes)]
                if not any(one.start <= shape.address and shape.end <= one.stop for one in allowed):
                    where = f"{shape.address:#x}..{shape.end - 1:#x}"
                    yield f"word {operations.pcs[place]} reaches {where} of system memory {text}"
