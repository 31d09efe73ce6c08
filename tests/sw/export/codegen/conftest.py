"""Runs generated C in this process: built as a library, its accelerator is the model behind registers in Python."""

from __future__ import annotations

import ctypes
import shutil
import subprocess
from collections.abc import Callable, Mapping
from importlib.resources import files
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from dovetail.isa import host
from dovetail.isa.config.resolved import Config
from dovetail.isa.host import HOST_REGISTERS
from dovetail.sw.export.codegen.project import Project, project_of
from dovetail.sw.export.driver_files import driver_files
from dovetail.sw.model.accelerator import Model
from dovetail.sw.network.ir import Graph
from dovetail.sw.network.layout import Array
from dovetail.sw.runtime.compiled_network import CompiledNetwork

FLAGS = (
    *("-std=c99", "-Wall", "-Wextra", "-Werror", "-pedantic", "-Wshadow", "-Wconversion", "-O1", "-fPIC"),
    *("-fsanitize=undefined", "-fno-sanitize-recover=all"),
)
BUS = 8192
"""Where shared memory begins on the bus."""

SHIM = """
#include "inference.h"
#include "dovetail_kernels.h"
size_t shim_bytes(void) { return sizeof(struct inference); }
uint64_t shim_cycles(const struct inference *inference) { return inference->cycles; }
"""

_READ = ctypes.CFUNCTYPE(ctypes.c_uint32, ctypes.c_void_p, ctypes.c_uint32)
_WRITE = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_uint32, ctypes.c_uint32)
_NAMES = {register.offset: name for name, register in HOST_REGISTERS.items()}


class Platform(ctypes.Structure):
    """struct dovetail_platform"""

    _fields_ = (
        ("context", ctypes.c_void_p),
        ("read", _READ),
        ("write", _WRITE),
        *((name, ctypes.c_void_p) for name in ("wait", "now", "relax", "flush", "invalidate")),
    )


class Memory(ctypes.Structure):
    """struct dovetail_memory"""

    _fields_ = (("address", ctypes.c_void_p), ("bus", ctypes.c_uint64), ("bytes", ctypes.c_size_t))


class Accelerator:
    """The registers of an accelerator; a start runs the model on the memory."""

    def __init__(self, compiled: CompiledNetwork, memory: NDArray[np.uint8]) -> None:
        self.model = Model(compiled.config)
        self.memory = memory
        config_hash = compiled.config.hash
        self.values = {
            "ID": host.ID,
            "VERSION": host.VERSION,
            "CONFIG_HASH_LO": config_hash & 0xFFFF_FFFF,
            "CONFIG_HASH_HI": config_hash >> 32,
        }
        self.platform = Platform(read=_READ(self._read), write=_WRITE(self._write))

    def _read(self, context: int | None, offset: int) -> int:
        return self.values.get(_NAMES[offset], 0)

    def _write(self, context: int | None, offset: int, value: int) -> None:
        name = _NAMES[offset]
        if name == "STATUS":
            self.values[name] = 0
        elif name != "CONTROL":
            self.values[name] = value
        elif value & 1:
            values = self.values
            parameters = [values.get(f"PARAM{n + 1}", 0) for n in range(self.model.config.parameters)]
            run = self.model.run(
                self.memory, values["PROGRAM"], values["PAGES"], base=values["BASE"], parameters=parameters
            )
            self.values |= {"STATUS": 2, "CAUSE": run.fault.cause if run.fault else 0, "CYCLES_LO": run.cycles}


