"""The C driver and its example application on the Verilated accelerator: what it computes, and what it says."""

import re
import subprocess
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import pytest

from dovetail.cosim.rtl.c_host import c_program, example_sources
from dovetail.isa.common.cplusplus import ToolError
from dovetail.isa.config.resolved import Config
from dovetail.isa.instructions.table import PAGE_BYTES, WORD_BYTES, Op, Unit, cfg, pack, sync, to_bytes
from dovetail.isa.program import Program, Segment, Step, TensorDescriptor
from dovetail.isa.timing.run import cycle_bound
from dovetail.sw.model.accelerator import Model
from dovetail.sw.runtime.compiled_network import CompiledNetwork, compile_network

CONFIG = Config.load("small")
DIFFERENT, FAILED = 1, 2


@dataclass(frozen=True)
class Ran:
    """What the application left: exit code, what it wrote, cycles and counters of each run."""

    code: int
    out: str
    err: str

    @property
    def cycles(self) -> list[int]:
        return [int(n) for n in re.findall(r"^cycles (\d+)$", self.out, re.M)]

    @property
    def counters(self) -> list[tuple[int, ...]]:
        rows = re.findall(r"^\w+ +busy (\d+) config (\d+) token (\d+) idle (\d+)$", self.out, re.M)
        return [tuple(map(int, row)) for row in rows]


