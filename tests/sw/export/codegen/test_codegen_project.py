"""Generated projects: what they refuse at run time, what is in them, that they build, and the command."""

from __future__ import annotations

import ctypes
import json
import shutil
import subprocess
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from dovetail.flows.cli import main
from dovetail.isa.config.resolved import Config
from dovetail.sw.export.codegen.project import project_of, weights_file
from dovetail.sw.runtime.compiled_network import CompiledNetwork, compile_network
from dovetail.sw.runtime.saved_program import load_program

SMALL = Config.load("small")
NETWORK = "zoo:attention_block"
NORMS = "zoo:bert_tiny?depth=1&tokens=4&channels=16"
"""With float nodes on the host."""
CONFIG, BUSY_ID, FAULT = -3, -1, -10
FILE, CRC, OTHER_CONFIG, OTHER_NETWORK = -32, -33, -34, -35
MEMORY, SCRATCH = -64, -65

Build = Callable[[CompiledNetwork], Any]


@pytest.fixture(scope="module")
def compiled() -> CompiledNetwork:
    return compile_network(NETWORK, SMALL, effort=0)


def sealed(data: bytes) -> bytes:
    """A file with a checksum that holds."""
    return data + zlib.crc32(data).to_bytes(4, "little")


def test_weights_files_that_are_refused(compiled: CompiledNetwork, build: Build) -> None:
    built = build(compiled)
    weights = built.project.files["inference_weights.bin"]
    damaged = bytearray(weights)
    damaged[len(weights) // 2] ^= 1
    other = weights_file(compile_network(f"{NETWORK}?seed=77", SMALL, effort=0).program)
    elsewhere = weights_file(compile_network(NETWORK, Config.load("8x8"), effort=0).program)
    body = bytearray(weights[:-4])
    body[32:36] = (1 << 30).to_bytes(4, "little")
    cases = {
        bytes(damaged): (CRC, "weights file must be undamaged: its CRC does not hold"),
        other: (OTHER_NETWORK, "weights file must be the one that was written with the code"),
        elsewhere: (OTHER_CONFIG, "weights file must be for the configuration that the code was generated for"),
        weights[:-1]: (FILE, "weights must be a whole weights file of this version"),
        weights[:20]: (FILE, "weights must be a whole weights file of this version"),
        b"anything else than a weights file": (FILE, "weights must be a whole weights file of this version"),
        sealed(bytes(body)): (OTHER_NETWORK, "weights file must be the one that was written with the code"),
    }
    before = built.shared.copy()
    for data, (status, text) in cases.items():
        assert (built.init(weights=data), built.text(status)) == (status, text)
    np.testing.assert_array_equal(built.shared, before)
    assert built.init() == 0


def test_memory_that_does_not_fit(build: Build) -> None:
    built = build(compile_network(NORMS, SMALL, effort=0))
    assert built.init(memory_bytes=built.project.memory_bytes - 1) == MEMORY
    assert built.init(scratch_bytes=built.project.scratch_bytes - 1) == SCRATCH
    built.scratch = np.zeros(built.scratch.nbytes + 8, np.uint8)[1:]
    assert built.init() == SCRATCH
    assert [built.text(MEMORY), built.text(SCRATCH)] == [
        "shared memory must have INFERENCE_MEMORY_BYTES",
        "scratch memory must have INFERENCE_SCRATCH_BYTES and begin at a multiple of 8",
    ]


def test_another_accelerator(compiled: CompiledNetwork, build: Build) -> None:
    built = build(compiled)
    built.accelerator.values["CONFIG_HASH_HI"] ^= 1
    assert built.init() == CONFIG
    assert "configuration" in built.text(CONFIG)
    built.accelerator.values["ID"] = 0
    assert built.init() == BUSY_ID


def test_a_fault_ends_the_inference(compiled: CompiledNetwork, build: Build) -> None:
    built = build(compiled)
    assert built.init() == 0
    built.shared[:] = 0xFF  # no instruction begins so
    arrays = [
        [np.zeros(port.shape, port.dtype) for port in ports]
        for ports in (compiled.graph.inputs, compiled.graph.outputs)
    ]
    assert built.status_of_run(*arrays) == FAULT
    assert not arrays[1][0].any()


def test_memory_is_written_before_a_start_and_read_after_its_end(compiled: CompiledNetwork, build: Build) -> None:
    built = build(compiled)
    kind = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_size_t)
    base, calls = built.shared.ctypes.data + 8192, list[tuple[str, int, int]]()
    hooks = {
        name: kind(lambda _, address, size, name=name: calls.append((name, address - base, size)))
        for name in ("flush", "invalidate")
    }
    for name, hook in hooks.items():
        setattr(built.accelerator.platform, name, ctypes.cast(hook, ctypes.c_void_p))
    assert built.init() == 0
    assert calls == [("flush", 0, built.project.memory_bytes)]
    calls.clear()
    built.run({port.name: np.zeros(port.shape, port.dtype) for port in compiled.graph.inputs})
    where, graph = compiled.code.where, compiled.graph
    (softmax,) = (node for node in graph.nodes if node.op == "qlinearsoftmax")
    (scores,), (shares,) = softmax.inputs, softmax.outputs
    places = {name: (where[name], graph.tensors[name].size) for name in (scores, shares)}
    (source,), (result,) = graph.inputs, graph.outputs
    assert calls == [
        ("flush", where[source.tensor], graph.tensors[source.tensor].size),
        ("invalidate", *places[scores]),
        ("flush", *places[shares]),
        ("invalidate", where[result.tensor], graph.tensors[result.tensor].size),
    ]


