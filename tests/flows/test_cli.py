"""The command: reports, JSON, errors, exit codes."""

import csv
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import dovetail
from dovetail.cosim.compare.lockstep import Comparison
from dovetail.cosim.compare.networks import Verdict
from dovetail.cosim.compare.windows import Window, WindowVerdict
from dovetail.flows.cli import COMMANDS, main
from dovetail.flows.options.network import NETWORK_HELP
from dovetail.isa.config.resolved import Config
from dovetail.isa.generate.cheader import cheader
from dovetail.isa.generate.manual import manual
from dovetail.isa.program import Program
from dovetail.sw.zoo.catalogue import NETWORKS
from tests.flows.conftest import Command
from tests.sw.runtime.stateful_networks import streaming

SMALL = ["--ic-lanes", "4", "--oc-lanes", "4", "--sram", "128KiB"]
NETWORK = "zoo:autoencoder"


@pytest.mark.parametrize("command", COMMANDS)
def test_help(run: Command, command: str) -> None:
    code, out, _ = run(command, "--help")
    assert code == 0
    assert "--json" in out


def test_help_names_every_built_in_network() -> None:
    assert [name for name in NETWORKS if name not in NETWORK_HELP] == []


def test_help_waits_for_no_library_of_networks() -> None:
    heavy = ("onnx", "onnx_ir", "onnxruntime", "onnxscript", "ai_edge_litert", "yaml", "matplotlib")
    code = f"import sys, dovetail.flows.cli; print([name for name in {heavy} if name in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"


def test_version(run: Command) -> None:
    assert run("--version")[:2] == (0, f"dovetail {dovetail.__version__}\n")


@pytest.mark.parametrize(
    ("argv", "message"),
    [
        (["compile", NETWORK, "--pe", "7"], "pe must be 8..1024, not 7"),
        (["compile", NETWORK, "--config", "nowhere.toml"], "nowhere.toml must be a TOML file or a preset"),
        (["compile", "nowhere.onnx"], "nowhere.onnx: must be a readable file, not: No such file or directory"),
        (["run", "zoo:vgg"], "zoo network must be one of mobilenet_v1, mobilenet_v2, "),
        (["run", NETWORK, "--input", "nowhere.npy"], "nowhere.npy: No such file or directory"),
        (["compile", NETWORK, "--output", "/nowhere/net.dvt"], "/nowhere/"),
        (["sweep", "nowhere.onnx"], "nowhere.onnx: must be a readable file, not: No such file or directory"),
        (["sweep", NETWORK, "--jobs", "0"], "jobs must be at least 1, not 0"),
        (["verify", NETWORK, "--waves", "waves.txt"], "--waves must be a .fst or .vcd file"),
        (["isa", "--disassemble", "nowhere.dvt"], "nowhere.dvt: No such file or directory"),
        (["isa", "--disassemble", os.devnull], f"{os.devnull}: must be a program file or raw words, not an empty file"),
        (["compile", NETWORK, "--nonsense"], "unrecognized arguments: --nonsense; see dovetail --help"),
        (["compile"], "the following arguments are required: NETWORK; see dovetail compile --help"),
        (["compile", NETWORK, "--pe", "x"], "argument --pe: must be an integer, not 'x'; see dovetail compile --help"),
        (
            ["run", NETWORK, "--seed", "-1"],
            "argument --seed: must be a whole number from 0, not '-1'",
        ),
        (["export", NETWORK, "--output", "p", "--seed", "-1"], "argument --seed: must be a whole number from 0, not"),
        (
            ["quantise", "q", "--random", "1", "--seed", "-1"],
            "argument --seed: must be a whole number from 0, not '-1'",
        ),
        (
            ["codegen", NETWORK, "--output", __file__],
            f"--output must be a folder, not {__file__} (",
        ),
        (["driver", "--output", __file__], f"--output must be a folder, not {__file__} ("),
        (["systemc", "--output", __file__], f"--output must be a folder, not {__file__} ("),
        (["fuzz", "--save", __file__], f"--save must be a folder, not {__file__} ("),
        (["explain", NETWORK, "--against", ""], "--against must be a preset, a TOML file or changes such as pe=128"),
    ],
)
def test_user_errors_are_one_line(run: Command, argv: list[str], message: str) -> None:
    code, out, err = run(*argv)
    assert (code, out) == (2, "")
    assert err.startswith(f"dovetail: error: {message}")
    assert err.count("\n") == 1
    code, out, err = run(*argv, "--json")
    assert code == 2
    assert err == f"dovetail: error: {json.loads(out)['error']}\n"


