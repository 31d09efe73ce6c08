"""What systems of several accelerators gain over the fastest of them alone, and what planning takes.

    python benchmarks/systems.py [docs/systems.md]

Prints the table, or puts it into the page, between its two marks. Cycles are exact, in millions; seconds are of one
processor, for the plan of one inference and for that of many. Schedules of earlier runs are not used. Takes minutes.
"""

import argparse
import os
import time
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from page_table import make_table

from dovetail.isa.config.system import System
from dovetail.sw.runtime.system_network import SystemNetwork, plan_network

BEGIN, END = "<!-- table: python benchmarks/systems.py -->", "<!-- end of table -->"
COLUMNS = ("", "system", "alone", "latency", "gain", "throughput: gain, steady", "seconds, latency and throughput")
DDR4 = 'kind = "dram"\npreset = "ddr4-2400-x16"\nclock = "100 MHz"'


class Case(NamedTuple):
    """A network of the zoo on accelerators of some presets; the memory's table in the system's file; how many
    inferences a plan for many makes."""

    network: str
    presets: tuple[str, ...]
    memory: str
    inferences: int

    @property
    def system(self) -> System:
        """All of it as a system."""
        parts = (f'[accelerators.a{n}]\nconfig = "{preset}"\n' for n, preset in enumerate(self.presets))
        return System.from_toml("\n".join([*parts, "[memory]", self.memory]))

    @property
    def said(self) -> str:
        """The system in words."""
        alike = len(set(self.presets)) == 1
        parts = f"{len(self.presets)} x `{self.presets[0]}`" if alike else " and ".join(f"`{p}`" for p in self.presets)
        return parts + (", DDR4-2400 x16 at 100 MHz" if self.memory else "")


CASES = [
    Case("resnet50", ("8x8",) * 4, "", 8),
    Case("mobilenet_v1", ("8x8",) * 4, "", 16),
    Case("resnet50", ("8x8",) * 4, DDR4, 8),
    Case("mobilenet_v1", ("8x8",) * 4, DDR4, 16),
    Case("mobilenet_v1", ("8x8", "16x16"), "", 18),
]


def planned(case: Case, mode: str, inferences: int = 1) -> tuple[SystemNetwork, float]:
    """A plan, and the seconds that it took."""
    start = time.process_time()
    network = plan_network(f"zoo:{case.network}", case.system, mode=mode, inferences=inferences)
    return network, time.process_time() - start


def rows() -> Iterator[str]:
    """Lines of the table."""
    for case in CASES:
        one, seconds = planned(case, "latency")
        many, more = planned(case, "throughput", case.inferences)
        alone = min(cycles for cycles in one.alone.values() if cycles)
        assert one.gain and many.gain and many.steady_gain
        cells = (
            case.network,
            case.said,
            f"{alone / 1e6:.2f}",
            f"{one.times.cycles / 1e6:.2f}",
            f"{one.gain:.2f}",
            f"{many.gain:.2f} for {case.inferences} inferences, {many.steady_gain:.2f}",
            f"{seconds:.0f} and {more:.0f}",
        )
        yield f"| {' | '.join(cells)} |"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("page", nargs="?", type=Path, help="the page whose table is replaced")
    arguments = parser.parse_args()
    os.environ["DOVETAIL_SCHEDULES"] = "off"
    make_table(COLUMNS, "|---|---|---:|---:|---:|---:|---:|", rows(), arguments.page, BEGIN, END)


if __name__ == "__main__":
    main()