@pytest.mark.skipif(not shutil.which("make") or not shutil.which("gcc"), reason="no make or gcc")
def test_the_project_builds_by_itself(compiled: CompiledNetwork, tmp_path: Path) -> None:
    project = project_of(compiled, embed=True)
    project.write(tmp_path)
    assert {path.name for path in tmp_path.iterdir()} == set(project.files)
    subprocess.run(["make", "-s", "CFLAGS=-O0"], cwd=tmp_path, check=True, timeout=300)
    usage = subprocess.run([tmp_path / "inference"], capture_output=True, text=True)
    assert (usage.returncode, usage.stderr.splitlines()[0]) == (2, "usage: inference WEIGHTS INPUT OUTPUT [WHERE]")
    lost = subprocess.run([tmp_path / "inference", "-", "x", "y", "none,none"], capture_output=True, text=True)
    assert (lost.returncode, lost.stderr) == (1, "/dev/none: No such file or directory\n")


TWO = """
#include <stdio.h>
#include "one.h"
#include "Two_2.h"
int main(void)
{
    static struct one first;
    static struct Two_2 second;
    struct dovetail_memory none = {0};
    puts(one_status_text(one_init(&first, NULL, &none, NULL, 0, one_weights, ONE_WEIGHTS_BYTES)));
    puts(Two_2_status_text(Two_2_init(&second, NULL, &none, NULL, 0, Two_2_weights, TWO_2_WEIGHTS_BYTES)));
    return 0;
}
"""


@pytest.mark.skipif(not shutil.which("make") or not shutil.which("gcc"), reason="no make or gcc")
def test_two_networks_in_one_program(compiled: CompiledNetwork, tmp_path: Path) -> None:
    networks = {"one": compiled, "Two_2": compile_network("zoo:autoencoder", SMALL, effort=0)}
    for prefix, network in networks.items():
        project = project_of(network, embed=True, prefix=prefix)
        project.write(tmp_path / prefix)
        assert project.weights == f"{prefix}_weights.bin" and not any("inference" in name for name in project.files)
        subprocess.run(["make", "-s", "CFLAGS=-O0", f"lib{prefix}.a"], cwd=tmp_path / prefix, check=True, timeout=300)
    (tmp_path / "main.c").write_text(TWO)
    command = ["gcc", "-std=c99", "-Wall", "-Werror", "main.c", "-Ione", "-ITwo_2", "one/libone.a", "Two_2/libTwo_2.a"]
    subprocess.run([*command, "-lm", "-o", "both"], cwd=tmp_path, check=True, timeout=300)
    told = subprocess.run([tmp_path / "both"], capture_output=True, text=True, check=True).stdout
    assert told == "".join(f"shared memory must have {name}_MEMORY_BYTES\n" for name in ("ONE", "TWO_2"))


@pytest.mark.parametrize(
    ("prefix", "rule"),
    [
        ("2nd", "must be a C name of up to 32 letters, digits and underscores, not '2nd'"),
        ("a-b", "must be a C name of up to 32 letters, digits and underscores, not 'a-b'"),
        ("switch", "must be a C name of up to 32 letters, digits and underscores, not 'switch'"),
        ("x" * 33, "must be a C name of up to 32"),
        ("main", "must differ from the names of the driver and the kernels, unlike 'main'"),
        ("pooling", "must differ from the names of the driver and the kernels, unlike 'pooling'"),
        ("dovetail_x", "must differ from the names of the driver and the kernels, unlike 'dovetail_x'"),
    ],
)
def test_prefixes_that_are_refused(prefix: str, rule: str, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    call = ["codegen", NETWORK, "--config", "small", "--effort", "0", "--output", str(tmp_path / "c")]
    assert main([*call, "--prefix", prefix]) == 2
    assert f"dovetail: error: prefix {rule}" in capsys.readouterr().err
    assert not (tmp_path / "c").exists()


def test_only_the_kernels_in_use() -> None:
    files = set(project_of(compile_network(NORMS, SMALL, effort=0)).files)
    assert {"conversion.c", "float_normalisation.c", "dovetail_float.h"} <= files
    assert not {"float_elementwise.c", "dovetail_walk.h", "convolution.c", "pooling.c", "movement.c"} & files
    assert not {"softmax.c", "inference_weights.c"} & files
    whole = project_of(compile_network("zoo:autoencoder", SMALL, effort=0))
    assert (whole.kernels, whole.scratch_bytes) == ((), 0)
    assert "inference_data.h" not in whole.files


def test_equal_networks_give_equal_projects(compiled: CompiledNetwork) -> None:
    assert project_of(compiled).files == project_of(compile_network(NETWORK, SMALL, effort=0)).files


def test_a_saved_program_gives_the_same_project(compiled: CompiledNetwork, tmp_path: Path) -> None:
    compiled.save(tmp_path / "network.dvt")
    assert project_of(load_program(tmp_path / "network.dvt")).files == project_of(compiled).files


def test_the_command(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    folder, names = tmp_path / "c", ["layer0_norm1", "layer0_norm2"]
    assert main(["codegen", NORMS, "--config", "small", "--effort", "0", "--output", str(folder), "--json"]) == 0
    data = json.loads(capsys.readouterr().out)
    assert data["files"] == {path.name: path.stat().st_size for path in folder.iterdir()}
    assert (data["segments"], data["host_nodes"], data["inexact"]) == (3, 7, names)
    assert data["weights_bytes"] == data["files"]["inference_weights.bin"]


def test_the_command_refuses_in_one_line(
    norm_network: bytes, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    (tmp_path / "net.onnx").write_bytes(norm_network)
    folder = tmp_path / "c"
    assert main(["codegen", str(tmp_path / "net.onnx"), "--config", "small", "--output", str(folder)]) != 0
    assert capsys.readouterr().err.count("\n") == 1
    assert not folder.exists()