@pytest.mark.parametrize("again", [["--bus", "64"], ["--mem-latency", "3", "--read-latency", "4"]])
def test_an_option_given_twice_is_an_error(run: Command, again: list[str]) -> None:
    code, out, err = run("run", NETWORK, "--bus", "32", *again)
    assert (code, out) == (
        2,
        "",
    ) and f"argument {'--bus' if len(again) == 2 else '--mem-latency/--read-latency'}" in err
    assert "must be given once" in err


def test_compile_and_run_the_program(run: Command, tmp_path: Path) -> None:
    path = tmp_path / "net.dvt"
    code, out, _ = run("compile", NETWORK, *SMALL, "--output", path, "--json")
    compiled = json.loads(out)
    assert code == 0
    assert compiled["macs"] == sum(layer["macs"] for layer in compiled["layers"]) == 264_192
    assert compiled["cycles"] == sum(compiled["cycles_by_kind"].values())
    assert Program.load(path).config == Config(ic_lanes=4, oc_lanes=4, sram="128 KiB")
    code, out, _ = run("run", path, "--json")
    assert code == 0
    assert json.loads(out)["cycles"] == compiled["cycles"]
    code, out, _ = run("run", path, "--mem-latency", "400", "--json")
    assert json.loads(out)["cycles"] > compiled["cycles"]
    code, _, err = run("run", path, "--stripe", "8")
    assert code == 2
    assert "(it is for stripe 32, not 8)" in err
    code, _, err = run("run", path, "--tiling", "free")
    assert err.endswith("a saved program is compiled already; leave out --tiling\n")
    path.write_bytes(path.read_bytes()[:1000])
    code, _, err = run("run", path)
    assert code == 2
    assert f"{path}: file must be complete, not cut off after 1000 of" in err


def test_memory_of_a_network(run: Command) -> None:
    network = "zoo:inception_block"
    data = json.loads(run("compile", network, *SMALL, "--json")[1])
    memory, sram, tensors = data["memory_bytes"], data["sram_bytes"], data["tensors"]
    assert memory["total"] == memory["constants"] + memory["tensors"] + memory["program"]
    assert memory["least_tensors"] <= memory["tensors"]
    assert 0 < sram["live"] <= sram["peak"] <= sram["of"] == 128 << 10
    placed = [place for place in tensors if place["offset"] is not None]
    assert all(memory["constants"] <= place["offset"] < memory["constants"] + memory["tensors"] for place in placed)
    whole = next(place for place in placed if place["name"] == "output")
    part = next(place for place in placed if place["name"] == "three_out")
    assert (part["offset"] - whole["offset"], part["bytes"], part["pixel_pitch"]) == (16, 1600, 48)
    code, out, _ = run("compile", network, *SMALL, "--memory")
    assert code == 0
    table = out[out.index("System memory") : out.index("cycles       ")]
    assert [name for name in ("constants", "program", *(p["name"] for p in tensors)) if name not in table] == []
    assert f"{whole['offset']:#x}" in table
    assert f"memory       {memory['total']:,} bytes: constants {memory['constants']:,}, tensors" in out


def test_run_for_a_person(run: Command) -> None:
    code, out, _ = run("run", NETWORK, "--layers")
    assert code == 0
    for word in ("dense9", "cycles ", "MACs ", "utilisation ", "roofline ", "engine model"):
        assert word in out


