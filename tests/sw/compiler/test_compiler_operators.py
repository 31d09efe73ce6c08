"""Every operator beyond convolutions, compiled, equals the graph interpreter: on small, odd and bare accelerators."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest

from dovetail.isa.config.resolved import Config
from dovetail.isa.instructions.table import Op
from dovetail.isa.numerics.rounding import Rounding
from dovetail.sw.compiler.compile import generate
from dovetail.sw.compiler.emit.hazards import races
from dovetail.sw.compiler.options import Options
from dovetail.sw.compiler.partition.host_cost import default_host
from dovetail.sw.network import ir, reference
from dovetail.sw.random.networks import RandomNet, random_movement, random_network
from dovetail.sw.random.programs.configurations import configurations
from dovetail.sw.runtime.compiled_network import CompiledNetwork

KEEP = replace(default_host(), round_trip=0)
"""Everything the accelerator can run stays on it."""

CONFIGS = {
    "4x4": Config(ic_lanes=4, oc_lanes=4, sram="32 KiB", banks=16, stripe=16, requant_lanes=2),
    "3x5": Config(ic_lanes=3, oc_lanes=5, sram="64 KiB", stripe=7, bus=32, vector_lanes=3),
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


def check(graph: ir.Graph, config: Config, mode: str = "free") -> CompiledNetwork:
    """Every tensor equals the interpreter's, cycles equal the report's, and no transfers race."""
    compiled = CompiledNetwork(generate(graph, config, Options(mode, keep_tensors=True, host=KEEP)))
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
    lean = CompiledNetwork(generate(graph, config, Options(mode, host=KEEP))).run(inputs_by_name)
    for name, value in expected.items():
        np.testing.assert_array_equal(lean.outputs[name], value)
    return compiled


def grouped(net: RandomNet) -> str:
    x = net.conv(net.input(1, 9, 7, 12), 8, groups=4)
    return net.conv(x, 24, size=1, groups=2)


def grouped_large(net: RandomNet) -> str:
    return net.conv(net.input(1, 40, 20, 36), 54, stride=2, groups=3)


def multipliers(net: RandomNet) -> str:
    x = net.conv(net.input(1, 9, 8, 6), 0, multiplier=2)
    x = net.conv(x, 0, size=2, stride=2, multiplier=4)
    return net.conv(x, 0, size=1, multiplier=11)


def matmul(net: RandomNet) -> str:
    a, b = net.input(1, 2, 13, 18), net.input(1, 2, 18, 9)
    c = net.matmul(a, b)
    return net.matmul(c, net.input(1, 2, 21, 9), transposed=True)


def matmul_large(net: RandomNet) -> str:
    a, b = net.input(300, 190), net.input(190, 260)
    return net.matmul(a, b)


def matmul_deep(net: RandomNet) -> str:
    """The inner dimension is split: a column block of the matrix alone exceeds small memories."""
    return net.matmul(net.input(6, 9001), net.input(9, 9001), transposed=True)


def elementwise(net: RandomNet) -> str:
    x, y = net.input(1, 11, 5, 7), net.input(1, 11, 5, 7)
    for kind in ("ADD", "SUBTRACT", "MINIMUM", "MAXIMUM", "MULTIPLY"):
        x, y = net.elementwise(kind, x, y), x
    return net.elementwise("MULTIPLY", x, net.constant(1, 11, 5, 7))


def broadcast(net: RandomNet) -> str:
    x = net.input(1, 11, 6, 7)
    x = net.elementwise("MULTIPLY", x, net.input(1, 1, 1, 7))
    x = net.elementwise("SUBTRACT", net.constant(1, 1, 6, 7), x)
    x = net.elementwise("ADD", x, net.input(1, 11, 1, 7))
    return net.elementwise("MAXIMUM", net.input(1, 1, 1, 7), x)


def broadcast_large(net: RandomNet) -> str:
    x = net.elementwise("MULTIPLY", net.input(1, 40, 30, 48), net.input(1, 1, 1, 48))
    return net.elementwise("SUBTRACT", net.input(1, 40, 1, 48), x)


def broadcast_channels(net: RandomNet) -> str:
    """Even one row of all channels exceeds small memories."""
    return net.elementwise("MULTIPLY", net.input(1, 2, 100, 300), net.input(1, 1, 1, 300))


def activations(net: RandomNet) -> str:
    x = net.rescale(net.table(net.input(1, 9, 8, 40)))
    x = net.rescale(x, absolute=True)
    return net.table(net.rescale(x, below=0.11))


def averages(net: RandomNet) -> str:
    x = net.average(net.input(1, 9, 11, 6), (3, 3), (1, 1), (1, 1, 1, 1))
    x = net.average(x, (4, 3), (2, 1), (3, 2, 2, 1))
    return net.average(x, (3, 3), (2, 2), (1, 1, 1, 1), counted=net.zero(x))


def averages_large(net: RandomNet) -> str:
    return net.average(net.input(1, 40, 33, 40), (3, 5), (1, 1), (1, 2, 1, 2))


def padding(net: RandomNet) -> str:
    return net.pad(net.pad(net.input(1, 6, 5, 7), (1, 2, 3, 0)), (40, 0, 50, 9))


def padding_large(net: RandomNet) -> str:
    return net.pad(net.input(1, 3, 30, 64), (30, 1, 20, 2))


def shuffle(net: RandomNet) -> str:
    x = net.reshape(net.input(1, 6, 7, 24), 1, 6, 7, 3, 8)
    return net.reshape(net.transpose(x, (0, 1, 2, 4, 3)), 1, 6, 7, 24)


def transpositions(net: RandomNet) -> str:
    x = net.transpose(net.input(1, 9, 10, 6), (0, 3, 1, 2))
    x = net.transpose(x, (0, 2, 3, 1))
    x = net.transpose(net.reshape(x, 1, 90, 3, 2), (0, 2, 3, 1))
    return net.transpose(net.transpose(net.reshape(x, 2, 3, 5, 3, 6), (4, 2, 0, 1, 3)), (1, 0, 2, 4, 3))


def transposition_large(net: RandomNet) -> str:
    return net.transpose(net.input(1, 150, 20, 30), (0, 3, 2, 1))


def slices(net: RandomNet) -> str:
    x = net.input(1, 12, 9, 16)
    a = net.slice(x, slice(None), slice(2, 11, 3), slice(None), slice(3, 12))
    b = net.slice(x, slice(None), slice(0, 9, 3), slice(None), slice(0, 7))
    c = net.concat(3, a, b)
    d = net.slice(c, slice(None), slice(None), slice(1, 8, 2), slice(0, 16, 5))
    return net.concat(1, d, d)


def concat_in_place(net: RandomNet) -> str:
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


def concat_read(net: RandomNet) -> str:
    """Parts that others read too; the second is made from the first, which therefore is copied."""
    x = net.input(1, 16, 14, 6)
    first = net.conv(x, 16)
    second = net.conv(first, 16, size=1)
    third = net.conv(net.maximum(second, (3, 3), (1, 1, 1, 1)), 16, size=1)
    return net.elementwise("ADD", net.conv(net.concat(3, first, second, third), 16), third)


def slices_in_place(net: RandomNet) -> str:
    """Read by everything that can step over channels, of a network input and of results; some of the rows too."""
    x = net.input(1, 24, 20, 17)
    made = net.conv(net.slice(x, *[slice(None)] * 3, slice(1, 17)), 32, groups=2)
    left, right = (net.slice(made, *[slice(None)] * 3, cut) for cut in (slice(0, 16), slice(16, 32)))
    rows = net.slice(made, slice(None), slice(3, 7))
    matrix = net.reshape(net.table(rows), 80, 32)
    return net.concat(
        3,
        net.conv(left, 40),
        net.conv(left, 5, size=1),
        net.conv(right, 16, groups=8),
        net.conv(right, 0, multiplier=2),
        net.average(left, (3, 3), (1, 1), (1, 1, 1, 1)),
        net.maximum(right, (3, 3), (1, 1, 1, 1)),
        net.elementwise("MULTIPLY", left, net.constant(1, 1, 1, 16)),
        net.elementwise("ADD", right, left),
        net.elementwise("SUBTRACT", left, net.table(right)),
        net.pad(net.slice(made, slice(None), slice(0, 20)), (4, 0, 0, 0)),
        net.pad(net.reshape(net.matmul(matrix, net.input(32, 3)), 1, 4, 20, 3), (20, 0, 0, 0)),
    )


def concat_rows(net: RandomNet) -> str:
    """Along the outermost axis anything is in place, a product and a reshaped table too."""
    x = net.input(24, 6)
    return net.concat(0, net.matmul(x, net.input(6, 6)), net.table(x), net.rescale(net.table(x)))


def concat_large(net: RandomNet) -> str:
    return net.concat(3, net.input(1, 50, 40, 17), net.input(1, 50, 40, 3), net.input(1, 50, 40, 30))


NETS: dict[str, Callable[[RandomNet], str]] = {
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
        slices_in_place,
        concat_in_place,
        concat_rows,
        concat_read,
        concat_large,
    )
}


@pytest.mark.parametrize("rounding", [Rounding.TFLITE, Rounding.ONNX])
@pytest.mark.parametrize("config", CONFIGS)
@pytest.mark.parametrize("name", NETS)
def test_equals_the_interpreter(name: str, config: str, rounding: Rounding) -> None:
    net = RandomNet(7, rounding)
    compiled = check(net.graph(NETS[name](net)), CONFIGS[config])
    assert not compiled.code.host_reasons


@pytest.mark.parametrize("mode", ["free", "channels"])
@pytest.mark.parametrize("name", ["grouped", "multipliers", "matmul"])
def test_tiling_channels_only(name: str, mode: str) -> None:
    net = RandomNet(3)
    check(net.graph(NETS[name](net)), CONFIGS["3x5"], mode)


@pytest.mark.parametrize("name", NETS)
def test_what_the_configuration_lacks_runs_on_the_host(name: str) -> None:
    net = RandomNet(5)
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
    net = RandomNet(5)
    compiled = check(net.graph(NETS[name](net)), Config(ic_lanes=8, oc_lanes=8))
    assert operations(compiled) == used | {Op.DMA_READ, Op.DMA_WRITE}


def test_a_deep_product_is_split_into_passes() -> None:
    net = RandomNet(5)
    compiled = check(net.graph(matmul_deep(net)), CONFIGS["4x4"])
    assert "of 9001 channels" not in compiled.code.layers[0].tiles


@pytest.mark.parametrize(("heads", "columns", "matrices"), [(16, 4, 1), (3, 24, 1), (3, 48, 3)])
def test_small_matrices_of_products_of_few_rows_are_loaded_together(heads: int, columns: int, matrices: int) -> None:
    net = RandomNet(5)
    graph = net.graph(net.matmul(net.input(heads, 1, 6), net.input(heads, 6, columns)))
    (segment,) = check(graph, Config(ic_lanes=8, oc_lanes=8)).code.segments
    assert list(segment.words).count(Op.DMA_READ) == 1 + heads + matrices  # records, rows, matrices


def test_concatenated_results_need_no_copy() -> None:
    net = RandomNet(5)
    compiled = check(net.graph(concat_in_place(net)), CONFIGS["4x4"])
    (joined,) = [node for node in compiled.graph.nodes if node.op == "concat"]
    sliced = {node.outputs[0] for node in compiled.graph.nodes if node.op == "move"}
    assert set(compiled.code.pitches) == {*joined.inputs[:7], *sliced}
    (layer,) = [layer for layer in compiled.code.layers if layer.name == joined.name]
    assert layer.moved_bytes == 2 * 2 * 24 * 20 * 14
    net = RandomNet(5)
    compiled = check(net.graph(concat_rows(net)), CONFIGS["4x4"])
    assert "concat" not in {layer.kind for layer in compiled.code.layers}


def test_parts_that_others_read_need_no_copy() -> None:
    net = RandomNet(5)
    compiled = check(net.graph(concat_read(net)), CONFIGS["4x4"])
    (joined,) = [node for node in compiled.graph.nodes if node.op == "concat"]
    assert set(compiled.code.pitches) == set(joined.inputs[1:])


def test_slices_are_read_where_they_are() -> None:
    net = RandomNet(5)
    compiled = check(net.graph(slices_in_place(net)), CONFIGS["4x4"])
    assert not {"move", "concat"} & {layer.kind for layer in compiled.code.layers}


def test_one_channel_of_two_is_not_the_whole() -> None:
    net = RandomNet(5)
    pixels = net.table(net.input(1, 3, 8, 2))
    check(net.graph(net.conv(net.slice(pixels, *[slice(None)] * 3, slice(0, 1)), 3)), CONFIGS["4x4"])
    net = RandomNet(5)
    x = net.input(1, 3, 8, 1)
    one = net.table(x)
    compiled = check(net.graph(net.concat(3, one, net.conv(x, 2))), CONFIGS["4x4"])
    assert compiled.code.pitches[one] == 3


def test_slices_that_are_copied() -> None:
    """For views, copies and outputs, and where a convolution takes neighbouring pixels as one."""
    net = RandomNet(5)
    x = net.input(1, 6, 8, 12)
    few = net.slice(x, *[slice(None)] * 3, slice(0, 2))
    half = net.slice(x, *[slice(None)] * 3, slice(0, 6))
    seen = net.slice(x, *[slice(None)] * 3, slice(6, 12))
    view = net.table(net.reshape(half, 48, 6))
    compiled = check(net.graph(net.conv(few, 4), view, seen, net.conv(seen, 4)), CONFIGS["4x4"])
    assert [layer.kind for layer in compiled.code.layers].count("move") == 3


def test_averages_of_several_areas_need_no_more_tasks() -> None:
    """Nine areas of a padded window, one load and one store."""
    net = RandomNet(5)
    compiled = check(net.graph(net.average(net.input(1, 8, 8, 4), (3, 3), (1, 1), (1, 1, 1, 1))), CONFIGS["4x4"])
    codes = [Op(compiled.code.segments[0].words[at] & 0xFF) for at in compiled.code.segments[0].layers]
    assert codes == [Op.DMA_READ, *[Op.POOL] * 9, Op.DMA_WRITE]


@pytest.mark.parametrize("seed", range(40))
def test_random_networks_on_random_configurations(seed: int) -> None:
    check(random_network(seed, 8), configurations(seed, 1)[0])


@pytest.mark.parametrize("seed", range(20, 50))
def test_random_movement_on_random_configurations(seed: int) -> None:
    check(random_movement(seed), configurations(seed, 1)[0])


def test_a_reshaped_result_of_the_host_reaches_the_accelerator() -> None:
    net = RandomNet(5)
    x = net.reshape(net.table(net.input(4, 6)), 1, 4, 1, 6)
    compiled = check(net.graph(net.conv(x, 3, size=1)), BARE)
    assert list(compiled.code.host_reasons) == ["n0"]
