"""The example for Linux runs: devices and attributes are files here, and the model is the accelerator behind them.

Registers are words of a file that the application maps. What hardware does at once, clearing STATUS.done, takes a
moment here; the application is held up meanwhile where it writes attributes, which are pipes.
"""

import os
import shutil
import subprocess
import time
from pathlib import Path
from threading import Thread

import numpy as np
import pytest

from dovetail.isa.config.resolved import Config
from dovetail.isa.host import CONTROL_IRQ, CONTROL_START, HOST_REGISTERS, ID, STALLS, STATUS_DONE, VERSION
from dovetail.sw.export.driver_files import driver_files
from dovetail.sw.model.accelerator import Model
from dovetail.sw.runtime.compiled_network import compile_network

HERE = Path(__file__).parent
CONFIG = Config.load("small")
BUS = 0x10000
RUNS = 2

pytestmark = pytest.mark.skipif(not shutil.which("gcc"), reason="no gcc")


class Device(Thread):
    """An accelerator behind files in ``folder``, for so many runs of a network with one input and one output."""

    def __init__(self, folder: Path, memory_bytes: int) -> None:
        super().__init__(daemon=True)
        self.attributes = folder / "class" / "u-dma-buf" / "udmabuf0"
        self.attributes.mkdir(parents=True)
        (folder / "dev").mkdir()
        (self.attributes / "size").write_text(f"{memory_bytes}")
        (self.attributes / "phys_addr").write_text(f"{BUS:#x}")
        for name in ("sync_offset", "sync_size", "sync_for_device", "sync_for_cpu"):
            os.mkfifo(self.attributes / name)
        shape = {"mode": "w+", "dtype": np.uint32, "shape": 1024}
        self.registers: np.memmap = np.memmap(folder / "dev" / "uio0", **shape)  # type: ignore[call-overload]
        self.buffer = np.memmap(folder / "dev" / "udmabuf0", np.uint8, "w+", shape=(memory_bytes,))
        for register, value in (("ID", ID), ("VERSION", VERSION), ("CONFIG_HASH_LO", CONFIG.hash & 0xFFFF_FFFF)):
            self.set(register, value)
        self.set("CONFIG_HASH_HI", CONFIG.hash >> 32)
        self.synchronised: list[tuple[str, int, int]] = []
        self.cycles = 0

    def set(self, name: str, value: int) -> None:
        self.registers[HOST_REGISTERS[name].offset // 4] = value

    def get(self, name: str) -> int:
        return int(self.registers[HOST_REGISTERS[name].offset // 4])

    def synchronise(self, name: str) -> None:
        """Wait for the writes of attributes that are about a part of memory, and note it."""
        offset, size, one = (int((self.attributes / part).read_text()) for part in ("sync_offset", "sync_size", name))
        assert one == 1
        self.synchronised.append((name, offset, size))

    def run(self) -> None:
        for _ in ("instructions", "constants"):
            self.synchronise("sync_for_device")
        for _ in range(RUNS):
            self.set("STATUS", 0)
            self.synchronise("sync_for_device")
            while self.get("CONTROL") != CONTROL_START.mask | CONTROL_IRQ.mask:
                time.sleep(0.001)
            self.set("CONTROL", CONTROL_IRQ.mask)
            self.execute()
            self.set("STATUS", STATUS_DONE.mask)
            self.synchronise("sync_for_cpu")

    def execute(self) -> None:
        memory = np.concatenate((np.zeros(BUS, np.uint8), self.buffer))
        result = Model(CONFIG).run(memory, self.get("PROGRAM"), self.get("PAGES"), self.get("BASE"))
        self.buffer[:] = memory[BUS:]
        self.cycles = result.cycles
        self.set("CYCLES_LO", result.cycles)
        for unit, counters in result.counters.items():
            for stall in STALLS:
                self.set(f"{unit.name}_{stall}", getattr(counters, stall.lower()))


@pytest.fixture(scope="module")
def application(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The example in a folder in which ``dev`` and ``class`` are what /dev and /sys/class are otherwise."""
    folder = tmp_path_factory.mktemp("uio")
    for name, text in driver_files(CONFIG, examples=True).items():
        (folder / name).write_text(text)
    shutil.copy(HERE / "uio_shim.c", folder)
    shims = [f"-D{name}=shim_{name}" for name in ("poll", "read", "write")]
    paths = ['-DDEVICES="dev"', '-DCLASSES="class"']
    subprocess.run(["gcc", "-std=c99", "-c", *shims, *paths, "uio.c"], cwd=folder, check=True)
    sources = ["main.c", "network.c", "dovetail.c", "dovetail_json.c", "dovetail_program.c", "uio_shim.c", "uio.o"]
    subprocess.run(["gcc", "-D_POSIX_C_SOURCE=200809L", *sources, "-o", "run"], cwd=folder, check=True)
    return folder / "run"


def test_a_network_runs(application: Path, tmp_path: Path) -> None:
    network = compile_network("zoo:mobilenet_v2_block", CONFIG, effort=0)
    inputs = np.random.default_rng(0).integers(-128, 128, network.graph.inputs[0].shape, np.int8)
    network.save(tmp_path / "net.dvt")
    (tmp_path / "input.bin").write_bytes(network.graph.bind(inputs)["input"].tobytes())
    (tmp_path / "expected.bin").write_bytes(network.run(inputs).tensors["output"].tobytes())
    device = Device(tmp_path, network.program.memory_bytes + 4096)
    device.start()
    arguments: list[str | Path] = [application, "-n", str(RUNS), "-e", "expected.bin", "net.dvt", "input.bin"]
    done = subprocess.run(arguments, cwd=tmp_path, capture_output=True, text=True, timeout=60)
    device.join(60)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.count(f"cycles {device.cycles}\n") == RUNS
    program = network.program
    flush, invalidate = "sync_for_device", "sync_for_cpu"
    used = [(flush, *part) for part in ((program.stream_offset, len(program.stream)), (0, len(program.constants)))]
    used += [(flush, program.inputs[0].offset or 0, 2304), (invalidate, program.outputs[0].offset or 0, 2304)] * RUNS
    assert device.synchronised == used


@pytest.mark.parametrize(
    ("missing", "size", "text"),
    [
        ("class/u-dma-buf", 1 << 16, "dev/udmabuf0: must be a u-dma-buf device with size and phys_addr in class"),
        ("dev/udmabuf0", 1 << 16, "dev/udmabuf0: No such file or directory"),
        ("dev/uio0", 1 << 16, "dev/uio0: No such file or directory"),
        ("", 8192, "dev/udmabuf0: must have 40960 bytes, not 8192"),
    ],
)
def test_devices_that_do_not_fit(application: Path, tmp_path: Path, missing: str, size: int, text: str) -> None:
    compile_network("zoo:mobilenet_v2_block", CONFIG, effort=0).save(tmp_path / "net.dvt")
    (tmp_path / "input.bin").write_bytes(bytes(2304))
    Device(tmp_path, size)
    if (tmp_path / missing).is_dir() and missing:
        shutil.rmtree(tmp_path / missing)
    elif missing:
        (tmp_path / missing).unlink()
    done = subprocess.run([application, "net.dvt", "input.bin"], cwd=tmp_path, capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (2, f"{text}\n")
