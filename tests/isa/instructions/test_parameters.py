"""Parameters of a run: what words become, by hand and against sums of single words, and what is refused."""

import random

import numpy as np
import pytest

from dovetail.isa.config.resolved import Config
from dovetail.isa.instructions.parameters import names_parameter, resolve
from dovetail.isa.instructions.table import BY_NUMBER, Op, Unit, cfg, decode, pack, sync
from dovetail.isa.timing.run import cycle_bound, time_program

CONFIG = Config(parameters=3)
END = int(Op.END)


def resolved(words: list[int], *parameters: int, config: Config = CONFIG) -> list[int]:
    found: list[int] = resolve(config, np.array(words, np.uint64), parameters).tolist()
    return found


def test_by_hand() -> None:
    words = [cfg(Unit.LOAD, "MEM_ADDR", 64, 2), cfg(Unit.LOAD, "MEM_ADDR", 64), sync(Unit.LOAD, Unit.STORE, 1), END]
    assert resolved(words, 5, 1000) == [cfg(Unit.LOAD, "MEM_ADDR", 1064), *words[1:]]
    assert resolved(words, 5) == [cfg(Unit.LOAD, "MEM_ADDR", 64), *words[1:]], "what is left out is 0"
    assert names_parameter(np.array(words, np.uint64)).tolist() == [True, False, False, False]


def test_sums_wrap_and_lose_the_bits_that_the_register_lacks() -> None:
    assert resolved([cfg(Unit.ARRAY, "ORIGIN", -8, 1)], 10) == [cfg(Unit.ARRAY, "ORIGIN", 2)]
    blocks = cfg(Unit.ARRAY, "BLOCKS", pack(Unit.ARRAY, "BLOCKS", count=3, last=250), 1)
    expected = pack(Unit.ARRAY, "BLOCKS", count=5, last=(250 + 7) % 256)
    assert resolved([blocks], 7 << 16 | 2) == [cfg(Unit.ARRAY, "BLOCKS", expected)]


def test_what_the_front_end_refuses_stays_refused() -> None:
    unbuilt = cfg(Unit.LOAD, "LENGTH", 1, 4)
    assert resolved([unbuilt], 1, 2, 3) == [unbuilt]
    reserved = cfg(Unit.ARRAY, "MODE", 8, 1)
    assert resolved([reserved], 1) == [cfg(Unit.ARRAY, "MODE", 8)]


def test_every_register() -> None:
    rng = random.Random(5)
    config, parameters = Config(parameters=15), [rng.getrandbits(32) for _ in range(15)]
    for register in BY_NUMBER.values():
        for number in range(1, 16):
            value = rng.getrandbits(32) & register.mask
            (word,) = resolved([cfg(register.unit, register.name, value, number)], *parameters, config=config)
            d = decode(word)
            assert (d.register, d.param) == (register, 0)
            assert d.value == (value + parameters[number - 1]) % (1 << 32) & register.mask


def test_what_the_registers_cannot_hold() -> None:
    with pytest.raises(ValueError, match="parameters must be at most 3, as the configuration has, not 4"):
        resolved([END], 1, 2, 3, 4)
    with pytest.raises(ValueError, match=r"parameter 2 must be 0\.\.2\*\*32-1, not -1"):
        resolved([END], 1, -1)


def test_timing_takes_the_values() -> None:
    sizes = {"SRAM_BYTES": 64, "LENGTH": 64, "COUNT": pack(Unit.LOAD, "COUNT", rows=1, planes=1)}
    words = [*(cfg(Unit.LOAD, name, value) for name, value in sizes.items())]
    words += [cfg(Unit.LOAD, "COUNT", pack(Unit.LOAD, "COUNT", rows=1, planes=1), 1), int(Op.DMA_READ), END]
    few, many = (time_program(CONFIG, words, parameters=[n]) for n in (0, 9))
    assert few.fault is None and many.fault is None
    assert few.cycles < many.cycles <= cycle_bound(CONFIG, words, [9])
    assert many.registers[-1][8] == pack(Unit.LOAD, "COUNT", rows=10, planes=1)
