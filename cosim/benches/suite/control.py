"""Bench of a unit's control: its stream of entries with random idle, and a core that takes random times.

Options: ``config`` (TOML), ``unit`` (name), ``seed``, ``entries`` (how many), ``idle`` (share of cycles).
"""

import random
from typing import Any

import cocotb
from amaranth.hdl import Const
from amaranth.utils import exact_log2
from cocotb.triggers import RisingEdge

from dovetail.cosim.benches.bench import Scoreboard, config, options, pauses, rng, start, until
from dovetail.cosim.benches.streams import StreamDriver, StreamMonitor
from dovetail.hw.common.ports import GROUP, EntryKind, Front
from dovetail.isa.instructions.table import INSTRUCTIONS, REGISTERS, Unit
from dovetail.isa.timing.sequencer import CHECK
from dovetail.sw.random.programs.registers import operations

LIMIT = 50_000
Event = tuple[str, int, int]
"""What the core is told: cfg (index, value), operation (opcode, 0), fetch (0, address)."""


class CoreModel:
    """A core that does nothing, in random times; reports what it is told and checks when."""

    def __init__(self, dut: Any, numbers: random.Random, board: Scoreboard[Event]) -> None:
        self.dut, self._numbers, self._board = dut, numbers, board
        self.completed = 0
        """Operations, without fetches."""
        for name in ("cause", "done", "error"):
            getattr(dut, f"core__{name}").value = 0
        cocotb.start_soon(self._run())

    async def _run(self) -> None:
        dut = self.dut
        while True:
            await RisingEdge(dut.clk)
            assert int(dut.done.value) == self.completed, "done must count operations"
            assert dut.idle.value, "idle must be high without an operation"
            popped = dut.entries__valid.value and dut.entries__ready.value
            if popped and dut.core__cfg__en.value and (group := int(dut.core__cfg__group.value)):
                index = GROUP * exact_log2(group) + exact_log2(int(dut.core__cfg__place.value))
                self._board.check(("cfg", index, int(dut.core__cfg__value.value)))
            if dut.core__start.value:
                fetch = bool(dut.core__fetch.value)
                told = (
                    ("fetch", 0, int(dut.core__address.value)) if fetch else ("operation", int(dut.core__op.value), 0)
                )
                self._board.check(told)
                await self._work(fetch)

    async def _work(self, fetch: bool) -> None:
        dut = self.dut
        duration = self._numbers.randint(1, 20)
        for cycle in range(1, CHECK + duration + 1):
            dut.core__done.value = int(cycle == CHECK + duration)
            await RisingEdge(dut.clk)
            assert bool(dut.core__go.value) == (cycle == CHECK), "go must come CHECK cycles after start, once"
            assert not dut.core__start.value and not dut.core__cfg__en.value, "nothing is written while the core works"
            assert not dut.idle.value
        assert bool(dut.fetched.value) == fetch
        dut.core__done.value = 0
        self.completed += not fetch


@cocotb.test()
async def entries(dut: Any) -> None:
    """Entries are carried out in order; after a wait nothing is taken until the other unit's count is there."""
    numbers, setting, unit = rng(), config(), Unit[options()["unit"]]
    board = Scoreboard[Event]("core")
    completed = dict.fromkeys(Unit, 0)
    ops = [op for op in operations(setting) if INSTRUCTIONS[op].unit == unit]
    driver = StreamDriver(dut, "entries", idle=pauses(numbers, options().get("idle", 0.3)))
    waits: list[tuple[Unit, int]] = []

    def taken(payload: int) -> None:
        if waits:
            on, target = waits[-1]
            assert completed[on] >= target, f"went on after a wait for {target}, but {on.name} has {completed[on]}"
        entry = Front.from_bits(payload)
        if EntryKind(entry.kind) == EntryKind.WAIT:
            waits.append((Unit(int(entry.waits).bit_length() - 1), int(entry.value)))

    monitor = StreamMonitor(dut, "entries", taken)
    core = CoreModel(dut, numbers, board)
    await start(dut)
    count = options().get("entries", 120)
    wait_for = dict.fromkeys(Unit, 0)
    others = [other for other in Unit if other != unit]
    for n in range(count):
        kind = numbers.choice([EntryKind.CFG, EntryKind.WAIT, EntryKind.OP, EntryKind.OP])
        if unit == Unit.LOAD and numbers.random() < 0.2:
            kind = EntryKind.FETCH
        code, value, waits_for = 0, 0, 0
        if kind == EntryKind.CFG:
            code, value = numbers.choice(list(REGISTERS[unit].values())).index, numbers.getrandbits(32)
            board.expect(("cfg", code, value))
        elif kind == EntryKind.WAIT:
            on = numbers.choice(others)
            wait_for[on] += numbers.randint(0, 2)
            waits_for, value = 1 << on, wait_for[on]
        elif kind == EntryKind.OP:
            code = int(numbers.choice(ops))
            board.expect(("operation", code, 0))
        else:
            value = numbers.getrandbits(22) << 10
            board.expect(("fetch", 0, value))
        group, place = divmod(code % GROUP**2, GROUP)
        fields = {"kind": kind, "code": code, "waits": waits_for, "value": value, "pc": n}
        fields |= {"group": (kind == EntryKind.CFG) << group, "place": 1 << place}
        fields["works"] = kind in (EntryKind.OP, EntryKind.FETCH)
        driver.send(Const.cast(Front.const(fields)).value)

    async def others_work() -> None:
        while True:
            await RisingEdge(dut.clk)
            on = numbers.choice(others)
            completed[on] += numbers.random() < 0.1
            getattr(dut, f"completed__{int(on)}").value = completed[on]

    cocotb.start_soon(others_work())
    await until(dut, lambda: monitor.taken == count and bool(dut.idle.value), limit=LIMIT, what="the last entry")
    assert board.empty and core.completed == int(dut.done.value)
    assert monitor.stalled and waits, "no entry ever waited"
