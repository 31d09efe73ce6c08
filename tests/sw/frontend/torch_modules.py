"""PyTorch modules of the tests. Only imported where PyTorch is installed."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn

VECTOR = (1, 20)
IMAGE = (1, 3, 16, 16)
TOKENS = (1, 8, 16)


class Mlp(nn.Module):
    """Three dense layers."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(20, 24), nn.ReLU(), nn.Linear(24, 16), nn.Tanh(), nn.Linear(16, 5))

    def forward(self, x: Any) -> Any:
        return self.layers(x)


class Cnn(nn.Module):
    """A convolution, a residual branch with a depthwise one, and a classifier."""

    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Sequential(nn.Conv2d(3, 8, 3, padding=1, bias=False), nn.BatchNorm2d(8), nn.ReLU())
        self.depthwise = nn.Sequential(nn.Conv2d(8, 8, 3, padding=1, groups=8), nn.BatchNorm2d(8), nn.ReLU())
        self.pointwise = nn.Conv2d(8, 8, 1)
        self.pool = nn.MaxPool2d(2)
        self.last = nn.Linear(8 * 8 * 8, 10)

    def forward(self, x: Any) -> Any:
        x = self.stem(x)
        x = torch.relu(x + self.pointwise(self.depthwise(x)))
        return self.last(torch.flatten(self.pool(x), 1))


class Encoder(nn.Module):
    """A transformer's encoder block and a classifier of its first token."""

    def __init__(self) -> None:
        super().__init__()
        self.block = nn.TransformerEncoderLayer(16, 2, 32, dropout=0.0, activation="gelu", batch_first=True)
        self.last = nn.Linear(16, 4)

    def forward(self, tokens: Any) -> Any:
        return self.last(self.block(tokens)[:, 0])


def made(kind: type[nn.Module], seed: int = 0) -> Any:
    """A module in evaluation mode with random weights, norms as after training."""
    torch.manual_seed(seed)
    module = kind().eval()
    for part in module.modules():
        if isinstance(part, nn.BatchNorm2d):
            part.running_mean.normal_(0, 0.2)
            part.running_var.uniform_(0.5, 1.5)
    return module


def inputs(shape: tuple[int, ...], count: int, seed: int = 1) -> list[Any]:
    """Random inputs."""
    torch.manual_seed(seed)
    return [torch.randn(shape) for _ in range(count)]


def quantised_by_pt2e(kind: type[nn.Module], shape: tuple[int, ...], form: str) -> Any:
    """A module that torchao's PT2E flow has quantised.

    ``form``: "per-channel" or "per-tensor" weights; "unfolded": these in float, quantised in the graph; "trained": by
    the flow of quantisation-aware training; "dynamic": scales that each run finds.
    """
    from torchao.quantization.pt2e import move_exported_model_to_eval
    from torchao.quantization.pt2e.quantize_pt2e import convert_pt2e, prepare_pt2e, prepare_qat_pt2e
    from torchao.testing.pt2e._xnnpack_quantizer import XNNPACKQuantizer, get_symmetric_quantization_config

    trained = form == "trained"
    settings = get_symmetric_quantization_config(
        is_per_channel=form != "per-tensor", is_qat=trained, is_dynamic=form == "dynamic"
    )
    module, samples = made(kind).train(trained), inputs(shape, 16)
    captured = torch.export.export(module, (samples[0],)).module()
    prepared = (prepare_qat_pt2e if trained else prepare_pt2e)(captured, XNNPACKQuantizer().set_global(settings))
    for sample in samples:
        prepared(sample)
    if trained:
        move_exported_model_to_eval(prepared)
    return convert_pt2e(prepared, fold_quantize=form != "unfolded")
