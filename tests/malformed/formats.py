"""Every format that Dovetail reads: sound files of it, ways to damage them, and what a user does with them.

A case is a folder with the files; actions are command lines in it, where ``out`` is the folder for what is written, or
calls of the library for formats without a command.
"""

from __future__ import annotations

import io
import json
import shutil
import tempfile
import zipfile
import zlib
from base64 import b64decode, b64encode
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import numpy as np

from dovetail.cosim.coverage.bins import all_bins
from dovetail.cosim.coverage.file import Coverage, DesignCoverage
from dovetail.cosim.coverage.rtl import Point
from dovetail.flows.commands.fuzz import load_case
from dovetail.isa.program import CRC, HEADER
from dovetail.sw import frontend
from dovetail.sw.analysis.cost.energy import FOLDER, load_table
from dovetail.sw.export.parts.folder import MANIFEST, run_parts
from dovetail.sw.files.packing import pack
from dovetail.sw.zoo import catalogue
from tests.malformed import onnx_edits, tflite_edits
from tests.malformed.caches import (
    build_files,
    builds_are_held_whole_only,
    letters,
    rows,
    schedule_files,
    store_files,
    with_schedules,
)
from tests.malformed.damage import BYTES, JSON, TEXT, Damage, Random, change_value, pick
from tests.malformed.made import NETWORK, SMALL, SPACE, Files, command, made_by
from tests.malformed.networks import exactly

BLOCKS = (
    "mobilenet_v2_block?channels=4&resolution=6",
    "inception_block?channels=4&resolution=5",
    "shuffle_block?channels=8&resolution=4",
    "attention_block?tokens=4&channels=8",
    "hard_swish_block?channels=4&resolution=4",
)
Action = tuple[str, ...] | Callable[[Path], object]


@dataclass(frozen=True)
class Format:
    """``sound``: sets of files; ``damage``: one or two are done to a case, without any the sets are malformed as they
    are and taken in order; ``victims``: names of those that are damaged, or "" for any; ``actions``: a case takes one
    of them."""

    sound: Callable[[], Sequence[Files]]
    damage: Sequence[Damage]
    actions: Sequence[Action]
    victims: str = ""


def case(name: str, random: Random, number: int) -> tuple[Files, Action]:
    """The files of a case and what is done with them."""
    wanted = FORMATS[name]
    sets = wanted.sound()
    if not wanted.damage:
        return sets[number % len(sets)], pick(wanted.actions, random)
    files = dict(pick(sets, random))
    victims = [file for file in sorted(files) if file.endswith(wanted.victims)]
    victim = pick(victims, random)
    for _ in range(int(random.integers(1, 3))):
        if files[victim]:
            with suppress(Exception):  # what is damaged twice may no longer have the form that the second damage needs
                files[victim] = pick(wanted.damage, random)(files[victim], random)
    return files, pick(wanted.actions, random)


# --- networks ------------------------------------------------------------------------------------

QUANTISED: tuple[Action, ...] = (
    ("inspect", "net", *SMALL),
    ("compile", "net", *SMALL, "--output", "out/net.dvt"),
    ("run", "net", *SMALL, "--output", "out/y.npz"),
    ("diff", "net", *SMALL, "--dump", "out/dump"),
    ("export", "net", *SMALL, "--output", "out/parts"),
    ("codegen", "net", *SMALL, "--output", "out/c"),
    ("pack", "net", "--output", "out/net.dnet"),
    ("explain", "net", *SMALL, "--pictures", "out/pictures"),
    ("quantise", "net", "--random", "1", "--output", "out/q.onnx"),
)


@cache
def onnx_files() -> Sequence[Files]:
    return [{"net": catalogue.model_bytes(name)} for name in BLOCKS]


@cache
def float_files() -> Sequence[Files]:
    return [{"net": onnx_edits.real().SerializeToString()}]


@cache
def tflite_files() -> Sequence[Files]:
    return [{"net": tflite_edits.packed(tflite_edits.network())}]


@cache
def network_files() -> Sequence[Files]:
    return [*onnx_files(), *float_files(), *tflite_files()]


@cache
def edited_files() -> Sequence[Files]:
    """What one edit makes of a network, and what no network ever was."""
    never = (bytes(999), b"\xff" * 999, b"network: none\n", b"\0\0\0\0TFL3")
    return [{"net": data} for data in (*(data for _, data in (*onnx_edits.cases(), *tflite_edits.cases())), *never)]


@cache
def portable_files() -> Sequence[Files]:
    (port,) = frontend.load(NETWORK).inputs
    network = frontend.parse(frontend.read(NETWORK))
    return [{"net": pack(network)}, {"net": pack(network, {port.name: np.ones(port.shape, port.dtype)})}]


