"""The cache of builds: what is old goes, what is in use stays, in this process and in others."""

import multiprocessing
import os
from pathlib import Path

from dovetail.isa.common.build_cache import LIBRARY, builds, hold, trim
from dovetail.isa.common.sealed import seal, write_note


def build(cache: Path, number: int, size: int = 100) -> Path:
    """A library that was used ``number`` seconds after the epoch."""
    folder = cache / f"{number:032x}"
    folder.mkdir()
    library = folder / LIBRARY
    library.write_bytes(bytes(size))
    seal(folder)
    os.utime(library, (number, number))
    return library


def test_the_least_recently_used_go_first(tmp_path: Path) -> None:
    libraries = [build(tmp_path, number) for number in (3, 1, 2)]
    assert [b.folder for b in builds(tmp_path)] == [libraries[n].parent for n in (1, 2, 0)]
    assert trim(tmp_path, 300) == []
    assert [b.folder for b in trim(tmp_path, 150)] == [libraries[1].parent, libraries[2].parent]
    assert [b.folder for b in builds(tmp_path)] == [libraries[0].parent]


def test_what_is_in_use_stays(tmp_path: Path) -> None:
    mine, other = build(tmp_path, 1), build(tmp_path, 2)
    assert hold(mine)
    assert hold(mine)
    assert [b.folder for b in trim(tmp_path, 0)] == [other.parent]
    assert mine.exists()
    assert builds(tmp_path)[0].used > 2


def _hold(library: Path, held: "multiprocessing.queues.Queue[bool]", end: "multiprocessing.queues.Queue[bool]") -> None:
    held.put(hold(library))
    end.get(timeout=60)


def test_what_another_process_uses_stays_until_it_ends(tmp_path: Path) -> None:
    library = build(tmp_path, 1)
    context = multiprocessing.get_context("fork")
    held, end = context.Queue(), context.Queue()
    process = context.Process(target=_hold, args=(library, held, end))
    process.start()
    assert held.get(timeout=60)
    assert trim(tmp_path, 0) == []
    end.put(True)
    process.join()
    assert len(trim(tmp_path, 0)) == 1


def test_notes_of_what_is_gone_go_as_well(tmp_path: Path) -> None:
    gone, kept = build(tmp_path, 1), build(tmp_path, 2)
    for library in (gone, kept):
        write_note(tmp_path / f"accelerator-{library.parent.name}", library.parent.name)
    (tmp_path / "runtime-0").mkdir()
    trim(tmp_path, 100)
    assert {path.name for path in tmp_path.iterdir()} == {
        kept.parent.name,
        f"accelerator-{kept.parent.name}",
        "runtime-0",
    }


def test_a_cache_without_builds(tmp_path: Path) -> None:
    assert builds(tmp_path / "no") == []
    assert trim(tmp_path / "no", 0) == []
    assert not hold(tmp_path / "no" / LIBRARY)
