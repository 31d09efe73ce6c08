"""`dovetail run`, `verify` and `explain` with a system in the place of a configuration."""

import json
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest

from dovetail.flows.cli import main
from tests.sw.compiler.devices.test_plan import TINY, WIDE


@pytest.fixture
def system(tmp_path: Path) -> str:
    (tmp_path / "tiny.toml").write_text(TINY.to_toml())
    (tmp_path / "wide.toml").write_text(WIDE.to_toml())
    path = tmp_path / "system.toml"
    path.write_text('[accelerators]\nleft = "tiny.toml"\nright = "wide.toml"\n\n[memory]\nsize = "1 MiB"\n')
    return str(path)


def test_run(system: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    output = tmp_path / "y.npz"
    assert main(["run", "zoo:resnet8", "--system", system, "--effort", "0", "--output", str(output), "--json"]) == 0
    data = json.loads(capsys.readouterr().out)
    assert (data["inferences"], data["gain"] > 1, len(data["jobs"]) > 10) == (1, True, True)
    assert data["cycles"] == max(job["begins"] + job["cycles"] for job in data["jobs"])
    assert np.load(output)["output"].shape == (1, 10)
    assert main(["run", "zoo:dscnn", "--system", system, "--mode", "throughput", "--effort", "0", "--clock", "50"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "zoo:dscnn on 2 accelerators: left 2 x 4, right 4 x 8"
    assert [line.split()[0] for line in lines[1:]] == [
        "cycles", "gain", "steady", "contention", "host", "memory", "samples"
    ]  # fmt: skip


def test_explain(system: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    pictures = tmp_path / "pictures"
    arguments = ["explain", "zoo:resnet8", "--system", system, "--effort", "0", "--pictures", str(pictures)]
    assert main([*arguments, "--json"]) == 0
    data = json.loads(capsys.readouterr().out)
    assert data["simpler_cycles"].keys() == {"each layer shared by itself", "shares of equal size"}
    assert min(data["simpler_cycles"].values()) > data["cycles"]
    assert (pictures / "plan.png").read_bytes().startswith(b"\x89PNG")


def test_a_plan_in_a_file(system: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "a.plan"
    planning = ["--mode", "throughput", "--inferences", "2", "--effort", "0", "--save-plan", str(path)]
    assert main(["explain", "zoo:resnet8", "--system", system, *planning]) == 0
    first = capsys.readouterr().out
    assert main(["explain", "zoo:resnet8", "--system", system, "--plan", str(path)]) == 0
    assert first.startswith(capsys.readouterr().out.rstrip())
    assert main(["run", "zoo:dscnn", "--system", system, "--plan", str(path)]) == 2
    assert capsys.readouterr().err == (
        f"dovetail: error: {path}: plan must be for network zoo:dscnn, not zoo:resnet8; make the plan again,"
        " with --save-plan\n"
    )
    assert main(["run", "zoo:resnet8", "--system", system, "--plan", str(tmp_path / "none.plan")]) == 2
    error = capsys.readouterr().err
    assert "none.plan" in error and error.count("\n") == 1


def test_what_host_accelerators_and_memory_do_when(
    system: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    trace, picture = tmp_path / "trace.json", tmp_path / "plan.svg"
    arguments = ["run", "zoo:attention_block", "--system", system, "--effort", "0", "--json"]
    assert main([*arguments, "--timeline", str(trace)]) == 0
    data = json.loads(capsys.readouterr().out)
    events = json.loads(trace.read_text())["traceEvents"]
    names = {event["pid"]: event["args"]["name"] for event in events if event["name"] == "process_name"}
    assert list(names.values()) == ["host", "left", "right"]
    spans = [event for event in events if event["ph"] == "X"]
    layers = [job for job in data["jobs"] if job["accelerator"] is None]
    assert data["host_cycles"] == sum(job["cycles"] for job in layers) > 0
    assert sum(event["dur"] for event in spans if event["cat"] == "layer") == data["host_cycles"]
    assert sum(event["cat"] == "start" for event in spans) == len(data["jobs"]) - len(layers)
    for job in data["jobs"]:
        if job["accelerator"]:
            mine = [event for event in spans if event["cat"] == "job" and event["ts"] == job["begins"]]
            assert [(names[event["pid"]], event["dur"]) for event in mine] == [(job["accelerator"], job["cycles"])]
    host = sorted((event["ts"], event["ts"] + event["dur"]) for event in spans if names[event["pid"]] == "host")
    assert all(end <= start for (_, end), (start, _) in pairwise(host)), "the host does one thing at a time"
    assert main([*arguments, "--timeline", str(picture)]) == 0
    assert "<svg" in picture.read_text()
    assert all(name in picture.read_text() for name in ("host", "left", "right"))


REFUSED = {
    "--effort must be left out with --plan": ["run", "--plan", "a.plan", "--effort", "1"],
    "--mode must be left out with --plan": ["explain", "--plan", "a.plan", "--mode", "latency"],
    "--save-plan must be left out with --plan": ["verify", "--plan", "a.plan", "--save-plan", "b.plan"],
    "--sram must be left out with --system": ["run", "--sram", "64KiB"],
    "--config must be left out with --system": ["verify", "--config", "small"],
    "--tiling must be left out with --system": ["explain", "--tiling", "free"],
    "--exact must be left out with --system": ["run", "--exact"],
    "--keep-weights must be left out with --system": ["verify", "--keep-weights"],
    "--against must be left out with --system": ["explain", "--against", "small"],
    "--waves must be left out with --system": ["verify", "--waves", "a.fst"],
    "--form must be simulation with --system, not fpga": ["verify", "--form", "fpga"],
    "--window must be left out with --system": ["run", "--window", "1..2"],
    "--reset must be left out with --system": ["run", "--reset"],
    "--engine must be model or rtl with --system, not board": ["run", "--engine", "board"],
    "inferences must be 1 for latency, not 3": ["run", "--inferences", "3"],
}


@pytest.mark.parametrize("text", REFUSED)
def test_options_that_mean_nothing_for_a_system(system: str, text: str, capsys: pytest.CaptureFixture[str]) -> None:
    command, *options = REFUSED[text]
    assert main([command, "zoo:resnet8", "--system", system, *options]) == 2
    assert capsys.readouterr().err == f"dovetail: error: {text}\n"


def test_options_that_need_a_system(capsys: pytest.CaptureFixture[str]) -> None:
    for option, value in (("--mode", "latency"), ("--inferences", "3"), ("--plan", "a"), ("--save-plan", "a")):
        assert main(["run", "zoo:resnet8", option, value]) == 2
        assert capsys.readouterr().err == f"dovetail: error: {option} must come with --system\n"
