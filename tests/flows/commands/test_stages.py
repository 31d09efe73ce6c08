"""A network file is read, parsed, imported and taken through the passes once, whatever a command does with it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import onnx
import pytest

from dovetail.flows.cli import main
from dovetail.sw.frontend.onnx import importer as onnx_importer
from dovetail.sw.frontend.tflite import file as tflite_file
from dovetail.sw.frontend.tflite import importer as tflite_importer
from dovetail.sw.passes.integer import simplify
from dovetail.sw.zoo import catalogue
from tests.slow import slow
from tests.sw.frontend.test_remainder import middle
from tests.sw.runtime.stateful_networks import streaming

SMALL = "--pe", "16", "--sram", "64KiB"
COMMANDS = {
    "compile": ("compile", "NET", *SMALL),
    "run": ("run", "NET", *SMALL),
    "diff": ("diff", "NET", *SMALL),
    "inspect": ("inspect", "NET", *SMALL),
    "explain": ("explain", "NET", *SMALL),
    "explain two": ("explain", "NET", *SMALL, "--against", "sram=32KiB"),
    "export": ("export", "NET", *SMALL, "--output", "PARTS"),
    "codegen": ("codegen", "NET", *SMALL, "--output", "CODE"),
    "pack": ("pack", "NET", "--output", "PACKED"),
    "passes": ("passes", "NET"),
    "sweep": ("sweep", "SPACE", "--store", "STORE", "--jobs", "1"),
    "verify": ("verify", "NET", *SMALL),
}
ONCE = {"read": 1, "parse": 1, "import": 1, "passes": 1}


@pytest.fixture
def counted(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Counter[str]:
    """What was done with files below ``tmp_path`` and with networks, how often."""
    counts: Counter[str] = Counter()

    def count(owner: Any, name: str, what: str, counts_as: Callable[..., bool] = lambda *_: True) -> None:
        whole = getattr(owner, name)

        def counting(*arguments: Any, **named: Any) -> Any:
            counts[what] += counts_as(*arguments)
            return whole(*arguments, **named)

        monkeypatch.setattr(owner, name, counting)

    count(Path, "read_bytes", "read", lambda path: path.stem == "net")
    # One-node models of the host's operators are parsed as well; a network of these tests has some nodes more.
    count(onnx, "load_model_from_string", "parse", lambda data, *_: b"QuantizeLinear" in data)
    count(tflite_file, "verify", "parse")
    count(onnx_importer.Importer, "read", "import")
    count(tflite_importer.Importer, "read", "import")
    count(simplify, "steps", "passes")
    return counts


def called(counts: Counter[str], command: str, folder: Path, network: bytes, suffix: str) -> dict[str, int]:
    """The counts of a command on a network."""
    path = folder / f"net{suffix}"
    path.write_bytes(network)
    names = {name: str(folder / name.lower()) for name in ("PARTS", "CODE", "PACKED", "STORE")}
    names |= {"NET": str(path), "SPACE": str(folder / "space.toml")}
    Path(names["SPACE"]).write_text(f'[[network]]\nsource = "{path}"\n\n[base]\nsram = "64 KiB"\n', encoding="utf-8")
    counts.clear()
    assert main([names.get(word, word) for word in COMMANDS[command]]) in (0, 1)
    return dict(counts)


@pytest.mark.parametrize("command", [slow(name) if name == "verify" else name for name in COMMANDS])
def test_an_onnx_file_goes_every_way_once(counted: Counter[str], command: str, tmp_path: Path) -> None:
    network = catalogue.model_bytes("hard_swish_block?channels=4&resolution=4")
    assert called(counted, command, tmp_path, network, ".onnx") == ONCE


@pytest.mark.parametrize("command", [name for name in COMMANDS if name not in ("verify", "codegen")])
def test_a_tflite_file_goes_every_way_once(counted: Counter[str], command: str, tmp_path: Path) -> None:
    assert called(counted, command, tmp_path, streaming(), ".tflite") == ONCE


def test_a_part_of_a_file_is_a_file_of_its_own(counted: Counter[str], tmp_path: Path) -> None:
    """The part before an unknown operator is parsed once more."""
    assert called(counted, "compile", tmp_path, middle(), ".tflite") == ONCE | {"parse": 2}


def test_a_float_file_is_quantised_to_another_network(counted: Counter[str], tmp_path: Path) -> None:
    model = onnx.helper.make_model(
        onnx.helper.make_graph(
            [onnx.helper.make_node("Relu", ["x"], ["y"], name="QuantizeLinear_not")],
            "net",
            [onnx.helper.make_tensor_value_info("x", onnx.TensorProto.FLOAT, (1, 4))],
            [onnx.helper.make_tensor_value_info("y", onnx.TensorProto.FLOAT, (1, 4))],
        ),
        opset_imports=[onnx.helper.make_opsetid("", 20)],
    )
    assert called(counted, "inspect", tmp_path, model.SerializeToString(), ".onnx") == ONCE


def test_saved_programs_and_packed_networks_go_once(counted: Counter[str], tmp_path: Path) -> None:
    program, packed = str(tmp_path / "net.dvt"), str(tmp_path / "net.dnet")
    network = catalogue.model_bytes("hard_swish_block?channels=4&resolution=4")
    (tmp_path / "n.onnx").write_bytes(network)
    assert main(["compile", str(tmp_path / "n.onnx"), "--output", program]) == 0
    assert main(["pack", str(tmp_path / "n.onnx"), "--output", packed]) == 0
    for words in ([program], [program, "--read-latency", "9"], [packed]):
        counted.clear()
        assert main(["run", *words]) == 0
        assert dict(counted) == ONCE
