"""What the benches of LOAD and STORE share: one core, its memory, and random transfers."""

import random
from collections.abc import Callable, Iterator
from typing import Any

from dovetail.hw.dma.load import LoadCore
from dovetail.hw.dma.store import StoreCore
from dovetail.isa.config.given import MemoryTiming
from dovetail.isa.config.resolved import Config
from dovetail.isa.instructions.table import REGISTERS, Cause, Unit
from dovetail.isa.timing.dma import Shape
from dovetail.isa.timing.sequencer import CHECK
from tests.hw.benches import ReadMemory, WriteMemory, offer_register, simulate

MEMORY = 1 << 16
OFFSETS = 1 << 16
"""What offsets in a region are modulo: twice the SRAM."""
REGS = REGISTERS[Unit.LOAD]
"""Those of STORE are the same."""
ONE = {"SRAM_BYTES": 8, "LENGTH": 4, "COUNT": 0x10001}
CHECKS = [
    ({}, Cause.ZERO_SIZE),
    (ONE | {"LENGTH": 0}, Cause.ZERO_SIZE),
    (ONE | {"SRAM_BYTES": 0}, Cause.ZERO_SIZE),
    (ONE | {"COUNT": 0x10000}, Cause.ZERO_SIZE),
    (ONE | {"COUNT": 1}, Cause.ZERO_SIZE),
    (ONE | {"SRAM_ADDR": 0x8000, "LENGTH": 0}, Cause.ZERO_SIZE),
    (ONE | {"SRAM_ADDR": 0x7FF9}, Cause.SRAM_RANGE),
    (ONE | {"SRAM_ADDR": 0xFFFF_FFFC}, Cause.SRAM_RANGE),
    (ONE | {"SRAM_BYTES": 0xFFFF_FFFF}, Cause.SRAM_RANGE),
    (ONE | {"SRAM_ADDR": 0x7FF8}, Cause.NONE),
]
"""Registers, and what the core says of them."""


def make(bus: int, timing: MemoryTiming, outstanding: int) -> Config:
    return Config(ic_lanes=4, oc_lanes=4, sram="32 KiB", banks=4, bus=bus, outstanding=outstanding, memory=timing)


