"""A language model that writes, and the words that it writes in."""

from __future__ import annotations

import json
import struct
from pathlib import Path

import numpy as np
import pytest
from onnx import TensorProto, helper

from dovetail.flows.output.printable import printable
from dovetail.sw.errors import NetworkError
from dovetail.sw.files.vocabulary import BEGIN, Vocabulary
from dovetail.sw.runtime.compiled_network import compile_network
from dovetail.sw.runtime.decoder import Decoder
from dovetail.sw.runtime.engines import create
from tests.flows.conftest import Command

SMALL = "zoo:decoder_tiny?depth=1&channels=32&heads=2&groups=1&hidden=20&words=300&length=9"
STORIES = Path(__file__).parents[4] / "shared/transformers/stories260k"
needs_stories = pytest.mark.skipif(not STORIES.exists(), reason="../shared/transformers is not there")

PIECES = ["<unk>", "\n<s>\n", "\n</s>\n", *(f"<0x{byte:02X}>" for byte in range(256)), *" abcd", "ab", " ab", "cd"]


def vocabulary(path: Path) -> Path:
    pieces = [piece.encode() for piece in PIECES] + [b"x%d" % number for number in range(300 - len(PIECES))]
    data = struct.pack("<i", max(map(len, pieces)))
    for number, piece in enumerate(pieces):
        data += struct.pack("<fi", -number, len(piece)) + piece
    path.write_bytes(data)
    return path


def test_words_are_joined_by_score(tmp_path: Path) -> None:
    words = Vocabulary.read(vocabulary(tmp_path / "tok.bin"))
    tokens = words.encode("abc cd")
    assert [words.pieces[token] for token in tokens[1:]] == [b" ab", b"c", b" ", b"cd"]
    assert tokens[0] == BEGIN
    assert words.decode(tokens) == "abc cd"
    assert words.encode("") == [BEGIN]


def test_other_letters_are_bytes(tmp_path: Path) -> None:
    words = Vocabulary.read(vocabulary(tmp_path / "tok.bin"))
    tokens = words.encode("aé")
    assert tokens[-2:] == [3 + byte for byte in "é".encode()]
    assert words.decode(tokens) == "aé"


@pytest.mark.parametrize(
    "spoilt", [b"", b"\x01", b"\x07\0\0\0", b"\x07\0\0\0" + b"\0" * 7, b"text that is no vocabulary"]
)
def test_another_file_is_refused(tmp_path: Path, spoilt: bytes) -> None:
    path = tmp_path / "tok.bin"
    path.write_bytes(spoilt)
    with pytest.raises(
        NetworkError, match=r"tok\.bin: must be a vocabulary of llama2\.c \(tokenizer\.bin\), not damag"
    ):
        Vocabulary.read(path)


def test_a_cut_file_is_refused(tmp_path: Path) -> None:
    path = vocabulary(tmp_path / "tok.bin")
    path.write_bytes(path.read_bytes()[:-1])
    with pytest.raises(NetworkError, match="must be a vocabulary"):
        Vocabulary.read(path)


@needs_stories
def test_words_of_a_trained_model() -> None:
    words = Vocabulary.read(STORIES / "tok512.bin")
    for story in json.loads((STORIES / "greedy.json").read_text()):
        assert words.encode(story["prompt"]) == story["prompt_tokens"]
        assert words.decode(story["tokens"]) == story["text"]


def test_a_text_and_what_it_takes(run: Command, tmp_path: Path) -> None:
    words, chart = str(vocabulary(tmp_path / "tok.bin")), tmp_path / "tokens.svg"
    options = ["--prompt", "ab", "--vocabulary", words, "--count", "4", "--clock", "50", "--chart", str(chart)]
    code, out, _ = run("chat", SMALL, *options, "--json")
    assert code == 0
    told = json.loads(out)
    assert told["prompt"] == [BEGIN, PIECES.index(" ab")]
    assert len(told["tokens"]) == 2 + 4
    assert len(told["cycles_by_position"]) == 5
    assert [sum(each) for each in zip(*told["cycles_by_kind"].values(), strict=True)] == told["cycles_by_position"]
    whole = told["cycles_by_position"][0] + round(told["host_estimate"]["cycles"])
    assert told["tokens_per_second"] == pytest.approx(50e6 / whole)
    assert chart.read_text().startswith("<?xml")
    code, out, _ = run("chat", SMALL, *options, "--layers")
    assert code == 0
    assert printable(told["text"], keep="\n") in out
    assert "tokens       2 of the prompt and 4 written" in out
    assert "tokens/s at 50 MHz, with the estimate of the host" in out


