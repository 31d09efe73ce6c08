"""The built-in networks: quantised ONNX files made on the spot, with seeded weights.

They stand for their architectures: every size, stride and padding is right, the weights are random.
Files are QDQ, opset 13 (14 with hard-swish, 17 with layer normalisations, 23 with RMS normalisations), int8 activations
in and out, int8 weights with a scale per output channel.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from functools import partial
from urllib.parse import parse_qsl

from dovetail.sw.errors import NetworkError
from dovetail.sw.zoo.decoders import decoder_tiny
from dovetail.sw.zoo.imagenet import efficientnet_lite0, mobilenet_v1, mobilenet_v2, resnet18, resnet50
from dovetail.sw.zoo.onnx_builder import HARD_SWISH, LINEAR, RELU, RELU6, UNIT, Builder, in_range
from dovetail.sw.zoo.recurrent import gru, lstm
from dovetail.sw.zoo.transformers import attention_block, bert_tiny, cct, kwt, vit_tiny


def resnet8(classes: int = 10, seed: int = 2) -> bytes:
    """ResNet-8 of MLPerf Tiny: CIFAR-10 classification; input (1, 3, 32, 32), 12.5 M MACs."""
    in_range("classes", classes, 1, 100_000)
    build = Builder("resnet8", seed)
    act = build.start((1, 3, 32, 32), 1 / 128, 0)
    act = build.conv("conv0", act, 16, (3, 3), 1, RELU)
    for index, (channels, stride) in enumerate([(16, 1), (32, 2), (64, 2)], 1):
        inner = build.conv(f"stack{index}_conv1", act, channels, (3, 3), stride, RELU)
        inner = build.conv(f"stack{index}_conv2", inner, channels, (3, 3), 1, LINEAR)
        shortcut = act
        if stride == 2:
            shortcut = build.conv(f"stack{index}_shortcut", act, channels, (1, 1), 2, LINEAR)
        act = build.add(f"stack{index}_add", shortcut, inner, RELU)
    act = build.average("pool", act)
    act = build.flatten("flatten", act)
    return build.finish(build.dense("logits", act, classes, LINEAR))


def dscnn(classes: int = 12, seed: int = 3) -> bytes:
    """DS-CNN of MLPerf Tiny: keyword spotting; input (1, 1, 49, 10), 2.66 M MACs."""
    in_range("classes", classes, 1, 100_000)
    build = Builder("dscnn", seed)
    act = build.start((1, 1, 49, 10), 0.05, 3)
    act = build.conv("conv0", act, 64, (10, 4), 2, RELU)
    for index in range(1, 5):
        act = build.depthwise(f"depthwise{index}", act, 1, RELU)
        act = build.conv(f"pointwise{index}", act, 64, (1, 1), 1, RELU)
    act = build.average("pool", act)
    act = build.flatten("flatten", act)
    return build.finish(build.dense("logits", act, classes, LINEAR))


def autoencoder(seed: int = 4) -> bytes:
    """Dense autoencoder of MLPerf Tiny: anomaly detection; input (1, 640), 264 k MACs."""
    build = Builder("autoencoder", seed)
    act = build.start((1, 640), 0.05, 10)
    for index, channels in enumerate([128, 128, 128, 128, 8, 128, 128, 128, 128]):
        act = build.matmul(f"dense{index}", act, channels, RELU)
    return build.finish(build.matmul("dense9", act, 640, LINEAR))


def mobilenet_v2_block(channels: int = 16, resolution: int = 12, seed: int = 5) -> bytes:
    """Inverted residual of MobileNetV2; input (1, channels, resolution, resolution)."""
    in_range("channels", channels, 1, 1024)
    in_range("resolution", resolution, 1, 1024)
    build = Builder("mobilenet_v2_block", seed)
    start = build.start((1, channels, resolution, resolution), 1 / 32, 0)
    act = build.conv("expand", start, 6 * channels, (1, 1), 1, RELU6)
    act = build.depthwise("depthwise", act, 1, RELU6)
    act = build.conv("project", act, channels, (1, 1), 1, LINEAR)
    return build.finish(build.add("residual", start, act, LINEAR))


def hard_swish_block(channels: int = 16, resolution: int = 10, seed: int = 6) -> bytes:
    """Inverted residual of MobileNetV3 with hard-swish, and squeeze and excitation with hard-sigmoid; input (1,
    channels, resolution, resolution)."""
    in_range("channels", channels, 1, 1024)
    in_range("resolution", resolution, 1, 255)
    build = Builder("hard_swish_block", seed)
    wide = 4 * channels
    start = build.start((1, channels, resolution, resolution), 1 / 32, 0)
    act = build.conv("expand", start, wide, (1, 1), 1, LINEAR)
    act = build.function("expand_swish", "HardSwish", act, HARD_SWISH)
    act = build.depthwise("depthwise", act, 1, LINEAR)
    act = build.function("depthwise_swish", "HardSwish", act, HARD_SWISH)
    squeezed = build.global_average("squeeze", act)
    squeezed = build.conv("reduce", squeezed, max(channels, 4), (1, 1), 1, RELU)
    squeezed = build.conv("restore", squeezed, wide, (1, 1), 1, LINEAR)
    gate = build.function("gate", "HardSigmoid", squeezed, UNIT, alpha=1 / 6, beta=0.5)
    act = build.multiply("excite", act, gate, HARD_SWISH)
    act = build.conv("project", act, channels, (1, 1), 1, LINEAR)
    return build.finish(build.add("residual", start, act, LINEAR), opset=14)


def inception_block(channels: int = 24, resolution: int = 10, seed: int = 7) -> bytes:
    """Inception block: four branches, one of them a padded average, side by side; input (1, channels, resolution,
    resolution)."""
    in_range("channels", channels, 1, 1024)
    in_range("resolution", resolution, 3, 1024)
    build = Builder("inception_block", seed)
    start = build.start((1, channels, resolution, resolution), 1 / 32, 0)
    one = build.conv("one", start, 16, (1, 1), 1, RELU)
    three = build.conv("three", build.conv("three_reduce", start, 12, (1, 1), 1, RELU), 16, (3, 3), 1, RELU)
    five = build.conv("five", build.conv("five_reduce", start, 6, (1, 1), 1, RELU), 8, (5, 5), 1, LINEAR)
    pool = build.conv("pool", build.smooth("average", start), 8, (1, 1), 1, RELU)
    return build.finish(build.concat("concat", one, three, five, pool))


def shuffle_block(channels: int = 32, resolution: int = 10, seed: int = 8) -> bytes:
    """Unit of ShuffleNetV2, its first convolution in two groups: split, one half convolved, concatenated, shuffled; and
    the convolution after it; input (1, channels, resolution, resolution)."""
    in_range("channels", channels, 4, 1024)
    in_range("resolution", resolution, 1, 1024)
    if channels % 4:
        raise NetworkError(f"channels must be a multiple of 4, not {channels}")
    build = Builder("shuffle_block", seed)
    start = build.start((1, channels, resolution, resolution), 1 / 32, 0)
    kept, act = build.parts("split", start, 2)
    act = build.conv("grouped", act, channels // 2, (1, 1), 1, RELU, groups=2)
    act = build.depthwise("depthwise", act, 1, LINEAR)
    act = build.conv("pointwise", act, channels // 2, (1, 1), 1, RELU)
    act = build.shuffle("shuffle", build.concat("concat", kept, act), 2)
    return build.finish(build.conv("next", act, channels, (1, 1), 1, LINEAR))


NETWORKS: dict[str, Callable[..., bytes]] = {
    "mobilenet_v1": mobilenet_v1,
    "mobilenet_v2": mobilenet_v2,
    "resnet18": resnet18,
    "resnet50": resnet50,
    "efficientnet_lite0": efficientnet_lite0,
    "vit_tiny": vit_tiny,
    "bert_tiny": bert_tiny,
    "kwt": kwt,
    "cct": cct,
    "decoder_tiny": decoder_tiny,
    "lstm": lstm,
    "gru": gru,
    "resnet8": resnet8,
    "dscnn": dscnn,
    "autoencoder": autoencoder,
    "mobilenet_v2_block": mobilenet_v2_block,
    "hard_swish_block": hard_swish_block,
    "inception_block": inception_block,
    "shuffle_block": shuffle_block,
    "attention_block": attention_block,
}


def model_bytes(name: str) -> bytes:
    """The ONNX file of `name` or `name?parameter=value&...`.

    Raises
    ------
    NetworkError: unknown network or parameter, or a value out of range.
    """
    return builder(name)()


def builder(name: str) -> Callable[[], bytes]:
    """What :func:`model_bytes` calls.

    Raises
    ------
    NetworkError: unknown network or parameter.
    """
    stem, _, query = name.partition("?")
    build = NETWORKS.get(stem)
    if build is None:
        raise NetworkError(f"zoo network must be one of {', '.join(NETWORKS)}, not {stem!r}")
    known = inspect.signature(build).parameters
    arguments: dict[str, int | float] = {}
    for key, text in parse_qsl(query, keep_blank_values=True):
        if key not in known:
            raise NetworkError(f"parameter of zoo:{stem} must be one of {', '.join(known)}, not {key!r}")
        kind = type(known[key].default)
        try:
            arguments[key] = kind(text)
        except ValueError as error:
            raise NetworkError(f"zoo:{stem}: {key} must be of type {kind.__name__}, not {text!r}") from error
    return partial(build, **arguments)
