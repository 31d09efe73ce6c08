"""Counts of events against the RTL: how often each SRAM port is used, as Verilator counts executed lines."""

import random
import re
from collections.abc import Mapping
from pathlib import Path

import pytest

from dovetail.cosim.coverage.rtl import Point, read_points
from dovetail.cosim.rtl.rtl_engine import RtlEngine, accelerator_design
from dovetail.cosim.rtl.verilate import COVERAGE
from dovetail.hw.memory.sram import MODULE, READERS, WRITERS
from dovetail.isa.config.resolved import Config
from dovetail.isa.timing.memory import SRAM_READ
from dovetail.isa.timing.run import time_program
from dovetail.sw.analysis.cost.activity import events_of
from dovetail.sw.random.programs.configurations import WHOLE
from dovetail.sw.random.programs.legal import legal_program

READ_EVENTS = {
    "array_input": "sram_read_input",
    "array_weights": "sram_read_weights",
    "vector": "sram_read_vector",
    "store": "sram_read_store",
}
WIDE = Config(ic_lanes=5, oc_lanes=9, sram="64 KiB", requant_lanes=4, vector_lanes=4, bus=64)
"""Weights, records and accumulators of several words each; two records per word."""


def rtl_events(engine: RtlEngine, verilog: Mapping[str, list[str]]) -> dict[str, int]:
    """What the RTL has done so far. The first point of a line is that its condition holds."""
    config = engine.config
    others = {  # event: module, line that is executed with each, and how many at once
        "accumulates": (r"\.accumulator$", r"if \(valid_line\[1\]\)$", config.acc_lanes),
        "vector_taps": (r"\.vector\.taps$", r"if \(valid\) begin$", config.vector_lanes),
        "dram_write_beats": (r"\.store$", rf"if \(coming{SRAM_READ - 1}\[\d+\]\)$", 1),
    }
    first: dict[tuple[str, str], Point] = {}
    for point in read_points(engine.covered()):
        first.setdefault((point.module, verilog[point.file][point.lines[0] - 1].strip()), point)

    def count(module: str, line: str) -> int:
        found = [p.count for (name, text), p in first.items() if re.search(module, name) and re.search(line, text)]
        assert found, f"no line {line} in {module}"
        return found[0]

    events = {READ_EVENTS[name]: count(MODULE, rf"if \(r{n}_en\) r{n}_at") for n, name in enumerate(READERS)}
    events |= {f"sram_write_{name}": count(MODULE, rf"if \(w{n}_en\) begin") for n, name in enumerate(WRITERS)}
    return events | {name: count(module, line) * many for name, (module, line, many) in others.items()}


@pytest.mark.slow
@pytest.mark.parametrize(
    "config", [WHOLE.replace(softmax=2), WIDE.replace(softmax=1, norm=1, norm_bits=16)], ids=["whole", "wide"]
)
def test_random_programs(config: Config, build_cache: Path) -> None:
    engine = RtlEngine(config, cache=build_cache, coverage=COVERAGE[:1])
    verilog = {name: text.splitlines() for name, text in accelerator_design(config).verilog.items()}
    before = rtl_events(engine, verilog)
    for first in range(0, 100, 20):
        timelines = []
        for seed in range(first, first + 20):
            program = legal_program(random.Random(seed), config, count=20)
            words, size = list(program.words), len(program.memory)
            timelines.append(time_program(config, words, address=program.program, base=program.base, memory_bytes=size))
            run = engine.run(program.fresh_memory(), *program.arguments)
            assert run.cycles == timelines[-1].cycles
        events, after = events_of(config, timelines), rtl_events(engine, verilog)
        assert {name: after[name] - before[name] for name in after} == {name: events[name] for name in after}
        before = after
