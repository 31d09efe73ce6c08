"""ImageNet classifiers of the zoo: the published architectures, with seeded random weights.

Input (1, 3, resolution, resolution); `width` scales the channels. MACs are those at the default parameters.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import ceil

from dovetail.sw.errors import NetworkError
from dovetail.sw.zoo.onnx_builder import LINEAR, RELU, RELU6, Act, Builder, in_range


@dataclass(frozen=True)
class Stage:
    """Inverted residuals of one width: expansion, channels, blocks, stride of the first block, depthwise kernel."""

    expand: int
    channels: int
    blocks: int
    stride: int
    kernel: int = 3


MOBILENET_V2 = (
    Stage(1, 16, 1, 1),
    Stage(6, 24, 2, 2),
    Stage(6, 32, 3, 2),
    Stage(6, 64, 4, 2),
    Stage(6, 96, 3, 1),
    Stage(6, 160, 3, 2),
    Stage(6, 320, 1, 1),
)
EFFICIENTNET_LITE = (
    Stage(1, 16, 1, 1),
    Stage(6, 24, 2, 2),
    Stage(6, 40, 2, 2, 5),
    Stage(6, 80, 3, 2),
    Stage(6, 112, 3, 1, 5),
    Stage(6, 192, 4, 2, 5),
    Stage(6, 320, 1, 1),
)
"""The first and last stage have one block in all sizes."""


def mobilenet_v1(width: float = 1.0, resolution: int = 224, classes: int = 1001, seed: int = 1) -> bytes:
    """MobileNetV1: 568.7 M MACs."""
    _check(width, resolution, classes)
    build = Builder("mobilenet_v1", seed)
    act = build.start((1, 3, resolution, resolution), 1 / 128, 0)

    def scaled(channels: int) -> int:
        return max(8, int(channels * width))

    act = build.conv("conv0", act, scaled(32), (3, 3), 2, RELU6)
    plan = [(64, 1), (128, 2), (128, 1), (256, 2), (256, 1), (512, 2)]
    plan += [(512, 1)] * 5 + [(1024, 2), (1024, 1)]
    for index, (channels, stride) in enumerate(plan, 1):
        act = build.depthwise(f"depthwise{index}", act, stride, RELU6)
        act = build.conv(f"pointwise{index}", act, scaled(channels), (1, 1), 1, RELU6)
    act = build.global_average("pool", act)
    act = build.flatten("flatten", act)
    return build.finish(build.dense("logits", act, classes, LINEAR))


def mobilenet_v2(width: float = 1.0, resolution: int = 224, classes: int = 1000, seed: int = 12) -> bytes:
    """MobileNetV2: 300.8 M MACs."""
    _check(width, resolution, classes)
    build = Builder("mobilenet_v2", seed)
    act = build.start((1, 3, resolution, resolution), 1 / 32, 0)
    act = build.conv("conv0", act, _multiple_of_8(32 * width), (3, 3), 2, RELU6, centred=True)
    for stage in MOBILENET_V2:
        act = _inverted_residuals(build, act, stage, width, centred=True)
    act = build.conv("conv1", act, _multiple_of_8(1280 * max(width, 1.0)), (1, 1), 1, RELU6)
    return _classified(build, act, classes)


def efficientnet_lite0(
    width: float = 1.0, depth: float = 1.0, resolution: int = 224, classes: int = 1000, seed: int = 13
) -> bytes:
    """EfficientNet-lite0: 385 M MACs; no squeeze and excitation, ReLU6. `width`, `depth`, `resolution` of the larger
    ones: lite1 1, 1.1, 240; lite2 1.1, 1.2, 260; lite3 1.2, 1.4, 280; lite4 1.4, 1.8, 300."""
    _check(width, resolution, classes)
    in_range("depth", depth, 0.1, 4.0)
    build = Builder("efficientnet_lite0", seed)
    act = build.start((1, 3, resolution, resolution), 1 / 32, 0)
    act = build.conv("conv0", act, 32, (3, 3), 2, RELU6)
    for stage in EFFICIENTNET_LITE:
        blocks = stage.blocks if stage.blocks == 1 else ceil(stage.blocks * depth)
        act = _inverted_residuals(build, act, replace(stage, blocks=blocks), width)
    return _classified(build, build.conv("conv1", act, 1280, (1, 1), 1, RELU6), classes)


def resnet18(width: float = 1.0, resolution: int = 224, classes: int = 1000, seed: int = 10) -> bytes:
    """ResNet-18: 1.81 G MACs."""
    build, act = _resnet_stem("resnet18", width, resolution, classes, seed)
    for stage, blocks in enumerate((2, 2, 2, 2)):
        channels = _multiple_of_8(width * (64 << stage))
        for block in range(blocks):
            act = _basic_block(build, f"stage{stage + 1}_{block}", act, channels, 2 if stage and not block else 1)
    return _classified(build, act, classes)


def resnet50(
    version: float = 1.5, width: float = 1.0, resolution: int = 224, classes: int = 1000, seed: int = 11
) -> bytes:
    """ResNet-50: 4.09 G MACs as it is common (`version` 1.5, stride in the 3x3 convolutions); 3.86 G MACs as first
    published (`version` 1, stride in the 1x1 convolutions before them)."""
    if version not in (1, 1.5):
        raise NetworkError(f"version must be 1 or 1.5, not {version}")
    build, act = _resnet_stem("resnet50", width, resolution, classes, seed)
    for stage, blocks in enumerate((3, 4, 6, 3)):
        channels = _multiple_of_8(width * (64 << stage))
        for block in range(blocks):
            stride = 2 if stage and not block else 1
            strides = (1, stride) if version == 1.5 else (stride, 1)
            act = _bottleneck(build, f"stage{stage + 1}_{block}", act, channels, strides)
    return _classified(build, act, classes)


def _inverted_residuals(build: Builder, act: Act, stage: Stage, width: float, centred: bool = False) -> Act:
    for block in range(stage.blocks):
        name, start = f"stage{stage.channels}_{block}", act
        if stage.expand > 1:
            act = build.conv(f"{name}_expand", act, stage.expand * act.shape[1], (1, 1), 1, RELU6)
        stride = 1 if block else stage.stride
        act = build.depthwise(f"{name}_depthwise", act, stride, RELU6, stage.kernel, centred)
        act = build.conv(f"{name}_project", act, _multiple_of_8(stage.channels * width), (1, 1), 1, LINEAR)
        if start.shape == act.shape:
            act = build.residual(f"{name}_add", start, act)
    return act


def _resnet_stem(name: str, width: float, resolution: int, classes: int, seed: int) -> tuple[Builder, Act]:
    _check(width, resolution, classes)
    build = Builder(name, seed)
    act = build.start((1, 3, resolution, resolution), 1 / 32, 0)
    act = build.conv("conv0", act, _multiple_of_8(width * 64), (7, 7), 2, RELU, centred=True)
    return build, build.max_pool("pool0", act, 3, 2)


def _basic_block(build: Builder, name: str, act: Act, channels: int, stride: int) -> Act:
    inner = build.conv(f"{name}_conv1", act, channels, (3, 3), stride, RELU, centred=True)
    inner = build.conv(f"{name}_conv2", inner, channels, (3, 3), 1, LINEAR, centred=True)
    return build.residual(f"{name}_add", _shortcut(build, name, act, inner, stride), inner, "Relu")


def _bottleneck(build: Builder, name: str, act: Act, channels: int, strides: tuple[int, int]) -> Act:
    inner = build.conv(f"{name}_conv1", act, channels, (1, 1), strides[0], RELU)
    inner = build.conv(f"{name}_conv2", inner, channels, (3, 3), strides[1], RELU, centred=True)
    inner = build.conv(f"{name}_conv3", inner, 4 * channels, (1, 1), 1, LINEAR)
    return build.residual(f"{name}_add", _shortcut(build, name, act, inner, max(strides)), inner, "Relu")


def _shortcut(build: Builder, name: str, act: Act, inner: Act, stride: int) -> Act:
    """The block's input, or its projection where the block changes the shape."""
    if act.shape == inner.shape:
        return act
    return build.conv(f"{name}_shortcut", act, inner.shape[1], (1, 1), stride, LINEAR, centred=True)


def _classified(build: Builder, act: Act, classes: int) -> bytes:
    act = build.flatten("flatten", build.global_average("pool", act))
    return build.finish(build.dense("logits", act, classes, LINEAR))


def _check(width: float, resolution: int, classes: int) -> None:
    in_range("width", width, 0.05, 2.0)
    in_range("resolution", resolution, 32, 1024)
    in_range("classes", classes, 1, 100_000)


def _multiple_of_8(channels: float) -> int:
    """The nearest multiple of 8, at most a tenth below, as MobileNetV2 rounds its channels."""
    nearest = max(8, int(channels + 4) // 8 * 8)
    return nearest + 8 if nearest < 0.9 * channels else nearest
