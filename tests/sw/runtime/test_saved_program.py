"""Saved programs whose header lies: the checksum is right, and still nothing of it is believed."""

import json
import struct
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from dovetail.flows.cli import main
from dovetail.isa.config.resolved import Config
from dovetail.isa.program import CRC, HEADER, ProgramError
from dovetail.sw.runtime.compiled_network import compile_network
from dovetail.sw.runtime.saved_program import load_program

CONFIG = Config(ic_lanes=4, oc_lanes=4, sram="64 KiB")
NETWORK = "zoo:attention_block?tokens=4&channels=8"


def repacked(data: bytes, change: Callable[[dict[str, Any]], Any], stream: Callable[[bytearray], Any]) -> bytes:
    """A program file with another header and stream, and the checksum that goes with them."""
    _, version, size, _, _ = HEADER.unpack_from(data)
    header = json.loads(data[HEADER.size : HEADER.size + size])
    body = bytearray(data[HEADER.size + size : -CRC.size])
    change(header)
    stream(body)
    text = json.dumps(header, sort_keys=True).encode()
    total = HEADER.size + len(text) + len(body) + CRC.size
    whole = HEADER.pack(data[:8], version, len(text), struct.unpack_from("<Q", data, 16)[0], total) + text + bytes(body)
    return whole + CRC.pack(zlib.crc32(whole))


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    path = tmp_path_factory.mktemp("program") / "net.dvt"
    compile_network(NETWORK, CONFIG).save(path)
    return path.read_bytes()


def places(header: dict[str, Any]) -> list[tuple[Any, Any]]:
    """(container, key) of every value in the header."""
    found: list[tuple[Any, Any]] = []

    def visit(value: Any) -> None:
        for key in value if isinstance(value, dict) else range(len(value)) if isinstance(value, list) else ():
            found.append((value, key))
            visit(value[key])

    visit(header)
    return found


OTHERS: tuple[Any, ...] = (
    None,
    True,
    -1,
    0,
    1,
    7,
    2**31 - 1,
    2**31,
    2**40,
    2**70,
    1.5,
    "",
    "x",
    "../..",
    [],
    {},
    [[]],
    [1, 2],
    {"x": 1},
)


def test_every_value_is_checked(program: bytes, tmp_path: Path) -> None:
    """Every value of the header, replaced: an error of one line, or the same header; never anything else."""
    path = tmp_path / "net.dvt"
    _, _, size, _, _ = HEADER.unpack_from(program)
    count = len(places(json.loads(program[HEADER.size : HEADER.size + size])))
    assert count > 250
    sound = load_program_bytes(program, path).program.header()
    random = np.random.default_rng(0)
    taken = []
    for number in range(0, count, 2):
        other = OTHERS[random.integers(len(OTHERS))]

        def change(header: dict[str, Any], number: int = number, other: Any = other) -> None:
            container, key = places(header)[number]
            container[key] = other

        try:
            loaded = load_program_bytes(repacked(program, change, bytes), path)
        except ProgramError as error:
            assert "\n" not in str(error)
        else:
            taken.append(number)
            differing = loaded.program.header() != sound
            assert not differing or _free_part(loaded.program.header()) == _free_part(sound)
    assert len(taken) < count / 10


def test_exact_leaves_no_trace_where_nothing_is_near(program: bytes, tmp_path: Path) -> None:
    """So no reader can tell whether the header is right about it."""
    path = tmp_path / "net.dvt"
    compile_network(NETWORK, CONFIG, exact=True).save(path)
    assert path.read_bytes() == repacked(
        program, lambda header: header["metadata"]["options"].update(exact=True), bytes
    )


def load_program_bytes(data: bytes, path: Path) -> Any:
    path.write_bytes(data)
    return load_program(path)


def _free_part(header: str) -> Any:
    """What follows from the rest: all but the speed of the memory, what the host costs, whether results must be exact
    (here they are anyway), and what a report makes use of, which is bounded."""
    found = json.loads(header)
    del found["metadata"]["least_activations"], found["metadata"]["options"]["host"], found["config"]["memory"]
    del found["metadata"]["options"]["exact"]
    for layer in found["metadata"]["layers"]:
        del layer["tiles"]
    for operations in found["metadata"]["operations"]:
        operations[:] = [place for place, _ in operations]  # which layer an operation counts for
    return found


