"""Waves of a program around a difference, the viewers' files beside them, and who wrote a byte that differs."""

import random
import re
from pathlib import Path

import numpy as np
import pytest

from dovetail.cosim.compare.lockstep import Lockstep
from dovetail.cosim.compare.writers import writer
from dovetail.cosim.rtl.rtl_engine import RtlEngine
from dovetail.cosim.rtl.setting import Setting
from dovetail.cosim.rtl.waves import TICK, Waves, instruction_names, write_views
from dovetail.isa.config.resolved import Config
from dovetail.isa.instructions.checks import View, regions
from dovetail.isa.instructions.table import Op, Unit
from dovetail.sw.model.accelerator import Model
from dovetail.sw.random.programs.legal import legal_program
from dovetail.sw.runtime.engine import Bytes

CONFIG = Config(ic_lanes=2, oc_lanes=2, sram="32 KiB")


def test_the_writer_of_a_byte() -> None:
    """Every byte that changed has one, in whose region it lies; one that nobody writes has none."""
    config = CONFIG
    for seed in range(6):
        program = legal_program(random.Random(seed), config, count=5)
        sram = np.random.default_rng(seed).integers(0, 256, config.sram, np.uint8)
        setting = Setting(program.memory, *program.arguments, sram=sram)
        model = Model(config)
        model.write_sram(sram)
        run = model.run(program.memory.copy(), *program.arguments)
        changed = np.flatnonzero(model.read_sram() != sram)
        for address in changed[:: max(1, len(changed) // 5)].tolist():
            n = writer(config, run.timeline, setting, address, sram=True)
            assert n is not None
            op, unit = Op(int(run.timeline.op[n])), Unit(int(run.timeline.unit[n]))
            ((start, size),) = regions(op, View(unit, run.timeline.registers[n])).writes
            assert start <= address < start + size
        stored = np.flatnonzero(run.memory != program.memory)
        for address in stored[:: max(1, len(stored) // 3)].tolist():
            n = writer(config, run.timeline, setting, address, sram=False)
            assert n is not None and run.timeline.op[n] == Op.DMA_WRITE
        untouched = np.flatnonzero(run.memory == program.memory)[-1]
        assert writer(config, run.timeline, setting, int(untouched), sram=False) is None


def test_views(tmp_path: Path) -> None:
    program = legal_program(random.Random(3), CONFIG, count=6)
    timeline = Model(CONFIG).time(program.memory, *program.arguments)
    names = instruction_names(timeline)
    operations = {
        int(pc): int(op) for pc, op, fetch in zip(timeline.pc, timeline.op, timeline.is_fetch, strict=True) if not fetch
    }
    assert {pc: Op[text.partition("@")[0]] for texts in names.values() for pc, text in texts.items()} == operations
    files = write_views(tmp_path / "run.fst", CONFIG, timeline, cursor=30)
    assert {path.name for path in files} >= {"run.gtkw", "run.sucl", "load.txt", "run-load"}
    gtkwave = (tmp_path / "run.gtkw").read_text()
    assert f'[dumpfile] "{tmp_path}/run.fst"' in gtkwave and f"*-6.0 {30 * TICK} -1 " in gtkwave
    assert (
        f"@2022\n^1 {tmp_path}/run.names/array.txt\ntop.accelerator.core.sequencer.array_control.pc[31:0]\n" in gtkwave
    )
    pc, text = next(iter(names[Unit.LOAD].items()))
    assert f"{pc:08X} {text}\n" in (tmp_path / "run.names" / "load.txt").read_text()
    mapping = (tmp_path / ".surfer" / "mappings" / "run-load").read_text()
    assert mapping.startswith("Name = run-load\nBits = 32\n") and f"0x{pc:08x} {text}\n" in mapping
    surfer = (tmp_path / "run.sucl").read_text()
    assert "variable_add top.accelerator.core.sequencer.load_control.pc\nitem_set_format run-load\n" in surfer
    assert surfer.endswith("zoom_fit\ncursor_set 300\n")


def test_errors() -> None:
    with pytest.raises(ValueError, match=r"waves must be a \.fst or \.vcd file, not a\.txt"):
        Waves(Path("a.txt"))
    with pytest.raises(ValueError, match="around must be at least 1, not 0"):
        Waves(Path("a.vcd"), 0)


@pytest.mark.slow
def test_waves_around_a_difference(build_cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An RTL that spoils a byte of SRAM that ARRAY or VECTOR wrote: the operation is named, its cycles are dumped, all
    signals of the views are in the waves."""
    program = legal_program(random.Random(3), CONFIG, count=6)
    pair = Lockstep(CONFIG, cache=build_cache, waves=Waves(tmp_path / "run.vcd", 5))
    case = program.memory, *program.arguments
    assert pair.run(*case).equal
    assert not pair.dumped and not (tmp_path / "run.vcd").exists()

    original, wrong = RtlEngine.read_sram, -1

    def spoilt(self: RtlEngine) -> Bytes:
        sram = original(self)
        sram[wrong] ^= 4
        return sram

    model = Model(CONFIG)
    run = model.run(program.memory.copy(), *case[1:])
    wrong = int(np.flatnonzero(model.read_sram())[-1])
    n = writer(CONFIG, run.timeline, Setting(*case, sram=np.zeros(CONFIG.sram, np.uint8)), wrong, sram=True)
    assert n is not None
    monkeypatch.setattr(RtlEngine, "read_sram", spoilt)
    pair.reset()
    comparison = pair.run(*case)
    t = run.timeline
    op, pc, start, end = (int(column[n]) for column in (t.op, t.pc, t.start, t.end))
    unit = Unit(int(run.timeline.unit[n])).name
    assert comparison.first_difference.startswith(f"SRAM: 1 bytes differ, first at {wrong:#x}: model ")
    written = f"; written by {Op(op).name} at word {pc} ({unit}), cycles {start}..{end}"
    assert comparison.first_difference.endswith(written)
    assert (comparison.first_cycles, pair.dumped) == (range(start, end + 1), True)
    text = (tmp_path / "run.vcd").read_text()
    times = [int(time) for time in re.findall(r"^#(\d+)", text, re.M)]
    past = min(end + 6, run.cycles)
    assert (times[0], times[-1] // TICK) == (max(0, start - 5) * TICK, past - 1)
    path, names = [], set()
    for line in text.partition("$enddefinitions")[0].splitlines():
        if found := re.match(r"\s*\$scope \w+ (\S+)", line):
            path.append(found[1])
        elif "$upscope" in line:
            path.pop()
        elif found := re.match(r"\s*\$var \w+\s+\d+ \S+ (\S+)(?: (\S+))?", line):
            names.add(".".join([*path, found[1]]) + (found[2] if found[2] and found[2].startswith("[") else ""))
    shown = [line for line in (tmp_path / "run.gtkw").read_text().splitlines() if line.startswith("top.")]
    assert len(shown) > 20 and set(shown) <= names
    assert f"*-6.0 {start * TICK} -1" in (tmp_path / "run.gtkw").read_text()
