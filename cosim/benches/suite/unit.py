"""Bench of a unit's core: random legal and spoiled operations (LOAD: and fetches) against the model.

Options: ``config`` (TOML), ``unit`` (name), ``operations`` (how many), ``seed``, ``longest`` (cycles of an operation;
longer ones are left out). For LOAD and STORE also ``share`` of cycles in which the bus stalls (0: exact memory timing,
cycles are compared), and how many ``errors``, parts of memory that answer SLVERR (with any, some of the data area is
beyond memory too: DECERR).
"""

import random
from typing import Any

import cocotb

from dovetail.cosim.benches.axi import AxiMemory, AxiRules, TimedMemory, within
from dovetail.cosim.benches.bench import config, cycles, options, rng, start
from dovetail.cosim.benches.cores import (
    READ_PORTS,
    WRITE_PORTS,
    WRITE_TO_READ,
    CoreDriver,
    PageBuffers,
    SramPorts,
    UnitScoreboard,
)
from dovetail.isa.instructions.table import INSTRUCTIONS, PAGE_BYTES, REGISTERS, Op, Unit
from dovetail.sw.random.programs.registers import legal_registers, operations
from dovetail.sw.random.programs.walks import DATA_BYTES

BASE = 4096
"""Of the system memory in which DMA operations work."""
FETCH_AFTER = 3
"""LOAD: after every third operation an instruction page is fetched."""
PART = 64
"""Parts of memory that answer with errors are multiples of this."""


def spoiled(numbers: random.Random, unit: Unit, values: dict[str, int]) -> dict[str, int]:
    """The registers with one of them anything at all: most often a failed check."""
    name = numbers.choice(list(values))
    return {**values, name: numbers.choice((0, numbers.getrandbits(32))) & REGISTERS[unit][name].mask}


def broken_parts(numbers: random.Random, count: int) -> tuple[tuple[int, int], ...]:
    """Some parts of the data area."""
    starts = (BASE + numbers.randrange(DATA_BYTES // PART) * PART for _ in range(count))
    return tuple((start, PART * numbers.randint(1, 4)) for start in starts)


@cocotb.test()
async def random_operations(dut: Any) -> None:
    """Every operation of the unit that the configuration has."""
    numbers, setting, unit = rng(), config(), Unit[options()["unit"]]
    dma = unit in (Unit.LOAD, Unit.STORE)
    sram = bytearray(numbers.randbytes(setting.sram))
    memory = bytearray(numbers.randbytes(BASE + DATA_BYTES if dma else 0))
    if options().get("errors"):
        del memory[BASE + DATA_BYTES * 3 // 4 :]
    share = options().get("share", 0)
    broken = broken_parts(numbers, options().get("errors", 0))
    scoreboard = UnitScoreboard(setting, unit, bytes(sram), bytes(memory), base=BASE, broken=broken)
    driver = CoreDriver(dut, unit)
    if unit == Unit.LOAD:
        pages = PageBuffers(dut)
    SramPorts(dut, sram, readers=READ_PORTS[unit], writers=WRITE_PORTS[unit])
    if dma:
        dut.base.value = BASE
        rules = AxiRules(dut, "axi_", outstanding=setting.outstanding)
        respond = within(memory, broken)
        if share:
            AxiMemory(dut, "axi_", memory, respond=respond).stall(numbers, share)
        else:
            TimedMemory(dut, "axi_", memory, setting.like_fixed, respond=respond)
    await start(dut)
    await driver.clear()
    seen = {op: 0 for op in operations(setting) if INSTRUCTIONS[op].unit == unit}
    causes: dict[str, int] = {}
    for n in range(options()["operations"]):
        op = list(seen)[n % len(seen)]
        values = legal_registers(numbers, setting, op)
        if n >= len(seen) and not dma and numbers.random() < 0.25:
            values = spoiled(numbers, unit, values)
        name = f"operation {n}, {op.name} {values}"
        expected = scoreboard.predict(op, values)
        if expected.cycles > options().get("longest", 3000):
            continue
        if not expected.cause:
            scoreboard.carry_out(op, values)
        await driver.configure(values)
        outcome = await driver.operate(op)
        await cycles(dut, WRITE_TO_READ + 1)
        scoreboard.check(name, outcome, expected, timed=not share)
        scoreboard.check_bytes(name, bytes(sram), bytes(memory))
        seen[op] += not outcome.cause
        causes[outcome.cause.name] = causes.get(outcome.cause.name, 0) + 1
        if unit == Unit.LOAD and n % FETCH_AFTER == 0:
            address = numbers.randrange(len(memory) // PAGE_BYTES) * PAGE_BYTES
            wanted = scoreboard.predict_fetch(address)
            scoreboard.check(f"fetch after {name}", await driver.fetch(address), wanted, timed=not share)
            assert wanted.error or pages.page(address) == memory[address : address + PAGE_BYTES], (
                f"page at {address:#x}"
            )
    if dma:
        rules.finish()
        dut._log.info(f"bursts {len(rules.bursts)}, at once {rules.most}")
    dut._log.info(f"done { ({Op(op).name: n for op, n in seen.items()}) }, causes {causes}")
    assert all(seen.values()), f"not done: {[op.name for op, n in seen.items() if not n]}"