def pieces(bus_bytes: int, base: int, r: dict[str, int]) -> Iterator[tuple[int, int, int | None]]:
    """What each beat of a transfer moves: address, bytes, and where in SRAM; None beyond the region."""
    rows, planes = r["COUNT"] & 0xFFFF, r["COUNT"] >> 16
    for plane in range(planes):
        for row in range(rows):
            address = (base + r["MEM_ADDR"] + plane * r["MEM_PLANE_STEP"] + row * r["MEM_ROW_STEP"]) % 2**32
            offset = (plane * r["SRAM_PLANE_STEP"] + row * r["SRAM_ROW_STEP"]) % OFFSETS
            end = address + r["LENGTH"]
            while address < end:
                size = min(end, (address // bus_bytes + 1) * bus_bytes) - address
                yield address, size, r["SRAM_ADDR"] + offset if offset + size <= r["SRAM_BYTES"] else None
                offset, address = (offset + size) % OFFSETS, address + size


def shape_of(r: dict[str, int]) -> Shape:
    """What the duration of a transfer depends on."""
    rows, planes = r["COUNT"] & 0xFFFF, r["COUNT"] >> 16
    return Shape(r["MEM_ADDR"] % 4096, rows, planes, r["MEM_ROW_STEP"], r["MEM_PLANE_STEP"], r["LENGTH"])


def random_registers(rng: random.Random, config: Config) -> dict[str, int]:
    shape = rng.choice(["short", "short", "long", "any"])
    length = {"short": rng.randint(1, 24), "long": rng.randint(1500, 5000), "any": rng.randint(1, 900)}[shape]
    rows, planes = (rng.randint(1, 6), rng.randint(1, 3)) if shape != "long" else (rng.randint(1, 2), 1)
    size = rng.randint(1, config.sram)
    return {
        "MEM_ADDR": rng.randint(0, 20_000),
        "MEM_ROW_STEP": rng.randint(0, 4000),
        "MEM_PLANE_STEP": rng.randint(0, 2000),
        "SRAM_ADDR": rng.randint(0, config.sram - size),
        "SRAM_BYTES": size,
        "SRAM_ROW_STEP": rng.choice([rng.randint(0, 900), 2**32 - rng.randint(0, 900)]),
        "SRAM_PLANE_STEP": rng.choice([rng.randint(0, 900), 2**32 - rng.randint(0, 900)]),
        "LENGTH": length,
        "COUNT": rows | planes << 16,
    }


class Bench:
    """Runs transfers one after another on one core. Subclasses ``serve`` its SRAM, and ``check`` what it moved."""

    core: LoadCore | StoreCore
    bus: ReadMemory | WriteMemory
    claims: str
    """What the core claims of banks: its signal."""

    def __init__(self, config: Config, base: int = 0, seed: int = 0) -> None:
        self.config, self.base = config, base
        self.memory = bytearray(random.Random(seed).randbytes(MEMORY))

    async def serve(self, ctx: Any) -> None:
        raise NotImplementedError

    def check(self, r: dict[str, int]) -> bool:
        """Asserts that a transfer has moved what it must; whether all of it was in memory."""
        raise NotImplementedError

    async def configure(self, ctx: Any, values: dict[str, int]) -> None:
        core = self.core.core
        for name, value in values.items():
            offer_register(ctx, core.cfg, REGS[name].index, value)
            await ctx.tick()
        ctx.set(core.cfg.en, 0)

    async def operate(self, ctx: Any) -> tuple[Cause, int, int, int]:
        """Cause, banks, duration, error of one operation."""
        core = self.core.core
        ctx.set(core.start, 1)
        ctx.set(self.core.base, self.base)
        await ctx.tick()
        ctx.set(core.start, 0)
        await ctx.tick().repeat(CHECK - 1)
        cause, banks = Cause(ctx.get(core.cause)), ctx.get(getattr(core, self.claims))
        if cause:
            return cause, banks, CHECK, 0
        ctx.set(core.go, 1)
        cycle = CHECK
        while not ctx.get(core.done):
            await ctx.tick()
            ctx.set(core.go, 0)
            cycle += 1
            assert cycle < 100_000
        error = ctx.get(core.error)
        await ctx.tick()
        return cause, banks, cycle, error

    def simulate(self, bench: Any) -> None:
        simulate(self.core, bench, background=(self.bus.run, self.serve))


def check_claims(bench: Bench, first: int, last: int) -> None:
    """A region that ends with a bank claims no other; ``first`` and ``last``: its banks."""
    config = bench.config
    start, end = first * config.bank_bytes, (last + 1) * config.bank_bytes

    async def run(ctx: Any) -> None:
        for begins, ends in ((start, end), (start, end - 1), (end - 1, end)):
            small = {"SRAM_ADDR": begins, "SRAM_BYTES": ends - begins, "LENGTH": 1, "COUNT": 1 | 1 << 16}
            await bench.configure(ctx, small)
            cause, banks, *_ = await bench.operate(ctx)
            assert cause == Cause.NONE
            touched = range(begins // config.bank_bytes, (ends - 1) // config.bank_bytes + 1)
            assert banks == sum(1 << bank for bank in touched)

    bench.simulate(run)


def check_transfers(bench: Bench, seed: int, duration: Callable[[Config, Shape], int]) -> None:
    """Random transfers move what they must, in the cycles of the timing rules."""
    config, rng = bench.config, random.Random(seed)

    async def run(ctx: Any) -> None:
        for _ in range(7):
            r = random_registers(rng, config)
            await bench.configure(ctx, r)
            cause, banks, cycles, error = await bench.operate(ctx)
            assert cause == Cause.NONE and not error
            assert bench.check(r)
            assert cycles == duration(config, shape_of(r))
            first, last = (a // config.bank_bytes for a in (r["SRAM_ADDR"], r["SRAM_ADDR"] + r["SRAM_BYTES"] - 1))
            assert banks == sum(1 << bank for bank in range(first, last + 1))

    bench.simulate(run)
    assert bench.bus.most_in_flight <= config.outstanding


def check_checks(bench: Bench) -> None:
    """The core says of all registers in :data:`CHECKS` what it must."""

    async def run(ctx: Any) -> None:
        for values, cause in CHECKS:
            await bench.configure(ctx, dict.fromkeys(REGS, 0) | values)
            assert (await bench.operate(ctx))[0] == cause

    bench.simulate(run)


def check_bus_error(bench: Bench, address: int, duration: Callable[[Config, Shape], int]) -> None:
    """A transfer that leaves memory in its first row tells an error, in the same cycles; the next one tells none."""
    r = dict.fromkeys(REGS, 0) | {
        "MEM_ADDR": address,
        "MEM_ROW_STEP": 2**32 - 64,
        "SRAM_BYTES": 4096,
        "SRAM_ROW_STEP": 64,
        "LENGTH": 40,
        "COUNT": 0x10002,
    }

    async def run(ctx: Any) -> None:
        await bench.configure(ctx, r)
        _, _, cycles, error = await bench.operate(ctx)
        assert error
        assert cycles == duration(bench.config, shape_of(r))
        assert not bench.check(r)
        await bench.configure(ctx, {"MEM_ADDR": 4096})
        assert not (await bench.operate(ctx))[3]
        assert bench.check(r | {"MEM_ADDR": 4096})

    bench.simulate(run)
