"""Corners that random programs seldom reach, in lockstep: address wrap, ends of memory and SRAM, pages, full queues,
several faults at once."""

from pathlib import Path

import numpy as np
import pytest

from dovetail.cosim.compare.lockstep import Lockstep
from dovetail.isa.config.resolved import Config
from dovetail.isa.instructions.table import PAGE_BYTES, PAGE_WORDS, Cause, Op, Unit, cfg, pack, sync, to_bytes

CONFIG = Config(ic_lanes=8, oc_lanes=8, sram="64 KiB")
SRAM = CONFIG.sram
MEMORY = 1 << 16
TOP = 1 << 32
END = [int(Op.END)]
CFG = cfg(Unit.ARRAY, "ORIGIN", 3)


def dma(unit: Unit, rows: int = 1, planes: int = 1, **registers: int) -> list[int]:
    """A transfer; LOAD and STORE keep to areas of their own unless told otherwise."""
    values = dict.fromkeys(("MEM_ROW_STEP", "MEM_PLANE_STEP", "SRAM_ROW_STEP", "SRAM_PLANE_STEP"), 0)
    values |= {"MEM_ADDR": 8192 if unit == Unit.LOAD else 32768, "SRAM_ADDR": 0 if unit == Unit.LOAD else 32768}
    values |= {"SRAM_BYTES": 4096, "LENGTH": 64} | registers
    values["COUNT"] = pack(unit, "COUNT", rows=rows, planes=planes)
    words = [cfg(unit, name, value) for name, value in values.items()]
    return [*words, int(Op.DMA_READ if unit == Unit.LOAD else Op.DMA_WRITE)]


@pytest.fixture(scope="module")
def pair(build_cache: Path) -> Lockstep:
    return Lockstep(CONFIG, cache=build_cache)


