"""cocotb benches of the units: AXI4 managers with stalls and errors, the array, the vector unit."""

from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("cocotb")

from dovetail.cosim.benches.runner import run
from dovetail.hw.array.unit import ArrayCore
from dovetail.hw.dma.load import LoadCore
from dovetail.hw.dma.store import StoreCore
from dovetail.hw.vector.unit import VectorCore
from dovetail.isa.config.given import MemoryTiming
from dovetail.isa.config.resolved import Config
from dovetail.isa.instructions.table import Unit
from tests.slow import slow

CONFIG = Config(
    ic_lanes=2, oc_lanes=2, sram="32 KiB", banks=4, bus=32, memory=MemoryTiming(read_latency=7, write_latency=5)
)
WIDE = CONFIG.replace(bus=128, outstanding=2, memory=MemoryTiming(read_latency=3, write_latency=9, beat_cycles=2))
ODD = Config(ic_lanes=3, oc_lanes=5, stripe=7, requant_lanes=2, vector_lanes=3, sram="40 KiB", banks=5)
CORES: dict[Unit, Any] = {
    Unit.LOAD: LoadCore,
    Unit.ARRAY: ArrayCore,
    Unit.VECTOR: VectorCore,
    Unit.STORE: StoreCore,
}


def bench(cache: Path, unit: Unit, config: Config, **settings: Any) -> None:
    values = {"config": config.to_toml(), "unit": unit.name, **settings}
    assert run(CORES[unit](config), "dovetail.cosim.benches.suite.unit", options=values, cache=cache) == 1


@pytest.mark.parametrize("unit", [Unit.LOAD, slow(Unit.STORE)])
def test_axi_manager(build_cache: Path, unit: Unit) -> None:
    bench(build_cache, unit, CONFIG, operations=8)
    bench(build_cache, unit, CONFIG, operations=12, share=0.5, errors=8, seed=2)


@pytest.mark.slow
@pytest.mark.parametrize("unit", [Unit.LOAD, Unit.STORE])
@pytest.mark.parametrize(("share", "errors"), [(0, 0), (0, 12), (0.3, 12), (0.8, 12)])
def test_axi_manager_longer(build_cache: Path, unit: Unit, share: float, errors: int) -> None:
    for seed, config in enumerate((CONFIG, WIDE)):
        bench(build_cache, unit, config, operations=60, share=share, errors=errors, seed=seed)


@pytest.mark.slow
@pytest.mark.parametrize("config", [CONFIG, ODD], ids=["2x2", "3x5"])
@pytest.mark.parametrize("unit", [Unit.ARRAY, Unit.VECTOR])
def test_compute_unit(build_cache: Path, unit: Unit, config: Config) -> None:
    for seed in range(3):
        bench(build_cache, unit, config, operations=80, seed=seed)
