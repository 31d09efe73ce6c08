"""Small files that would unfold into large ones: one line, at once, and nothing of it is made."""

from __future__ import annotations

import json
import re
import sqlite3
import tomllib
import zipfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import helper, numpy_helper

from dovetail.isa.common.toml import parse_toml
from dovetail.isa.config.given import ConfigError
from dovetail.isa.config.resolved import Config
from dovetail.sw import frontend
from dovetail.sw.analysis.cost.energy import EnergyError, load_table
from dovetail.sw.analysis.dump import read_dump
from dovetail.sw.compiler.plan import schedule_cache, tiling
from dovetail.sw.errors import NetworkError
from dovetail.sw.files import arrays
from dovetail.sw.files.arrays import parse_array
from dovetail.sw.files.inputs import read_arrays, read_inputs
from dovetail.sw.files.manifest import parse_yaml
from dovetail.sw.files.packing import pack
from dovetail.sw.files.portable import unpack
from dovetail.sw.frontend.onnx.limits import check_functions
from dovetail.sw.quantise.float_network import read_float
from dovetail.sw.runtime.compiled_network import compile_network
from tests.malformed import onnx_edits

Node = Any
NODE = helper.make_node


def bomb(nodes: list[Node], last: str, quantised: bool, functions: Sequence[Any] = (), **constants: Any) -> bytes:
    """A network that adds ``last`` to its input."""
    nodes = [*nodes, NODE("ReduceSum", [last], ["sum"], keepdims=0), NODE("Add", ["x", "sum"], ["added"])]
    if quantised:
        constants |= {"scale": np.float32(0.1), "zero": np.int8(0)}
        nodes.append(NODE("QuantizeLinear", ["added", "scale", "zero"], ["q"]))
        nodes.append(NODE("DequantizeLinear", ["q", "scale", "zero"], ["y"]))
    else:
        nodes.append(NODE("Relu", ["added"], ["y"]))
    ends = [helper.make_tensor_value_info(name, 1, [1, 4]) for name in "xy"]
    held = [numpy_helper.from_array(np.asarray(value), name) for name, value in constants.items()]
    graph = helper.make_graph(nodes, "bomb", ends[:1], ends[1:], held)
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid("f", 1)]
    return bytes(
        helper.make_model(graph, opset_imports=opsets, ir_version=8, functions=list(functions)).SerializeToString()
    )


BOMBS: dict[str, Callable[[bool], bytes]] = {
    "range": lambda q: bomb(
        [NODE("Range", ["a", "b", "c"], ["r"])], "r", q, a=np.float32(0), b=np.float32(1e10), c=np.float32(1)
    ),
    "range of a product": lambda q: bomb(
        [NODE("Mul", ["b", "b"], ["bb"]), NODE("Range", ["a", "bb", "c"], ["r"])], "r", q,
        a=np.float32(0), b=np.float32(1e5), c=np.float32(1),
    ),
    "eye": lambda q: bomb(
        [NODE("ConstantOfShape", ["n"], ["z"]), NODE("EyeLike", ["z"], ["e"])], "e", q, n=np.array([70000, 70000])
    ),
    "expand": lambda q: bomb([NODE("Expand", ["x", "n"], ["z"])], "z", q, n=np.array([700_000_000, 4])),
    "tile": lambda q: bomb([NODE("Tile", ["x", "n"], ["z"])], "z", q, n=np.array([70000, 70000])),
    "one hot": lambda q: bomb(
        [NODE("OneHot", ["i", "d", "v"], ["z"])], "z", q,
        i=np.arange(1000), d=np.int64(10**8), v=np.array([0, 1], np.float32),
    ),
    "pad": lambda q: bomb(
        [NODE("Pad", ["o", "p"], ["z"])], "z", q, o=np.ones(1, np.float32), p=np.array([0, 5 * 10**9])
    ),
    "outer product": lambda q: bomb(
        [NODE("MatMul", ["o", "p"], ["z"])], "z", q,
        o=np.ones((20000, 1), np.float32), p=np.ones((1, 20000), np.float32),
    ),
}  # fmt: skip


@pytest.mark.parametrize("quantised", [False, True], ids=["float", "quantised"])
@pytest.mark.parametrize("name", BOMBS)
def test_small_networks_with_large_tensors(name: str, quantised: bool, tmp_path: Path) -> None:
    path = tmp_path / "bomb.onnx"
    path.write_bytes(BOMBS[name](quantised))
    with pytest.raises(NetworkError, match=r"a tensor must have at most 2\*\*27 elements, not \("):
        frontend.load(path) if quantised else read_float(path)


def functions(count: int, call: Callable[[int], int]) -> list[Any]:
    """Functions that call another one twice."""
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid("f", 1)]
    made = [helper.make_function("f", "F0", ["a"], ["b"], [NODE("Relu", ["a"], ["b"])], opsets)]
    for number in range(1, count):
        inner = f"F{call(number)}"
        nodes = [NODE(inner, ["a"], ["c"], domain="f"), NODE(inner, ["c"], ["b"], domain="f")]
        made.append(helper.make_function("f", f"F{number}", ["a"], ["b"], nodes, opsets))
    return made