@pytest.mark.parametrize(
    ("change", "text"),
    [
        (lambda h: h.update(memory_bytes=2**31), "memory_bytes 2147483648 instead of"),
        (lambda h: h.update(memory_bytes=2**40), "memory_bytes must be at most 4294967296"),
        (lambda h: h["metadata"].update(addresses={}), "no address of"),
        (lambda h: h["metadata"]["addresses"].update(output=2**30), "address 0x40000000 of 'output'"),
        (lambda h: h["metadata"]["addresses"].update(nobody=0), "address 0 of 'nobody'"),
        (lambda h: h["metadata"]["layers"].pop(), "operations of segment 1"),
        (lambda h: h["metadata"]["layers"][0].update(macs=5), "layer "),
        (lambda h: h["metadata"]["layers"][0].update(moved_bytes=5), "moved_bytes"),
        (lambda h: h["metadata"]["operations"][0].pop(), "operations"),
        (lambda h: h["metadata"]["operations"][0].append([99999, 0]), "operations"),
        (lambda h: h["metadata"]["host"].update(x="y"), "host"),
        (lambda h: h["metadata"]["pitches"].update(x=1), "pitches"),
        (lambda h: h["metadata"].update(least_activations=2**40), "least_activations 1099511627776 instead of"),
        (lambda h: h["metadata"].update(least_activations=0), "least_activations 0 instead of"),
        (lambda h: h["metadata"].update(least_activations="x"), "must be of this version"),
        (lambda h: h["metadata"]["layers"][0].update(tiles=""), "tiles  of layer query"),
        (lambda h: h["metadata"]["layers"][0].update(tiles="x" * 99), "tiles xxx"),
        (lambda h: h["metadata"]["layers"][0].update(tiles=5), "must be of this version"),
        (
            lambda h: h["metadata"]["layers"][0].update(tiles="5 rows x 8 of 8 channels, rows outer, buffers 1/1/0"),
            "tiles 5 rows x 8",
        ),
        (lambda h: h["metadata"].update(network="other"), "network"),
        (lambda h: h["segments"][0].update(bound=1), "segments"),
        (lambda h: h["inputs"][0].update(scale=0.5), "inputs"),
        (lambda h: h["steps"][0].update(label="other"), "steps"),
        (lambda h: h["metadata"].pop("options"), "must be of this version of the compiler"),
    ],
)
def test_what_a_header_claims(change: Callable[[Any], Any], text: str, program: bytes, tmp_path: Path) -> None:
    with pytest.raises(ProgramError) as raised:
        load_program_bytes(repacked(program, change, bytes), tmp_path / "net.dvt")
    assert text in str(raised.value)


@pytest.mark.parametrize(
    ("name", "effort"),
    [("mobilenet_v2_block?channels=4&resolution=6", 1), ("inception_block?channels=4&resolution=5", 0)],
)
def test_addresses_are_those_of_the_stream(name: str, effort: int, tmp_path: Path) -> None:
    """No tensor lies elsewhere than where the stream loads it from or stores it to."""
    path = tmp_path / "net.dvt"
    compiled = compile_network(f"zoo:{name}", CONFIG, effort=effort, keep_tensors=bool(effort))
    compiled.save(path)
    data = path.read_bytes()
    assert load_program(path).code.where == compiled.code.where
    assert compiled.code.where
    for tensor in compiled.code.where:
        for distance in (-4096, 4096):

            def move(header: dict[str, Any], tensor: str = tensor, distance: int = distance) -> None:
                header["metadata"]["addresses"][tensor] += distance

            with pytest.raises(ProgramError, match="header must fit the network and the stream, not "):
                load_program_bytes(repacked(data, move, bytes), path)


def test_nested_header(program: bytes, tmp_path: Path) -> None:
    text = b"[" * 100_000
    version = HEADER.unpack_from(program)[1]
    whole = HEADER.pack(b"DOVETAIL", version, len(text), 0, HEADER.size + len(text) + CRC.size) + text
    with pytest.raises(ProgramError, match="header must be JSON without deep nesting"):
        load_program_bytes(whole + CRC.pack(zlib.crc32(whole)), tmp_path / "net.dvt")


def test_outputs_are_saved_after_all_that_can_fail(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A picture that cannot be drawn, a folder in use: nothing is written, and what was there stays."""
    outputs, timeline = tmp_path / "y.npz", tmp_path / "t.png"
    outputs.write_bytes(b"old")
    window = ("--timeline", str(timeline), "--window", "1000000..2000000")
    options = ("--ic-lanes", "4", "--oc-lanes", "4", "--sram", "64KiB", "--output", str(outputs), *window)
    assert main(["run", "zoo:hard_swish_block?channels=4&resolution=4", *options]) == 2
    assert "--window must begin before the run's end" in capsys.readouterr().err
    assert outputs.read_bytes() == b"old"
    assert [path.name for path in tmp_path.iterdir()] == ["y.npz"]