def test_batches(run: Command, tmp_path: Path) -> None:
    samples = np.random.default_rng(5).integers(-128, 128, (3, 640), np.int8)
    np.save(tmp_path / "x.npy", samples)
    np.savez(tmp_path / "x.npz", x=samples, y=np.zeros(3))
    outputs = []
    for name in ("x.npy", "x.npz"):
        target = tmp_path / f"{name}.out.npz"
        code, out, _ = run("run", NETWORK, "--input", tmp_path / name, "--output", target, "--json")
        assert (code, json.loads(out)["samples"]) == (0, 3)
        outputs.append(np.load(target)["output"])
    assert outputs[0].shape == (3, 640)
    np.testing.assert_array_equal(*outputs)
    compiled = dovetail.compile(NETWORK)
    for sample, output in zip(samples, outputs[0], strict=True):
        np.testing.assert_array_equal(compiled.run(sample[None]).outputs["output"], output[None])


@pytest.mark.parametrize(
    ("value", "message"),
    [
        (np.zeros((1, 3), np.int8), "input 'input' must have shape (1, 640), or (N, 640) for a batch, not (1, 3)"),
        (np.zeros((1, 640), np.float32), "input 'input' must be int8, not float32"),
        (np.zeros((0, 640), np.int8), "input 'input' must have shape (1, 640), or (N, 640) for a batch, not (0, 640)"),
    ],
)
def test_bad_inputs(run: Command, tmp_path: Path, value: Any, message: str) -> None:
    np.save(tmp_path / "x.npy", value)
    target = tmp_path / "y.npz"
    code, _, err = run("run", NETWORK, "--input", tmp_path / "x.npy", "--output", target)
    assert code == 2
    assert err.startswith("dovetail: error: ") and err.endswith(f"{message}\n") and err.count("\n") == 1
    assert not target.exists()


def test_bad_input_files(run: Command, tmp_path: Path) -> None:
    (tmp_path / "x.npy").write_text("hello")
    code, _, err = run("run", NETWORK, "--input", tmp_path / "x.npy")
    assert code == 2
    assert "x.npy: must be an .npy or .npz file of plain arrays" in err
    np.savez(tmp_path / "x.npz", a=1, b=2)
    code, _, err = run("run", NETWORK, "--input", tmp_path / "x.npz")
    assert err.endswith("x.npz: must hold the input(s) input, not a, b\n")


def test_output_must_be_no_folder(run: Command, tmp_path: Path) -> None:
    for place in (tmp_path, "."):
        code, _, err = run("compile", "zoo:resnet8", "--output", place)
        assert code == 2 and "must be a file to write, not a folder" in err


def test_output_must_be_an_archive(run: Command, tmp_path: Path) -> None:
    code, _, err = run("run", NETWORK, "--output", tmp_path / "y.txt")
    assert code == 2
    assert "output must be a .npz file (or .npy for a network with one output)" in err


def test_sweep(run: Command, tmp_path: Path) -> None:
    folder = tmp_path / "out"
    lists = ["--pe", "16,64", "--dataflow", "input,output", "--bus", "32,64"]
    code, out, _ = run("sweep", NETWORK, *lists, "--jobs", "1", "--output", folder, "--json")
    data = json.loads(out)
    assert (code, data["points"], data["failed"]) == (0, 8, 0)
    names = ["cycles.png", "layers.csv", "pareto.png", "pareto.svg", "report.html", "results.csv", "results.sqlite"]
    assert sorted(path.name for path in folder.iterdir()) == names
    rows = list(csv.DictReader((folder / "results.csv").open()))
    assert [(r["pe"], r["dataflow"], r["bus"]) for r in rows[:3]] == [
        ("16", "input", "32"),
        ("16", "input", "64"),
        ("16", "output", "32"),
    ]
    config = Config(pe=16, dataflow="input", bus=32, sram="256 KiB", banks=8)  # as in the preset default
    assert int(rows[0]["cycles"]) == dovetail.compile(NETWORK, config, effort=0).report().cycles
    assert int(rows[0]["cycles"]) == sum(int(value) for name, value in rows[0].items() if name.startswith("cycles_"))


def test_a_sweep_goes_on_past_a_bad_point(run: Command, tmp_path: Path) -> None:
    code, out, err = run("sweep", NETWORK, "--pe", "16,7", "--jobs", "1", "--output", tmp_path)
    assert code == 0
    assert "PEs 7: pe must be 8..1024, not 7" in out
    assert "configurations" in err
    assert run("sweep", NETWORK, "--pe", "6,7", "--jobs", "1")[0] == 1