@pytest.mark.parametrize("quantised", [False, True], ids=["float", "quantised"])
def test_functions_that_double(quantised: bool, tmp_path: Path) -> None:
    path = tmp_path / "bomb.onnx"
    call = [NODE("F29", ["x"], ["r"], domain="f")]
    path.write_bytes(bomb(call, "r", quantised, functions(30, lambda number: number - 1)))
    with pytest.raises(NetworkError, match="local functions must expand to at most 100000 nodes, not 5368"):
        frontend.load(path) if quantised else read_float(path)
    path.write_bytes(bomb(call, "r", quantised, functions(30, lambda number: number % 29 + 1)))
    with pytest.raises(NetworkError, match=r"function 'F\d+' must not call itself"):
        frontend.load(path) if quantised else read_float(path)


@pytest.mark.parametrize("word", ["Relu", "norm", "pads", "real", "strides"])
def test_names_that_are_no_text(word: str, tmp_path: Path) -> None:
    """Protobuf hands out bytes for them, of which later passes make errors of their own."""
    data = onnx_edits.real().SerializeToString()
    assert word.encode() in data
    (tmp_path / "net").write_bytes(data.replace(word.encode(), word[:-1].encode() + b"\xff"))
    for read in (read_float, frontend.load):
        with pytest.raises(NetworkError, match="names and operators must be in UTF-8, not b'"):
            read(tmp_path / "net")


def test_functions_within_the_limit() -> None:
    data = bomb([NODE("F9", ["x"], ["r"], domain="f")], "r", False, functions(10, lambda number: number - 1))
    check_functions(onnx.load_model_from_string(data))


class Port:
    def __init__(self, name: str, *shape: int) -> None:
        self.name, self.shape = name, shape


def write_npz(path: Path, *, compress: bool = True, **members: bytes) -> None:
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED if compress else zipfile.ZIP_STORED) as archive:
        for name, data in members.items():
            archive.writestr(f"{name}.npy", data)


def header_of(shape: tuple[int, ...], dtype: str = "<f4") -> bytes:
    text = f"{{'descr': '{dtype}', 'fortran_order': False, 'shape': {shape}, }}"
    text += " " * (-(len(text) + 11) % 64) + "\n"
    return b"\x93NUMPY\x01\x00" + len(text).to_bytes(2, "little") + text.encode()


