"""The form that is synthesised in lockstep with the model, on block RAM that loses what is read while it is written."""

from pathlib import Path

import pytest

from dovetail.cosim.compare.faults import KINDS, run_kind
from dovetail.cosim.compare.fuzz import fuzz
from dovetail.cosim.compare.lockstep import Lockstep
from dovetail.cosim.rtl.rtl_engine import RtlEngine
from dovetail.isa.config.resolved import Config
from tests.cosim.compare.test_lockstep import SMALL

SMALLEST = Config(ic_lanes=2, oc_lanes=2, sram="32 KiB", banks=4, bus=256, outstanding=2)
"""Everything there is, and few multipliers: the least to build. Its words hold two requantisation records, 4 KiB are
less than the longest burst: neither is so in the accelerators of the other default tests."""
CONFIGS = SMALL | {
    "2x2": SMALLEST,
    "result pairs": Config(ic_lanes=1, oc_lanes=8, pixel_lanes=2, sram="32 KiB", banks=4, requant_lanes=16),
    "one stripe": Config(ic_lanes=2, oc_lanes=8, sram="32 KiB", stripe=1, requant_lanes=8),
}


def agree(config: Config, cache: Path, seeds: range) -> None:
    for failure in fuzz(Lockstep(config, cache=cache, form="fpga"), seeds):
        pytest.fail(f"seed {failure.seed}: {failure.comparison.first_difference}")


def test_random_programs(build_cache: Path) -> None:
    agree(SMALLEST, build_cache, range(20))


@pytest.mark.parametrize("kind", KINDS)
def test_faults(build_cache: Path, kind: str) -> None:
    assert run_kind(SMALLEST, kind, range(4), build_cache, "fpga").wrong == []


@pytest.mark.slow
@pytest.mark.parametrize("name", CONFIGS)
def test_many_random_programs(build_cache: Path, name: str) -> None:
    agree(CONFIGS[name], build_cache, range(20, 140))


def test_forms_that_do_not_exist(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"^form must be one of simulation, fpga, not 'gates'$"):
        RtlEngine(SMALLEST, cache=tmp_path, form="gates")
