"""SRAM that programs use, by hand and of compiled networks."""

from __future__ import annotations

from dovetail.isa.config.resolved import Config
from dovetail.isa.instructions.table import PAGE_WORDS, Op, Unit, cfg, pack, sync
from dovetail.isa.timing.run import time_program
from dovetail.isa.timing.timeline import Timeline
from dovetail.sw.analysis.sram import SramUse, sram_use
from dovetail.sw.runtime.compiled_network import compile_network

CONFIG = Config(ic_lanes=8, oc_lanes=8, sram="64 KiB")


def program(*transfers: tuple[Unit, int, int]) -> Timeline:
    """(LOAD or STORE, SRAM address, bytes) one after the other."""
    words: list[int] = []
    before: Unit | None = None
    for unit, address, size in transfers:
        if before is not None and before != unit:
            words.append(sync(unit, before))
        before = unit
        values = {"SRAM_ADDR": address, "SRAM_BYTES": size, "LENGTH": size}
        values["COUNT"] = pack(unit, "COUNT", rows=1, planes=1)
        words += [cfg(unit, name, value) for name, value in values.items()]
        words.append(int(Op.DMA_READ if unit == Unit.LOAD else Op.DMA_WRITE))
    words += [int(Op.END)] * (PAGE_WORDS - len(words) % PAGE_WORDS)
    timeline = time_program(CONFIG, words, address=65536, memory_bytes=1 << 20)
    assert timeline.fault is None
    return timeline


def used(*transfers: tuple[Unit, int, int]) -> SramUse:
    return sram_use(CONFIG, [program(*transfers)])


LOAD, STORE = Unit.LOAD, Unit.STORE


def test_bytes_live_from_write_to_last_read() -> None:
    assert used((LOAD, 0, 64), (STORE, 0, 64)) == SramUse(64, 64)
    assert used((LOAD, 0, 64), (LOAD, 4096, 128), (STORE, 0, 64), (STORE, 4096, 128)) == SramUse(4224, 192)
    assert used((LOAD, 0, 64), (STORE, 0, 64), (LOAD, 4096, 128), (STORE, 4096, 128)) == SramUse(4224, 128)


def test_what_nobody_reads_is_not_live() -> None:
    assert used((LOAD, 0, 64), (LOAD, 4096, 128), (STORE, 0, 64)) == SramUse(4224, 64)
    assert used((LOAD, 0, 640), (STORE, 0, 64)) == SramUse(640, 64)


def test_a_second_value_in_the_same_place() -> None:
    assert used((LOAD, 0, 64), (STORE, 0, 64), (LOAD, 0, 64), (STORE, 0, 64)) == SramUse(64, 64)


def test_programs_share_nothing() -> None:
    small, large = program((LOAD, 0, 64), (STORE, 0, 64)), program((LOAD, 512, 128), (STORE, 512, 128))
    assert sram_use(CONFIG, [small, large]) == SramUse(640, 128)
    assert sram_use(CONFIG, []) == SramUse(0, 0)


def test_networks_stay_within_the_sram() -> None:
    compiled = compile_network("zoo:resnet8", CONFIG)
    report = compiled.report()
    assert 0 < report.sram.live <= report.sram.top <= CONFIG.sram
    memory, code = report.memory, compiled.code
    assert (memory.constants, memory.constants + memory.tensors) == (code.constants_bytes, code.stream_offset)
    assert memory.total <= code.memory_bytes < memory.total + 4096
