"""PyTorch networks: captured, quantised, compiled; equal to ONNX Runtime on the same ONNX, close to PyTorch."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest

pytest.importorskip("torch", reason="PyTorch is not installed (extra: torch)")

import torch
from torch import nn

import dovetail
from dovetail.sw.analysis.diff import compare
from dovetail.sw.errors import DovetailError, NetworkError
from dovetail.sw.frontend.torch import from_torch
from dovetail.sw.host.onnx_session import open_session
from dovetail.sw.runtime import reference_runtimes
from dovetail.sw.runtime.compiled_network import CompiledNetwork
from tests.sw.frontend.torch_modules import IMAGE, TOKENS, VECTOR, Cnn, Encoder, Mlp, inputs, made, quantised_by_pt2e

CONFIG = dovetail.Config(pe=64, sram="1 MiB", softmax=1)
FLOATS: dict[str, tuple[type[nn.Module], tuple[int, ...], float]] = {
    "mlp": (Mlp, VECTOR, 25.0),
    "cnn": (Cnn, IMAGE, 36.0),
    "encoder": (Encoder, TOKENS, 24.0),
}
"""Module, shape of its input, least signal-to-noise against PyTorch's float module in dB."""


def outputs_of(network: CompiledNetwork, samples: list[Any]) -> np.ndarray[Any, Any]:
    """The output on each sample. Every tensor of every run is ONNX Runtime's."""
    (given,), (port,) = network.graph.inputs, network.graph.outputs
    found = []
    for sample in samples:
        feed = {given.name: sample.numpy()}
        result = network.run(feed)
        assert network.source is not None
        reference = reference_runtimes.run(network.graph, network.source, feed)
        difference = compare(network.graph, result.tensors, reference.tensors)
        assert difference.comparisons and difference.first is None
        found.append(result.outputs[port.name])
    return np.stack(found)


def torch_outputs(module: Any, samples: list[Any]) -> np.ndarray[Any, Any]:
    with torch.no_grad():
        return np.stack([module(sample).numpy() for sample in samples])


@pytest.mark.parametrize("name", FLOATS)
def test_float_modules_are_quantised(name: str) -> None:
    kind, shape, decibel = FLOATS[name]
    module, samples = made(kind), inputs(shape, 32)
    quantised = dovetail.quantise(module, samples, example_inputs=samples[0])
    assert quantised.name == kind.__name__
    network = dovetail.compile(quantised, CONFIG, keep_tensors=True)
    assert network.code.layers
    others = inputs(shape, 32, seed=2)
    found, real = outputs_of(network, others), torch_outputs(module, others)
    assert 10 * np.log10((real**2).mean() / ((found - real) ** 2).mean()) > decibel


@pytest.mark.parametrize("form", ["per-channel", "per-tensor", "unfolded", "trained"])
def test_what_pt2e_quantised_keeps_its_integers(form: str) -> None:
    pytest.importorskip("torchao", reason="torchao is not installed (extra: torch)")
    module = quantised_by_pt2e(Cnn, IMAGE, form)
    samples = inputs(IMAGE, 8, seed=2)
    network = dovetail.compile(module, CONFIG, example_inputs=samples[0], keep_tensors=True)
    assert {node.op for node in network.graph.nodes} >= {"conv", "depthwise", "add"}
    hint = "inputs and outputs that are integers need none (`dovetail quantise --integer-ends`)"
    assert set(network.code.host_reasons.values()) == {
        f"quantize is not an accelerator operation; {hint}",
        f"dequantize is not an accelerator operation; {hint}",
    }
    found, real = outputs_of(network, samples), torch_outputs(module, samples)
    steps = np.rint((found - real) / last_step(network))
    assert np.abs(steps).max() <= 1  # of 80 values; ties and sums are rounded otherwise
    assert (steps == 0).mean() > 0.9


def last_step(network: CompiledNetwork) -> float:
    """The step of the output's quantisation."""
    (port,) = network.graph.outputs
    (node,) = (node for node in network.graph.nodes if port.tensor in node.outputs)
    scale = network.graph.tensors[node.inputs[0]].scale
    assert scale is not None
    return float(scale)


def test_an_exported_program_is_as_its_module() -> None:
    samples = inputs(VECTOR, 4)
    module = made(Mlp)
    program = torch.export.export(module, (samples[0],))
    graphs = [onnx.load_from_string(from_torch(*given).data).graph for given in ((module, samples[0]), (program,))]
    assert graphs[0].SerializeToString(deterministic=True) == graphs[1].SerializeToString(deterministic=True)


def test_an_open_batch_is_one() -> None:
    program = torch.export.export(
        made(Cnn), (torch.zeros(2, *IMAGE[1:]),), dynamic_shapes=({0: torch.export.Dim("n")},)
    )
    batch = torch.cat(inputs(IMAGE, 4))
    (port,) = dovetail.compile(dovetail.quantise(program, batch), CONFIG).graph.inputs
    assert port.layout.shape == IMAGE


def test_nothing_says_where_a_network_comes_from() -> None:
    assert str(Path(__file__).parent).encode() not in from_torch(made(Cnn), torch.zeros(IMAGE)).data