def test_isa(run: Command, tmp_path: Path) -> None:
    assert run("isa", "--manual")[1] == manual()
    assert run("isa", "--c-header", "--output", tmp_path / "dovetail_isa.h")[0] == 0
    assert (tmp_path / "dovetail_isa.h").read_text() == cheader()
    out = run("isa", "--json")[1]
    assert {row["name"] for row in json.loads(out)["instructions"]} >= {"CONV", "END"}
    assert "DEPTH_CONV" in run("isa")[1]


def test_assemble_and_disassemble(run: Command, tmp_path: Path) -> None:
    source, words = tmp_path / "p.s", tmp_path / "p.bin"
    source.write_text("sync array on load pending 1\nconv\nend\n")
    assert run("isa", "--assemble", source)[1] == "0x0000000100000102\n0x0000000000000020\n0x0000000000000003\n"
    assert run("isa", "--assemble", source, "--output", words)[0] == 0
    text = run("isa", "--disassemble", words)[1]
    assert [line.split("#")[0].strip() for line in text.splitlines()] == source.read_text().splitlines()
    source.write_text("conv\ncnv\n")
    assert run("isa", "--assemble", source)[2].startswith("dovetail: error: line 2: unknown instruction 'cnv'")
    source.write_bytes(b"\xff\xfe")
    assert run("isa", "--assemble", source)[2].endswith("p.s: must be text, not words; see --disassemble\n")
    words.write_bytes(b"\x01\x02\x03")
    assert "words must be 8 bytes each, not 3 bytes in all" in run("isa", "--disassemble", words)[2]
    space = tmp_path / "space.toml"
    space.write_text("[axes]\nbus = [32, 64]\n")
    space.write_text(space.read_text().ljust(32, "\n"))
    rule = "must be a program file or raw words, not text; --assemble takes assembly text"
    assert run("isa", "--disassemble", space)[2] == f"dovetail: error: {space}: {rule}\n"


def test_a_programs_disassembly_assembles_to_its_stream(run: Command, tmp_path: Path) -> None:
    path, source, words = tmp_path / "net.dvt", tmp_path / "net.s", tmp_path / "net.bin"
    run("compile", NETWORK, "--output", path)
    run("isa", "--disassemble", path, "--output", source)
    run("isa", "--assemble", source, "--output", words)
    assert words.read_bytes() == Program.load(path).stream
    assert "# segment 0" in source.read_text()


@pytest.mark.parametrize("difference", ["", "cycles: model 10, RTL 11"])
def test_verify_reports_what_lockstep_found(run: Command, monkeypatch: pytest.MonkeyPatch, difference: str) -> None:
    same = not difference
    comparison = Comparison(same, 10, 10 + (not same), True, True, True, difference)
    monkeypatch.setattr("dovetail.flows.commands.verify.verify", lambda *a, **k: [Verdict((comparison, comparison))])
    code, out, _ = run("verify", NETWORK, "--json")
    data = json.loads(out)
    assert (code, data["equal"], data["bytes_equal"], data["timeline_equal"]) == (int(not same), same, same, True)
    assert (data["cycles_model"], data["cycles_rtl"]) == (20, 20 if same else 22)
    assert data["first_difference"] == ("" if same else f"sample 0, segment 0: {difference}")
    code, out, _ = run("verify", NETWORK)
    assert ("verdict      EQUAL" in out) == same
    assert difference in out


