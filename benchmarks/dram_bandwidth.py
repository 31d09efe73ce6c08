"""Bandwidth of the `dram` model on the traffic of a network, as fast as memory takes it; and that traffic as a file,
for another simulator of DRAM.

    python benchmarks/dram_bandwidth.py zoo:resnet8 ddr4-2400-x16 --config small --trace resnet8.txt

Bursts go to memory in the order in which the program's transfers start, `--outstanding` of each direction at a time;
the bus takes no time. A line of the file is a burst: R or W, then the addresses of its blocks. In the file an address
is cut as row, bank, group, column, whatever the model's map is.
"""

import argparse
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

import numpy as np

from dovetail.isa.config.memory import DramTiming, memory_of
from dovetail.isa.config.resolved import Config
from dovetail.isa.instructions.checks import View
from dovetail.isa.instructions.table import PAGE_BYTES, Unit
from dovetail.isa.timing.dma import Shape, bursts
from dovetail.isa.timing.memories.dram import AddressMap, Dram
from dovetail.isa.timing.operations import Operations
from dovetail.isa.timing.run import time_program
from dovetail.isa.timing.timeline import FETCH
from dovetail.sw.runtime.compiled_network import compile_network


class Burst(NamedTuple):
    """So many blocks from an address on."""

    write: bool
    address: int
    blocks: int


def traffic(network: str, config: Config, block: int) -> Iterator[Burst]:
    """The bursts of a network's programs."""
    compiled = compile_network(network, config)
    for segment in compiled.code.segments:
        words = np.asarray(segment.words, np.uint64)
        timeline = time_program(config, words, address=segment.address, memory_bytes=compiled.code.memory_bytes)
        operations = Operations(words)
        rows, numbers = operations.registers(), {pc: n for n, pc in enumerate(operations.pcs.tolist())}
        order = np.argsort(timeline.start, kind="stable")
        for unit, op, pc in zip(
            *(column[order].tolist() for column in (timeline.unit, timeline.op, timeline.pc)), strict=True
        ):
            if op == FETCH:
                shape = Shape(segment.address + PAGE_BYTES * pc, 1, 1, 0, 0, PAGE_BYTES)
            elif unit in (Unit.LOAD, Unit.STORE):
                shape = Shape.of(View(Unit(unit), rows[numbers[pc]]), 0)
            else:
                continue
            for start in shape.starts():
                for address, length, _ in bursts(start, shape.length, config.bus_bytes):
                    first, past = address // block, (address + length - 1) // block + 1
                    yield Burst(unit == Unit.STORE, first * block, past - first)


def play(timing: DramTiming, work: list[Burst], outstanding: int) -> tuple[int, Dram]:
    """Ticks until the last data have come or gone, and the model."""
    dram = Dram(timing, timing.block)
    ways = [[burst for burst in work if burst.write == write] for write in (False, True)]
    ends: tuple[list[int], list[int]] = [], []
    taken, last = [0, 0], 0
    while True:
        free = [
            (ends[w][taken[w] - outstanding] + 1 if taken[w] >= outstanding else 0, w)
            for w in (0, 1)
            if taken[w] < len(ways[w]) and taken[w] - outstanding < len(ends[w])
        ]
        due = dram.next
        if free and (due is None or min(free)[0] < due):
            now, w = min(free)
            burst = ways[w][taken[w]]
            dram.take(now, burst.address, burst.blocks, write=bool(w), data=now - burst.blocks + 1)
            taken[w] += 1
        elif due is None:
            return last, dram
        else:
            for beat in dram.serve():
                last = max(last, beat.cycle)
                if beat.last:
                    ends[beat.write].append(beat.cycle)


def save(path: Path, timing: DramTiming, work: list[Burst]) -> None:
    """The bursts for another simulator."""
    parts = AddressMap(timing)
    columns = timing.row // timing.block
    with path.open("w") as file:
        for burst in work:
            line = ["W" if burst.write else "R"]
            for address in range(burst.address, burst.address + burst.blocks * timing.block, timing.block):
                group, bank = divmod(parts.bank(address), timing.banks)
                column = address >> parts.shifts["column"] & columns - 1
                place = (parts.row(address) * timing.banks + bank) * timing.groups + group
                line.append(str((place * columns + column) * timing.block))
            file.write(" ".join(line) + "\n")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("network")
    parser.add_argument("memory", help="a preset of DRAM")
    parser.add_argument("--config", default="small")
    parser.add_argument("--outstanding", type=int, default=4)
    parser.add_argument("--trace", type=Path)
    args = parser.parse_args()
    timing = memory_of(args.memory)
    assert isinstance(timing, DramTiming), "memory must be of kind dram"
    timing = replace(timing, clock=timing.dram_clock, front=0, back=0)
    work = list(traffic(args.network, Config.load(args.config), timing.block))
    if args.trace:
        save(args.trace, timing, work)
    ticks, dram = play(timing, work, args.outstanding)
    blocks = sum(burst.blocks for burst in work)
    rate = blocks * timing.block * timing.dram_clock / ticks / 1e6
    print(f"{blocks} blocks in {len(work)} bursts: {ticks} ticks, {rate:.0f} MB/s,", end=" ")
    print(f"{blocks * timing.data_ticks / ticks:.1%} of the peak; {dram.events}")


if __name__ == "__main__":
    main()
