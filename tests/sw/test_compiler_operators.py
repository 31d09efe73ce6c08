"""Every operator beyond convolutions, compiled, equals the graph interpreter: on small, odd and bare accelerators."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from dovetail.isa.config import Config
from dovetail.isa.instructions import Op
from dovetail.isa.numerics import AddParams, Rounding, VectorOperation, encode_multiplier
from dovetail.sw import graph as ir
from dovetail.sw import reference
from dovetail.sw.compiler import Options, generate
from dovetail.sw.hazards import races
from dovetail.sw.layout import Layout
from dovetail.sw.network import CompiledNetwork
from dovetail.sw.random_programs.configurations import configurations

CONFIGS = {
    "4x4": Config(ic_lanes=4, oc_lanes=4, sram="32 KiB", banks=16, stripe=16, requant_lanes=2),
    "3x5": Config(ic_lanes=3, oc_lanes=5, sram="64 KiB", stripe=7, bus=32, vector_lanes=3, depthwise_lanes=7),
    "16x1 emulated": Config(ic_lanes=16, oc_lanes=1, sram="32 KiB", banks=4, depthwise="emulated"),
    "1x16": Config(ic_lanes=1, oc_lanes=16, sram="64 KiB", bus=128, vector_lanes=5),
}
BARE = Config(
    ic_lanes=4,
    oc_lanes=4,
    depthwise="none",
    matmul=False,
    pooling=False,
    elementwise=False,
    activation=False,
    sram="32 KiB",
)


class Net:
    """A graph with random parameters; every method returns the name of its result."""

    def __init__(self, seed: int = 0, rounding: Rounding = Rounding.TFLITE) -> None:
        self.random = np.random.default_rng(seed)
        self.rounding = rounding
        self.tensors: dict[str, ir.Tensor] = {}
        self.inputs: list[str] = []
        self.nodes: list[ir.Node] = []

    def tensor(self, *shape: int) -> str:
        name = f"t{len(self.tensors)}"
        self.tensors[name] = ir.Tensor(name, shape, np.float32(0.05), int(self.random.integers(-128, 128)))
        return name

    def input(self, *shape: int) -> str:
        self.inputs.append(self.tensor(*shape))
        return self.inputs[-1]

    def zero(self, name: str) -> int:
        return self.tensors[name].zero_point

    def shape(self, name: str) -> tuple[int, ...]:
        return self.tensors[name].shape

    def node(self, make: Callable[..., ir.Node], inputs: tuple[str, ...], out: str, **values: object) -> str:
        self.nodes.append(make(name=f"n{len(self.nodes)}", inputs=inputs, outputs=(out,), **values))
        return out

    def requant(self, source: str, out: str, gain: float, channels: int = 1) -> ir.Requant:
        real = self.random.uniform(0.5, 1.0, channels) * gain
        lo, hi = sorted(int(v) for v in self.random.choice([-128, -128, -100, 90, 127, 127], 2, replace=False))
        zeros = self.zero(source), self.zero(out)
        real = real if self.rounding == Rounding.TFLITE else real.astype(np.float32)
        return ir.Requant.encode(real, self.rounding, *zeros, min(lo, 0), max(hi, 0), where="test")

    def window(self, x: str, kernel: ir.Pair, stride: ir.Pair, pads: ir.Pads, dilation: ir.Pair = (1, 1)) -> ir.Pair:
        _, height, width, _ = self.tensors[x].nhwc
        return (
            ir.window_size(height, kernel[0], stride[0], dilation[0], pads[0], pads[2]),
            ir.window_size(width, kernel[1], stride[1], dilation[1], pads[1], pads[3]),
        )

    def conv(self, x: str, channels: int, size: int = 3, stride: int = 1, groups: int = 1, multiplier: int = 0) -> str:
        """Padded by size // 2; depthwise with a multiplier."""
        depth = self.shape(x)[3]
        channels = depth * multiplier if multiplier else channels
        pads = (size // 2,) * 4
        height, width = self.window(x, (size, size), (stride, stride), pads)
        out = self.tensor(1, height, width, channels)
        seen = 1 if multiplier else depth // groups
        shape = (size, size, channels) if multiplier else (channels, size, size, seen)
        more = {} if multiplier else {"groups": groups}
        return self.node(
            ir.Depthwise if multiplier else ir.Conv,
            (x,),
            out,
            weights=self.random.integers(-127, 128, shape).astype(np.int8),
            bias=self.random.integers(-5000, 5000, channels).astype(np.int32),
            requant=self.requant(x, out, 0.01 / (size * seen**0.5), channels),
            stride=(stride, stride),
            pads=pads,
            **more,
        )

    def matmul(self, a: str, b: str, transposed: bool = False) -> str:
        columns = self.shape(b)[-2 if transposed else -1]
        out = self.tensor(*self.shape(a)[:-1], columns)
        requant = self.requant(a, out, 0.01 / self.shape(a)[-1] ** 0.5)
        return self.node(ir.MatMul, (a, b), out, requant=requant, zero_b=self.zero(b), transposed=transposed)

    def elementwise(self, kind: str, a: str, b: str) -> str:
        out = self.tensor(*np.broadcast_shapes(self.shape(a), self.shape(b)))
        za, zb, zy = self.zero(a), self.zero(b), self.zero(out)
        params: AddParams | ir.MulParams
        if kind == "MULTIPLY":
            real = self.random.uniform(0.003, 0.02)
            mult, shift = (int(v) for v in encode_multiplier(np.float32(real), self.rounding))
            params = ir.MulParams(self.rounding, za, zb, zy, mult, shift, -110, 100)
        else:
            make = AddParams.tflite if self.rounding == Rounding.TFLITE else AddParams.onnx
            params = make(0.05, za, 0.031, zb, 0.06, zy, lo=-100, combine=VectorOperation[kind])
        return self.node(ir.Elementwise, (a, b), out, params=params)

    def rescale(self, x: str, absolute: bool = False, below: float | None = None) -> str:
        out = self.tensor(*self.shape(x))
        encoded = None
        if below is not None:
            encoded = tuple(int(v) for v in encode_multiplier(np.float32(below), self.rounding))
        requant = self.requant(x, out, 1.3)
        return self.node(ir.Rescale, (x,), out, requant=requant, absolute=absolute, below=encoded)

    def table(self, x: str) -> str:
        out = self.tensor(*self.shape(x))
        return self.node(ir.Table, (x,), out, values=self.random.integers(-128, 128, 256).astype(np.int8))

    def average(self, x: str, kernel: ir.Pair, stride: ir.Pair, pads: ir.Pads, counted: int | None = None) -> str:
        out = self.tensor(1, *self.window(x, kernel, stride, pads), self.shape(x)[3])
        more = {"rounding": self.rounding, "lo": -120, "counted": counted}
        return self.node(ir.AvgPool, (x,), out, kernel=kernel, stride=stride, pads=pads, **more)

    def maximum(self, x: str, kernel: ir.Pair, pads: ir.Pads) -> str:
        out = self.tensor(1, *self.window(x, kernel, (1, 1), pads), self.shape(x)[3])
        return self.node(ir.MaxPool, (x,), out, kernel=kernel, stride=(1, 1), pads=pads)

    def pad(self, x: str, pads: ir.Pads) -> str:
        _, height, width, channels = self.shape(x)
        out = self.tensor(1, height + pads[0] + pads[2], width + pads[1] + pads[3], channels)
        return self.node(ir.Pad, (x,), out, pads=pads, value=-77)

    def transpose(self, x: str, perm: tuple[int, ...]) -> str:
        shape = tuple(self.shape(x)[p] for p in perm)
        copy = ir.Copy.between(ir.positions(self.shape(x)).transpose(perm), ir.positions(shape))
        return self.node(ir.Move, (x,), self.tensor(*shape), copies=(copy,), kind="transpose")

    def slice(self, x: str, *cuts: slice) -> str:
        view = ir.positions(self.shape(x))[cuts]
        return self.node(
            ir.Move, (x,), self.tensor(*view.shape), copies=(ir.Copy.between(view, ir.positions(view.shape)),)
        )

    def concat(self, axis: int, *parts: str) -> str:
        shape = list(self.shape(parts[0]))
        shape[axis] = sum(self.shape(part)[axis] for part in parts)
        where, copies, first = ir.positions(tuple(shape)), [], 0
        for part in parts:
            end = first + self.shape(part)[axis]
            target = where[(slice(None),) * axis + (slice(first, end),)]
            copies.append(ir.Copy.between(ir.positions(self.shape(part)), target))
            first = end
        return self.node(ir.Move, parts, self.tensor(*shape), copies=tuple(copies), kind="concat")

    def reshape(self, x: str, *shape: int) -> str:
        return self.node(ir.Reshape, (x,), self.tensor(*shape), shape=shape)

    def constant(self, *shape: int) -> str:
        return self.node(
            ir.Constant, (), self.tensor(*shape), value=self.random.integers(-128, 128, shape).astype(np.int8)
        )

    def graph(self, *outputs: str) -> ir.Graph:
        def port(name: str) -> ir.Port:
            tensor = self.tensors[name]
            return ir.Port(name, name, "int8", tensor.scale, tensor.zero_point, Layout.plain(tensor.shape))

        ins, outs = (tuple(port(name) for name in names) for names in (self.inputs, outputs))
        return ir.Graph(ins, outs, self.tensors, tuple(self.nodes), "test").check()


def check(graph: ir.Graph, config: Config, mode: str = "free") -> CompiledNetwork:
    """Every tensor equals the interpreter's, cycles equal the report's, and no transfers race."""
    compiled = CompiledNetwork(generate(graph, config, Options(mode, keep_tensors=True)))
    rng = np.random.default_rng(1)
    inputs = [rng.integers(-128, 128, port.shape).astype(np.int8) for port in graph.inputs]
    expected = reference.run(graph, inputs)
    tensors = reference.evaluate(graph, graph.bind(inputs), keep_all=True)
    inputs_by_name = {port.name: value for port, value in zip(graph.inputs, inputs, strict=True)}
    result = compiled.run(inputs_by_name)
    for node in graph.nodes:
        np.testing.assert_array_equal(result.tensors[node.outputs[0]], tensors[node.outputs[0]], err_msg=str(node.name))
    for name, value in expected.items():
        np.testing.assert_array_equal(result.outputs[name], value)
    assert result.cycles == compiled.report().cycles
    assert not any(races(timeline) for timeline in result.timeline)
    lean = CompiledNetwork(generate(graph, config, Options(mode))).run(inputs_by_name)
    for name, value in expected.items():
        np.testing.assert_array_equal(lean.outputs[name], value)
    return compiled


def grouped(net: Net) -> str:
    x = net.conv(net.input(1, 9, 7, 12), 8, groups=4)
    return net.conv(x, 24, size=1, groups=2)


def grouped_large(net: Net) -> str:
    return net.conv(net.input(1, 40, 20, 36), 54, stride=2, groups=3)


def multipliers(net: Net) -> str:
    x = net.conv(net.input(1, 9, 8, 6), 0, multiplier=2)
    x = net.conv(x, 0, size=2, stride=2, multiplier=4)
    return net.conv(x, 0, size=1, multiplier=11)


def matmul(net: Net) -> str:
    a, b = net.input(1, 2, 13, 18), net.input(1, 2, 18, 9)
    c = net.matmul(a, b)
    return net.matmul(c, net.input(1, 2, 21, 9), transposed=True)


def matmul_large(net: Net) -> str:
    a, b = net.input(300, 190), net.input(190, 260)
    return net.matmul(a, b)


def matmul_deep(net: Net) -> str:
    """The inner dimension is split: a column block of the matrix alone exceeds small memories."""
    return net.matmul(net.input(6, 9001), net.input(9, 9001), transposed=True)


def elementwise(net: Net) -> str:
    x, y = net.input(1, 11, 5, 7), net.input(1, 11, 5, 7)
    for kind in ("ADD", "SUBTRACT", "MINIMUM", "MAXIMUM", "MULTIPLY"):
        x, y = net.elementwise(kind, x, y), x
    return net.elementwise("MULTIPLY", x, net.constant(1, 11, 5, 7))


def broadcast(net: Net) -> str:
    x = net.input(1, 11, 6, 7)
    x = net.elementwise("MULTIPLY", x, net.input(1, 1, 1, 7))
    x = net.elementwise("SUBTRACT", net.constant(1, 1, 6, 7), x)
    x = net.elementwise("ADD", x, net.input(1, 11, 1, 7))
    return net.elementwise("MAXIMUM", net.input(1, 1, 1, 7), x)


def broadcast_large(net: Net) -> str:
    x = net.elementwise("MULTIPLY", net.input(1, 40, 30, 48), net.input(1, 1, 1, 48))
    return net.elementwise("SUBTRACT", net.input(1, 40, 1, 48), x)


def broadcast_channels(net: Net) -> str:
    """Even one row of all channels exceeds small memories."""
    return net.elementwise("MULTIPLY", net.input(1, 2, 100, 300), net.input(1, 1, 1, 300))


def activations(net: Net) -> str:
    x = net.rescale(net.table(net.input(1, 9, 8, 40)))
    x = net.rescale(x, absolute=True)
    return net.table(net.rescale(x, below=0.11))


def averages(net: Net) -> str:
    x = net.average(net.input(1, 9, 11, 6), (3, 3), (1, 1), (1, 1, 1, 1))
    x = net.average(x, (4, 3), (2, 1), (3, 2, 2, 1))
    return net.average(x, (3, 3), (2, 2), (1, 1, 1, 1), counted=net.zero(x))


def averages_large(net: Net) -> str:
    return net.average(net.input(1, 40, 33, 40), (3, 5), (1, 1), (1, 2, 1, 2))


def padding(net: Net) -> str:
    return net.pad(net.pad(net.input(1, 6, 5, 7), (1, 2, 3, 0)), (40, 0, 50, 9))


def padding_large(net: Net) -> str:
    return net.pad(net.input(1, 3, 30, 64), (30, 1, 20, 2))


def shuffle(net: Net) -> str:
    x = net.reshape(net.input(1, 6, 7, 24), 1, 6, 7, 3, 8)
    return net.reshape(net.transpose(x, (0, 1, 2, 4, 3)), 1, 6, 7, 24)


def transpositions(net: Net) -> str:
    x = net.transpose(net.input(1, 9, 10, 6), (0, 3, 1, 2))
    x = net.transpose(x, (0, 2, 3, 1))
    x = net.transpose(net.reshape(x, 1, 90, 3, 2), (0, 2, 3, 1))
    return net.transpose(net.transpose(net.reshape(x, 2, 3, 5, 3, 6), (4, 2, 0, 1, 3)), (1, 0, 2, 4, 3))


def transposition_large(net: Net) -> str:
    return net.transpose(net.input(1, 150, 20, 30), (0, 3, 2, 1))


def slices(net: Net) -> str:
    x = net.input(1, 12, 9, 16)
    a = net.slice(x, slice(None), slice(2, 11, 3), slice(None), slice(3, 12))
    b = net.slice(x, slice(None), slice(0, 9, 3), slice(None), slice(0, 7))
    c = net.concat(3, a, b)
    d = net.slice(c, slice(None), slice(None), slice(1, 8, 2), slice(0, 16, 5))
    return net.concat(1, d, d)


def concat_in_place(net: Net) -> str:
    """Of results of everything that can store pixels apart, also in several tiles; twice what cannot be placed."""
    x = net.input(1, 24, 20, 14)
    same = net.conv(x, 14, groups=2)
    parts = [
        net.conv(x, 40),
        net.conv(x, 0, multiplier=2),
        net.average(x, (3, 3), (1, 1), (1, 1, 1, 1)),
        net.elementwise("MULTIPLY", x, net.constant(1, 1, 1, 14)),
        net.elementwise("ADD", x, same),
        net.table(x),
        net.pad(net.slice(x, slice(None), slice(1, None)), (1, 0, 0, 0)),
        x,
        same,
    ]
    return net.concat(3, *parts)


def concat_rows(net: Net) -> str:
    """Along the outermost axis anything is in place, a product and a reshaped table too."""
    x = net.input(24, 6)
    return net.concat(0, net.matmul(x, net.input(6, 6)), net.table(x), net.rescale(net.table(x)))


def concat_large(net: Net) -> str:
    return net.concat(3, net.input(1, 50, 40, 17), net.input(1, 50, 40, 3), net.input(1, 50, 40, 30))


NETS: dict[str, Callable[[Net], str]] = {
    build.__name__: build
    for build in (
        grouped,
        grouped_large,
        multipliers,
        matmul,
        matmul_large,
        matmul_deep,
        elementwise,
        broadcast,
        broadcast_large,
        broadcast_channels,
        activations,
        averages,
        averages_large,
        padding,
        padding_large,
        shuffle,
        transpositions,
        transposition_large,
        slices,
        concat_in_place,
        concat_rows,
        concat_large,
    )
}


@pytest.mark.parametrize("rounding", [Rounding.TFLITE, Rounding.ONNX])
@pytest.mark.parametrize("config", CONFIGS)
@pytest.mark.parametrize("name", NETS)
def test_equals_the_interpreter(name: str, config: str, rounding: Rounding) -> None:
    net = Net(7, rounding)
    compiled = check(net.graph(NETS[name](net)), CONFIGS[config])
    assert not compiled.code.host_reasons


@pytest.mark.parametrize("mode", ["free", "channels"])
@pytest.mark.parametrize("name", ["grouped", "multipliers", "matmul"])
def test_tiling_channels_only(name: str, mode: str) -> None:
    net = Net(3)
    check(net.graph(NETS[name](net)), CONFIGS["3x5"], mode)


@pytest.mark.parametrize("name", NETS)
def test_what_the_configuration_lacks_runs_on_the_host(name: str) -> None:
    net = Net(5)
    graph = net.graph(NETS[name](net))
    compiled = check(graph, BARE)
    for node in graph.nodes:
        everywhere = isinstance(node, ir.Conv | ir.Move | ir.Reshape | ir.Constant)
        assert (node.name in compiled.code.host_reasons) == (not everywhere)


def operations(compiled: CompiledNetwork) -> set[Op]:
    """Opcodes of the operations of all segments."""
    return {Op(segment.words[at] & 0xFF) for segment in compiled.code.segments for at in segment.layers}


@pytest.mark.parametrize(
    ("name", "used"),
    [
        ("multipliers", {Op.DEPTH_CONV, Op.CONV_RELU}),
        ("matmul", {Op.MAT_MUL}),
        ("elementwise", {Op.E_ADD, Op.C_MIN, Op.C_MAX, Op.E_MUL}),
        ("activations", {Op.ACT_LUT, Op.ACT_RELU, Op.ACT_LRELU, Op.E_ABS}),
        ("padding", {Op.MOV}),
        ("shuffle", {Op.MOV}),
        ("concat_large", set()),
    ],
)
def test_operators_use_their_instructions(name: str, used: set[Op]) -> None:
    net = Net(5)
    compiled = check(net.graph(NETS[name](net)), Config(ic_lanes=8, oc_lanes=8, depthwise_lanes=8))
    assert operations(compiled) == used | {Op.DMA_READ, Op.DMA_WRITE}


def test_a_deep_product_is_split_into_passes() -> None:
    net = Net(5)
    compiled = check(net.graph(matmul_deep(net)), CONFIGS["4x4"])
    assert "of 9001 channels" not in compiled.code.layers[0].tiles


def test_concatenated_results_need_no_copy() -> None:
    net = Net(5)
    compiled = check(net.graph(concat_in_place(net)), CONFIGS["4x4"])
    (joined,) = [node for node in compiled.graph.nodes if node.op == "concat"]
    assert set(compiled.code.pitches) == set(joined.inputs[:7])
    (layer,) = [layer for layer in compiled.code.layers if layer.name == joined.name]
    assert layer.moved_bytes == 2 * 2 * 24 * 20 * 14
    net = Net(5)
    compiled = check(net.graph(concat_rows(net)), CONFIGS["4x4"])
    assert "concat" not in {layer.kind for layer in compiled.code.layers}


def test_averages_of_several_areas_need_no_more_tasks() -> None:
    """Nine areas of a padded window, one load and one store."""
    net = Net(5)
    compiled = check(net.graph(net.average(net.input(1, 8, 8, 4), (3, 3), (1, 1), (1, 1, 1, 1))), CONFIGS["4x4"])
    codes = [Op(compiled.code.segments[0].words[at] & 0xFF) for at in compiled.code.segments[0].layers]
    assert codes == [Op.DMA_READ, *[Op.POOL] * 9, Op.DMA_WRITE]


def random_net(net: Net, size: int) -> str:
    """A chain of random operators on an image, each reading earlier results too."""
    rng = net.random
    x = net.input(1, *(int(n) for n in rng.integers(1, 14, 2)), int(rng.integers(1, 20)) * 2)
    for _ in range(size):
        _, height, width, channels = net.shape(x)
        same = [name for name in net.tensors if net.shape(name) == net.shape(x)]
        other = str(rng.choice(same))
        kernel = int(rng.integers(1, 4)), int(rng.integers(1, 4))
        pads = tuple(int(rng.integers(0, kernel[axis % 2])) for axis in range(4))
        fits = height + pads[0] + pads[2] >= kernel[0] and width + pads[1] + pads[3] >= kernel[1]
        match int(rng.integers(0, 14)):
            case 0:
                x = net.conv(
                    x, int(rng.integers(1, 12)) * 2, size=int(rng.integers(1, 4)), groups=int(rng.choice([1, 2]))
                )
            case 1:
                x = net.conv(x, 0, size=int(rng.integers(1, 4)), multiplier=int(rng.choice([1, 1, 2, 3])))
            case 2:
                x = net.elementwise(str(rng.choice(["ADD", "SUBTRACT", "MINIMUM", "MAXIMUM", "MULTIPLY"])), x, other)
            case 3:
                shape = 1, int(rng.choice([1, height])), int(rng.choice([1, width])), channels
                pair = [x, net.constant(*shape)]
                rng.shuffle(pair)
                x = net.elementwise("MULTIPLY", *pair)
            case 4:
                x = net.rescale(x, *[(False, None), (False, 0.3), (True, None)][int(rng.integers(3))])
            case 5:
                x = net.table(x)
            case 6 if fits:
                counted = [None, net.zero(x)][int(rng.integers(2))]
                x = net.average(x, kernel, (1, int(rng.integers(1, 3))), (pads[0], pads[1], pads[2], pads[3]), counted)
            case 7 if fits:
                x = net.maximum(x, kernel, (pads[0], pads[1], pads[2], pads[3]))
            case 8 if max(height, width) < 30:
                top, left, bottom, right = (int(n) for n in rng.integers(0, 5, 4))
                x = net.pad(x, (top, left, bottom, right))
            case 9:
                x = net.transpose(x, (0, *(1 + int(axis) for axis in rng.permutation(3))))
                x = net.conv(x, 8, size=1)
            case 10 if channels < 40:
                x = net.concat(int(rng.integers(1, 4)), x, other)
            case 11 if channels > 3:
                x = net.slice(x, slice(None), slice(height // 3, None, 2), slice(None), slice(1, channels // 2 * 2 - 1))
            case 12:
                groups = 2 if channels % 2 == 0 else 1
                split = net.reshape(x, 1, height, width, groups, channels // groups)
                x = net.reshape(net.transpose(split, (0, 1, 2, 4, 3)), 1, height, width, channels)
            case 13:
                rows = net.reshape(x, height * width, channels)
                scores = net.matmul(rows, rows, transposed=True)
                x = net.reshape(net.matmul(scores, rows), 1, height, width, channels)
    return x


@pytest.mark.parametrize("seed", range(40))
def test_random_networks_on_random_configurations(seed: int) -> None:
    config = configurations(seed, 1)[0]
    net = Net(seed, Rounding(seed % 2))
    output = random_net(net, 8)
    if output in net.inputs:
        output = net.table(output)
    check(net.graph(output), config)


def test_a_reshaped_result_of_the_host_reaches_the_accelerator() -> None:
    net = Net(5)
    x = net.reshape(net.table(net.input(4, 6)), 1, 4, 1, 6)
    compiled = check(net.graph(net.conv(x, 3, size=1)), BARE)
    assert list(compiled.code.host_reasons) == ["n0"]
