"""Damaged files in the builds' cache: nothing is loaded that is not what was built, and it is built again."""

import multiprocessing
import os
import signal
import stat
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from amaranth.hdl import Module
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from dovetail.cosim.rtl import verilate
from dovetail.cosim.rtl.block import Bench, block_design
from dovetail.isa.common import sealed
from dovetail.isa.common.build_cache import LIBRARY, builds, hold, noted, noted_library


class Increment(wiring.Component):  # type: ignore[misc]
    value: In(8)  # type: ignore[valid-type]
    more: Out(8)  # type: ignore[valid-type]

    def elaborate(self, platform: object) -> Module:
        m = Module()
        m.d.comb += self.more.eq(self.value + 1)
        return m


def cut(data: bytes) -> bytes:
    return data[: len(data) // 2]


def flip(data: bytes) -> bytes:
    return data[:5000] + bytes([data[5000] ^ 16]) + data[5001:]


DAMAGE: dict[str, Callable[[bytes], bytes]] = {"truncated": cut, "flipped": flip, "empty": lambda data: b""}


def run(cache: Path) -> None:
    """In a process of its own: a damaged library would end it by SIGBUS."""
    with Bench(Increment(), cache=cache) as bench:
        bench.poke("value", 41)
        assert bench.peek("more") == 42


def exit_code_of(cache: Path) -> int | None:
    process = multiprocessing.get_context("fork").Process(target=run, args=(cache,))
    process.start()
    process.join(120)
    return process.exitcode


@pytest.mark.parametrize("damage", DAMAGE)
def test_a_damaged_library_is_put_aside_and_built_again(fresh_cache: Path, damage: str) -> None:
    library = verilate.verilate(block_design(Increment()), fresh_cache)
    before = set(fresh_cache.glob("damaged-*"))
    fresh = library.with_name("fresh")
    fresh.write_bytes(DAMAGE[damage](library.read_bytes()))
    fresh.replace(library)  # another file: this process has the old one in use
    assert not hold(library)
    assert exit_code_of(fresh_cache) == 0
    assert hold(library)
    (aside,) = set(fresh_cache.glob("damaged-*")) - before
    assert {path.name for path in aside.iterdir()} == {LIBRARY, sealed.SEAL}


def test_damage_of_the_seal_and_strangers_in_the_folder(fresh_cache: Path) -> None:
    library = verilate.verilate(block_design(Increment()), fresh_cache)
    seal = library.parent / sealed.SEAL
    sound = seal.read_bytes()
    for damaged in (b"", b"\xff\xfe", sound[:-1] + b"x", sound + b"0" * 64 + b"  ../../elsewhere\n"):
        seal.write_bytes(damaged)
        assert not hold(library)
    seal.unlink()
    assert not hold(library)
    seal.write_bytes(sound)
    assert hold(library)
    (library.parent / "another").write_text("file")
    assert not hold(library)
    (library.parent / "another").unlink()


@pytest.mark.slow
def test_a_damaged_runtime_object_is_compiled_again(fresh_cache: Path) -> None:
    library = verilate.verilate(block_design(Increment()), fresh_cache)
    (runtime,) = fresh_cache.glob("runtime-*")
    for compiled in runtime.glob("*.o"):
        compiled.write_bytes(cut(compiled.read_bytes()))
    sealed.discard(library.parent)
    assert exit_code_of(fresh_cache) == 0
    assert sealed.is_sound(runtime)


@pytest.mark.parametrize("text", [b"", b"\xff\x00\xfe", b"../../../etc", b"f" * 32, b"x" * 3_000_000])
def test_a_damaged_note_is_no_note(fresh_cache: Path, text: bytes) -> None:
    design, made = block_design(Increment()), []
    note = fresh_cache / "accelerator-test"

    def make() -> Path:
        made.append(1)
        return verilate.verilate(design, fresh_cache)

    library = noted_library(fresh_cache, note.name, make)
    assert noted(note) == library
    note.write_bytes(text)
    assert noted(note) is None
    assert noted_library(fresh_cache, note.name, make) == library
    assert made[-1:] == [1]
    assert noted(note) == library


def test_a_note_of_another_design_is_no_note(tmp_path: Path) -> None:
    sealed.write_note(tmp_path / "accelerator-a", "0" * 32)
    (tmp_path / "accelerator-a").rename(tmp_path / "accelerator-b")
    assert noted(tmp_path / "accelerator-b") is None
    sealed.write_note(tmp_path / "accelerator-c", "../elsewhere")  # sound, but a path
    assert noted(tmp_path / "accelerator-c") is None


def _killed(cache: Path) -> None:
    def stop(*_: Any) -> None:
        os.kill(os.getpid(), signal.SIGKILL)

    verilate._run_all = stop  # type: ignore[assignment]
    verilate.verilate(verilate.Design({"dut.v": "module dut; endmodule"}, "dut", {}), cache)


def test_leftovers_of_a_killed_build_go(fresh_cache: Path) -> None:
    verilate.verilate(block_design(Increment()), fresh_cache)
    process = multiprocessing.get_context("fork").Process(target=_killed, args=(fresh_cache,))
    process.start()
    process.join(60)
    assert process.exitcode == -signal.SIGKILL
    (left,) = fresh_cache.glob("build-*")
    assert sealed.sweep(fresh_cache) == []  # it may be about to be locked
    old = time.time() - 2 * sealed.LEAST_AGE
    for path in (left, *fresh_cache.glob("*.lock")):
        os.utime(path, (old, old))
    with sealed.workplace(fresh_cache) as work:
        os.utime(work, (old, old))
        assert left in sealed.sweep(fresh_cache)
        assert work.exists()
    assert not [*fresh_cache.glob("build-*"), *fresh_cache.glob("*.lock")]
    aside = fresh_cache / "damaged-long-ago"
    aside.mkdir()
    os.utime(aside, (1, 1))
    assert sealed.sweep(fresh_cache) == [aside]


def test_folders_are_the_users_alone(tmp_path: Path) -> None:
    old = os.umask(0)
    try:
        cache = tmp_path / "cache"
        with sealed.workplace(cache) as work:
            ready = work / "ready"
            ready.mkdir(mode=0o700)
            (ready / LIBRARY).write_bytes(b"library")
            sealed.seal(ready)
            sealed.publish(ready, cache / ("a" * 32))
        shared = tmp_path / "shared"
        shared.mkdir(0o777)
        sealed.private(shared)
    finally:
        os.umask(old)
    for folder in (cache, cache / ("a" * 32), shared):
        assert stat.S_IMODE(folder.stat().st_mode) == 0o700, folder
    assert len(builds(cache)) == 1


def test_random_damage_is_noticed(tmp_path: Path) -> None:
    random = np.random.default_rng(0)
    content = random.integers(0, 256, 4096, np.uint8).tobytes()
    for trial in range(50):
        folder = tmp_path / str(trial)
        folder.mkdir()
        (folder / LIBRARY).write_bytes(content)
        sealed.seal(folder)
        assert sealed.is_sound(folder)
        victim = folder / (LIBRARY, sealed.SEAL)[trial % 2]
        data = bytearray(victim.read_bytes())
        data[random.integers(len(data))] ^= 1 << random.integers(8)
        victim.write_bytes(bytes(data) if trial % 3 else bytes(data[: len(data) // 2]))
        assert not sealed.is_sound(folder)
