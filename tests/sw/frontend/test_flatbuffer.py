"""Flatbuffers are verified before they are read: what passes is read by the generated classes without an error."""

from __future__ import annotations

import struct
from collections.abc import Callable

import flatbuffers
import numpy as np
import pytest
from ai_edge_litert import schema_py_generated as schema

from dovetail.sw import frontend
from dovetail.sw.errors import NetworkError
from dovetail.sw.frontend.parsed_file import NetworkFile
from dovetail.sw.frontend.tflite.flatbuffer import MOST_READ, TFLITE, FlatbufferError, verify
from tests.malformed.damage import cut, flip, leave_out, overwrite
from tests.malformed.tflite_edits import network, packed


@pytest.fixture(scope="module")
def sound() -> bytes:
    return packed(network())


def test_sound_files_pass(sound: bytes) -> None:
    verify(sound, TFLITE, "Model")


@pytest.mark.parametrize("damage", [cut, flip, overwrite, leave_out])
def test_what_passes_can_be_read(sound: bytes, damage: Callable[..., bytes]) -> None:
    random = np.random.default_rng(0)
    passed = 0
    for _ in range(300):
        data = damage(sound, random)
        try:
            verify(data, TFLITE, "Model")
        except FlatbufferError:
            continue
        passed += 1
        schema.ModelT.InitFromObj(schema.Model.GetRootAs(data, 0))
    assert passed < 290


def test_every_offset_is_followed(sound: bytes) -> None:
    """An offset that leads far out is noticed wherever the generated classes would follow it."""
    unnoticed = []
    for place in range(0, len(sound) - 4, 4):
        data = sound[:place] + struct.pack("<I", 0x7FFF_FFF0) + sound[place + 4 :]
        try:
            schema.ModelT.InitFromObj(schema.Model.GetRootAs(data, 0))
        except Exception:  # the classes raise anything
            try:
                verify(data, TFLITE, "Model")
            except FlatbufferError:
                continue
            unnoticed.append(place)
    assert unnoticed == []


def test_the_layout_is_the_schemas() -> None:
    """Fields that are offsets, as the generated code of the schema has them."""
    for table, fields in TFLITE.items():
        for number in range(20):
            added = recorded(table, number)
            assert (added == "offset") == (number in fields), (table, number)


def recorded(table: str, number: int) -> str:
    """What the generated code puts into a field: "offset", "number", or "" if there is no such field."""
    found: dict[int, str] = {}

    class Recorder:
        def __getattr__(self, name: str) -> Callable[..., None]:
            kind = "offset" if "UOffset" in name else "number"
            return lambda slot, *_: found.__setitem__(slot, kind)

    for name, add in vars(schema).items():
        if name.startswith(f"{table}Add") and callable(add):
            add(Recorder(), 0)
    return found.get(number, "")


def test_shared_bytes_are_counted(sound: bytes) -> None:
    """A vector of tables that are one and the same, each with the same long vector: megabytes of work from 80 kB."""
    builder = flatbuffers.Builder(1024)
    shape = builder.CreateNumpyVector(np.ones(10_000, np.int32))
    schema.TensorStart(builder)
    schema.TensorAddShape(builder, shape)
    tensor = schema.TensorEnd(builder)
    schema.SubGraphStartTensorsVector(builder, 10_000)
    for _ in range(10_000):
        builder.PrependUOffsetTRelative(tensor)
    tensors = builder.EndVector()
    schema.SubGraphStart(builder)
    schema.SubGraphAddTensors(builder, tensors)
    graph = schema.SubGraphEnd(builder)
    schema.ModelStartSubgraphsVector(builder, 1)
    builder.PrependUOffsetTRelative(graph)
    graphs = builder.EndVector()
    schema.ModelStart(builder)
    schema.ModelAddSubgraphs(builder, graphs)
    builder.Finish(schema.ModelEnd(builder), b"TFL3")
    data = bytes(builder.Output())
    with pytest.raises(FlatbufferError, match=f"its bytes must not be used more than {MOST_READ} times"):
        verify(data, TFLITE, "Model")
    with pytest.raises(NetworkError, match="the file must be a sound flatbuffer: its bytes must not be used more"):
        frontend.load(NetworkFile("bomb", data))


@pytest.mark.parametrize(
    ("data", "text"),
    [
        (b"", "Model leads to 0x0, outside of 0x0 bytes"),
        (b"\xff\xff\xff\x7fTFL3", "Model leads to 0x7fffffff, outside of 0x8 bytes"),
        (b"\x08\0\0\0TFL3\xfc\xff\xff\xff\0\0", "Model must have a list of fields, not 0 bytes at 0xc"),
    ],
)
def test_what_is_said(data: bytes, text: str) -> None:
    with pytest.raises(FlatbufferError) as raised:
        verify(data, TFLITE, "Model")
    assert text in str(raised.value)
