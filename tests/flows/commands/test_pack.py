"""`dovetail pack`, and the portable file on the command line."""

import json
from pathlib import Path

import numpy as np
import pytest

from dovetail.flows.cli import main
from dovetail.sw import frontend
from dovetail.sw.files import portable

NETWORK = "zoo:attention_block?tokens=4&channels=8"


def outcome(capsys: pytest.CaptureFixture[str], *argv: str | Path) -> tuple[int, str]:
    code = main([str(a) for a in argv])
    return code, capsys.readouterr().out


def test_pack_and_run_with_its_sample(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    path = tmp_path / "net.dnet"
    np.save(tmp_path / "x.npy", np.random.default_rng(4).integers(-128, 128, (3, 4, 8), np.int8))
    code, out = outcome(capsys, "pack", NETWORK, "--output", path, "--sample", tmp_path / "x.npy", "--json")
    assert (code, json.loads(out)["manifest"]["network"]["kind"]) == (0, "onnx")
    code, out = outcome(capsys, "run", path, "--pe", "16", "--json")
    assert (code, json.loads(out)["sample_equal"]) == (0, True)
    packed = outcome(capsys, "compile", path, "--json")[1]
    assert packed == outcome(capsys, "compile", NETWORK, "--json")[1]


def test_a_wrong_sample_is_found(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "net.dnet"
    np.save(tmp_path / "x.npy", np.zeros((1, 4, 8), np.int8))
    assert outcome(capsys, "pack", NETWORK, "--output", path, "--sample", tmp_path / "x.npy")[0] == 0
    whole = portable.unpack(path.read_bytes(), "net")
    assert whole.sample is not None
    whole.sample.outputs["output"][0, 0, 0] ^= 1
    monkeypatch.setattr(frontend, "unpack", lambda *_: whole)
    code, out = outcome(capsys, "run", path)
    assert code == 1
    assert "sample       DIFFERENT in output" in out
