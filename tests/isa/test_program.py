"""The program container: round trip, every refusal, atomic writing."""

import json
import re
import struct
import zlib
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dovetail.isa.common.files import write_atomically
from dovetail.isa.config.resolved import Config
from dovetail.isa.instructions.table import PAGE_BYTES
from dovetail.isa.program import Program, ProgramError, Segment, Step, TensorDescriptor

CONFIG = Config(ic_lanes=8, oc_lanes=8)
IMAGE = TensorDescriptor(name="x", offset=4096, shape=(1, 4, 4, 3), scale=0.5, zero_point=-128)
SCORES = TensorDescriptor(name="y", offset=None, shape=(10,), dtype="float32", layout="C")


def make(**changes: Any) -> Program:
    program = Program(
        config=CONFIG,
        stream=bytes(range(256)) * 8,
        constants=b"weights",
        stream_offset=1024,
        constants_offset=3072,
        memory_bytes=8192,
        segments=(Segment(1024, 1, "body"), Segment(2048, 1)),
        inputs=(IMAGE,),
        outputs=(SCORES,),
        steps=(
            Step(label="body", segment=0),
            Step(label="softmax", payload=b"\0host\xff", inputs=(IMAGE,), outputs=(SCORES,)),
            Step(label="tail", segment=1),
        ),
        metadata={"layers": [{"name": "conv", "pc": [0, 12], "macs": 1234}], "network": "net"},
    )
    return replace(program, **changes)


def reseal(data: bytes) -> bytes:
    """The file with a CRC that is right for it."""
    return data[:-4] + struct.pack("<I", zlib.crc32(data[:-4]))


def with_header(change: Callable[[dict[str, Any]], None]) -> bytes:
    """A sound file whose JSON header was changed."""
    data = make().to_bytes()
    (size,) = struct.unpack_from("<I", data, 12)
    header = json.loads(data[32 : 32 + size])
    change(header)
    text = json.dumps(header).encode()
    body = text + data[32 + size :]
    fixed = data[:12] + struct.pack("<I", len(text)) + data[16:24] + struct.pack("<Q", 32 + len(body))
    return reseal(fixed + body)


def test_round_trip(tmp_path: Path) -> None:
    program = make()
    assert Program.from_bytes(program.to_bytes()) == program
    program.save(tmp_path / "net.dvt")
    assert Program.load(tmp_path / "net.dvt") == program
    assert [path.name for path in tmp_path.iterdir()] == ["net.dvt"]


@given(st.binary(max_size=50), st.binary(max_size=50), st.dictionaries(st.text(), st.integers() | st.text()))
def test_round_trip_of_any_content(constants: bytes, payload: bytes, metadata: dict[str, Any]) -> None:
    program = make(constants=constants, steps=(Step(label="host", payload=payload),), metadata=metadata)
    assert Program.from_bytes(program.to_bytes()) == program


def test_numpy_numbers_are_plain_numbers_in_the_file() -> None:
    numbers: dict[str, Any] = {"scale": np.float32(0.1), "shape": tuple(np.array([1, 2]))}
    image = replace(IMAGE, **numbers)
    program = make(inputs=(image,), metadata={"macs": np.int64(3), "scale": np.array([1.5])})
    again = Program.from_bytes(program.to_bytes())
    assert again.inputs[0].scale == float(np.float32(0.1))
    assert again.metadata == {"macs": 3, "scale": [1.5]}


def test_fixed_header_by_hand() -> None:
    data = make().to_bytes()
    assert data[:8] == b"DOVETAIL"
    assert int.from_bytes(data[8:12], "little") == 7
    assert int.from_bytes(data[16:24], "little") == CONFIG.hash
    assert int.from_bytes(data[24:32], "little") == len(data)
    assert int.from_bytes(data[-4:], "little") == zlib.crc32(data[:-4])


def test_images() -> None:
    program = make()
    assert program.images == ((1024, program.stream), (3072, b"weights"))


@pytest.mark.parametrize("size", [1, 7, 8, 31, 32, 100, 2000])
def test_truncated(size: int) -> None:
    data = make().to_bytes()[:size]
    with pytest.raises(ProgramError, match=f"^file must be complete, not cut off after {size}( of [0-9]+)? bytes$"):
        Program.from_bytes(data)


