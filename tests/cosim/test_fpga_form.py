"""The form for FPGAs in lockstep with the model, on block RAM that loses what is read while it is written."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from amaranth import Cat, Module, Mux, Signal, Value
from amaranth.lib import memory

from dovetail.cosim import rtl
from dovetail.cosim.verilate import verilate
from dovetail.hw import accumulator, cells, sram, vector_direct
from dovetail.hw.accelerator import Accelerator
from dovetail.hw.verilog import simulation_verilog
from dovetail.isa.config import Config
from tests.cosim.test_lockstep import SMALL, agree

CONFIGS = SMALL | {
    "one stripe": Config(ic_lanes=2, oc_lanes=8, sram="32 KiB", stripe=1, depthwise_lanes=3, requant_lanes=8),
}
PROGRAMS = 60


def losing_row(m: Module, rows: memory.Memory, *, name: str, addr: Any, en: Any = 1) -> Value:
    """As :func:`cells.read_row`; bits that are written in the cycle of their read come inverted."""
    (write,) = rows.write_ports
    row = cells.read_row(m, rows, name=name, addr=addr, en=en)
    written = Cat(bit.replicate(len(row) // len(write.en)) for bit in write.en)
    lost = Signal(len(row), name=f"{name}_lost")
    with m.If(en):
        m.d.sync += lost.eq(Mux(write.addr == addr, written, 0))
    return row ^ lost


def library(config: Config, cache: Path, **_: Any) -> Path:
    """The FPGA form for the driver of the simulation form."""
    verilog = simulation_verilog(Accelerator(config, simulation=False, trace=True), name=rtl.TOP)
    return verilate(replace(rtl.accelerator_design(config), verilog=verilog), cache)


@pytest.mark.slow
@pytest.mark.parametrize("name", CONFIGS)
def test_nothing_counts_on_a_row_that_is_written(name: str, build_cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (accumulator, sram, vector_direct):
        monkeypatch.setattr(module, "read_row", losing_row)
    monkeypatch.setattr(rtl, "accelerator_library", library)
    agree(CONFIGS[name], build_cache, range(PROGRAMS))
