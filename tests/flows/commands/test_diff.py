"""`dovetail diff` and `dovetail run --dump-layers`."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from dovetail.isa.config.resolved import Config
from dovetail.sw import frontend
from dovetail.sw.analysis.dump import read_dump, write_dump
from dovetail.sw.network import ir, reference
from dovetail.sw.runtime.compiled_network import compile_network
from tests.flows.conftest import Command

NETWORK = "zoo:autoencoder"
SMALL = ["--ic-lanes", "4", "--oc-lanes", "4", "--sram", "128KiB"]


@pytest.fixture
def samples(tmp_path: Path) -> Path:
    """Three inputs of the network."""
    path = tmp_path / "x.npy"
    np.save(path, np.random.default_rng(5).integers(-128, 128, (3, 640)).astype(np.int8))
    return path


def test_equal_layers(run: Command, tmp_path: Path, samples: Path) -> None:
    dump = "--dump", tmp_path / "dump"
    code, out, _ = run("diff", NETWORK, *SMALL, "--input", samples, "--sample", "2", *dump, "--json")
    data = json.loads(out)
    graph = frontend.load(NETWORK)
    assert (code, data["equal"], data["first"], data["not_compared"], data["notes"]) == (0, True, None, [], [])
    assert data["reference"] == "ONNX Runtime on the uint8 form"
    assert [one["layer"] for one in data["layers"]] == [node.name for node in graph.nodes]
    wanted = reference.evaluate(graph, graph.bind(np.load(samples)[2:]), keep_all=True)
    for name, value in read_dump(tmp_path / "dump").items():
        np.testing.assert_array_equal(value, wanted[name])
    code, out, _ = run("diff", NETWORK, *SMALL)
    assert code == 0 and out.splitlines()[-1] == f"EQUAL        {len(graph.nodes)} layers"


def test_a_sample_without_its_batch(run: Command, samples: Path) -> None:
    np.save(samples, np.load(samples)[0])
    code, out, _ = run("diff", NETWORK, *SMALL, "--input", samples)
    assert code == 0 and out.splitlines()[-1].startswith("EQUAL")


def test_the_first_layer_that_departs_is_named(run: Command, tmp_path: Path, samples: Path) -> None:
    """The reference is a dump of the network with one weight changed."""
    graph = frontend.load(NETWORK)
    layer = graph.nodes[4]
    assert isinstance(layer, ir.Conv)
    weights = layer.weights.copy()
    weights[0] ^= 64
    nodes = tuple(replace(node, weights=weights) if node is layer else node for node in graph.nodes)
    compiled = compile_network(replace(graph, nodes=nodes), Config(), keep_tensors=True)
    x = np.load(samples)
    result = compiled.run(x[:1])
    write_dump(tmp_path / "other", compiled, result)
    common = "diff", NETWORK, *SMALL, "--input", samples
    code, out, _ = run(*common, "--reference", tmp_path / "other")
    assert code == 1
    assert f"DIFFERENT    {layer.name} (dense) is the first layer that differs, at (0, " in out
    arrays: dict[str, Any] = {node.name: result.tensors[node.outputs[0]] for node in nodes}
    np.savez(tmp_path / "other.npz", **arrays)
    code, out, _ = run(*common, "--reference", tmp_path / "other.npz", "--json")
    data = json.loads(out)
    assert (code, data["equal"], data["first"]["layer"]) == (1, False, layer.name)
    assert [one["differing"] for one in data["layers"][:4]] == [0, 0, 0, 0]
    assert run(*common, "--reference", tmp_path / "other.npz", "--tolerance", "255")[0] == 0


@pytest.mark.parametrize(
    ("argv", "message"),
    [
        (["--sample", "3"], "sample must be 0..2, not 3"),
        (["--tolerance", "-1"], "tolerance must be at least 0, not -1"),
        (["--reference", "nowhere.npz"], "nowhere.npz: No such file or directory"),
    ],
)
def test_errors(run: Command, samples: Path, argv: list[str], message: str) -> None:
    code, _, err = run("diff", NETWORK, *SMALL, "--input", samples, *argv)
    assert (code, err) == (2, f"dovetail: error: {message}\n")


def test_nothing_is_written_before_all_is_compared(run: Command, tmp_path: Path) -> None:
    assert run("run", NETWORK, *SMALL, "--dump-layers", tmp_path / "other")[0] == 0
    last = max((tmp_path / "other").glob("*.npy"))
    np.save(last, np.zeros(0, np.int8))
    code, _, err = run("diff", NETWORK, *SMALL, "--reference", tmp_path / "other", "--dump", tmp_path / "dump")
    assert code == 2 and "of the reference must be" in err
    assert not (tmp_path / "dump").exists()


def test_dumps_of_a_run(run: Command, tmp_path: Path, samples: Path) -> None:
    np.save(tmp_path / "one.npy", np.load(samples)[1])
    one = "run", NETWORK, *SMALL, "--input", tmp_path / "one.npy", "--dump-layers", tmp_path / "dump"
    code, out, _ = run(*one)
    assert (code, out.splitlines()[-1]) == (0, f"tensors      {tmp_path / 'dump' / 'index.json'}")
    graph = frontend.load(NETWORK)
    wanted = reference.evaluate(graph, graph.bind(np.load(samples)[1:2]), keep_all=True)
    found = read_dump(tmp_path / "dump")
    assert set(found) == set(wanted)
    for name, value in found.items():
        np.testing.assert_array_equal(value, wanted[name])
    code, _, err = run(*one)
    assert code == 2 and "a dump's folder must be empty or absent" in err
    code, _, err = run("run", NETWORK, *SMALL, "--input", samples, "--dump-layers", tmp_path / "many")
    assert code == 2 and "a dump must be of one sample, not 3" in err


def test_saved_programs_are_refused(run: Command, tmp_path: Path) -> None:
    program = tmp_path / "p.dvt"
    assert run("compile", NETWORK, *SMALL, "--output", program)[0] == 0
    code, _, err = run("run", program, "--dump-layers", tmp_path / "dump")
    assert code == 2 and "tensors of a saved program share memory; give the network file" in err
