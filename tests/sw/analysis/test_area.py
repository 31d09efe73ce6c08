"""The area model against the synthesis results that it was fitted to, and those that it has not seen."""

import json
import runpy
from pathlib import Path
from typing import Any

import pytest

from dovetail.flows.fpga.synthesis import netlist_resources
from dovetail.isa.config.presets import PRESETS
from dovetail.isa.config.resolved import Config
from dovetail.sw.analysis.cost.area import MODEL, Resources, area_of, measured_quantities, smallest_part, total
from dovetail.sw.errors import DovetailError

ROOT = Path(__file__).parents[3]
MEASURED = json.loads((ROOT / "benchmarks" / "area.json").read_text())
MODEL_DATA: dict[str, Any] = json.loads(MODEL.read_text())
RESOURCES = ("lut", "ff", "dsp", "bram")


def measured(name: str) -> tuple[Config, dict[str, Resources]]:
    return Config.from_dict(MEASURED[name]["config"]), netlist_resources(MEASURED[name]["cells"])


@pytest.mark.parametrize("name", MEASURED)
def test_measured(name: str) -> None:
    """DSPs and block RAMs are exact, block by block; LUTs and flip-flops as near as the model says."""
    config, blocks = measured(name)
    area, whole = area_of(config), total(blocks.values())
    assert area.blocks.keys() == blocks.keys()
    assert [(b.dsp, b.bram) for b in area.blocks.values()] == [(blocks[n].dsp, blocks[n].bram) for n in area.blocks]
    for resource in ("lut", "ff"):
        off = getattr(area, resource) / getattr(whole, resource) - 1
        assert abs(off) <= MODEL_DATA["error"][resource] <= area.error
    assert area.extrapolated == ()


def test_the_model_is_fitted_to_the_data() -> None:
    assert MODEL_DATA["training"] == sum(name[0] == "T" for name in MEASURED)
    assert MODEL_DATA["held_out"] == sum(name[0] == "H" for name in MEASURED)
    assert MODEL_DATA["tool"] == sorted({record["tool"] for record in MEASURED.values()})
    for name, (low, high) in MODEL_DATA["ranges"].items():
        values = [measured_quantities(measured(run)[0])[name] for run in MEASURED]
        assert (min(values), max(values)) == (low, high)
    for block in MODEL_DATA["coefficients"].values():
        assert all(value >= 0 for terms in block.values() for value in terms.values())


def test_how_good_it_is() -> None:
    """What is promised; `python benchmarks/area.py --fit` may make it better."""
    assert MODEL_DATA["error"]["lut"] <= 0.12 and MODEL_DATA["error"]["ff"] <= 0.08


@pytest.mark.parametrize(("name", "lut", "ff"), [("small", 28_760, 25_329)])
def test_hardware_that_changed_since_the_fit(name: str, lut: int, ff: int) -> None:
    """What was synthesised again is not further off than the model says, until it is fitted anew."""
    area = area_of(Config.load(name))
    assert abs(area.lut / lut - 1) <= MODEL_DATA["changed"]["lut"] <= area.error
    assert abs(area.ff / ff - 1) <= MODEL_DATA["changed"]["ff"]


def test_the_documented_tables_are_up_to_date() -> None:
    printed = runpy.run_path(str(ROOT / "benchmarks" / "area.py"))["markdown"]()
    _, heading, rest = (ROOT / "docs" / "area.md").read_text().partition("## Measurements")
    assert heading + rest == printed + "\n", "run: python benchmarks/area.py --markdown"


@pytest.mark.parametrize("name", [name for name in PRESETS if not Config.load(name).serial])
def test_blocks_add_up(name: str) -> None:
    area = area_of(Config.load(name))
    assert {r: getattr(area, r) for r in RESOURCES} == {
        r: sum(getattr(block, r) for block in area.blocks.values()) for r in RESOURCES
    }


def test_the_microcoded_accelerator_has_no_estimate() -> None:
    with pytest.raises(DovetailError, match="area is estimated for serial = false"):
        area_of(Config.load("icebreaker"))


def test_small() -> None:
    area = area_of(Config.load("small"))
    assert (area.dsp, area.bram) == (89, 52)
    assert area.blocks["array"].dsp == 64 + 4 * 2 + 1 and area.blocks["vector"].dsp == 8 * 2
    assert area.lut == pytest.approx(33_979, rel=area.error)
    assert area_of(Config.load("small").replace(memory=Config().memory)) == area


def test_what_is_left_out_takes_nothing() -> None:
    small = Config.load("small")
    bare = small.replace(matmul=False, pooling=False, elementwise=False, activation=False)
    assert "vector" not in area_of(bare).blocks
    for feature in ("matmul", "elementwise"):
        less, more = area_of(small.replace(**{feature: False})), area_of(small)
        assert less.lut < more.lut and less.ff < more.ff and less.dsp <= more.dsp


def test_more_takes_more() -> None:
    small = Config.load("small")
    for change in (
        {"ic_lanes": 16},
        {"oc_lanes": 16},
        {"requant_lanes": 4},
        {"vector_lanes": 3},
        {"bus": 128},
        {"sram": "64 KiB", "banks": 8},
    ):
        less, more = area_of(small), area_of(small.replace(**change))
        assert less.lut < more.lut and less.ff < more.ff, change


def test_outside_of_what_was_measured() -> None:
    bare = Config.load("small").replace(depthwise="none", sram="64 KiB")
    assert area_of(bare).extrapolated == ()
    low, high = MODEL_DATA["ranges"]["bus"]
    area = area_of(Config.load("small").replace(bus=512))
    assert f"bus 512: measured were {low}..{high}" in area.extrapolated
    assert any(
        line.startswith("words of a bank 2097152: measured were")
        for line in area_of(Config(sram="256 MiB", banks=8, requant_lanes=1, vector_lanes=1)).extrapolated
    )


SIMULATED = ("8x8", "16x16", "4x8x2", "4x16x4", *(name for name in PRESETS if name.startswith("study-")))
"""Presets that are larger than any supported part: for simulation and sweeps only (docs/area.md says so)."""


@pytest.mark.parametrize("name", [name for name in PRESETS if not Config.load(name).serial])
def test_every_preset_fits_a_part_or_is_for_simulation(name: str) -> None:
    assert bool(smallest_part(area_of(Config.load(name)))) == (name not in SIMULATED)
