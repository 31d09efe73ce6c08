"""What a program takes from the host and leaves for it, and in which pieces it goes over the link."""

import random

import numpy as np
import pytest

from dovetail.isa.config.resolved import Config
from dovetail.isa.instructions.table import Op, Unit, cfg, pack
from dovetail.sw.model.accelerator import Model
from dovetail.sw.random.programs.legal import legal_program
from dovetail.sw.runtime.board.contents import GAP, MOST_ROWS, pieces, traffic

SIZE = 4096


def transfer(op: Op, address: int, length: int, *, rows: int = 1, planes: int = 1, step: int = 0) -> list[int]:
    """Words of a DMA transfer."""
    unit = Unit.LOAD if op == Op.DMA_READ else Unit.STORE
    values = {"MEM_ADDR": address, "LENGTH": length, "MEM_ROW_STEP": step, "MEM_PLANE_STEP": step * rows}
    values["COUNT"] = pack(unit, "COUNT", rows=rows, planes=planes)
    return [*(cfg(unit, name, value) for name, value in values.items()), int(op)]


def ranges(mask: np.ndarray) -> list[int]:
    return [int(n) for n in np.flatnonzero(mask)]


def test_what_is_stored_first_is_not_taken() -> None:
    words = transfer(Op.DMA_READ, 10, 2) + transfer(Op.DMA_WRITE, 20, 4) + transfer(Op.DMA_READ, 18, 4) + [int(Op.END)]
    found = traffic(words + transfer(Op.DMA_WRITE, 0, 100), 100, SIZE)
    assert ranges(found.taken) == [110, 111, 118, 119]
    assert ranges(found.stored) == [120, 121, 122, 123]


def test_rows_and_planes() -> None:
    found = traffic(transfer(Op.DMA_WRITE, 0, 1, rows=2, planes=2, step=10), 0, SIZE)
    assert ranges(found.stored) == [0, 10, 20, 30]


def test_a_transfer_of_too_many_rows_may_be_anywhere() -> None:
    found = traffic(transfer(Op.DMA_READ, 0, 1, rows=MOST_ROWS - 1, planes=2), 0, SIZE)
    assert found.taken.all()


def test_nothing_counts_behind_a_word_that_is_no_instruction() -> None:
    found = traffic([*transfer(Op.DMA_READ, 0, 2), 173, *transfer(Op.DMA_WRITE, 4, 2)], 0, SIZE)
    assert ranges(found.taken) == [0, 1] and not found.stored.any()


def test_memory_ends_where_it_ends() -> None:
    found = traffic(transfer(Op.DMA_READ, SIZE - 1, 8), 0, SIZE)
    assert ranges(found.taken) == [SIZE - 1]


@pytest.mark.parametrize("seed", range(5))
def test_the_rest_of_memory_does_not_matter(seed: int) -> None:
    """A program leaves the same bytes when everything that it does not take is something else."""
    config = Config.load("small")
    program = legal_program(random.Random(seed), config)
    words = program.memory[program.program : program.program + 1024 * program.pages]
    found = traffic(words.tobytes(), program.base, len(program.memory))
    pages = np.zeros_like(found.taken)
    pages[program.program : program.program + len(words)] = True
    other = np.where(found.taken | pages, program.memory, program.memory ^ 0x5A)
    expected = Model(config).run(program.memory.copy(), *program.arguments)
    result = Model(config).run(other.copy(), *program.arguments)
    assert expected.fault is None and result.fault is None
    assert np.array_equal(result.memory[found.stored], expected.memory[found.stored])
    assert np.array_equal(expected.memory[~found.stored], program.memory[~found.stored])


def test_pieces_are_whole_words_and_skip_long_gaps() -> None:
    wanted = np.zeros(1024, np.bool_)
    wanted[[5, 30, 200, 200 + 2 * GAP, 1023]] = True
    assert pieces(wanted) == [(4, 32), (200, 204), (200 + 2 * GAP, 204 + 2 * GAP), (1020, 1024)]
    assert pieces(np.zeros(1024, np.bool_)) == []
