"""Programs, cycles and bytes are those that were recorded: see `tests.fingerprints.take`."""

import json
from pathlib import Path

import pytest

from dovetail.cosim.compare.lockstep import Lockstep
from tests.fingerprints.take import CONFIGS, FILE, MODELS, names, of_run, program_of, run_program, take
from tests.slow import slow

KNOWN: dict[str, str] = json.loads(FILE.read_text())
NAMES = names()


@pytest.mark.parametrize("name", [slow(name) if n % 3 else name for n, name in enumerate(NAMES["small"])])
def test_small_networks(name: str) -> None:
    assert take(name) == KNOWN[name]


@pytest.mark.slow
@pytest.mark.parametrize("name", NAMES["large"])
def test_large_networks(name: str) -> None:
    assert take(name) == KNOWN[name]


@pytest.mark.skipif(not MODELS.is_dir(), reason="the trained networks are not beside the project")
@pytest.mark.slow
@pytest.mark.parametrize("name", NAMES["trained"])
def test_trained_networks(name: str) -> None:
    assert take(name) == KNOWN[name]


def test_random_programs_on_the_model() -> None:
    assert {name: take(name) for name in NAMES["programs"]} == {name: KNOWN[name] for name in NAMES["programs"]}


@pytest.mark.slow
@pytest.mark.parametrize("config", ["64KiB", "whole", "microcoded"])
def test_random_programs_on_the_rtl(config: str, build_cache: Path) -> None:
    pair = Lockstep(CONFIGS[config], cache=build_cache)
    for name in NAMES["programs"]:
        if name.endswith(f" {config}"):
            case = program_of(name)
            program = case.program
            pair.timing = program.config.memory
            pair.rtl.write_sram(case.sram())
            run = pair.rtl.run(program.memory.copy(), *program.arguments)
            assert of_run(list(program.words), run, pair.rtl.read_sram()) == KNOWN[name], name


def test_a_changed_byte_or_cycle_is_seen() -> None:
    words, run, sram = run_program("program:0 whole")
    known = of_run(words, run, sram)
    sram[7] ^= 1
    assert of_run(words, run, sram) != known
    sram[7] ^= 1
    run.timeline.end[0] += 1
    assert of_run(words, run, sram) != known
    run.timeline.end[0] -= 1
    assert of_run([*words[:-1], words[-1] ^ 1], run, sram) != known
    assert of_run(words, run, sram) == known