def members(data: bytes, random: Random) -> bytes:
    """A member of a zip archive is damaged, and the archive is whole."""
    out = io.BytesIO()
    with zipfile.ZipFile(io.BytesIO(data)) as old, zipfile.ZipFile(out, "w", old.infolist()[0].compress_type) as new:
        chosen = int(random.integers(len(old.infolist())))
        for number, info in enumerate(old.infolist()):
            content = old.read(info)
            if number == chosen and content:
                kinds = TEXT if info.filename.endswith(".yaml") else BYTES
                content = pick(kinds, random)(content, random)
            new.writestr(info.filename, content)
    return out.getvalue()


# --- programs ------------------------------------------------------------------------------------


@cache
def program_files() -> Sequence[Files]:
    sets = [made_by("compile", f"zoo:{name}", *SMALL, "--output", "OUT/net") for name in BLOCKS[2:]]
    return [*sets, made_by("compile", f"zoo:{BLOCKS[0]}", *SMALL[:-2], "--output", "OUT/net")]


def header(data: bytes, random: Random) -> bytes:
    """Values of the header or words of the stream become others, with the right checksum."""
    if len(data) < HEADER.size:
        return data
    magic, version, size, config_hash, _ = HEADER.unpack_from(data)
    text, body = data[HEADER.size : HEADER.size + size], data[HEADER.size + size : -CRC.size]
    try:
        tree = json.loads(text)
    except ValueError:
        return data
    if random.integers(3):
        change_value(tree, random)
    else:
        body = BYTES[random.integers(1, len(BYTES) - 1)](body, random) if body else body
    text = json.dumps(tree, sort_keys=True).encode()
    whole = HEADER.pack(magic, version, len(text), config_hash, HEADER.size + len(text) + len(body) + CRC.size)
    whole += text + body
    return whole + CRC.pack(zlib.crc32(whole))


@cache
def assembler_files() -> Sequence[Files]:
    (program,) = (made_by("compile", NETWORK, *SMALL, "--output", "OUT/net"),)
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "net").write_bytes(program["net"])
        command("isa", "--disassemble", f"{folder}/net", "--output", f"{folder}/net.s")
        return [{"net.s": (Path(folder) / "net.s").read_bytes()}]


# --- arrays --------------------------------------------------------------------------------------


@cache
def array_files() -> Sequence[Files]:
    random = np.random.default_rng(0)
    (port,) = frontend.load(NETWORK).inputs
    value = random.integers(0, 100, port.shape).astype(port.dtype)
    one, several, archive, packed = (io.BytesIO() for _ in range(4))
    np.save(one, value)
    np.save(several, np.concatenate([value] * 3))
    np.savez(archive, x=value)
    np.savez_compressed(packed, x=value, other=np.arange(5))
    return [{"x": file.getvalue()} for file in (one, several, archive, packed)]


def array_header(data: bytes, random: Random) -> bytes:
    """Words of an array's header."""
    start = data.find(b"{'descr'")
    end = data.find(b"}", start)
    if start < 0 or end < 0:
        return data
    changed = TEXT[random.integers(3)](data[start:end], random)[: end - start].ljust(end - start)
    return data[:start] + changed + data[end:]


@cache
def dump_files() -> Sequence[Files]:
    files = made_by("run", NETWORK, *SMALL, "--dump-layers", "OUT/dump")
    return [files]


# --- text ----------------------------------------------------------------------------------------

CONFIG = """\
ic_lanes = 4
oc_lanes = 4
sram = "64 KiB"
banks = 4
stripe = 16
requant_lanes = 2
vector_lanes = 2
depthwise = "native"
bus = 64
outstanding = 4
matmul = true

[memory]
read_latency = 40
write_latency = 20
beat_cycles = 1
"""
HOST = """\
name = "host"
error = "not measured"
clock = 100e6
round_trip = 900
macs_per_cycle = 8
values_per_cycle = 4

[operators.softmax]
values_per_cycle = 0.4
"""


def texts(name: str, text: str) -> Callable[[], Sequence[Files]]:
    return lambda: [{name: text.encode()}]


@cache
def energy_files() -> Sequence[Files]:
    return [{"energy.toml": path.read_bytes()} for path in sorted(FOLDER.glob("*.toml"))]


@cache
def coverage_files() -> Sequence[Files]:
    """What a run leaves: functional counts, and lines of a design with its Verilog."""
    found = DesignCoverage("8x8", {"top.v": "module top;\nassign a = 1;\nassign b = 2;\nendmodule\n"})
    found.add([Point("line", "top.v", (line,), "top", line - 2, "a") for line in (2, 3)])
    coverage = Coverage(Counter(dict.fromkeys(all_bins()[:9], 2)))
    coverage.add(found)
    return [{"c.json": json.dumps(coverage.to_json()).encode()}]


