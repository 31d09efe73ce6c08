"""Parameters of a run: CFG words that name a host register PARAM, and what they are once the run has its values.

The front end adds the register to a word's value when it hands it on, modulo 2^32, and the unit keeps the bits that its
register has. The host cannot write the registers during a run, so a run executes the same words as a program in which
the sums stand.
"""

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from dovetail.isa.config.resolved import Config
from dovetail.isa.instructions.table import BY_NUMBER, CFG_PARAM, CFG_REG, CFG_VALUE, OPCODE, Op

Uint64s = npt.NDArray[np.uint64]

_MASKS = np.zeros(1 << CFG_REG.width, np.uint64)
for _register in BY_NUMBER.values():
    _MASKS[_register.number] = _register.mask
_HANDED_ON = np.uint64(~(CFG_PARAM.mask | CFG_VALUE.mask) & (1 << 64) - 1)
_CHOICE = np.uint64(OPCODE.mask | CFG_PARAM.mask)


def check_values(config: Config, parameters: Sequence[int]) -> None:
    """Raise ValueError unless these are values of an accelerator's registers PARAM."""
    if len(parameters) > config.parameters:
        raise ValueError(
            f"parameters must be at most {config.parameters}, as the configuration has, not {len(parameters)}"
        )
    for number, value in enumerate(parameters, 1):
        if not 0 <= value < 1 << 32:
            raise ValueError(f"parameter {number} must be 0..2**32-1, not {value}")


def names_parameter(words: Uint64s) -> npt.NDArray[np.bool_]:
    """Which words are a CFG that names a parameter."""
    return np.asarray((words & np.uint64(OPCODE.mask) == Op.CFG) & (words & _CHOICE != Op.CFG))


def resolve(config: Config, words: Uint64s, parameters: Sequence[int]) -> Uint64s:
    """The words of a program as a run executes them: parameters are added.

    ``parameters``: values of PARAM1 and up; those left out are 0. Where a parameter is named that the configuration
    lacks, a word stays, as the front end refuses it. Where a word is refused for its own value this stays, too. Raises
    ValueError for values that the registers cannot have.
    """
    check_values(config, parameters)
    numbers = (words >> np.uint64(CFG_PARAM.low)).astype(np.int64) & (1 << CFG_PARAM.width) - 1
    places = np.flatnonzero(names_parameter(words) & (numbers <= config.parameters))
    if not len(places):
        return words
    table = np.zeros(1 + config.parameters, np.uint64)
    table[1 : 1 + len(parameters)] = list(parameters)
    mine = words[places]
    masks = _MASKS[(mine >> np.uint64(CFG_REG.low)).astype(np.int64) & (1 << CFG_REG.width) - 1]
    values = mine >> np.uint64(CFG_VALUE.low)
    sums = np.where(values & ~masks, values, (values + table[numbers[places]]) & masks)
    resolved = words.copy()
    resolved[places] = mine & _HANDED_ON | sums << np.uint64(CFG_VALUE.low)
    return resolved