class Narrow(nn.Module):
    """Quantised to 7 bits, and back."""

    def forward(self, x: Any) -> Any:
        from torch.ao.quantization.fx import _decomposed

        assert _decomposed
        ops = torch.ops.quantized_decomposed
        return ops.dequantize_per_tensor(
            ops.quantize_per_tensor(x, 0.1, 3, 0, 127, torch.uint8), 0.1, 3, 0, 127, torch.uint8
        )


def test_integers_keep_narrow_bounds() -> None:
    x = torch.linspace(-2, 30, 100)[None]
    model = from_torch(Narrow().eval(), x).data

    session = open_session(model)
    (found,) = session.run(None, {"x": x.numpy()})
    real = Narrow()(x).numpy()
    assert real.max() < 13
    assert np.array_equal(found, real)


class Branch(nn.Module):
    def forward(self, x: Any) -> Any:
        return x if x.sum() > 0 else -x


class Operator(nn.Module):
    def forward(self, x: Any) -> Any:
        return torch.special.i0(x)


class Dropping(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.dropout = nn.Dropout(0.5)

    def forward(self, x: Any) -> Any:
        return self.dropout(x)


def _half_evaluated() -> Any:
    module = Dropping().eval()
    module.dropout.train()
    return module


X = torch.zeros(VECTOR)
REFUSED: dict[str, tuple[Callable[[], Any], Any, str]] = {
    "training": (Mlp, X, r"Mlp: module must be in evaluation mode, not training; call its eval\(\) first"),
    "dropout": (_half_evaluated, X, r"aten\.dropout\.default 'dropout' must be in evaluation mode, not training"),
    "branch": (Branch().eval, X, "control flow and shapes must not depend on values of tensors"),
    "operator": (Operator().eval, X, r"operator prims\.bessel_i0 has no form in ONNX; replace it in the module"),
    "no inputs": (made(Mlp).eval, None, "example_inputs must be given with a module, such as example_inputs="),
    "array": (made(Mlp).eval, X.numpy(), "example_inputs must be tensors, such as .*, not ndarray"),
    "arrays": (made(Mlp).eval, (X.numpy(),), r"example_inputs must be torch\.Tensors, not ndarray"),
    "two": (made(Mlp).eval, (X, X), "torch.export must capture the module with these example inputs, not: too many"),
    "shape": (made(Mlp).eval, X[:, :7], "torch.export must capture the module with these example inputs, not: a and b"),
    "tensor": (lambda: X, None, r"network must be a torch\.nn\.Module or a torch\.export\.ExportedProgram, not Tensor"),
    "program": (
        lambda: torch.export.export(made(Mlp), (X,)),
        X,
        "example_inputs must be left out with an ExportedProgram, which has its own",
    ),
    "float": (made(Mlp).eval, X, r"must be quantised to int8, not float; .* in Python dovetail\.quantise\("),
}


@pytest.mark.parametrize("case", REFUSED)
def test_what_is_refused(case: str, capfd: pytest.CaptureFixture[str]) -> None:
    network, example_inputs, text = REFUSED[case]
    with pytest.raises(NetworkError, match=text) as caught:
        dovetail.compile(network(), CONFIG, example_inputs=example_inputs)
    assert "\n" not in str(caught.value)
    assert capfd.readouterr() == ("", "")


def test_dynamic_quantisation_is_refused() -> None:
    pytest.importorskip("torchao", reason="torchao is not installed (extra: torch)")
    with pytest.raises(NetworkError, match=r"operator quantized_decomposed\.choose_qparams has no form in ONNX"):
        dovetail.compile(quantised_by_pt2e(Mlp, VECTOR, "dynamic"), CONFIG, example_inputs=X)


def test_torch_must_be_installed(monkeypatch: pytest.MonkeyPatch) -> None:
    module = made(Mlp)
    monkeypatch.setitem(sys.modules, "torch", None)
    with pytest.raises(NetworkError, match=r'must have PyTorch to be read; pip install "dovetail\[torch\]"'):
        dovetail.compile(module, CONFIG, example_inputs=X)


def test_what_else_takes_the_place_of_a_module() -> None:
    with pytest.raises(NetworkError, match=r"example_inputs must come with a torch\.nn\.Module"):
        dovetail.compile("zoo:resnet8", CONFIG, example_inputs=X)
    with pytest.raises(DovetailError, match=r"config must be a dovetail\.Config, not tuple"):
        dovetail.compile(made(Mlp), (X,))  # type: ignore[arg-type]


def test_files_of_pytorch_are_not_opened(tmp_path: Path) -> None:
    path = tmp_path / "net.pt2"
    torch.export.save(torch.export.export(made(Mlp), (X,)), path)
    with pytest.raises(NetworkError, match=r"must be opened by you, as it may run code; give what torch\.export\.load"):
        dovetail.compile(path, CONFIG)


@pytest.mark.parametrize(
    ("samples", "text"),
    [
        (3, "samples must be a sequence of calibration inputs, not int"),
        ([(X, X)], r"sample 0: must hold the input\(s\) x, not 2 arrays"),
        ([X[:, :7]], r"sample 0: input 'x' must have shape \(1, 20\), not \(1, 7\)"),
        ([X.clone().requires_grad_()], "sample 0: must be arrays, not: Can't call numpy"),
    ],
)
def test_samples_that_do_not_fit(samples: Any, text: str) -> None:
    with pytest.raises(NetworkError, match=text):
        dovetail.quantise(made(Mlp), samples, example_inputs=X)
