"""Weights that stay in SRAM from run to run, of networks without variables."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from dovetail.isa.config.resolved import Config
from dovetail.sw.compiler.options import Options
from dovetail.sw.errors import CompileError
from dovetail.sw.network import reference
from dovetail.sw.runtime.compiled_network import CompiledNetwork, compile_network
from dovetail.sw.runtime.saved_program import load_program

CONFIG = Config.load("8x8")
MIXED = "zoo:mobilenet_v2_block?channels=16&resolution=8"


def check(compiled: CompiledNetwork) -> list[int]:
    """Three runs with other inputs against the interpreter; cycles of each."""
    rng, cycles = np.random.default_rng(5), []
    for _ in range(3):
        sample = {port.name: rng.integers(-128, 128, port.shape, np.int8) for port in compiled.graph.inputs}
        result = compiled.run(sample)
        for name, value in reference.run(compiled.graph, sample).items():
            np.testing.assert_array_equal(result.outputs[name], value)
        cycles.append(result.cycles)
    return cycles


@pytest.mark.parametrize("network", ["zoo:autoencoder", MIXED])
@pytest.mark.parametrize("effort", [0, 1])
def test_later_runs_find_them(network: str, effort: int) -> None:
    compiled = compile_network(network, CONFIG, effort=effort, keep_weights=True)
    (segment,), report = compiled.code.segments, compiled.report()
    assert segment.entry > 0
    first, second, third = check(compiled)
    assert (first, second) == (report.first_cycles, report.cycles) and second == third < first
    without = compile_network(network, CONFIG, effort=effort).report()
    assert without.first_cycles == without.cycles > report.cycles
    assert report.moved_bytes < without.moved_bytes


def test_all_of_them_if_there_is_room() -> None:
    """Then a run moves the input and the output, and nothing else."""
    report = compile_network("zoo:autoencoder", CONFIG, keep_weights=True).report()
    assert report.moved_bytes == 2 * 640
    assert (report.first_cycles, report.cycles) == (57_775, 20_625)


@pytest.mark.parametrize("sram", ["64 KiB", "128 KiB", "256 KiB"])
def test_some_of_them_if_there_is_less_room(sram: str) -> None:
    compiled = compile_network("zoo:autoencoder", CONFIG.replace(sram=sram), effort=0, keep_weights=True)
    first, second, third = check(compiled)
    without = compile_network("zoo:autoencoder", CONFIG.replace(sram=sram), effort=0).report()
    assert second == third < first and second < without.cycles
    assert 2 * 640 < compiled.report().moved_bytes < without.moved_bytes


def test_more_room_never_costs_cycles() -> None:
    srams = ("64 KiB", "128 KiB", "256 KiB", "512 KiB", "1 MiB")
    networks = (
        compile_network("zoo:autoencoder", CONFIG.replace(sram=sram), effort=0, keep_weights=True) for sram in srams
    )
    cycles = [network.report().cycles for network in networks]
    assert cycles == sorted(cycles, reverse=True)


def test_several_programs_keep_nothing() -> None:
    """Each of them would find what the one before it has left."""
    compiled = compile_network("zoo:attention_block", CONFIG, keep_weights=True)
    assert len(compiled.code.segments) > 1
    assert not any(segment.entry for segment in compiled.code.segments)


def test_a_saved_program_has_them_too(tmp_path: Path) -> None:
    compiled = compile_network("zoo:autoencoder", CONFIG, effort=0, keep_weights=True)
    compiled.program.save(tmp_path / "net.dvt")
    loaded = load_program(tmp_path / "net.dvt")
    assert loaded.code.options == compiled.code.options
    assert check(loaded) == [compiled.report().first_cycles] + [compiled.report().cycles] * 2


def test_it_is_true_or_false() -> None:
    with pytest.raises(CompileError, match=r"^keep_weights must be true or false, not 1$"):
        Options(keep_weights=1)  # type: ignore[arg-type]
