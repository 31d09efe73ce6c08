"""Both forms of the SRAM against an array of bytes, under traffic that bank claims allow."""

import random
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from amaranth import Module, Signal
from amaranth.back import rtlil

from dovetail.cosim.rtl.block import Bench
from dovetail.hw.memory.sram import READERS, WRITERS, Sram, any_of, read_bytes, simulation_sources, write_bytes
from dovetail.isa.config.resolved import Config
from dovetail.isa.timing.memory import SRAM_READ
from tests.hw.benches import simulate

PHASE = 40
UNIT_OF = {"array_input": "array", "array_weights": "array", "vector": "vector"}
CONFIGS = {
    "4 banks": Config(ic_lanes=4, oc_lanes=4, sram="32 KiB", banks=4),
    "5 banks, wide words": Config(ic_lanes=4, oc_lanes=8, requant_lanes=8, sram=5 * 8192, banks=5),
    "results of two pixels": Config(
        ic_lanes=1, oc_lanes=8, pixel_lanes=2, requant_lanes=16, sram="32 KiB", banks=4, vector_lanes=1
    ),
    "ports of few bytes": Config(
        ic_lanes=4, oc_lanes=4, sram="32 KiB", banks=4, bus=32, elementwise=False, vector_lanes=1, requant_lanes=1
    ),
}