def test_it_writes_what_its_logits_say() -> None:
    """The same as by hand, from a fresh cache each time."""
    network = compile_network(SMALL)
    decoder = Decoder(network, create("model", network.config))
    for _ in range(2):
        tokens = [5, 7]
        steps = [*decoder.write(tokens, 3)]
        network.reset()
        for place, step in enumerate(steps):
            result = network.run({"tokens": np.array([[step.token]]), "position": np.array([place])})
            assert result.outputs["logits"].argmax() == step.next
        assert [step.token for step in steps] == [5, 7, steps[1].next, steps[2].next]
        network.reset()


def test_it_ends_where_the_cache_or_the_text_does() -> None:
    network = compile_network(SMALL)
    decoder = Decoder(network, create("model", network.config))
    steps = [*decoder.write([5], 100)]
    assert len(steps) == decoder.length == 9
    network.reset()
    assert len([*decoder.write([5], 100, stop={steps[2].next})]) <= 3
    with pytest.raises(NetworkError, match=r"prompt must have 1\.\.9 tokens, the cache's rows, not 10"):
        next(decoder.write([1] * 10, 1))
    with pytest.raises(NetworkError, match=r"tokens must be 0\.\.299, not 300"):
        next(decoder.write([300], 1))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (
            ["zoo:bert_tiny?depth=1"],
            "network must keep a cache between runs, it has none; name it: --state INPUT=OUTPUT",
        ),
        ([SMALL, "--prompt", "a"], "--prompt must come with --vocabulary; give tokens without: --tokens 1,403,407"),
        ([SMALL, "--tokens", "1,x"], "must be numbers such as 1,403,407, not '1,x'"),
        ([SMALL, "--count", "0"], "--count must be at least 1, not 0"),
        ([SMALL, "--chart", "a.txt"], "--chart must be a file .png or .svg, and of the model or the RTL, not a.txt"),
    ],
)
def test_what_is_refused(run: Command, options: list[str], message: str) -> None:
    code, _, err = run("chat", *options)
    assert code == 2
    assert message in err


def test_words_must_be_the_models(run: Command, tmp_path: Path) -> None:
    words = str(vocabulary(tmp_path / "tok.bin"))
    code, _, err = run("chat", SMALL.replace("300", "301"), "--vocabulary", words)
    assert code == 2
    assert "tok.bin: must have 301 tokens, not 300" in err


def test_an_input_that_nobody_knows_is_refused(run: Command, tmp_path: Path) -> None:
    values = [
        helper.make_tensor_value_info("x", TensorProto.INT8, [1, 3]),
        helper.make_tensor_value_info("cache", TensorProto.INT8, [1, 3]),
    ]
    outputs = [helper.make_tensor_value_info(name, TensorProto.INT8, [1, 3]) for name in ("y", "cache_out")]
    scale = helper.make_tensor("s", TensorProto.FLOAT, [], [0.5])
    zero = helper.make_tensor("z", TensorProto.INT8, [], [0])
    nodes = [
        helper.make_node("DequantizeLinear", ["x", "s", "z"], ["a"]),
        helper.make_node("DequantizeLinear", ["cache", "s", "z"], ["b"]),
        helper.make_node("Add", ["a", "b"], ["c"], "sum"),
        helper.make_node("QuantizeLinear", ["c", "s", "z"], ["y"]),
        helper.make_node("Relu", ["a"], ["d"]),
        helper.make_node("QuantizeLinear", ["d", "s", "z"], ["cache_out"]),
    ]
    graph = helper.make_graph(nodes, "g", values, outputs, [scale, zero])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    (tmp_path / "net.onnx").write_bytes(model.SerializeToString())
    code, _, err = run("chat", str(tmp_path / "net.onnx"))
    assert code == 2
    assert "input 'x' must be a token, its position, a mask or a one-hot row, not int8[1, 3]; feed it with" in err


@needs_stories
def test_a_trained_model_writes_what_onnx_runtime_writes(run: Command) -> None:
    """With 8-bit products and all else in float, on the host; cache, mask and position made here."""
    file, words = STORIES / "stories260k_decode_static256_int8_qdq_all.onnx", STORIES / "tok512.bin"
    code, out, _ = run("chat", str(file), "--vocabulary", str(words), "--count", "12", "--effort", "0", "--json")
    assert code == 0
    wanted = json.loads((STORIES / "greedy_int8_ort.json").read_text())["all"][0]["tokens"]
    assert json.loads(out)["tokens"] == wanted[:13]


@pytest.mark.slow
def test_the_rtl_writes_the_same(run: Command) -> None:
    config = ["--ic-lanes", "4", "--oc-lanes", "4", "--sram", "32KiB"]
    told = []
    for engine in ("model", "rtl"):
        code, out, _ = run("chat", SMALL, *config, "--count", "8", "--engine", engine, "--json")
        assert code == 0
        told.append(json.loads(out))
    one, other = told
    assert one["tokens"] == other["tokens"]
    assert one["cycles_by_position"] == other["cycles_by_position"]
    assert one["cycles_by_kind"] == other["cycles_by_kind"]