def design(data: bytes, random: Random) -> bytes:
    """Values of a design in a coverage file become others, or of its packed Verilog."""
    tree = json.loads(data)
    (found,) = tree["designs"].values()
    if random.integers(3):
        change_value(found, random)
    else:
        held = {"verilog": json.loads(zlib.decompress(b64decode(found["verilog"])))}
        change_value(held, random)
        found["verilog"] = b64encode(zlib.compress(json.dumps(held.get("verilog")).encode())).decode()
    return json.dumps(tree).encode()


@cache
def saved_files() -> Sequence[Files]:
    folder = Path(__file__).parents[1] / "cosim" / "compare" / "regressions"
    return [{"case.toml": path.read_bytes()} for path in sorted(folder.glob("*.toml"))]


# --- exports --------------------------------------------------------------------------------------


@cache
def part_files() -> Sequence[Files]:
    return [made_by("export", "zoo:attention_block?tokens=4&channels=8", *SMALL, "--output", "OUT")]


def parts(folder: Path) -> object:
    """Run an export's parts."""
    ports = frontend.load("zoo:attention_block?tokens=4&channels=8").inputs
    return run_parts(folder, {port.name: np.zeros(port.shape, port.dtype) for port in ports})


FORMATS: Mapping[str, Format] = {
    "edited networks": Format(edited_files, (), (exactly,)),
    "networks": Format(network_files, BYTES, (exactly,)),
    "onnx": Format(onnx_files, BYTES, QUANTISED),
    "float onnx": Format(float_files, BYTES, (QUANTISED[0], QUANTISED[-1])),
    "tflite": Format(tflite_files, BYTES, QUANTISED),
    "portable": Format(portable_files, (*BYTES, members, members, members), QUANTISED[:-1]),
    "program": Format(
        program_files,
        (*BYTES, header, header, header, header, header, header),
        (
            ("run", "net", "--output", "out/y.npz"),
            ("export", "net", "--output", "out/parts"),
            ("codegen", "net", "--output", "out/c"),
            ("isa", "--disassemble", "net", "--output", "out/net.s"),
            ("driver", "--program", "net", "--output", "out/driver"),
            ("run", "net", "--dump-layers", "out/dump"),
        ),
    ),
    "assembler": Format(
        assembler_files,
        TEXT,
        (("isa", "--assemble", "net.s", "--output", "out/w"), ("isa", "--disassemble", "net.s", "--output", "out/s")),
    ),
    "arrays": Format(
        array_files,
        (*BYTES, array_header, array_header, array_header),
        (
            ("run", NETWORK, *SMALL, "--input", "x", "--output", "out/y.npz"),
            ("diff", NETWORK, *SMALL, "--reference", "x", "--dump", "out/dump"),
            ("diff", NETWORK, *SMALL, "--input", "x", "--dump", "out/dump"),
        ),
    ),
    "dump": Format(
        dump_files, (*BYTES, *JSON[:4]), (("diff", NETWORK, *SMALL, "--reference", "dump", "--dump", "out/dump"),),
        ".json",
    ),
    "dumped arrays": Format(
        dump_files, (*BYTES, array_header, array_header),
        (("diff", NETWORK, *SMALL, "--reference", "dump", "--dump", "out/dump"),), ".npy",
    ),
    "configuration": Format(
        texts("c.toml", CONFIG),
        TEXT,
        (
            ("compile", NETWORK, "--config", "c.toml", "--effort", "0", "--output", "out/net.dvt"),
            ("area", "--config", "c.toml"),
        ),
    ),
    "space": Format(
        texts("space.toml", SPACE), TEXT, (("sweep", "space.toml", "--output", "out/sweep", "--jobs", "1"),)
    ),
    "host costs": Format(
        texts("host.toml", HOST),
        TEXT,
        (("compile", NETWORK, *SMALL, "--host-cost", "host.toml", "--output", "out/net.dvt"),),
    ),
    "energy table": Format(energy_files, TEXT, (lambda folder: load_table(folder / "energy.toml"),)),
    "coverage": Format(
        coverage_files, (*JSON, *[design] * 7), (("coverage", "--merge", "c.json", "--output", "out/all.json"),)
    ),
    "fuzz program": Format(saved_files, TEXT, (lambda folder: load_case(folder / "case.toml"),)),
    "store": Format(
        store_files,
        (*BYTES, rows, rows, rows, rows, letters),
        (
            ("report", "results.sqlite", "--output", "out/page.html", "--top", "1"),
            ("sweep", "--resume", "--store", "results.sqlite", "--output", "out/sweep", "--jobs", "1"),
        ),
    ),
    "schedules": Format(schedule_files, (*BYTES, rows, rows, letters), (with_schedules,)),
    "builds": Format(build_files, BYTES, (builds_are_held_whole_only,)),
    "manifest": Format(part_files, TEXT, (parts,), MANIFEST),
    "parts": Format(part_files, BYTES, (parts,), "x"),
}  # fmt: skip


def clear(folder: Path) -> None:
    """An empty folder with an empty ``out``."""
    shutil.rmtree(folder, ignore_errors=True)
    (folder / "out").mkdir(parents=True)