def test_verify_runs_what_finds_weights_in_sram(run: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    """Only the first run loads them."""

    def verified(compiled: Any, samples: list[Any], **_: Any) -> list[Verdict]:
        assert len(samples) == 2 and samples[0] is samples[1]
        first = Comparison(True, 30, 30, True, True, True)
        return [Verdict((first,)), Verdict((Comparison(False, 20, 21, True, True, True, "cycles: model 20, RTL 21"),))]

    monkeypatch.setattr("dovetail.flows.commands.verify.verify", verified)
    code, out, _ = run("verify", NETWORK, "--config", "8x8", "--keep-weights", "--json")
    data = json.loads(out)
    assert (code, data["cycles_model"], data["cycles_rtl"], data["samples"]) == (1, 20, 21, 2)
    assert data["first_difference"] == "sample 1, segment 0: cycles: model 20, RTL 21"


@pytest.mark.parametrize(
    ("network", "more", "why"),
    [
        ("zoo:resnet8", ("--sram", "64KiB"), "that would not take fewer cycles"),
        ("zoo:attention_block", (), "the network must be one program, not 2"),
    ],
)
def test_weights_that_cannot_stay_in_sram(run: Command, network: str, more: tuple[str, ...], why: str) -> None:
    code, out, _ = run("run", network, "--config", "8x8", *more, "--keep-weights")
    assert code == 0 and f"weights      none stay in SRAM between runs: {why}\n" in out


def test_verify_layers(run: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    found = []

    def verified(compiled: Any, sample: Any, layers: range, **_: Any) -> list[WindowVerdict]:
        found.append(layers)
        window = Window(0, 10, 40, (1, 2), 3)
        return [WindowVerdict(window, Comparison(True, 10, 10, True, True, True), "" if len(found) < 3 else "SRAM: x")]

    monkeypatch.setattr("dovetail.flows.commands.verify.verify_windows", verified)
    code, out, _ = run("verify", NETWORK, "--layers", "2..2")
    assert code == 0 and "sample 0     segment 0, words 10..39, 3 operations (some of " in out
    assert "verdict      EQUAL: from the model's state, to its state" in out
    code, out, _ = run("verify", NETWORK, "--layers", "2", "--json")
    data = json.loads(out)
    assert found == [range(2, 3)] * 2
    assert (code, data["equal"], data["windows"][0]["cycles_rtl"], len(data["layers"])) == (0, True, 10, 1)
    code, out, _ = run("verify", NETWORK, "--layers", "1..")
    assert code == 1 and "first        sample 0, segment 0, SRAM: x" in out
    code, _, error = run("verify", NETWORK, "--layers", "99")
    assert code == 2 and "layers must be in 0.." in error


def test_doctor(run: Command) -> None:
    code, out, _ = run("doctor", "--json")
    data = json.loads(out)
    assert data["ok"] == (code == 0)
    assert {check["name"] for check in data["checks"]} >= {"Python", "numpy", "g++", "cache folder"}


def test_interrupt(run: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(args: Any) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("dovetail.flows.commands.doctor.run", interrupted)
    assert run("doctor") == (130, "", "dovetail: interrupted\n")


def test_samples_of_a_network_with_variables_are_steps_in_time(run: Command, tmp_path: Path) -> None:
    path, target = tmp_path / "net.tflite", tmp_path / "y.npy"
    path.write_bytes(streaming())
    steps = np.repeat(np.random.default_rng(0).integers(-128, 128, (1, 1, 6, 4)).astype(np.int8), 3, axis=0)
    np.save(tmp_path / "x.npy", steps)
    code, out, _ = run("run", path, *SMALL, "--input", tmp_path / "x.npy", "--output", target)
    assert code == 0
    assert "state        before: int8[1x2x6x4] scale=0.05 zero=5, left in its place between runs" in out
    assert len(np.unique(np.load(target), axis=0)) > 1
    code, _, _ = run("run", path, *SMALL, "--input", tmp_path / "x.npy", "--output", target, "--reset")
    assert code == 0
    assert len(np.unique(np.load(target), axis=0)) == 1
    code, _, err = run("run", NETWORK, "--reset")
    assert (code, err) == (
        2,
        f"dovetail: error: {NETWORK}: network must have variables for --reset, it has none; leave it out\n",
    )


@pytest.mark.parametrize("words", [["--with", "nothing", "isa"], ["isa", "--with", "nothing"]])
def test_with_an_unknown_extension(words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(words) == 2
    assert "extension 'nothing' must be an installed package" in capsys.readouterr().err


@pytest.mark.parametrize("command", ["docs", "doctor", "prove", "report", "serve"])
def test_with_where_there_is_no_configuration(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--with", "nothing", command, *({"report": ["r.csv"], "serve": ["s"]}.get(command, []))]) == 2
    assert f"dovetail {command} has no configuration, leave out --with" in capsys.readouterr().err
    assert main([command, "--with", "nothing"]) == 2
    assert "unrecognized arguments: --with" in capsys.readouterr().err
