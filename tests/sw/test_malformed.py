"""Malformed networks: each gives one error or a correct program, in bounded time and memory."""

from __future__ import annotations

import importlib.util
import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from dovetail.sw import zoo

HERE = Path(__file__).parent
WORKER = HERE / "malformed_worker.py"
SECONDS, MEGABYTES = 20, 2048
BLOCKS = (
    "mobilenet_v2_block?channels=4&resolution=6",
    "inception_block?channels=4&resolution=5",
    "shuffle_block?channels=8&resolution=4",
    "attention_block?tokens=4&channels=8",
    "hard_swish_block?channels=4&resolution=4",
)


def helper(name: str) -> Any:
    spec = importlib.util.spec_from_file_location(name, HERE / f"{name}.py")
    assert spec and spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


onnx_cases, tflite_cases = helper("malformed_onnx"), helper("malformed_tflite")


def sound() -> dict[str, bytes]:
    """The networks that are damaged."""
    return {
        **{name.partition("?")[0]: zoo.model_bytes(name) for name in BLOCKS},
        "float": onnx_cases.real().SerializeToString(),
        "tflite": tflite_cases.packed(tflite_cases.network()),
    }


def damaged(seed: int, each: int) -> Iterator[tuple[str, bytes]]:
    """Truncated files, flipped bits, overwritten bytes, and what no network ever was."""
    random = np.random.default_rng(seed)
    for name, data in sound().items():
        for trial in range(each):
            size = int(random.integers(1, len(data)))
            yield f"{name}-truncated-{trial}", data[:size]
            for kind, count in (("bit", 1), ("bits", 8)):
                flipped = bytearray(data)
                for position in random.integers(0, len(data), count):
                    flipped[position] ^= 1 << random.integers(0, 8)
                yield f"{name}-{kind}-{trial}", bytes(flipped)
            start = int(random.integers(0, len(data)))
            noise = random.integers(0, 256, int(random.integers(1, 64))).astype(np.uint8).tobytes()
            yield f"{name}-overwritten-{trial}", data[:start] + noise + data[start + len(noise) :]
    for trial in range(each):
        yield f"noise-{trial}", random.integers(0, 256, 400).astype(np.uint8).tobytes()
        yield f"noise-tflite-{trial}", b"\x1c\0\0\0TFL3" + random.integers(0, 256, 400).astype(np.uint8).tobytes()
    yield from {
        "zeros": bytes(999),
        "ones": b"\xff" * 999,
        "text": b"network: none\n",
        "identifier": b"\0\0\0\0TFL3",
    }.items()


def outcomes(cases: Iterator[tuple[str, bytes]], folder: Path) -> dict[str, dict[str, Any]]:
    """What the worker says of each case; one that ends it is a crash, and the rest goes to another worker."""
    pending = dict(cases)
    found: dict[str, dict[str, Any]] = {}
    paths = {f"case{k:04d}": name for k, name in enumerate(pending)}
    for path, name in paths.items():
        (folder / path).write_bytes(pending[name])
    while paths:
        run = subprocess.run([sys.executable, WORKER, folder], capture_output=True, text=True, timeout=900)
        begun = ""
        for line in run.stdout.splitlines():
            record = json.loads(line)
            begun = record.get("begins", "")
            if not begun:
                name = record["name"]
                found[paths.pop(name)] = record
                (folder / name).unlink()
        if begun:
            found[paths.pop(begun)] = {"outcome": f"crash: {run.returncode}", "seconds": 0.0, "peak": 0}
            (folder / begun).unlink()
        elif paths:
            pytest.fail(f"the worker did not start: {run.stderr[-500:]}")
    return found


def check(found: dict[str, dict[str, Any]]) -> None:
    wrong = {name: record["outcome"] for name, record in found.items() if not _is_right(record)}
    assert not wrong, "\n".join(f"{name}: {outcome}" for name, outcome in wrong.items())


def _is_right(record: dict[str, Any]) -> bool:
    kind, _, text = record["outcome"].partition(": ")
    bounded = record["seconds"] < SECONDS and record["peak"] < MEGABYTES
    return bounded and (kind == "program" or (kind == "error" and "\n" not in text and len(text) > 10))


def test_edited_onnx_networks(tmp_path: Path) -> None:
    found = outcomes(onnx_cases.cases(), tmp_path)
    assert len(found) > 300
    check(found)


def test_edited_tflite_networks(tmp_path: Path) -> None:
    found = outcomes(tflite_cases.cases(), tmp_path)
    assert len(found) > 150
    check(found)


def test_damaged_files(tmp_path: Path) -> None:
    found = outcomes(damaged(0, 4), tmp_path)
    assert len(found) > 100
    check(found)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(1, 5))
def test_many_damaged_files(tmp_path: Path, seed: int) -> None:
    check(outcomes(damaged(seed, 40), tmp_path))


def test_the_networks_are_sound_before_they_are_damaged(tmp_path: Path) -> None:
    found = outcomes(iter(sound().items()), tmp_path)
    assert {record["outcome"] for record in found.values()} == {"program: run"}