@given(st.data())
def test_every_flipped_bit_is_refused(data: st.DataObject) -> None:
    content = bytearray(make().to_bytes())
    content[data.draw(st.integers(0, len(content) - 1))] ^= 1 << data.draw(st.integers(0, 7))
    with pytest.raises(ProgramError):
        Program.from_bytes(bytes(content))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda d: b"", "file must be a Dovetail program (magic DOVETAIL), not something else"),
        (lambda d: b"TFL3" + d, "file must be a Dovetail program (magic DOVETAIL), not something else"),
        (lambda d: d[:8] + b"\2" + d[9:], "format version must be 7, not 2; compile the network again"),
        (lambda d: d + b"\0", "file must be "),
        (lambda d: d[:-20] + b"\x55" + d[-19:], "CRC must be "),
        (lambda d: reseal(d[:16] + b"\0" * 8 + d[24:]), "configuration hash must be that of the header's"),
        (lambda d: reseal(d[:32] + b"!" + d[33:]), "header must be JSON: "),
    ],
)
def test_refused_files(change: Callable[[bytes], bytes], message: str) -> None:
    with pytest.raises(ProgramError, match=f"^{re.escape(message)}"):
        Program.from_bytes(change(make().to_bytes()))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda h: h.pop("segments"), "header must be complete and well-formed, not broken at 'segments'"),
        (lambda h: h.update(config={"pe": 1}), "configuration in the header must be valid: pe must be 8..1024, not 1"),
        (lambda h: h["stream"].update(bytes=1), "sections must fill 2061 bytes, not 14"),
        (lambda h: h["stream"].update(bytes="x"), "bytes of a section must be a whole number, not 'x'"),
        (lambda h: h["inputs"][0].update(shape=["x"]), "axes of tensor 'x' must be a whole number, not 'x'"),
        (lambda h: h["inputs"][0].update(colour=1), "header must be complete and well-formed, not broken at"),
    ],
)
def test_refused_headers(change: Callable[[dict[str, Any]], None], message: str) -> None:
    with pytest.raises(ProgramError, match=f"^{re.escape(message)}"):
        Program.from_bytes(with_header(change))


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"stream": b"x"}, "stream must be whole pages of 1024 bytes, not 1 bytes"),
        ({"stream_offset": 8}, "stream_offset must be a multiple of 1024, not 8"),
        ({"memory_bytes": 2048}, "stream must lie inside 2048 bytes of system memory, not 0x400..0xbff"),
        ({"constants_offset": 1500}, "stream and constants must not overlap in system memory"),
        ({"constants_offset": -1}, "constants must lie inside 8192 bytes of system memory, not -0x1..0x5"),
        ({"segments": (Segment(1024, 0),)}, "segment 0 must have at least 1 page, not 0"),
        ({"segments": (Segment(1030, 1),)}, "segment 0 must start at a page of the stream, not at 1030"),
        ({"segments": (Segment(2048, 2),)}, "segment 0 must lie inside the stream 0x400..0xbff, not 0x800..0xfff"),
        ({"steps": (Step(label="s", segment=2),)}, "step 's' must name one of 2 segments, not 2"),
        ({"inputs": (replace(IMAGE, offset=8190),)}, "tensor 'x' must lie inside 8192 bytes of system memory"),
    ],
)
def test_parts_must_fit(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(ProgramError, match=f"^{re.escape(message)}"):
        make(**changes)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"shape": (1, 0)}, "axes of tensor 'x' must be at least 1, not (1, 0)"),
        ({"strides": (1,)}, "tensor 'x' must have one stride for each of 4 axes, not 1"),
        ({"strides": (1, 1, -1, 1)}, "strides of tensor 'x' must not be negative, not (1, 1, -1, 1)"),
        ({"dtype": "string"}, "dtype of tensor 'x' must be like int8 or float32, not 'string'"),
    ],
)
def test_tensors_must_be_sound(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(ProgramError, match=f"^{re.escape(message)}$"):
        replace(IMAGE, **changes)


def test_span_counts_padding() -> None:
    assert IMAGE.span == 48
    assert IMAGE.steps == (48, 12, 3, 1)
    padded = replace(IMAGE, strides=(64, 16, 3, 1))
    assert padded.span == 3 * 16 + 3 * 3 + 2 + 1
    assert SCORES.span == 40
    assert TensorDescriptor(name="s", offset=0, shape=()).steps == ()


def test_another_configuration_is_refused() -> None:
    program = make()
    program.check_config(CONFIG)
    program.check_config(Config.from_toml(CONFIG.to_toml()))
    other = CONFIG.replace(stripe=16)
    with pytest.raises(
        ProgramError,
        match=f"^program must run on configuration {CONFIG.hash:016x}, not {other.hash:016x}"
        r" \(it is for stripe 32, not 16\)$",
    ):
        program.check_config(other)


def test_load_names_the_file(tmp_path: Path) -> None:
    path = tmp_path / "net.dvt"
    path.write_bytes(b"hello")
    with pytest.raises(ProgramError, match=f"^{re.escape(str(path))}: file must be a Dovetail program"):
        Program.load(path)
    with pytest.raises(FileNotFoundError):
        Program.load(tmp_path / "nowhere")


def test_a_failed_write_leaves_nothing(tmp_path: Path) -> None:
    (tmp_path / "folder").mkdir()
    with pytest.raises(OSError):
        write_atomically(tmp_path / "folder", b"data")
    with pytest.raises(OSError):
        make().save(tmp_path / "nowhere" / "net.dvt")
    assert [path.name for path in tmp_path.iterdir()] == ["folder"]
    with pytest.raises(TypeError, match=r"^metadata must be JSON, not object$"):
        make(metadata={"x": object()}).save(tmp_path / "net.dvt")
    assert not (tmp_path / "net.dvt").exists()


def test_stream_is_pages() -> None:
    assert len(make().stream) == 2 * PAGE_BYTES
