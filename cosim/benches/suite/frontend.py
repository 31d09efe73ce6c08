"""Bench of the front end's four streams: what random programs put into the queues, with random back-pressure.

Options: ``config`` (TOML), ``seed``, ``programs`` (how many) of ``operations`` operations, ``stall`` (share of cycles).
"""

import random
from collections.abc import Iterator, Sequence
from functools import partial
from typing import Any

import cocotb
import numpy as np

from dovetail.cosim.benches.bench import Scoreboard, config, cycles, options, pauses, rng, start, until
from dovetail.cosim.benches.streams import StreamMonitor, StreamSink
from dovetail.hw.common.ports import Entry, EntryKind
from dovetail.hw.sequencer.frontend import MANY
from dovetail.isa.instructions.table import (
    CFG_PARAM,
    CFG_REG,
    CFG_VALUE,
    INSTRUCTIONS,
    PAGE_BYTES,
    PAGE_WORDS,
    SYNC_ON,
    SYNC_PENDING,
    SYNC_UNIT,
    Op,
    Unit,
    to_bytes,
)
from dovetail.sw.random.programs.legal import legal_program

LIMIT = 20_000
Item = tuple[Any, int, int, int]
"""Kind, code, value, pc; the code of a WAIT is the unit it waits for; what a kind does not use is 0."""
WAITED = {1 << unit: int(unit) for unit in Unit}


def entries(words: list[int], program: int, parameters: Sequence[int] = ()) -> Iterator[tuple[Unit, Item]]:
    """What goes into which queue, in order, up to END."""
    done = dict.fromkeys(Unit, 0)
    pages = -(-len(words) // PAGE_WORDS)
    yield Unit.LOAD, (EntryKind.FETCH, 0, program, 0)
    for pc, word in enumerate(words):
        page = pc // PAGE_WORDS
        if pc % PAGE_WORDS == 0 and page + 1 < pages:
            yield Unit.LOAD, (EntryKind.FETCH, 0, program + PAGE_BYTES * (page + 1), page + 1)
        op = Op(word & 0xFF)
        if op == Op.END:
            return
        if op == Op.CFG:
            register = CFG_REG.get(word)
            param = CFG_PARAM.get(word)
            value = CFG_VALUE.get(word) + (parameters[param - 1] if 0 < param <= len(parameters) else 0)
            yield Unit(register >> 6), (EntryKind.CFG, register & 0x3F, value & 0xFFFF_FFFF, pc)
        elif op == Op.SYNC:
            target = (done[Unit(SYNC_ON.get(word))] - min(SYNC_PENDING.get(word), MANY)) & 0xFFFF_FFFF
            yield Unit(SYNC_UNIT.get(word)), (EntryKind.WAIT, SYNC_ON.get(word), target, pc)
        else:
            unit = INSTRUCTIONS[op].unit
            assert unit is not None
            done[unit] += 1
            yield unit, (EntryKind.OP, int(op), 0, pc)


def item(payload: int) -> Item:
    """An entry that was taken."""
    entry = Entry.from_bits(payload)
    kind = EntryKind(entry.kind)
    code = int(entry.code) if entry.waits == 0 else WAITED[entry.waits]
    return kind, code, 0 if kind == EntryKind.OP else int(entry.value), int(entry.pc)


class Pages:
    """Answers fetches: a page after some cycles."""

    def __init__(self, dut: Any, numbers: random.Random, bus_bytes: int) -> None:
        self.dut, self._numbers, self._bus_bytes = dut, numbers, bus_bytes
        self.memory = b""

    async def fetch(self, address: int) -> None:
        """Write the page's beats and tell that it is there."""
        dut, beats = self.dut, PAGE_BYTES // self._bus_bytes
        await cycles(dut, self._numbers.randint(1, 30))
        for beat in range(beats):
            start_of = address + beat * self._bus_bytes
            dut.page__en.value = 1
            dut.page__row.value = (address // PAGE_BYTES % 2) * beats + beat
            dut.page__data.value = int.from_bytes(self.memory[start_of : start_of + self._bus_bytes], "little")
            await cycles(dut, 1)
            dut.page__en.value = 0
            await cycles(dut, self._numbers.choice((0, 0, 0, 2)))
        dut.fetched.value = 1
        await cycles(dut, 1)
        dut.fetched.value = 0


@cocotb.test()
async def entries_of_programs(dut: Any) -> None:
    """Every entry of a program comes to its queue, in order."""
    numbers, setting = rng(), config()
    boards = {unit: Scoreboard[Item](f"{unit.name} queue") for unit in Unit}
    pages = Pages(dut, numbers, setting.bus_bytes)

    beginning = [True]

    def full(unit: Unit) -> Iterator[bool]:
        """Queues are empty when a program begins, and its first fetch counts on that: it is shown for one cycle."""
        for stall in pauses(random.Random(numbers.random()), options().get("stall", 0.5)):
            yield stall and not (unit == Unit.LOAD and beginning[0])

    def taken(unit: Unit, payload: int) -> None:
        came = item(payload)
        boards[unit].check(came)
        beginning[0] = False
        if came[0] == EntryKind.FETCH:
            cocotb.start_soon(pages.fetch(came[2]))

    for unit in Unit:
        StreamSink(dut, f"queues__{int(unit)}", stall=full(unit))
        StreamMonitor(dut, f"queues__{int(unit)}", partial(taken, unit))
    await start(dut)
    for n in range(options().get("programs", 3)):
        program = legal_program(rng(n), setting, count=options().get("operations", 8))
        stream = np.frombuffer(to_bytes(list(program.words)), np.uint8)
        memory = program.memory.copy()
        memory[program.program : program.program + len(stream)] = stream
        pages.memory = memory.tobytes()
        beginning[0] = True
        if setting.parameters:
            dut.parameters.value = sum(value << 32 * k for k, value in enumerate(program.parameters))
        await cycles(dut, 2)
        for unit, entry in entries(list(program.words), program.program, program.parameters):
            boards[unit].expect(entry)
        dut.program.value, dut.pages.value, dut.start.value = program.program, program.pages, 1
        await cycles(dut, 1)
        dut.start.value = 0
        await until(
            dut,
            lambda: bool(dut.stopped.value) and all(board.empty for board in boards.values()),
            limit=LIMIT,
            what="the last entry",
        )
        assert not dut.failed.value
