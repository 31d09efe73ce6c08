"""FST waves without zlib and LZ4 of the system: what our headers compress is a valid LZ4 block; FST equals VCD."""

import ctypes
import random
import re
import shutil
import subprocess
from pathlib import Path

import pytest

from dovetail.cosim.rtl.block import Bench
from dovetail.cosim.rtl.verilate import wave_format
from dovetail.hw.sequencer.queue import Queue
from dovetail.isa.common.cplusplus import compiler

FST = Path(__file__).resolve().parents[3] / "cosim" / "rtl" / "fst"


def expand(block: bytes) -> bytes:
    """An LZ4 block, by the published format."""
    out, at = bytearray(), 0

    def length(nibble: int) -> int:
        nonlocal at
        total = nibble
        more = 255 if nibble == 15 else 0
        while more == 255:
            more = block[at]
            total += more
            at += 1
        return total

    while True:
        token = block[at]
        at += 1
        count = length(token >> 4)
        out += block[at : at + count]
        at += count
        if at == len(block):
            return bytes(out)
        offset = int.from_bytes(block[at : at + 2], "little")
        at += 2
        assert 0 < offset <= len(out)
        for _ in range(length(token & 15) + 4):
            out.append(out[-offset])


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> ctypes.CDLL:
    folder = tmp_path_factory.mktemp("lz4")
    (folder / "lz4.cpp").write_text(
        '#include "lz4.h"\nextern "C" int bound(int size) { return LZ4_compressBound(size); }\n'
        'extern "C" int compress(const char* in, char* out, int size) {'
        " return LZ4_compress_default(in, out, size, LZ4_compressBound(size)); }\n"
    )
    command = [compiler(), "-shared", "-fPIC", "-O1", f"-I{FST}", "-o", "lz4.so", "lz4.cpp"]
    subprocess.run(command, cwd=folder, check=True)
    return ctypes.CDLL(str(folder / "lz4.so"))


def compressed(library: ctypes.CDLL, data: bytes) -> bytes:
    target = ctypes.create_string_buffer(library.bound(len(data)))
    size = library.compress(data, target, len(data))
    return target.raw[:size]


def test_blocks(library: ctypes.CDLL) -> None:
    draw = random.Random(5)
    cases = [b"", b"a", b"abcd" * 3, bytes(12), bytes(13), bytes(300_000), draw.randbytes(70_000)]
    cases += [draw.randbytes(n) * draw.randrange(1, 9) for n in range(40)]
    cases += [bytes(draw.choices(range(3), k=draw.randrange(5000))) for _ in range(40)]
    far = draw.randbytes(40)
    cases += [far + bytes(gap) + far + b"tail of the block" for gap in (65_480, 65_494, 65_495, 65_496, 70_000)]
    for data in cases:
        block = compressed(library, data)
        assert expand(block) == data
        assert len(block) <= library.bound(len(data))
    assert len(compressed(library, bytes(300_000))) < 1300
    assert len(compressed(library, b"top.core.sequencer.queue " * 1000)) < 150


def changes(vcd: str) -> list[tuple[str, str, str]]:
    """(time, name, value) of a VCD, in order within a time; the two formats put rows of a memory at other levels."""
    names: dict[str, list[str]] = {}
    rows, time = [], "0"
    for line in vcd.splitlines():
        if found := re.match(r"\s*\$var \w+\s+\d+ (\S+) (\S+)", line):
            names.setdefault(found[1], []).append(found[2].rpartition(".")[2].partition("[")[0])
        elif line.startswith("#"):
            time = line[1:]
        elif found := re.match(r"([01])(\S+)$|b([01]+) (\S+)$", line):
            value, code = (found[1], found[2]) if found[1] else (found[3], found[4])
            rows += [(time, name, value.lstrip("0") or "0") for name in names[code]]
    return sorted(rows, key=lambda row: (int(row[0]), *row[1:]))


@pytest.mark.slow
def test_fst_equals_vcd(build_cache: Path, tmp_path: Path) -> None:
    for kind in ("fst", "vcd"):
        with Bench(Queue(depth=4), cache=build_cache, trace=kind) as bench:
            bench.waves(tmp_path / f"queue.{kind}")
            draw = random.Random(2)
            for _ in range(300):
                bench.poke("i__valid", draw.randrange(2))
                bench.poke("o__ready", draw.randrange(2))
                bench.poke("i__payload", draw.getrandbits(78))
                bench.tick()
            bench.waves(None)
    header = (tmp_path / "queue.fst").read_bytes()[:9]
    assert header == b"\0" + (329).to_bytes(8, "big")  # the header block and its length
    if shutil.which("fst2vcd") is None:
        pytest.skip("fst2vcd (of GTKWave) is not on PATH: the FST file was written, but not read")
    read = subprocess.run(["fst2vcd", tmp_path / "queue.fst"], text=True, capture_output=True, check=True).stdout
    expected = changes((tmp_path / "queue.vcd").read_text())
    assert changes(read) == expected
    assert len(expected) > 1000


def test_format_by_name() -> None:
    assert [wave_format(Path(f"a.b.{kind}")) for kind in ("fst", "vcd")] == ["fst", "vcd"]
    with pytest.raises(ValueError, match=r"waves must be a \.fst or \.vcd file, not a\.x"):
        wave_format(Path("a.x"))
