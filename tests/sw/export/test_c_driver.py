"""The C driver by itself: it builds everywhere, does what its header says, and reads program files as Python does."""

import random
import shutil
import subprocess
import zlib
from dataclasses import replace
from pathlib import Path

import pytest

from dovetail.isa.config.resolved import Config
from dovetail.isa.instructions.table import PAGE_BYTES
from dovetail.isa.parameters import Formula, Parameters, RunInput, Term
from dovetail.isa.program import CRC, HEADER, VERSION, Program, Segment, Step, TensorDescriptor
from dovetail.sw.export.driver_files import driver_files

HERE = Path(__file__).parent
CONFIG = Config(parameters=4)
FLAGS = ("-std=c99", "-Wall", "-Wextra", "-Werror", "-pedantic", "-Wconversion", "-Wshadow")
SANITIZERS = ("-fsanitize=address,undefined", "-fno-sanitize-recover=all")
FORMAT, CRC_WRONG, CUT, INDEX, HOST = -12, -13, -11, -14, -15

pytestmark = pytest.mark.skipif(not shutil.which("gcc") or not shutil.which("make"), reason="no gcc or make")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The driver and its examples, as a user gets them."""
    target = tmp_path_factory.mktemp("driver")
    for name, text in driver_files(CONFIG, examples=True).items():
        (target / name).write_text(text)
    return target


def build(folder: Path, source: Path, target: Path, *flags: str) -> Path:
    """Compile a test with the driver."""
    sources = [str(folder / name) for name in driver_files(CONFIG) if name.endswith(".c")]
    command = ["gcc", *FLAGS, *flags, f"-I{folder}", str(source), *sources, "-o", str(target)]
    subprocess.run(command, check=True, timeout=120)
    return target


def test_make_builds_both_applications_at_once(folder: Path) -> None:
    subprocess.run(["make", "-s", "CFLAGS=-O1"], cwd=folder, check=True, timeout=120)
    done = subprocess.run([folder / "dovetail_run"], capture_output=True, text=True)
    assert (done.returncode, done.stderr[:19]) == (2, "usage: dovetail_run")


def test_the_one_without_operating_system_needs_nothing_else(folder: Path) -> None:
    for name in ("network.dvt", "input.bin", "expected.bin"):
        (folder / name).write_bytes(b"anything")
    link = "BAREMETAL=-nostartfiles -Wl,-e,main -Wl,-z,noexecstack"
    subprocess.run(["make", "-s", "CFLAGS=-O1", "baremetal.elf", link], cwd=folder, check=True, timeout=120)


def test_a_host_without_the_devices_is_told_so(folder: Path, tmp_path: Path) -> None:
    subprocess.run(["make", "-s", "CFLAGS=-O1", "dovetail_run"], cwd=folder, check=True, timeout=120)
    replace(program(), steps=(), outputs=()).save(tmp_path / "x.dvt")
    (tmp_path / "x.bin").write_bytes(bytes(2 * 10 * 4))
    arguments: list[str | Path] = [folder / "dovetail_run", "-w", "none0,none1", tmp_path / "x.dvt", tmp_path / "x.bin"]
    done = subprocess.run(arguments, capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (2, "/dev/none0: No such file or directory\n")


def test_the_driver_does_what_its_header_says(folder: Path, tmp_path: Path) -> None:
    checks = build(folder, HERE / "driver_checks.c", tmp_path / "checks", *SANITIZERS)
    done = subprocess.run([checks], capture_output=True, text=True)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


def program() -> Program:
    """A program of two segments with names that are hard to read and tensors of all forms."""
    return Program(
        config=CONFIG,
        stream=bytes(range(256)) * (3 * PAGE_BYTES // 256),
        constants=b"constants",
        stream_offset=4096,
        constants_offset=100,
        memory_bytes=65536,
        segments=(
            Segment(4096, 2, 'a "segment" of {[]}', 12345678901234),
            Segment(4096 + 2 * PAGE_BYTES, 1),
        ),
        inputs=(TensorDescriptor(name="x", offset=8192, shape=(2, 10), dtype="float32", scale=0.5),),
        outputs=(
            TensorDescriptor(name="y", offset=0, shape=(1, 4, 5, 8), strides=(400, 100, 20, 1)),
            TensorDescriptor(name="{[,", offset=7, shape=(), dtype="bool"),
            TensorDescriptor(name="odd", offset=7, shape=(3, 3, 2), strides=(7, 20, 1)),
            TensorDescriptor(name="host", offset=None, shape=(1, 2)),
        ),
        steps=(
            Step(label="segment 0", segment=0),
            Step(label='"host": Softmax, \\', inputs=(TensorDescriptor(name="segment", offset=9, shape=(1,)),)),
            Step(label="segment 1", segment=1),
            Step(label="network: x", payload=b"the network"),
        ),
        metadata={"memory_bytes": 1, "outputs": [{"a": "]}"}], "text": 'quo"te \u00e4', "none": None},
    )


def dumped(dump: Path, *files: bytes) -> list[str]:
    """What the driver makes of program files."""
    data = b"".join(len(file).to_bytes(8, "little") + file for file in files)
    done = subprocess.run([dump], input=data, capture_output=True, timeout=120)
    assert (done.returncode, done.stderr) == (0, b"")
    return done.stdout.decode().splitlines()


def signed(body: bytes) -> bytes:
    """A file with its CRC."""
    return body + CRC.pack(zlib.crc32(body))


@pytest.fixture(scope="module")
def dump(folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build(folder, HERE / "program_dump.c", tmp_path_factory.mktemp("dump") / "dump", *SANITIZERS)


def test_a_program_file_is_read_as_python_wrote_it(dump: Path) -> None:
    file = program().to_bytes()
    sections = HEADER.size + HEADER.unpack_from(file)[2]
    assert dumped(dump, file) == [
        "file 0",
        f"program {CONFIG.hash:016x} 65536 1",
        f"image 4096 {3 * PAGE_BYTES} {sections}",
        f"image 100 9 {sections + 3 * PAGE_BYTES}",
        "segment 0 4096 2 12345678901234",
        f"segment 0 {4096 + 2 * PAGE_BYTES} 1 0",
        "tensor 0 x 8192 80 80 80",
        "tensor 0 y 0 160 8 20",
        "tensor 0 {[, 7 1 1 1",
        f"tensor {FORMAT}",
        f"tensor {HOST}",
        f"tensor {INDEX}",
    ]


def test_programs_with_and_without_host_steps(dump: Path) -> None:
    steps = tuple(step for step in program().steps if not step.on_host or step.payload)
    lines = dumped(dump, replace(program(), steps=steps).to_bytes())
    assert lines[1] == f"program {CONFIG.hash:016x} 65536 0"


PARAMETERS = Parameters(
    (RunInput('odd "name"', 3, 500), RunInput("position", 0, 255)),
    (
        Formula(-4, (Term("position", 64),)),
        Formula(5 << 24, (Term("position", 1, 1, 8), Term('odd "name"', 1 << 16, 1, 7, rest=True))),
        Formula(9),
        Formula(0, (Term("position", -1, 0, 3, rest=True),)),
    ),
)


def test_parameters_are_those_of_python(dump: Path) -> None:
    lines = dumped(dump, replace(program(), parameters=PARAMETERS).to_bytes())
    first = lines.index('input 0 odd \\"name\\" 3 500')
    expected = ["input 0 position 0 255"]
    for values in ({'odd "name"': 3, "position": 0}, {'odd "name"': 500, "position": 255}):
        found = PARAMETERS.values(values)
        expected += [f"write {0x84 + 4 * n:#x} {value}" for n, value in enumerate(found)]
        expected += ["set 0", "run 1"]
    assert lines[first + 1 :] == [*expected, "set -16", "run 1"]


def test_broken_files_are_refused(dump: Path) -> None:
    file = program().to_bytes()
    body = file[: -CRC.size]
    damaged = bytearray(file)
    damaged[100] ^= 1
    newer = signed(body[:8] + bytes([VERSION + 1]) + body[9:])
    header = HEADER.unpack_from(file)
    empty = signed(HEADER.pack(*header[:2], 2, header[3], HEADER.size + 2 + CRC.size) + b"{}")
    files = [b"", file[:35], file[:-1], file + b"\0", b"X" + file[1:], bytes(damaged), newer, empty]
    expected = [CUT, CUT, CUT, CUT, CUT, CRC_WRONG, FORMAT, FORMAT]
    assert dumped(dump, *files) == [f"file {status}" for status in expected]


def test_no_header_makes_the_driver_read_elsewhere(dump: Path) -> None:
    """The address sanitizer watches; files have a right CRC and headers with something changed, cut out or put in."""
    file = replace(program(), parameters=PARAMETERS).to_bytes()
    magic, version, size, config_hash, _ = HEADER.unpack_from(file)
    header, rest = file[HEADER.size : HEADER.size + size], file[HEADER.size + size : -CRC.size]
    rng = random.Random(0)
    files = []
    for _ in range(2000):
        text = bytearray(header)
        for _ in range(rng.randint(1, 4)):
            at = rng.randrange(len(text))
            text[at : at + rng.choice((0, 1, 1, 10))] = rng.choice(
                (b"", b'"', b"\\", b"{", b"}", b"[", b"]", b",", b":", b"9", b"99999999999", b"null")
            )
        del text[len(text) if rng.random() < 0.8 else rng.randrange(len(text)) :]
        total = HEADER.size + len(text) + len(rest) + CRC.size
        files.append(signed(HEADER.pack(magic, version, len(text), config_hash, total) + bytes(text) + rest))
    lines = dumped(dump, *files)
    assert sum(line.startswith("file ") for line in lines) == len(files)
    assert "file 0" in lines and f"file {FORMAT}" in lines
