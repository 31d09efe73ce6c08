"""cocotb benches of blocks: streams, host port, requantiser, front end, control."""

from pathlib import Path

import pytest
from amaranth import Module, Mux
from amaranth.lib import wiring

pytest.importorskip("cocotb")

from dovetail.cosim.benches.runner import BenchError, run
from dovetail.hw.array.requantiser import Requantiser
from dovetail.hw.dma.burst import BurstWalker
from dovetail.hw.host.registers import Host
from dovetail.hw.sequencer.control import UnitControl
from dovetail.hw.sequencer.frontend import Frontend
from dovetail.hw.sequencer.queue import Queue
from dovetail.isa.config.resolved import Config
from dovetail.isa.instructions.table import Unit

SUITE = "dovetail.cosim.benches.suite"
CONFIG = Config(ic_lanes=2, oc_lanes=2, sram="32 KiB", banks=4, bus=32)
TOML = CONFIG.to_toml()


@pytest.mark.slow
def test_queue(build_cache: Path) -> None:
    assert run(Queue(depth=4), f"{SUITE}.fifo", options={"depth": 4}, cache=build_cache) == 5


@pytest.mark.slow
@pytest.mark.parametrize("seed", [2, 3])
@pytest.mark.parametrize("depth", [2, 16])
def test_queues_of_other_depths(build_cache: Path, depth: int, seed: int) -> None:
    settings = {"depth": depth, "seed": seed, "items": 1000}
    assert run(Queue(depth=depth), f"{SUITE}.fifo", options=settings, cache=build_cache) == 5


def test_a_queue_that_is_not_what_it_should_be(build_cache: Path) -> None:
    with pytest.raises(BenchError, match=r"shares=filling(.|\n)* failed\n(.|\n)*i\.ready with 4 items"):
        run(Queue(depth=4), f"{SUITE}.fifo", options={"depth": 8}, cache=build_cache)


@pytest.mark.slow
def test_bursts_at_boundaries(build_cache: Path) -> None:
    settings = {"bus_bytes": 4, "transfers": 2}
    assert run(BurstWalker(bus_bytes=4), f"{SUITE}.bursts", options=settings, cache=build_cache) == 2


class ShortBurst(BurstWalker):
    """Cuts a burst short that begins a beat before the last one of full length in a page."""

    def elaborate(self, platform: object) -> Module:
        m = Module()
        m.submodules.walker = walker = BurstWalker(bus_bytes=self.bus_bytes)
        last = walker.o.payload.address[:12] == 4096 - 257 * 4
        wiring.connect(m, wiring.flipped(self), walker)
        m.d.comb += self.o.payload.length.eq(Mux(last, 0, walker.o.payload.length))
        return m


@pytest.mark.slow
def test_bench_of_bursts_names_the_transfer(build_cache: Path) -> None:
    text = r"transfer \d+, address 0x5bfc, .*, span 0x4: item \d+ must be 2 beats at 0x5bfc, not 1 beats at 0x5bfc"
    with pytest.raises(BenchError, match=text):
        run(ShortBurst(bus_bytes=4), f"{SUITE}.bursts", options={"bus_bytes": 4, "transfers": 0}, cache=build_cache)


@pytest.mark.slow
@pytest.mark.parametrize("bus_bytes", [4, 32])
def test_bursts(build_cache: Path, bus_bytes: int) -> None:
    settings = {"bus_bytes": bus_bytes, "transfers": 40}
    assert run(BurstWalker(bus_bytes=bus_bytes), f"{SUITE}.bursts", options=settings, cache=build_cache) == 2


@pytest.mark.slow
def test_host_port(build_cache: Path) -> None:
    assert run(Host(CONFIG), f"{SUITE}.host", options={"config": TOML}, cache=build_cache) == 2


@pytest.mark.slow
@pytest.mark.parametrize("seed", [2, 3, 4])
def test_host_port_longer(build_cache: Path, seed: int) -> None:
    config = CONFIG.replace(parameters=seed - 2)
    settings = {"config": config.to_toml(), "seed": seed, "accesses": 1500, "stall": 0.2 * seed}
    assert run(Host(config), f"{SUITE}.host", options=settings, cache=build_cache) == 2


@pytest.mark.slow
@pytest.mark.parametrize("lanes", [1, 3])
def test_requantiser(build_cache: Path, lanes: int) -> None:
    settings = {"lanes": lanes, "latency": Requantiser.LATENCY, "rows": 3000}
    assert run(Requantiser(lanes=lanes), f"{SUITE}.requantiser", options=settings, cache=build_cache) == 1


@pytest.mark.slow
def test_front_end(build_cache: Path) -> None:
    assert run(Frontend(CONFIG), f"{SUITE}.frontend", options={"config": TOML}, cache=build_cache) == 1


@pytest.mark.slow
@pytest.mark.parametrize("bus", [64, 512])
def test_front_end_longer(build_cache: Path, bus: int) -> None:
    config = CONFIG.replace(bus=bus, parameters=bus // 64)
    settings = {"config": config.to_toml(), "programs": 10, "operations": 20, "seed": bus, "stall": 0.8}
    assert run(Frontend(config), f"{SUITE}.frontend", options=settings, cache=build_cache) == 1


@pytest.mark.slow
@pytest.mark.parametrize("unit", list(Unit))
def test_control(build_cache: Path, unit: Unit) -> None:
    settings = {"config": TOML, "unit": unit.name, "entries": 400}
    assert run(UnitControl(CONFIG, unit=unit), f"{SUITE}.control", options=settings, cache=build_cache) == 1