class Traffic:
    """A random schedule: every PHASE cycles the banks get new owners, with a pause before."""

    def __init__(self, config: Config, *, seed: int, cycles: int) -> None:
        self.config = config
        rng = random.Random(seed)
        size, word, banks = config.sram, config.word_bytes, config.banks
        self.inputs: dict[str, npt.NDArray[np.generic]] = {}
        for name in READERS:
            for part in ("en", "addr"):
                self.inputs[f"read_{name}__{part}"] = np.zeros(cycles, np.uint64)
        for name in WRITERS:
            pairs = name == "array" and config.result_pairs
            for part in ("en", "addr", "size", *("apart", "skips") * pairs):
                self.inputs[f"write_{name}__{part}"] = np.zeros(cycles, np.uint64)
            self.inputs[f"write_{name}__data"] = np.random.default_rng(seed).integers(0, 256, (cycles, word), np.uint8)
        for name in ("array_reads", "array_streams", "vector_reads", "array_writes", "vector_writes"):
            self.inputs[name] = np.zeros(cycles, np.uint64)
        memory = np.zeros(size, np.uint8)
        written = np.full(size, -10)
        # What each read must give, and which of its bytes count.
        self.want = {name: np.zeros((cycles, word), np.uint8) for name in READERS}
        self.counts = {name: np.zeros((cycles, word), bool) for name in READERS}
        for cycle in range(cycles):
            if cycle % PHASE == 0:
                readers = [rng.choice([*READERS, None]) for _ in range(banks)]
                writers = [rng.choice([*WRITERS, None]) for _ in range(banks)]
            for bank, reader in enumerate(readers):
                if reader and reader != "store":
                    self.inputs[f"{UNIT_OF[reader]}_reads"][cycle] |= np.uint64(1 << bank)
                if reader == "array_weights" or (not reader and rng.random() < 0.5):
                    self.inputs["array_streams"][cycle] |= np.uint64(1 << bank)
            for bank, writer in enumerate(writers):
                if writer and writer != "load":
                    self.inputs[f"{writer}_writes"][cycle] |= np.uint64(1 << bank)
            if cycle % PHASE > PHASE - 4:
                continue
            owner_of = np.repeat(np.array([READERS.index(r) if r else -1 for r in readers]), config.bank_bytes)
            for number, name in enumerate(READERS):
                mine = [bank for bank, reader in enumerate(readers) if reader == name]
                if not mine or rng.random() < 0.3:
                    continue
                bank = rng.choice(mine)
                at = bank * config.bank_bytes + rng.choice(
                    [0, config.bank_bytes - word, rng.randrange(config.bank_bytes - word), 16 * rng.randrange(9)]
                )
                at += rng.choice([0, rng.randint(1 - word, word - 1)])  # may begin before the bank or end after it
                address = at % (1 << (size - 1).bit_length())
                self.inputs[f"read_{name}__en"][cycle] = 1
                self.inputs[f"read_{name}__addr"][cycle] = address
                for lane in range(read_bytes(config, name)):
                    byte = (address + lane) % (1 << (size - 1).bit_length())
                    if byte < size and owner_of[byte] == number and written[byte] < cycle - 1:
                        self.counts[name][cycle, lane] = True
                        self.want[name][cycle, lane] = memory[byte]
            for name in WRITERS:
                mine = [bank for bank, writer in enumerate(writers) if writer == name]
                if not mine or rng.random() < 0.3:
                    continue
                bank = rng.choice(mine)
                most = write_bytes(config, name)
                length = rng.choice([most, rng.randint(1, most)])
                if name == "array" and config.result_pairs:
                    length = rng.choice([length, rng.randint(1, config.oc_lanes)])
                top = (bank + 1) * config.bank_bytes
                if bank + 1 in mine:
                    top += word
                at = rng.choice([top - length, rng.randint(bank * config.bank_bytes, top - length)])
                at = rng.choice([at, bank * config.bank_bytes + 16 * rng.randrange(9)])
                values = {"en": 1, "addr": at, "size": length}
                places = [0]
                if name == "array" and config.result_pairs and length <= config.oc_lanes:
                    apart = rng.randint(0, min(3, (top - at - length) // config.oc_lanes))
                    values |= {"apart": apart, "skips": rng.randint(0, 1)}
                    places = [0] * (not values["skips"]) + [apart * config.oc_lanes] * (apart > 0)
                for part, value in values.items():
                    self.inputs[f"write_{name}__{part}"][cycle] = value
                # Reads of this cycle have been done above: they came before.
                for place in places:
                    data = self.inputs[f"write_{name}__data"][cycle, place : place + length]
                    memory[at + place : at + place + length] = data
                    written[at + place : at + place + length] = cycle
            # A byte written in this very cycle does not count for its reads either.
            for name in READERS:
                address = int(self.inputs[f"read_{name}__addr"][cycle])
                for lane in np.flatnonzero(self.counts[name][cycle]).tolist():
                    if written[(address + lane) % (1 << (size - 1).bit_length())] == cycle:
                        self.counts[name][cycle, lane] = False


def check(traffic: Traffic, got: dict[str, npt.NDArray[np.uint8]]) -> None:
    for reader in READERS:
        counts = traffic.counts[reader]
        assert counts.sum() > 20 * read_bytes(traffic.config, reader)
        wrong = (got[reader][: len(counts)] != traffic.want[reader]) & counts
        assert not wrong.any(), (reader, np.argwhere(wrong)[:4])


@pytest.mark.parametrize("name", CONFIGS)
def test_block_ram_form(name: str) -> None:
    config = CONFIGS[name]
    cycles = 400
    traffic = Traffic(config, seed=7, cycles=cycles)
    sram = Sram(config, simulation=False)
    got = {reader: np.zeros((cycles, config.word_bytes), np.uint8) for reader in READERS}

    def port(path: str) -> Any:
        interface, _, member = path.partition("__")
        return getattr(getattr(sram, interface), member) if member else getattr(sram, interface)

    async def run(ctx: Any) -> None:
        for cycle in range(cycles + SRAM_READ):
            for path, values in traffic.inputs.items():
                value = values[min(cycle, cycles - 1)]
                number = int.from_bytes(value.tobytes(), "little") if values.ndim > 1 else int(value)
                ctx.set(port(path), number if cycle < cycles else 0)
            if cycle >= SRAM_READ:
                for reader in READERS:
                    word = ctx.get(port(f"read_{reader}__data")).to_bytes(config.word_bytes, "little")
                    got[reader][cycle - SRAM_READ] = np.frombuffer(word, np.uint8)
            await ctx.tick()

    simulate(sram, run)
    check(traffic, got)


def test_many_groups_of_a_narrow_reader() -> None:
    """16 banks of 64 lanes are 1,024 groups of one byte: the OR of so many is no deeper than Amaranth goes."""
    m = Module()
    groups, chosen = Signal(1024), Signal()
    m.d.comb += chosen.eq(any_of(groups))
    assert rtlil.convert(m, ports=[groups, chosen]).count("cell $or") == 1023


@pytest.mark.parametrize("name", ["5 banks, wide words", "results of two pixels"])
def test_simulation_form(build_cache: Path, name: str) -> None:
    config = CONFIGS[name]
    traffic = Traffic(config, seed=7, cycles=2000)
    outputs = [f"read_{reader}__data" for reader in READERS]
    with Bench(Sram(config, simulation=True), cache=build_cache, extra=simulation_sources(config)) as bench:
        got = bench.stream(traffic.inputs, outputs, 2000 + SRAM_READ)
    check(traffic, {reader: got[f"read_{reader}__data"][SRAM_READ:] for reader in READERS})


def test_reset_clears_the_simulation_form(build_cache: Path) -> None:
    config = CONFIGS["4 banks"]
    with Bench(Sram(config, simulation=True), cache=build_cache, extra=simulation_sources(config)) as bench:
        bench.poke("write_load__en", 1)
        bench.poke("write_load__addr", 99)
        bench.poke("write_load__size", 2)
        bench.poke("write_load__data", 0xABCD)
        bench.tick()
        bench.poke("write_load__en", 0)
        bench.poke("read_store__en", 1)
        bench.poke("read_store__addr", 98)
        bench.tick(SRAM_READ)
        assert bench.peek("read_store__data") & 0xFFFFFFFF == 0xABCD00
        bench.reset()
        bench.tick(1 + SRAM_READ)  # it is cleared in the first cycle
        assert bench.peek("read_store__data") == 0