class Built:
    """A generated project as a library, with memory to run it in."""

    def __init__(self, compiled: CompiledNetwork, project: Project, archive: Path, folder: Path) -> None:
        project.write(folder)
        (folder / "shim.c").write_text(SHIM)
        command = ["gcc", *FLAGS, "-shared", "inference.c", "shim.c", str(archive), "-o", "library.so", "-lm"]
        subprocess.run(command, cwd=folder, check=True, timeout=300)
        self.library: Any = ctypes.CDLL(str(folder / "library.so"))
        self.library.shim_bytes.restype = ctypes.c_size_t
        self.library.shim_cycles.restype = ctypes.c_uint64
        self.library.inference_status_text.restype = ctypes.c_char_p
        self.compiled, self.project = compiled, project
        self.shared = np.full(BUS + project.memory_bytes, 0xA5, np.uint8)
        self.scratch = np.full(project.scratch_bytes // 8 + 1, -1, np.int64)
        self.accelerator = Accelerator(compiled, self.shared)
        self.inference = ctypes.create_string_buffer(self.library.shim_bytes())

    def status_of_run(self, inputs: list[Array], outputs: list[Array]) -> int:
        """inference_run() on arrays in the order of the network's inputs and outputs."""
        return int(self.library.inference_run(self.inference, _pointers(inputs), _pointers(outputs)))

    def init(
        self, weights: bytes | None = None, memory_bytes: int | None = None, scratch_bytes: int | None = None
    ) -> int:
        """inference_init()"""
        weights = self.project.files["inference_weights.bin"] if weights is None else weights
        memory_bytes = self.project.memory_bytes if memory_bytes is None else memory_bytes
        scratch_bytes = self.scratch.nbytes if scratch_bytes is None else scratch_bytes
        memory = Memory(self.shared.ctypes.data + BUS, BUS, memory_bytes)
        return int(
            self.library.inference_init(
                self.inference,
                ctypes.byref(self.accelerator.platform),
                ctypes.byref(memory),
                ctypes.c_void_p(self.scratch.ctypes.data),
                ctypes.c_size_t(scratch_bytes),
                weights,
                ctypes.c_size_t(len(weights)),
            )
        )

    def run(self, inputs: Mapping[str, Array]) -> tuple[dict[str, Array], int]:
        """inference_run(): outputs and cycles."""
        graph = self.compiled.graph
        given = [np.ascontiguousarray(inputs[port.name]) for port in graph.inputs]
        made = [np.zeros(port.shape, port.dtype) for port in graph.outputs]
        status = self.status_of_run(given, made)
        assert status == 0, self.text(status)
        names = (port.name for port in graph.outputs)
        return dict(zip(names, made, strict=True)), int(self.library.shim_cycles(self.inference))

    def text(self, status: int) -> str:
        """inference_status_text()"""
        return str(self.library.inference_status_text(status).decode())


def _pointers(arrays: list[Array]) -> Any:
    return (ctypes.c_void_p * len(arrays))(*(array.ctypes.data for array in arrays))


def random_inputs(graph: Graph, rng: np.random.Generator) -> dict[str, Array]:
    """Every input by name."""
    found: dict[str, Array] = {}
    for port in graph.inputs:
        if port.dtype == "float32":
            found[port.name] = 2 * rng.standard_normal(port.shape).astype(np.float32)
        else:
            info = np.iinfo(port.dtype)
            found[port.name] = rng.integers(info.min, info.max, port.shape, np.dtype(port.dtype), endpoint=True)
    return found


@pytest.fixture(scope="session")
def archive(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The driver and all kernels, which every project has the same, as a static library."""
    if not shutil.which("gcc"):
        pytest.skip("no gcc")
    folder = tmp_path_factory.mktemp("archive")
    texts = driver_files(Config())
    kernels = files("dovetail.sw.export").joinpath("c/kernels")
    texts |= {path.name: path.read_text() for path in kernels.iterdir()}
    for name, text in texts.items():
        (folder / name).write_text(text)
    sources = [name for name in texts if name.endswith(".c")]
    subprocess.run(["gcc", *FLAGS, "-c", *sources], cwd=folder, check=True, timeout=300)
    objects = [name.replace(".c", ".o") for name in sources]
    subprocess.run(["ar", "rcs", "common.a", *objects], cwd=folder, check=True, timeout=60)
    return folder / "common.a"


@pytest.fixture
def build(archive: Path, tmp_path: Path) -> Callable[[CompiledNetwork], Built]:
    """Generates, compiles and loads a network's C code."""
    return lambda compiled: Built(compiled, project_of(compiled), archive, tmp_path / "project")


@pytest.fixture
def check(build: Callable[[CompiledNetwork], Built]) -> Callable[..., Built]:
    """Builds a network and compares some inferences, one after the other, with the network's own."""

    def checked(compiled: CompiledNetwork, runs: int = 2) -> Built:
        built = build(compiled)
        status = built.init()
        assert status == 0, built.text(status)
        rng = np.random.default_rng(0)
        for _ in range(runs):
            inputs = random_inputs(compiled.graph, rng)
            wanted = compiled.run(inputs)
            outputs, cycles = built.run(inputs)
            assert cycles == wanted.cycles
            for name, value in wanted.outputs.items():
                np.testing.assert_array_equal(outputs[name], value, name)
        return built

    return checked
