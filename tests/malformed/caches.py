"""Result stores, schedule caches and built simulators: sound ones, ways to damage them, and what uses them."""

from __future__ import annotations

import sqlite3
import tempfile
from collections.abc import Sequence
from functools import cache
from pathlib import Path

import numpy as np

from dovetail.isa.common import sealed
from dovetail.isa.common.build_cache import hold, noted
from tests.malformed.damage import JSON, Random, pick
from tests.malformed.made import NETWORK, SPACE, Files, command


@cache
def store_files() -> Sequence[Files]:
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "space.toml").write_text(SPACE)
        command("sweep", f"{folder}/space.toml", "--output", f"{folder}/out", "--jobs", "1")
        return [{"results.sqlite": (Path(folder) / "out/results.sqlite").read_bytes()}]


def rows(data: bytes, random: Random) -> bytes:
    """Values of a database's rows, or its schema, become others; the file is whole."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "file"
        path.write_bytes(data)
        try:
            file = sqlite3.connect(path)
            names = file.execute("SELECT name FROM sqlite_master WHERE type = 'table'").fetchall()
            (table,) = pick(names, random)
            columns = [row[1] for row in file.execute(f"PRAGMA table_info({table})")]
            column = pick(columns, random)
            kind = random.integers(6)
            if kind == 0:
                file.execute(f"DELETE FROM {table}")
            elif kind == 1:
                file.execute(f"ALTER TABLE {table} RENAME TO old")
                file.execute(
                    f"CREATE VIEW {table} AS WITH RECURSIVE c(x) AS (SELECT 1 UNION ALL SELECT x+1 FROM c)"
                    " SELECT * FROM c, old"
                )
            elif kind == 2:
                (old,) = file.execute(f"SELECT {column} FROM {table} LIMIT 1").fetchone() or ("x",)
                text = pick(JSON, random)(str(old).encode() or b"x", random) if str(old)[:1] in "[{" else b"x"
                file.execute(f"UPDATE {table} SET {column} = ?", (text.decode(errors="replace"),))
            else:
                others = (
                    None,
                    -1,
                    2**62,
                    0.5,
                    "",
                    "x",
                    b"\xff\xfe",
                    "{}",
                    "[]",
                    "[" * 3000,
                    '{"cycles": "x"}',
                    "9" * 5000,
                )
                file.execute(f"UPDATE OR IGNORE {table} SET {column} = ?", (pick(others, random),))
            file.commit()
            file.close()
        except sqlite3.Error:
            return data
        return path.read_bytes()


def letters(data: bytes, random: Random) -> bytes:
    """Letters of a database's schema that are none."""
    start = data.find(b"CREATE TABLE")
    if start < 0:
        return data
    place = start + int(random.integers(0, 200))
    return data[:place] + b"\xff\xfe" + data[place + 2 :]


@cache
def schedule_files() -> Sequence[Files]:
    from dovetail.isa.config.resolved import Config
    from dovetail.sw.compiler.plan import schedule_cache, tiling
    from dovetail.sw.runtime.compiled_network import compile_network

    with tempfile.TemporaryDirectory() as folder:
        schedule_cache.use(Path(folder))
        tiling.forget()
        compile_network(NETWORK, Config(ic_lanes=4, oc_lanes=4, sram="64 KiB"))
        schedule_cache.use(None)
        return [{path.name: path.read_bytes() for path in Path(folder).glob("*.sqlite")}]


def with_schedules(folder: Path) -> object:
    """Compile with a schedule cache, to the same program as without."""
    from dovetail.isa.config.resolved import Config
    from dovetail.sw.compiler.plan import schedule_cache, tiling
    from dovetail.sw.runtime.compiled_network import compile_network

    config = Config(ic_lanes=4, oc_lanes=4, sram="64 KiB")
    programs = []
    for place in (folder, None):
        schedule_cache.use(place)
        tiling.forget()
        programs.append(compile_network(NETWORK, config).program.to_bytes())
    schedule_cache.use(None)
    assert programs[0] == programs[1], "the schedules of a damaged cache were believed"
    return None


@cache
def build_files() -> Sequence[Files]:
    with tempfile.TemporaryDirectory() as folder:
        digest = "0123456789abcdef" * 2
        build = Path(folder) / digest
        build.mkdir()
        (build / "dut.so").write_bytes(np.random.default_rng(0).bytes(5000))
        sealed.seal(build)
        sealed.write_note(Path(folder) / "accelerator-x", digest)
        return [
            {str(path.relative_to(folder)): path.read_bytes() for path in Path(folder).rglob("*") if path.is_file()}
        ]


def builds_are_held_whole_only(folder: Path) -> object:
    """A damaged build is not taken, a damaged note names nothing."""
    library = noted(folder / "accelerator-x")
    (sound,) = build_files()
    if library is not None:
        assert library.parent.parent == folder
        if hold(library):
            assert library.read_bytes() == sound[f"{library.parent.name}/dut.so"], "a damaged library was taken"
    sealed.sweep(folder)
    return None