@pytest.fixture(scope="module")
def application(build_cache: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return c_program(CONFIG, example_sources(), tmp_path_factory.mktemp("c") / "dovetail_run", cache=build_cache)


@pytest.fixture(scope="module")
def network() -> CompiledNetwork:
    return compile_network("zoo:mobilenet_v2_block", CONFIG, effort=0)


def execute(application: Path, *args: str | Path) -> Ran:
    done = subprocess.run([application, *args], capture_output=True, text=True, timeout=120)
    return Ran(done.returncode, done.stdout, done.stderr)


def run(application: Path, folder: Path, program: Program, inputs: bytes, *args: str | Path) -> Ran:
    """Run a program file on ``inputs``."""
    program.save(folder / "program.dvt")
    (folder / "input.bin").write_bytes(inputs)
    return execute(application, *args, folder / "program.dvt", folder / "input.bin")


def copy(source: int, target: int, length: int, *, rows: int = 1, step: int = 0) -> list[int]:
    """Words that copy ``rows`` rows of ``length`` bytes by way of SRAM; at the target they are ``step`` bytes apart."""
    words: list[int] = []
    for unit, op, address, row in ((Unit.LOAD, Op.DMA_READ, source, length), (Unit.STORE, Op.DMA_WRITE, target, step)):
        values = {"MEM_ADDR": address, "SRAM_BYTES": length * rows, "LENGTH": length, "MEM_ROW_STEP": row}
        values |= {"SRAM_ROW_STEP": length, "COUNT": pack(unit, "COUNT", rows=rows, planes=1)}
        words += [cfg(unit, name, value) for name, value in values.items()]
        words += [int(op), sync(Unit.STORE, Unit.LOAD)]
    return [*words, int(Op.END)]


def program_of(*segments: list[int], **changes: object) -> Program:
    """A program of one page per segment, with 64 bytes of input at 8192, and 64 of output at 12288."""
    pages = [to_bytes(words).ljust(PAGE_BYTES, b"\0") for words in segments]
    program = Program(
        config=CONFIG,
        stream=b"".join(pages),
        memory_bytes=16384,
        segments=tuple(Segment(PAGE_BYTES * n, 1, "", cycle_bound(CONFIG, page)) for n, page in enumerate(pages)),
        inputs=(TensorDescriptor(name="x", offset=8192, shape=(64,)),),
        outputs=(TensorDescriptor(name="y", offset=12288, shape=(64,)),),
    )
    return replace(program, **changes)  # type: ignore[arg-type]


PATTERN = bytes(range(64))


@pytest.mark.parametrize("host", ["interrupt", "poll"])
def test_a_network_equals_the_model_in_bytes_cycles_and_counters(
    application: Path, network: CompiledNetwork, tmp_path: Path, host: str
) -> None:
    (port,) = network.graph.inputs
    inputs = np.random.default_rng(0).integers(-128, 128, port.shape, np.int8)
    expected = network.run(inputs)
    (tmp_path / "expected.bin").write_bytes(expected.tensors[network.graph.outputs[0].tensor].tobytes())
    bound = network.graph.bind(inputs)[port.tensor].tobytes()
    files: list[str | Path] = ["-e", tmp_path / "expected.bin", "-o", tmp_path / "output.bin"]
    ran = run(application, tmp_path, network.program, bound, "-w", host, "-n", "2", *files)
    assert (ran.code, ran.err) == (0, "")
    assert ran.cycles == [expected.cycles] * 2
    assert ran.counters == [(c.busy, c.config, c.token, c.idle) for c in expected.counters.values()] * 2
    assert (tmp_path / "output.bin").read_bytes() == (tmp_path / "expected.bin").read_bytes()


def test_segments_run_in_order_and_strided_outputs_are_gathered(application: Path, tmp_path: Path) -> None:
    program = program_of(
        copy(8192, 4096, 64),
        copy(4096, 12288, 16, rows=4, step=40),
        outputs=(TensorDescriptor(name="y", offset=12288, shape=(2, 2, 16), strides=(80, 40, 1)),),
    )
    ran = run(application, tmp_path, program, PATTERN, "-o", tmp_path / "output.bin")
    assert (ran.code, ran.err) == (0, "")
    assert (tmp_path / "output.bin").read_bytes() == PATTERN
    assert "output y, 64 bytes: 00 01 02" in ran.out
    memory = np.zeros(16384, np.uint8)
    memory[: len(program.stream)] = np.frombuffer(program.stream, np.uint8)
    model = Model(CONFIG)
    assert ran.cycles == [sum(model.run(memory, segment.address, 1).cycles for segment in program.segments)]


def test_other_outputs_than_expected_are_told(application: Path, tmp_path: Path) -> None:
    (tmp_path / "expected.bin").write_bytes(PATTERN[:-1] + b"\0")
    ran = run(application, tmp_path, program_of(copy(8192, 12288, 64)), PATTERN, "-e", tmp_path / "expected.bin")
    assert ran.code == DIFFERENT
    assert ran.err == f"run 1: outputs differ from {tmp_path}/expected.bin\n"


FAULTS = [
    ([int(Op.END) + 0xF0], "fault 1 at word 0: unknown opcode"),
    ([cfg(Unit.LOAD, "LENGTH", 1)], "fault 5 at word 128: the program's last page was passed without an END"),
    (copy(8192, 12288, 0), "fault 6 at word 6: a size, count or region length is zero"),
    (copy(8192, 1 << 20, 64), "fault 12 at word 14: the bus answered a DMA write with an error"),
]


@pytest.mark.parametrize(("words", "text"), FAULTS)
def test_a_fault_is_told_with_its_cause_and_word(
    application: Path, tmp_path: Path, words: list[int], text: str
) -> None:
    words = words if len(words) > 1 else words + [cfg(Unit.LOAD, "LENGTH", 1)] * (PAGE_BYTES // WORD_BYTES - 1)
    ran = run(application, tmp_path, program_of(words), PATTERN)
    assert ran.code == FAILED
    assert ran.err.splitlines() == [text, "accelerator: the accelerator stopped with a fault"]


@pytest.mark.parametrize("host", ["interrupt", "poll"])
def test_a_run_that_takes_too_long_is_given_up(application: Path, tmp_path: Path, host: str) -> None:
    ran = run(application, tmp_path, program_of(copy(8192, 12288, 64)), PATTERN, "-w", host, "-t", "20")
    assert ran.code == FAILED
    assert ran.err == "accelerator: the run did not end within the time limit, and is still under way\n"


def test_a_program_for_another_configuration_is_refused(application: Path, tmp_path: Path) -> None:
    other = CONFIG.replace(stripe=8)
    ran = run(application, tmp_path, program_of(copy(8192, 12288, 64), config=other), PATTERN)
    assert ran.code == FAILED
    assert ran.err.splitlines() == [
        f"the accelerator's configuration is {CONFIG.hash:016x}, the program's {other.hash:016x}",
        "accelerator: the accelerator has another configuration than the program is for: compile the program for it",
    ]


def test_a_program_with_steps_on_the_host_is_refused(application: Path, tmp_path: Path) -> None:
    ran = run(application, tmp_path, program_of(copy(8192, 12288, 64), steps=(Step(label="host: Softmax"),)), PATTERN)
    assert ran.code == FAILED
    assert ran.err.endswith(
        "parts of the network run on the host, which this driver does not do: see `dovetail codegen`\n"
    )


def test_an_input_of_another_size_is_refused(application: Path, tmp_path: Path) -> None:
    ran = run(application, tmp_path, program_of(copy(8192, 12288, 64)), PATTERN[1:])
    assert (ran.code, ran.err) == (FAILED, f"{tmp_path}/input.bin: must be 64 bytes, not 63\n")


def test_the_driver_step_by_step(build_cache: Path, tmp_path: Path) -> None:
    """The cache hooks matter here, and a run is seen under way: expected values are those of the driver's header."""
    words = copy(4096, 8192, 1)
    sources = {"probe.c": Path(__file__).with_name("probe.c").read_text()}
    defines = {"WORDS": ",".join(f"0x{word:x}ull" for word in words)}
    probe = c_program(CONFIG, sources, tmp_path / "probe", cache=build_cache, defines=defines)
    done = execute(probe)
    assert (done.code, done.err) == (0, "")
    memory = np.zeros(16384, np.uint8)
    memory[: len(words) * WORD_BYTES] = np.frombuffer(to_bytes(words), np.uint8)
    cycles = Model(CONFIG).run(memory, 0, 1).cycles
    rows = [line.rsplit(" ", 1) for line in done.out.splitlines()]
    assert [(call.split("(")[0], int(value)) for call, value in rows] == [
        ("dovetail_open", -3),
        ("dovetail_config_hash", 1),
        ("dovetail_open", 0),
        ("dovetail_start", -4),
        ("dovetail_start", -4),
        ("dovetail_start", -5),
        ("dovetail_start", -6),
        ("dovetail_flush", -6),
        ("dovetail_run", -10),
        ("result.cause == DOVETAIL_CAUSE_NO_END", 1),
        ("dovetail_flush", 0),
        ("dovetail_start", 0),
        ("dovetail_start", -7),
        ("dovetail_open", -7),
        ("dovetail_poll", 0),
        ("dovetail_wait", -8),
        ("dovetail_wait", 0),
        ("dovetail_wait", -8),
        ("cycles", cycles),
        ("memory[COPY_TO]", 0),
        ("dovetail_invalidate", 0),
        ("memory[COPY_TO]", 1),
        ("dovetail_run", 0),
        ("memory[COPY_TO]", 2),
    ]


def test_sources_that_do_not_compile_are_told(build_cache: Path, tmp_path: Path) -> None:
    with pytest.raises(ToolError, match=r"gcc failed with exit code 1\n(.|\n)*main.c:1:"):
        c_program(CONFIG, {"main.c": "int main(void) { return nothing; }"}, tmp_path / "main", cache=build_cache)