def check(pair: Lockstep, words: list[int], *, base: int = 0, program: int = 4096, pages: int | None = None) -> None:
    rng = np.random.default_rng(len(words))
    memory = rng.integers(0, 256, MEMORY, np.uint8)
    pages = pages or -(-len(words) // PAGE_WORDS)
    text = np.frombuffer(to_bytes(words).ljust(pages * PAGE_BYTES, b"\0"), np.uint8)
    room = memory[program : program + len(text)]
    room[:] = text[: len(room)]
    comparison = pair.run(memory, program, pages, base, sram=rng.integers(0, 256, SRAM, np.uint8))
    assert comparison.equal, comparison.first_difference


TRANSFERS: dict[str, dict[str, int]] = {
    **{f"address wraps, {n} bytes": {"MEM_ADDR": TOP - 16, "LENGTH": n} for n in (1, 15, 16, 17, 64, 5000)},
    "rows backwards": {"MEM_ADDR": 40000, "LENGTH": 30, "rows": 5, "MEM_ROW_STEP": TOP - 32},
    "end of memory": {"MEM_ADDR": MEMORY - 100, "LENGTH": 300},
    "end of memory in a later row": {"MEM_ADDR": MEMORY - 100, "LENGTH": 30, "rows": 20, "MEM_ROW_STEP": 10},
    "an error in the middle": {
        "MEM_ADDR": MEMORY - 4096,
        "LENGTH": 30,
        "rows": 3,
        "planes": 3,
        "MEM_ROW_STEP": 8000,
        "MEM_PLANE_STEP": TOP - 8192,
    },
    "steps in SRAM wrap": {
        "rows": 4,
        "planes": 3,
        "LENGTH": 100,
        "SRAM_BYTES": 120,
        "SRAM_ROW_STEP": TOP - 16,
        "SRAM_PLANE_STEP": 70,
        "MEM_ROW_STEP": 100,
        "MEM_PLANE_STEP": 400,
    },
    "offsets close below 0": {
        "rows": 4,
        "LENGTH": 3,
        "SRAM_BYTES": 120,
        "SRAM_ROW_STEP": TOP - 4,
        "MEM_ADDR": 8191,
        "MEM_ROW_STEP": 100,
    },
    # Of 64 KiB of SRAM an offset has 17 bits.
    "more than an offset's bits": {
        "rows": 3,
        "planes": 2,
        "LENGTH": 90,
        "SRAM_BYTES": 700,
        "SRAM_ROW_STEP": (1 << 17) + 100,
        "SRAM_PLANE_STEP": (5 << 17) + 350,
        "MEM_ROW_STEP": 100,
        "MEM_PLANE_STEP": 400,
    },
    "offsets wrap within a row": {
        "rows": 4,
        "LENGTH": 60,
        "SRAM_BYTES": 120,
        "SRAM_ROW_STEP": (1 << 17) - 9,
        "MEM_ADDR": 8191,
        "MEM_ROW_STEP": 100,
    },
    "end of SRAM": {"SRAM_ADDR": SRAM - 10, "SRAM_BYTES": 10, "LENGTH": 25, "MEM_ADDR": 8195},
    "end of SRAM passed": {"SRAM_ADDR": SRAM - 9, "SRAM_BYTES": 10},
    "region wraps": {"SRAM_ADDR": TOP - 1, "SRAM_BYTES": 10},
    "all of SRAM": {"SRAM_ADDR": 0, "SRAM_BYTES": SRAM, "LENGTH": 20000},
    "many short rows": {"rows": 2000, "LENGTH": 1, "MEM_ROW_STEP": 7, "SRAM_ROW_STEP": 3},
}


@pytest.mark.parametrize("name", TRANSFERS)
@pytest.mark.parametrize("unit", [Unit.LOAD, Unit.STORE])
def test_transfer(pair: Lockstep, unit: Unit, name: str) -> None:
    check(pair, dma(unit, **TRANSFERS[name]) + END)


def test_base_wraps(pair: Lockstep) -> None:
    check(pair, dma(Unit.LOAD, MEM_ADDR=TOP - 256, LENGTH=300) + END, base=0x3000)


PROGRAMS: dict[str, tuple[list[int], dict[str, int]]] = {
    "no END, one page": ([CFG] * 128, {}),
    "no END, two pages": ([CFG] * 256, {}),
    "END is the last word of a page": ([CFG] * 127 + END, {}),
    "END is the first word of a page": ([CFG] * 128 + END, {}),
    "pages behind END": (END + [CFG] * 700, {}),
    "no memory at the program": (END, {"program": MEMORY}),
    "no memory at the second page": ([CFG] * 128 + END, {"program": MEMORY - PAGE_BYTES}),
    "no memory at pages behind END": ([CFG] * 127 + END, {"program": MEMORY - PAGE_BYTES, "pages": 3}),
    "a fetch fails behind loads": (
        dma(Unit.LOAD, LENGTH=5000, SRAM_BYTES=5000) * 20 + END,
        {"program": MEMORY - PAGE_BYTES},
    ),
    "a fetch fails beside stores": (
        dma(Unit.STORE, LENGTH=3000, SRAM_BYTES=5000) * 10 + END,
        {"program": MEMORY - PAGE_BYTES},
    ),
    **{f"{n} stores": (dma(Unit.STORE, LENGTH=500) * n + END, {}) for n in (1, 2, 15, 40)},
    "pending above all": (
        [*dma(Unit.LOAD), sync(Unit.STORE, Unit.LOAD, TOP - 1), sync(Unit.LOAD, Unit.LOAD), *END],
        {},
    ),
    "chains of waits": (
        [
            word
            for n in range(60)
            for word in (
                sync(Unit.ARRAY, Unit.LOAD, n % 3),
                sync(Unit.STORE, Unit.ARRAY),
                sync(Unit.VECTOR, Unit.VECTOR, 0),
                *dma(Unit.LOAD, LENGTH=n + 1),
            )
        ]
        + END,
        {},
    ),
}


@pytest.mark.parametrize("name", PROGRAMS)
def test_program(pair: Lockstep, name: str) -> None:
    words, places = PROGRAMS[name]
    check(pair, words, **places)


@pytest.mark.parametrize("faults", range(8))
@pytest.mark.parametrize("gap", range(4))
def test_faults_that_meet(pair: Lockstep, faults: int, gap: int) -> None:
    """A bad LOAD, a bad STORE and a bad word, in any combination and at several distances."""
    words = dma(Unit.LOAD, LENGTH=100)
    words += dma(Unit.STORE, LENGTH=0 if faults & 1 else 5)
    words += [CFG] * gap
    words += dma(Unit.LOAD, SRAM_BYTES=0) if faults & 2 else []
    words += [CFG] * gap
    words += [0xFF] if faults & 4 else []
    check(pair, words + END)


def test_bank_conflict_of_two_that_verify_together(pair: Lockstep) -> None:
    """LOAD and ARRAY want the same write port in the same cycle or nearly so: the lower unit number wins."""
    window = {"IN_ADDR": 4096, "IN_BYTES": 64, "IN_ROWS": 1, "ROW_BYTES": 64, "OUT_ADDR": 0, "OUT_BYTES": 64}
    window |= {"W_ADDR": 8192, "W_BYTES": 8192 // 64, "STRIPE": 1, "KC": 1, "GEOMETRY": 0x0101, "TILE": 0x10001}
    window |= {"BLOCKS": 1 | 8 << 16}
    array = [cfg(Unit.ARRAY, name, value) for name, value in window.items()]
    load = dma(Unit.LOAD)
    for gap in range(-4, 5):
        between = [cfg(Unit.VECTOR, "ORIGIN", 0)] * abs(gap)
        first, second = ([load[-1]], [int(Op.CONV)]) if gap >= 0 else ([int(Op.CONV)], [load[-1]])
        check(pair, array + load[:-1] + [sync(Unit.ARRAY, Unit.LOAD)] * 3 + first + between + second + END)


def test_causes_are_reached(pair: Lockstep) -> None:
    """The table above is no use if its faults are others than meant."""
    memory = np.zeros(MEMORY, np.uint8)
    words = dma(Unit.LOAD, **TRANSFERS["end of memory"]) + END
    memory[: 8 * len(words)] = np.frombuffer(to_bytes(words), np.uint8)
    fault = pair.rtl.run(memory, 0, 1).fault
    assert fault is not None and fault.cause == Cause.BUS_READ
