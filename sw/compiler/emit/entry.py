"""The first pages of a program that keeps something in SRAM from run to run: they load it.

A run that finds SRAM as the last run of the program left it begins behind them. Else it begins with them and goes on
into the pages behind, which find all registers zero, as at a start.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterable

from dovetail.isa.config.resolved import Config
from dovetail.isa.instructions.table import PAGE_WORDS, REGISTERS, Unit, cfg, sync
from dovetail.sw.compiler.emit.operations import Transfer


def entry_words(config: Config, loads: Iterable[tuple[int, Transfer]]) -> tuple[array[int], dict[int, int]]:
    """Words of whole pages, and of each operation's word the layer.

    Parameters
    ----------
    config: the accelerator.
    loads: each with its layer.
    """
    words, layers, values = array("Q"), dict[int, int](), [0] * len(REGISTERS[Unit.LOAD])
    loads = list(loads)
    if not loads:
        return words, layers
    for layer, transfer in loads:
        form = transfer.form(Unit.LOAD)
        for index, word, fixed, place in form.registers:
            value = fixed if place < 0 else transfer[place]
            if values[index] != value:
                values[index] = value
                words.append(word | value << 32)
        layers[len(words)] = layer
        words.append(form.op)
    others = (unit for unit in Unit if unit != Unit.LOAD and (unit != Unit.VECTOR or config.vector))
    words.extend(sync(unit, Unit.LOAD) for unit in others)
    zero = [cfg(Unit.LOAD, name, 0) for name in REGISTERS[Unit.LOAD]]
    words.extend(word for word, value in zip(zero, values, strict=True) if value)
    words.extend(zero[:1] * (-len(words) % PAGE_WORDS))
    return words, layers
