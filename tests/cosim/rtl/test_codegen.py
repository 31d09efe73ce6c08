"""Generated C on the Verilated accelerator: bytes and cycles of the compiled network, one inference after another."""

import re
import subprocess
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import pytest

from dovetail.cosim.rtl.c_host import c_program
from dovetail.isa.config.resolved import Config
from dovetail.sw.export.codegen.project import Project, project_of
from dovetail.sw.network import ir
from dovetail.sw.network.layout import Array
from dovetail.sw.runtime.compiled_network import CompiledNetwork, compile_network
from dovetail.sw.runtime.decoder import Decoder
from dovetail.sw.runtime.engines import create
from tests.cosim.compare.test_lockstep import SMALL
from tests.sw.compiler.decoder import decoder, steps
from tests.sw.runtime.stateful_networks import lstm, streaming

MODELS = Path(__file__).parents[4] / "shared" / "models" / "mlperf_tiny"
beside = pytest.mark.skipif(not MODELS.is_dir(), reason="the trained networks are not beside the project")
CONFIG = Config.load("small")
RUNS = 2
PARAMETERS = SMALL["parameters"]


@pytest.fixture
def build(build_cache: Path, tmp_path: Path) -> Callable[[CompiledNetwork], Path]:
    """Makes an executable of a network's project, with weights.bin beside it."""

    def built(compiled: CompiledNetwork) -> Path:
        project = project_of(compiled)
        (tmp_path / "weights.bin").write_bytes(project.files["inference_weights.bin"])
        return c_program(compiled.config, sources_of(project), tmp_path / "inference", cache=build_cache)

    return built


def sources_of(project: Project) -> dict[str, str]:
    """All but the host, which is the simulation here."""
    return {
        name: data.decode() for name, data in project.files.items() if name.endswith((".c", ".h")) and name != "uio.c"
    }


def samples(graph: ir.Graph, count: int) -> list[dict[str, Array]]:
    rng = np.random.default_rng(0)
    return [
        {port.name: rng.integers(-128, 128, port.shape).astype(port.dtype) for port in graph.inputs}
        for _ in range(count)
    ]


def check(
    compiled: CompiledNetwork, program: Path, folder: Path, inputs: Sequence[dict[str, Array]] | None = None
) -> None:
    """Every inference of a file of them gives the network's outputs in its cycles."""
    inputs = samples(compiled.graph, RUNS) if inputs is None else inputs
    (folder / "input.bin").write_bytes(b"".join(value.tobytes() for sample in inputs for value in sample.values()))
    files = [str(folder / name) for name in ("weights.bin", "input.bin", "output.bin")]
    done = subprocess.run([program, *files], capture_output=True, text=True, timeout=600)
    assert (done.returncode, done.stderr) == (0, "")
    wanted = [compiled.run(sample) for sample in inputs]
    assert (folder / "output.bin").read_bytes() == b"".join(
        value.tobytes() for result in wanted for value in result.outputs.values()
    )
    assert [int(n) for n in re.findall(r"^cycles (\d+)$", done.stdout, re.M)] == [result.cycles for result in wanted]


def test_host_operators_in_the_middle(build: Callable[[CompiledNetwork], Path], tmp_path: Path) -> None:
    compiled = compile_network("zoo:attention_block", CONFIG, effort=0)
    assert len(compiled.code.segments) == 2
    check(compiled, build(compiled), tmp_path)


@beside
def test_keyword_spotting(build: Callable[[CompiledNetwork], Path], tmp_path: Path) -> None:
    compiled = compile_network(MODELS / "kws_dscnn" / "kws_int8.tflite", CONFIG)
    check(compiled, build(compiled), tmp_path)


@beside
@pytest.mark.slow
@pytest.mark.parametrize(
    "name",
    [
        "kws_dscnn/kws_int8_qdq.onnx",
        "ad_autoencoder/ad_int8.tflite",
        "ad_autoencoder/ad_int8_qdq.onnx",
        "ic_resnet8/resnet8_int8.tflite",
        "ic_resnet8/resnet8_int8_qdq.onnx",
        "vww_mobilenet_v1_025/vww_int8.tflite",
    ],
)
def test_mlperf_tiny(name: str, build: Callable[[CompiledNetwork], Path], tmp_path: Path) -> None:
    compiled = compile_network(MODELS / name, CONFIG)
    check(compiled, build(compiled), tmp_path)


