"""Portable network files: programs from them equal those from the original, word for word; damage is one error."""

from __future__ import annotations

import zipfile
from dataclasses import replace
from io import BytesIO
from pathlib import Path

import numpy as np
import onnx
import pytest
import yaml

from dovetail.isa.config.resolved import Config
from dovetail.isa.program import ProgramError
from dovetail.sw import frontend
from dovetail.sw.errors import NetworkError
from dovetail.sw.files.packing import pack
from dovetail.sw.files.portable import is_portable, unpack
from dovetail.sw.runtime.compiled_network import compile_network
from dovetail.sw.runtime.saved_program import load_program
from dovetail.sw.zoo import catalogue

NETWORK = "zoo:hard_swish_block"
TFLITE = Path(__file__).parents[4] / "shared/models/mlperf_tiny/kws_dscnn/kws_int8.tflite"
CONFIGS = (Config(ic_lanes=4, oc_lanes=4, sram="64 KiB"), Config(ic_lanes=8, oc_lanes=2, depthwise="none"))


def sample_of(network: str) -> dict[str, np.ndarray]:
    (port,) = frontend.load(network).inputs
    return {port.name: np.random.default_rng(1).integers(-128, 128, port.shape).astype(np.int8)}


def packed(network: str | Path, sample: dict[str, np.ndarray] | None = None) -> bytes:
    return pack(frontend.parse(frontend.read(network)), sample)


def write(path: Path, data: bytes) -> str:
    path.write_bytes(data)
    return str(path)


def changed(data: bytes, member: str, content: bytes, compression: int = zipfile.ZIP_STORED) -> bytes:
    """The archive with another content of a member."""
    buffer = BytesIO()
    with zipfile.ZipFile(BytesIO(data)) as old, zipfile.ZipFile(buffer, "w", compression) as new:
        for name in old.namelist():
            new.writestr(name, content if name == member else old.read(name))
    return buffer.getvalue()


@pytest.mark.parametrize("config", CONFIGS, ids=str)
def test_a_program_from_it_equals_the_original_to_the_last_byte(tmp_path: Path, config: Config) -> None:
    path = write(tmp_path / "any_name.dnet", packed(NETWORK))
    compile_network(NETWORK, config).save(tmp_path / "a.dvt")
    compile_network(path, config).save(tmp_path / "b.dvt")
    assert (tmp_path / "a.dvt").read_bytes() == (tmp_path / "b.dvt").read_bytes()
    (port,) = load_program(tmp_path / "b.dvt").graph.inputs
    assert port.name == "input"


@pytest.mark.skipif(not TFLITE.is_file(), reason="the trained networks are not beside the project")
def test_a_tflite_network_is_kept_as_it_is(tmp_path: Path) -> None:
    path = write(tmp_path / "net.dnet", packed(TFLITE))
    assert frontend.read(path).data == TFLITE.read_bytes()
    words = [[s.words for s in compile_network(network, CONFIGS[0]).code.segments] for network in (TFLITE, path)]
    assert words[0] == words[1]


def test_equal_networks_give_equal_bytes() -> None:
    sample = sample_of(NETWORK)
    assert packed(NETWORK, sample) == packed(NETWORK, sample)


def test_the_manifest_says_what_is_inside() -> None:
    manifest = unpack(packed("zoo:attention_block"), "net").manifest
    assert manifest["name"] == "zoo:attention_block"
    assert manifest["inputs"][0]["shape"] == [1, 16, 32]
    assert manifest["quantisation"]["rounding"] == "onnx"
    assert manifest["operators"]["qlinearsoftmax"] == 1
    assert manifest["macs"] == 4 * 16 * 32 * 32 + 2 * 16 * 16 * 32


def test_a_sample_comes_back_with_its_output(tmp_path: Path) -> None:
    sample = sample_of(NETWORK)
    path = write(tmp_path / "net.dnet", packed(NETWORK, sample))
    held = frontend.read(path).sample
    assert held is not None
    np.testing.assert_array_equal(held.inputs["input"], sample["input"])
    outputs = compile_network(path, CONFIGS[0]).run(held.inputs).outputs
    for name, value in held.outputs.items():
        np.testing.assert_array_equal(value, outputs[name])


def test_a_sample_must_fit() -> None:
    with pytest.raises(NetworkError, match="input 'input' must be int8, not float64"):
        packed(NETWORK, {"input": np.zeros((1, 16, 10, 10))})


def test_external_data_goes_in(tmp_path: Path) -> None:
    model = onnx.load_model_from_string(catalogue.model_bytes("dscnn"))
    onnx.save_model(model, tmp_path / "net.onnx", save_as_external_data=True, location="weights.bin", size_threshold=0)
    path = write(tmp_path / "net.dnet", packed(tmp_path / "net.onnx"))
    compile_network(tmp_path / "net.onnx", CONFIGS[0]).save(tmp_path / "net.dvt")
    (tmp_path / "weights.bin").unlink()
    assert frontend.load(path).total_macs == load_program(tmp_path / "net.dvt").graph.total_macs == 2_656_768
    with pytest.raises(NetworkError, match=r"net: external data must be beside the file and below 2 GB, not: "):
        packed(tmp_path / "net.onnx")


def test_damaged_and_newer_files_give_one_error(tmp_path: Path) -> None:
    data = packed("zoo:autoencoder")
    manifest = dict(unpack(data, "net").manifest)
    newer = yaml.safe_dump(manifest | {"version": 2}).encode()
    other = yaml.safe_dump(manifest | {"format": "another"}).encode()
    cases = {
        "format version must be at most 1, not 2; update Dovetail": changed(data, "manifest.yaml", newer),
        "format must be dovetail-network, not 'another'": changed(data, "manifest.yaml", other),
        "the network in it must have the manifest's hash": changed(data, "network.onnx", b"\x08\x07"),
        "portable network file must be complete, not damaged": data[: len(data) // 2],
        "members must be stored, not compressed": changed(data, "", b"", zipfile.ZIP_DEFLATED),
        "not a zip archive without 'manifest.yaml'": _empty_zip(),
    }
    for text, content in cases.items():
        with pytest.raises(NetworkError, match=text) as caught:
            frontend.load(write(tmp_path / "net.dnet", content))
        assert str(caught.value).startswith(str(tmp_path / "net.dnet"))


def _empty_zip() -> bytes:
    buffer = BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        archive.writestr("readme.txt", "")
    return buffer.getvalue()


def test_a_flipped_bit_anywhere_is_an_error_or_changes_nothing() -> None:
    data = packed("zoo:attention_block?tokens=2&channels=4&heads=1")
    whole = unpack(data, "net")
    for position in np.random.default_rng(2).integers(0, len(data), 150).tolist():
        broken = bytearray(data)
        broken[position] ^= 16
        if not is_portable(bytes(broken)):
            continue
        try:
            assert unpack(bytes(broken), "net").data == whole.data
        except NetworkError as error:
            assert "\n" not in str(error)


def test_a_program_of_another_version_of_the_compiler_is_refused(tmp_path: Path) -> None:
    program = compile_network("zoo:autoencoder", CONFIGS[0]).program
    older = {key: value for key, value in program.metadata.items() if key != "host"}
    replace(program, metadata=older).save(tmp_path / "old.dvt")
    with pytest.raises(ProgramError, match=r"old.dvt: program must be of this version of the compiler; compile it"):
        load_program(tmp_path / "old.dvt")