def zipped_zeros(path: Path, size: int) -> None:
    """An .npz of zeros: small in the file, ``size`` bytes unpacked."""
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive, archive.open("x.npy", "w") as member:
        member.write(header_of((size // 4,)))
        for _ in range(size >> 24):
            member.write(bytes(1 << 24))


def test_an_npz_that_unpacks_to_more_than_there_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "x.npz"
    assert arrays.MOST_BYTES == 1 << 30
    monkeypatch.setattr(arrays, "MOST_BYTES", 1 << 25)
    zipped_zeros(path, 1 << 26)
    assert path.stat().st_size < 1 << 17
    with pytest.raises(NetworkError, match=re.escape(f"{path}: input 'x' must have shape (1, 4)")):
        read_inputs(path, [Port("x", 1, 4)])
    with pytest.raises(NetworkError, match=r"arrays of an \.npz must take at most 32 MiB, not 64 MiB"):
        read_arrays(path)


def test_arrays_that_nobody_asks_for_stay_in_the_file(tmp_path: Path) -> None:
    path = tmp_path / "x.npz"
    sound = header_of((1, 4)) + bytes(16)
    write_npz(path, x=sound, other=header_of((1, 4)) + bytes(100))
    found, several = read_inputs(path, [Port("x", 1, 4)])
    assert found["x"].tolist() == [[[0, 0, 0, 0]]]
    assert not several


WRONG_ARRAYS = {
    "no magic": b"hello" * 30,
    "empty": b"",
    "cut": header_of((1, 4))[:20],
    "too short": header_of((1, 4)) + bytes(15),
    "huge": header_of((1 << 60, 4)),
    "negative": header_of((-1, 4)) + bytes(16),
    "objects": header_of((1, 4), "|O") + bytes(32),
    "text": header_of((1, 4), "<U4") + bytes(64),
    "times": header_of((1, 4), "<M8[s]") + bytes(32),
    "nested": b"\x93NUMPY\x01\x00" + (9000).to_bytes(2, "little") + b"(" * 9000,
    "version": b"\x93NUMPY\x09\x00" + bytes(100),
}


@pytest.mark.parametrize("name", WRONG_ARRAYS)
def test_arrays_that_are_none(name: str, tmp_path: Path) -> None:
    data = WRONG_ARRAYS[name]
    (tmp_path / "x.npy").write_bytes(data)
    write_npz(tmp_path / "x.npz", x=data)
    for path in (tmp_path / "x.npy", tmp_path / "x.npz"):
        with pytest.raises(NetworkError) as raised:
            read_inputs(path, [Port("x", 1, 4)])
        assert (
            str(raised.value) == f"{path}: must be an .npy or .npz file of plain arrays, not damaged or of another kind"
        )
    with pytest.raises(ValueError):
        parse_array(data)


def test_a_dump_reads_its_own_folder_only(tmp_path: Path) -> None:
    (tmp_path / "secret.npy").write_bytes(header_of((1,)) + bytes(4))
    folder = tmp_path / "dump"
    folder.mkdir()
    for name in ("../secret.npy", str(tmp_path / "secret.npy")):
        (folder / "index.json").write_text(json.dumps({"tensors": [{"tensor": "x", "file": name}]}))
        with pytest.raises(NetworkError, match="must be a dump with its index, not damaged"):
            read_dump(folder)


def test_members_of_a_portable_file_that_overlap(tmp_path: Path) -> None:
    data = pack(frontend.parse(frontend.read("zoo:hard_swish_block?channels=4&resolution=4")))
    with zipfile.ZipFile(tmp_path / "a.zip", "w") as archive:
        archive.writestr("manifest.yaml", "x" * 100_000)
    one = (tmp_path / "a.zip").read_bytes()
    directory = one.index(b"PK\x01\x02")
    end = one.index(b"PK\x05\x06")
    entries = one[directory:end] * 100
    tail = bytearray(one[end:])
    tail[8:10] = tail[10:12] = (100).to_bytes(2, "little")
    tail[12:16] = len(entries).to_bytes(4, "little")
    with pytest.raises(NetworkError, match="members must lie beside each other, not over each other"):
        unpack(one[:directory] + entries + bytes(tail), "x.dnet")
    unpack(data, "x.dnet")


LAUGHS = "a: &a [x, x]\n" + "".join(
    f"{chr(98 + k)}: &{chr(98 + k)} [*{chr(97 + k)}, *{chr(97 + k)}]\n" for k in range(20)
)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (LAUGHS, "aliases are not allowed"),
        ("[" * 5000, "nested less deeply"),
        ("x: 1" + "0" * 5000, "digits"),
        ("\x00", "special characters"),
    ],
)
def test_manifests(text: str, message: str) -> None:
    with pytest.raises(ValueError, match=message) as raised:
        parse_yaml(text.encode())
    assert "\n" not in str(raised.value)


TOML = {
    "nested arrays": "x = " + "[" * 3000 + "]" * 3000,
    "nested tables": "x = " + "{a=" * 3000 + "1" + "}" * 3000,
    "dotted key": ".".join("a" * 300_000) + " = 1",
    "dotted key within": "x = {" + ".".join("a" * 3000) + " = 1}",
    "long number": "sram = 1" + "0" * 5000,
    "long text": "# " + "x" * (1 << 20),
}


@pytest.mark.parametrize("name", TOML)
def test_toml(name: str, tmp_path: Path) -> None:
    path = tmp_path / "config.toml"
    path.write_text(TOML[name])
    with pytest.raises(tomllib.TOMLDecodeError):
        parse_toml(TOML[name])
    with pytest.raises(ConfigError, match="configuration is not TOML"):
        Config.load(path)
    with pytest.raises(EnergyError, match="energy table must be TOML"):
        load_table(path)


def test_a_schedule_cache_of_another_form(tmp_path: Path) -> None:
    """Values with the right hash and the wrong form are searched for again; so are texts that are none."""
    network, config = "zoo:hard_swish_block?channels=4&resolution=4", Config(ic_lanes=4, oc_lanes=4, sram="64 KiB")
    schedule_cache.use(tmp_path)
    try:
        tiling.forget()
        wanted = compile_network(network, config).program.to_bytes()
        (file,) = tmp_path.glob("*.sqlite")
        others: tuple[Any, ...] = ([1], {"rows": "x"}, "x", 5, {"rows": [[]]}, [[[]]])
        for value in others:
            with sqlite3.connect(file) as database:
                for (name,) in database.execute("SELECT name FROM schedules").fetchall():
                    row = json.dumps(value), schedule_cache._digest([name, json.dumps(value)]), name
                    database.execute("UPDATE schedules SET value = ?, digest = ? WHERE name = ?", row)
            database.close()
            tiling.forget()
            assert compile_network(network, config).program.to_bytes() == wanted
        file.write_bytes(file.read_bytes().replace(b"CREATE TABLE schedules", b"CREATE TABLE \xff\xfe\xfd\xfcdules"))
        tiling.forget()
        assert compile_network(network, config).program.to_bytes() == wanted
    finally:
        schedule_cache.use(None)
        tiling.forget()