@beside
@pytest.mark.slow
@pytest.mark.parametrize("name", ["kws_dscnn/kws_int8.tflite", "kws_dscnn/kws_int8_qdq.onnx"])
def test_depthwise_convolutions_on_the_host(
    name: str, build: Callable[[CompiledNetwork], Path], tmp_path: Path
) -> None:
    compiled = compile_network(MODELS / name, Config.load("small").replace(depthwise="none"))
    assert len(compiled.code.segments) == 5
    check(compiled, build(compiled), tmp_path)


def test_a_cache_updated_in_place(build: Callable[[CompiledNetwork], Path], tmp_path: Path) -> None:
    """One program at every position; a place out of range ends the application."""
    compiled = compile_network(decoder(), PARAMETERS, effort=0)
    program, inputs = build(compiled), steps(compiled.graph)
    assert compiled.code.parameters.formulas
    check(compiled, program, tmp_path, inputs)
    inputs[1]["position"] += len(inputs)
    (tmp_path / "input.bin").write_bytes(b"".join(value.tobytes() for one in inputs for value in one.values()))
    files = [str(tmp_path / name) for name in ("weights.bin", "input.bin", "output.bin")]
    done = subprocess.run([program, *files], capture_output=True, text=True, timeout=60)
    text = "inference: a number that a run is given, such as a position or a token, is outside its range\n"
    assert (done.returncode, done.stderr, done.stdout.count("cycles")) == (1, text, 1)


@pytest.mark.parametrize("make", [lstm, streaming])
def test_variables(make: Callable[[], bytes], build: Callable[[CompiledNetwork], Path], tmp_path: Path) -> None:
    (tmp_path / "net.tflite").write_bytes(make())
    compiled = compile_network(tmp_path / "net.tflite", PARAMETERS, effort=0)
    check(compiled, build(compiled), tmp_path, samples(compiled.graph, 10))


@pytest.mark.slow
def test_tokens(build: Callable[[CompiledNetwork], Path], tmp_path: Path) -> None:
    """A language model writes the same tokens in 16 positions, by its C code on the RTL and by the model's engine."""
    config = CONFIG.replace(softmax=1, norm=1, parameters=3)
    compiled = compile_network("zoo:decoder_tiny", config, effort=0)
    program = build(compiled)
    written = list(Decoder(compiled, create("model", config)).write([1, 403, 407], count=14))
    assert len(written) == 16
    inputs = [
        {"tokens": np.array([[step.token]]), "position": np.array([position])} for position, step in enumerate(written)
    ]
    compiled.reset()
    check(compiled, program, tmp_path, inputs)
    logits = np.frombuffer((tmp_path / "output.bin").read_bytes(), np.int8).reshape(16, -1)
    assert logits.argmax(axis=1).tolist() == [step.next for step in written]


def test_what_the_application_says(build: Callable[[CompiledNetwork], Path], tmp_path: Path, build_cache: Path) -> None:
    compiled = compile_network("zoo:attention_block", CONFIG, effort=0)
    program = build(compiled)
    weights, sample = tmp_path / "weights.bin", tmp_path / "input.bin"
    data = bytearray(weights.read_bytes())
    data[-30] ^= 4
    (tmp_path / "damaged.bin").write_bytes(data)
    elsewhere = project_of(compile_network("zoo:attention_block", Config.load("8x8"), effort=0))
    (tmp_path / "other").mkdir()
    other = c_program(CONFIG, sources_of(elsewhere), tmp_path / "other" / "inference", cache=build_cache)
    sample.write_bytes(bytes(10))
    texts = {
        (program, weights): "input: must be whole inferences",
        (program, tmp_path / "damaged.bin"): "inference: weights file must be undamaged: its CRC does not hold",
        (program, tmp_path / "lost.bin"): f"{tmp_path / 'lost.bin'}: must be a file that can be opened",
        (other, weights): "inference: ",
    }
    for (application, file), text in texts.items():
        done = subprocess.run(
            [application, file, sample, tmp_path / "output.bin"], capture_output=True, text=True, timeout=60
        )
        assert (done.returncode, done.stdout, done.stderr[: len(text)]) == (1, "", text)
