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
    """Block RAMs are exact, block by block, and DSPs where lanes are powers of two; LUTs and flip-flops as near as the
    model says. A block that was not measured counts with its estimate."""
    config, blocks = measured(name)
    area = area_of(config)
    assert blocks.keys() <= area.blocks.keys()
    lanes = (config.ic_lanes, config.oc_lanes, config.pixel_lanes)
    for block, taken in blocks.items():
        assert area.blocks[block].bram == taken.bram
        if all(count & (count - 1) == 0 for count in lanes):
            assert area.blocks[block].dsp == taken.dsp
    whole = total({**area.blocks, **blocks}.values())
    for resource in ("lut", "ff"):
        off = getattr(area, resource) / getattr(whole, resource) - 1
        assert abs(off) <= MODEL_DATA["error"][resource] + 1e-3 and MODEL_DATA["error"][resource] <= area.error
    assert MEASURED[name]["apart"] or area.extrapolated == ()


def test_the_model_is_fitted_to_the_data() -> None:
    assert MODEL_DATA["training"] == sum(name[0] == "T" for name in MEASURED)
    assert MODEL_DATA["held_out"] == sum(name[0] == "H" for name in MEASURED)
    assert MODEL_DATA["tool"] == sorted({record["tool"] for record in MEASURED.values()})
    for block, quantities in MODEL_DATA["ranges"].items():
        of_block = [config for config, blocks in map(measured, MEASURED) if block in blocks]
        for name, (low, high) in quantities.items():
            values = [measured_quantities(config)[block][name] for config in of_block]
            if name != "words of a bank":  # of which some were measured alone
                assert (min(values), max(values)) == (low, high)
            assert low <= min(values) and max(values) <= high
    for block in MODEL_DATA["coefficients"].values():
        assert all(value >= 0 for terms in block.values() for value in terms.values())


def test_how_good_it_is() -> None:
    """What is promised; `python benchmarks/area.py --fit` may make it better."""
    assert MODEL_DATA["error"]["lut"] <= 0.12 and MODEL_DATA["error"]["ff"] <= 0.1


@pytest.mark.parametrize("name", [name for name in PRESETS if not Config.load(name).serial])
def test_what_a_sweep_begins_with_was_measured(name: str) -> None:
    """The base of a sweep, what fits a board, larger ones, and the study's."""
    assert area_of(Config.load(name)).extrapolated == ()


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
    assert (area.dsp, area.bram) == (85, 54)
    assert area.blocks["array"].dsp == 64 + 3 * 2 + 1 and area.blocks["vector"].dsp == 7 * 2
    assert area.lut == pytest.approx(28_760, rel=area.error)
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


def test_rows_and_parameters_count() -> None:
    small = Config.load("small")
    for change, block in (({"softmax": 1}, "vector"), ({"norm": 1}, "vector"), ({"parameters": 3}, "control")):
        less, more = area_of(small), area_of(small.replace(**change))
        assert less.blocks[block].lut < more.blocks[block].lut and less.blocks[block].ff < more.blocks[block].ff, change
    whole = area_of(small.replace(softmax=2, norm=1, parameters=3))
    assert whole.extrapolated == ()
    assert whole.dsp - area_of(small).dsp == 2 * 4 and whole.bram - area_of(small).bram == 2 * 4


def test_outside_of_what_was_measured() -> None:
    assert area_of(Config.load("small")).extrapolated == ()
    low, high = MODEL_DATA["ranges"]["memory"]["bus"]
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
