"""Every pass on graphs made by hand: it finds what it is for, and outputs keep every byte."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from dovetail.isa.config.resolved import Config
from dovetail.isa.numerics.rounding import Rounding
from dovetail.sw.compiler.compile import generate
from dovetail.sw.compiler.options import Options
from dovetail.sw.compiler.partition.host_cost import default_host
from dovetail.sw.network import ir, reference
from dovetail.sw.passes.integer import copies
from dovetail.sw.passes.integer.elementwise import fuse_activations, tabulate
from dovetail.sw.passes.integer.lookups import compute_tables
from dovetail.sw.passes.integer.movement import join_moves, sink_transposes
from dovetail.sw.passes.integer.simplify import PASSES, Pass, simplify
from dovetail.sw.passes.integer.tidy import MAX_ELEMENTS, drop_dead, drop_identities, fold_constants, merge_duplicates
from dovetail.sw.passes.integer.windows import fold_pads, fold_strides, permute_weights
from dovetail.sw.random.networks import RandomNet, random_movement, random_network
from dovetail.sw.runtime.compiled_network import CompiledNetwork
from tests.sw.compiler.test_compiler import Builder

CONFIG = Config(ic_lanes=4, oc_lanes=4, sram="32 KiB", banks=16, stripe=16, requant_lanes=2)


def same_outputs(before: ir.Graph, after: ir.Graph, seed: int = 0) -> None:
    """Both graphs give the same bytes for random inputs."""
    rng = np.random.default_rng(seed)
    inputs = {port.name: rng.integers(-128, 128, port.shape).astype(np.int8) for port in before.inputs}
    expected, found = reference.run(before, inputs), reference.run(after, inputs)
    assert expected.keys() == found.keys()
    for name, value in expected.items():
        np.testing.assert_array_equal(found[name], value)


def changed(change: Pass, net: RandomNet, *outputs: str) -> list[str]:
    """Run a pass on a network and compare outputs; the operators that are left."""
    before = net.graph(*outputs)
    after = change(before)
    same_outputs(before, after)
    assert after is not before
    return [node.op for node in after.nodes]


def edit(net: RandomNet, **values: Any) -> None:
    """Change parameters of the node made last."""
    net.nodes[-1] = replace(net.nodes[-1], **values)


def rescale(net: RandomNet, x: str, gain: float = 0.6, lo: int = -128, hi: int = 127) -> str:
    out = net.tensor(*net.shape(x))
    requant = ir.Requant.encode(np.array([gain]), Rounding.TFLITE, net.zero(x), net.zero(out), lo, hi, where="test")
    return net.node(ir.Rescale, (x,), out, requant=requant)


def unchanged(net: RandomNet, x: str) -> str:
    """A rescaling by one between equal zero points."""
    out = net.tensor(*net.shape(x))
    requant = ir.Requant.encode(np.ones(1), Rounding.TFLITE, 3, 3, where="test")
    return net.node(ir.Rescale, (x,), out, requant=requant)


# --- dead code, constants, identities, duplicates -------------------------------------------------------------------


def test_dead_code() -> None:
    net = RandomNet()
    x = net.input(1, 4, 4, 6)
    net.table(net.conv(x, 3))
    graph = net.graph(net.table(x))
    after = drop_dead(graph)
    assert [node.op for node in after.nodes] == ["table"]
    assert set(after.tensors) == {"t0", after.outputs[0].tensor}
    same_outputs(graph, after)
    assert drop_dead(after) is after


def test_constants() -> None:
    net = RandomNet()
    a, b = net.constant(1, 3, 5, 4), net.constant(1, 1, 1, 4)
    total = net.reshape(net.conv(net.elementwise("MULTIPLY", a, b), 4), 1, 15, 1, 4)
    ops = changed(fold_constants, net, net.elementwise("ADD", net.input(1, 15, 1, 4), total))
    assert ops == ["constant"] * 5 + ["add"]


def test_large_results_are_no_constants() -> None:
    net = RandomNet()
    side = 1 + int(MAX_ELEMENTS**0.5)
    net.elementwise("ADD", net.constant(1, side, 1, 1), net.constant(1, 1, side, 1))
    graph = net.graph(net.table(net.input(1, 1, 1, 1)))
    assert fold_constants(graph) is graph


def test_identities() -> None:
    net = RandomNet()
    x = net.input(1, 4, 5, 6)
    y = net.clamp(unchanged(net, x), -128)
    y = net.slice(net.pad(y, (0, 0, 0, 0)), *[slice(None)] * 4)
    y = net.concat(1, net.slice(y, slice(None), slice(0, 1)), net.slice(y, slice(None), slice(1, 4)))
    graph = net.graph(net.table(y))
    after = drop_dead(drop_identities(join_moves(drop_identities(graph))))
    assert [node.op for node in after.nodes] == ["table"]
    same_outputs(graph, after)


def test_an_output_that_is_an_input() -> None:
    net = RandomNet()
    graph = net.graph(unchanged(net, net.input(1, 4, 5, 6)))
    after = simplify(graph)
    assert after.nodes == () and after.outputs[0].tensor == "t0"
    same_outputs(graph, after)
    value = np.arange(120).astype(np.int8).reshape(1, 4, 5, 6)
    result = CompiledNetwork(generate(after, CONFIG, Options())).run(value)
    np.testing.assert_array_equal(result.outputs[graph.outputs[0].name], value)


def test_a_clamp_to_what_is_clamped_already() -> None:
    net = RandomNet(3)
    x = rescale(net, net.input(1, 4, 5, 6), lo=-20, hi=30)
    assert changed(drop_identities, net, net.clamp(x, -21, 40), x) == ["rescale"]


def test_reshapes() -> None:
    net = RandomNet()
    x = net.input(1, 4, 6, 2)
    y = net.reshape(net.reshape(net.reshape(x, 24, 2), 12, 4), 1, 4, 3, 4)
    graph = net.graph(net.conv(y, 4), net.reshape(net.reshape(x, 48), 1, 4, 6, 2))
    after = drop_dead(drop_identities(drop_identities(graph)))
    assert [(node.op, node.inputs[0]) for node in after.nodes] == [("reshape", x), ("conv", y)]
    assert after.outputs[1].tensor == x
    same_outputs(graph, after)


def test_a_move_that_moves_nothing_is_a_reshape() -> None:
    net = RandomNet()
    assert changed(drop_identities, net, net.transpose(net.input(1, 4, 1, 6), (0, 2, 1, 3))) == ["reshape"]


def test_duplicates() -> None:
    net = RandomNet()
    x = net.input(1, 4, 5, 6)
    a = net.conv(x, 4)
    twin = net.tensor(1, 4, 5, 4)
    net.nodes.append(replace(net.nodes[-1], name="twin", outputs=(twin,)))
    b, c = rescale(net, a), net.tensor(1, 4, 5, 4)
    net.nodes.append(replace(net.nodes[-1], name="second", inputs=(twin,), outputs=(c,)))
    other = net.conv(x, 4)
    outputs = net.elementwise("ADD", b, other), c
    assert changed(merge_duplicates, net, *outputs) == ["conv", "rescale", "conv", "add"]


# --- padding --------------------------------------------------------------------------------------------------------


def padded(net: RandomNet, x: str, value: int, pads: ir.Pads = (1, 0, 1, 1)) -> str:
    out = net.pad(x, pads)
    edit(net, value=value)
    return out


def test_padding_of_a_convolution() -> None:
    net = RandomNet()
    x = net.input(1, 5, 6, 4)
    y = padded(net, padded(net, x, 5), 5)
    net.tensors[y] = replace(net.tensors[y], zero_point=5)
    graph = net.graph(net.conv(y, 4, size=5))
    after = drop_dead(fold_pads(graph))
    assert [node.op for node in after.nodes] == ["conv"]
    same_outputs(graph, after)


@pytest.mark.parametrize("value, pads", [(6, (1, 0, 1, 1)), (5, (0, 0, 0, 256))])
def test_padding_that_stays(value: int, pads: ir.Pads) -> None:
    """With another value than the zero point, or more of it than an instruction can have."""
    net = RandomNet()
    y = padded(net, net.input(1, 5, 6, 4), value, pads)
    net.tensors[y] = replace(net.tensors[y], zero_point=5)
    graph = net.graph(net.conv(y, 4, size=1 if value == 5 else 3))
    assert fold_pads(graph) is graph


@pytest.mark.parametrize("value, folds", [(-20, True), (-19, False)])
def test_padding_of_a_maximum(value: int, folds: bool) -> None:
    """What is not above any element never wins."""
    net = RandomNet()
    y = padded(net, rescale(net, net.input(1, 6, 7, 5), lo=-20), value)
    graph = net.graph(net.maximum(y, (3, 3), (1, 1, 1, 0)))
    after = drop_dead(fold_pads(graph))
    assert len(after.nodes) == (2 if folds else 3)
    same_outputs(graph, after)


def test_padding_of_an_average() -> None:
    net = RandomNet()
    y = padded(net, net.input(1, 6, 7, 5), -33)
    ops = changed(lambda graph: drop_dead(fold_pads(graph)), net, net.average(y, (3, 2), (1, 1), (0, 0, 0, 0)))
    assert ops == ["avgpool"]


# --- functions of one element ---------------------------------------------------------------------------------------


Line = tuple[tuple[int, int, int], ir.Pair, ir.Pair, ir.Pads]
"""Height, width and channels; kernel, stride, padding."""


def on_a_line(line: Line) -> ir.Graph:
    shape, kernel, stride, pads = line
    return Builder(shape).conv(5, kernel, stride, pads).graph()


@pytest.mark.parametrize(
    ("line", "form"),
    [
        (((1, 832, 1), (1, 256), (1, 128), (0, 0, 0, 0)), ((1, 4, 64), (1, 2), (0, 0, 0, 0))),
        (((1, 960, 1), (1, 400), (1, 160), (0, 160, 0, 80)), ((1, 3, 160), (1, 1), (0, 1, 0, 1))),
        (((90, 1, 1), (10, 1), (5, 1), (0, 0, 0, 0)), ((2, 1, 5), (1, 1), (0, 0, 0, 0))),
        (((64, 1, 3), (7, 1), (2, 1), (2, 0, 3, 0)), ((4, 1, 6), (1, 1), (1, 0, 2, 0))),
        (((60, 1, 2), (9, 1), (4, 1), (4, 0, 1, 0)), ((3, 1, 8), (1, 1), (1, 0, 1, 0))),
    ],
)
def test_strides_of_a_line_are_channels(line: Line, form: tuple[tuple[int, int, int], ir.Pair, ir.Pads]) -> None:
    before = on_a_line(line)
    after = fold_strides(before)
    same_outputs(before, after)
    view, conv = after.nodes
    assert isinstance(view, ir.Reshape) and isinstance(conv, ir.Conv)
    assert (conv.weights.shape[1:], conv.stride, conv.pads) == form
    compiled = CompiledNetwork(generate(simplify(before), CONFIG, Options(host=replace(default_host(), round_trip=0))))
    assert not compiled.code.host_reasons
    sample = np.random.default_rng(1).integers(-128, 128, line[0], np.int8)[None]
    for name, value in reference.run(before, sample).items():
        np.testing.assert_array_equal(compiled.run(sample).outputs[name], value)


@pytest.mark.parametrize(
    "line",
    [
        ((1, 96, 2), (1, 10), (1, 4), (0, 0, 0, 0)),  # a kernel's row fills the lanes already
        ((33, 1, 1), (5, 1), (2, 1), (0, 0, 0, 0)),  # nothing divides stride and length
        ((64, 1, 1), (5, 1), (2, 1), (1, 0, 0, 0)),  # nor the padding
        ((64, 1, 1), (5, 1), (1, 1), (0, 0, 0, 0)),
        ((64, 1, 8), (6, 1), (2, 1), (0, 0, 0, 0)),  # no fewer steps
        ((16, 16, 1), (4, 4), (4, 4), (0, 0, 0, 0)),  # no line
        ((64, 1, 1), (8, 1), (4, 1), (0, 4, 0, 4)),
    ],
)
def test_other_strides_stay(line: Line) -> None:
    graph = on_a_line(line)
    assert fold_strides(graph) is graph


@pytest.mark.parametrize("rounding", Rounding)
def test_clamps_become_those_of_the_node_before(rounding: Rounding) -> None:
    net = RandomNet(1, rounding)
    x = net.input(1, 6, 7, 4)
    made = [
        net.conv(x, 4),
        net.conv(x, 0, multiplier=1),
        net.elementwise("ADD", x, net.constant(1, 6, 7, 4)),
        net.elementwise("MULTIPLY", x, net.constant(1, 6, 7, 4)),
        net.average(x, (2, 2), (1, 1), (1, 1, 0, 0)),
        net.maximum(x, (3, 3), (1, 1, 1, 1)),
        net.matmul(net.reshape(x, 42, 4), net.constant(4, 5)),
        rescale(net, x),
    ]
    clamped = []
    for k, name in enumerate(made):
        first = net.clamp(name, -60, 70) if len(net.shape(name)) == 4 else net.table(name)
        if len(net.shape(name)) == 2:
            values = np.clip(np.arange(-128, 128), -60, 70).astype(np.int8)
            edit(net, values=values)
        clamped.append(rescale_to_clamp(net, first) if k % 2 else net.clamp(first, -128, 20))
    before = net.graph(*clamped)
    after = fuse_activations(before)
    assert len(after.nodes) == len(before.nodes) - 2 * len(made)
    same_outputs(before, after)


def rescale_to_clamp(net: RandomNet, x: str) -> str:
    out = unchanged(net, x)
    node = net.nodes[-1]
    assert isinstance(node, ir.Rescale)
    net.nodes[-1] = replace(node, requant=replace(node.requant, lo=-10, hi=30))
    return out


@pytest.mark.parametrize("bounds", [(-128, -101), (100, 127), (5, 5), (-128, 127)])
def test_clamps_of_clamps(bounds: tuple[int, int]) -> None:
    """Also where the ranges have nothing in common."""
    net = RandomNet()
    y = net.clamp(net.clamp(net.input(1, 6, 7, 4), -100, 90), *bounds)
    assert changed(fuse_activations, net, y) == ["maxpool"]


def test_functions_of_functions() -> None:
    net = RandomNet()
    y = rescale(net, net.table(rescale(net, rescale(net, net.input(1, 3, 4, 5)), gain=1.7)))
    assert changed(fuse_activations, net, y) == ["rescale"]
    assert isinstance(fuse_activations(net.graph(y)).nodes[0], ir.Table)


def test_functions_through_movement() -> None:
    """A function of a concatenation is done by what makes the parts."""
    net = RandomNet()
    x = net.input(1, 6, 7, 4)
    joined = net.concat(3, net.conv(x, 5), net.pad(net.maximum(x, (3, 3), (0, 0, 0, 0)), (1, 1, 1, 1)))
    y = net.clamp(net.reshape(net.transpose(joined, (0, 2, 1, 3)), 1, 6, 7, 9), -90, 50)
    assert changed(fuse_activations, net, y) == ["conv", "maxpool", "pad", "concat", "transpose", "reshape"]


def test_names_stand_for_one_content() -> None:
    net = RandomNet()
    part = net.conv(net.input(1, 6, 7, 4), 5)
    result = net.clamp(net.transpose(part, (0, 2, 1, 3)), 0)
    after = fuse_activations(net.graph(result))
    assert part not in after.tensors and after.nodes[-1].outputs == (result,)


def test_functions_stay_where_others_see_their_operand() -> None:
    net = RandomNet()
    x = net.input(1, 6, 7, 4)
    y = net.conv(x, 4)
    joined = net.concat(3, net.conv(x, 2), x)
    graph = net.graph(net.clamp(y, 0), y, net.clamp(joined, 0))
    assert fuse_activations(graph) is graph


@pytest.mark.parametrize("kind", ["ADD", "SUBTRACT", "MINIMUM", "MULTIPLY"])
@pytest.mark.parametrize("rounding", Rounding)
def test_arithmetic_on_one_tensor(kind: str, rounding: Rounding) -> None:
    net = RandomNet(2, rounding)
    x = net.input(1, 6, 7, 4)
    gate = net.elementwise(kind, rescale(net, net.table(x)), x)
    constant = net.constant(1, 1, 1, 4)
    edit(net, value=np.full((1, 1, 1, 4), -7, np.int8))
    graph = net.graph(net.elementwise(kind, constant, gate))
    after = drop_dead(fuse_activations(drop_dead(tabulate(graph))))
    assert [type(node) for node in after.nodes] == [ir.Table]
    same_outputs(graph, after)


def test_arithmetic_on_two_tensors_stays() -> None:
    net = RandomNet(2)
    x, y = net.input(1, 6, 7, 4), net.input(1, 6, 7, 4)
    row = net.input(1, 1, 1, 4)
    total = net.elementwise("ADD", net.table(x), y)
    constant = net.constant(1, 6, 7, 4)
    edit(net, value=np.full((1, 6, 7, 4), 9, np.int8))
    graph = net.graph(total, net.elementwise("MULTIPLY", row, constant), net.elementwise("ADD", x, net.table(row)))
    assert tabulate(graph) is graph


# --- movement -------------------------------------------------------------------------------------------------------


def test_transpositions_there_and_back() -> None:
    net = RandomNet()
    x = net.input(1, 4, 5, 6)
    y = net.reshape(net.transpose(x, (0, 3, 1, 2)), 6, 20)
    back = net.reshape(net.transpose(y, (1, 0)), 1, 4, 5, 6)
    graph = net.graph(net.table(back))
    assert [node.op for node in simplify(graph).nodes] == ["table"]
    same_outputs(graph, simplify(graph))


def test_concatenations_of_concatenations() -> None:
    net = RandomNet()
    x = net.input(1, 4, 5, 6)
    parts = [net.table(x) for _ in range(4)]
    inner = net.reshape(net.concat(3, parts[1], parts[2]), 20, 12)
    y = net.concat(3, parts[0], net.reshape(inner, 1, 4, 5, 12), parts[3])
    assert changed(lambda graph: drop_dead(join_moves(graph)), net, y) == ["table"] * 4 + ["concat"]


def test_slices_of_concatenations_are_their_parts() -> None:
    net = RandomNet()
    x = net.input(1, 4, 5, 6)
    a, b = net.table(x), net.conv(x, 3)
    joined = net.concat(3, a, b)
    first = net.slice(joined, *[slice(None)] * 3, slice(0, 6))
    inside = net.slice(joined, slice(None), slice(1, 3), slice(None), slice(7, 9))
    graph = net.graph(net.table(first), net.table(inside))
    after = simplify(graph)
    assert [node.op for node in after.nodes] == ["table", "conv", "move", "table"]
    same_outputs(graph, after)


def test_a_concatenation_that_others_read_stays() -> None:
    net = RandomNet()
    x = net.input(1, 4, 5, 6)
    joined = net.concat(3, net.table(x), x)
    part = net.slice(joined, *[slice(None)] * 3, slice(1, 5))
    graph = net.graph(net.conv(joined, 2), part)
    assert join_moves(graph) is graph


def test_movement_in_longer_runs_stays() -> None:
    """A channel shuffle behind a concatenation would write byte by byte."""
    net = RandomNet()
    x = net.input(1, 8, 8, 32)
    joined = net.concat(3, net.table(x), net.table(x))
    y = net.reshape(net.transpose(net.reshape(joined, 64, 2, 32), (0, 2, 1)), 1, 8, 8, 64)
    ops = [node.op for node in join_moves(net.graph(net.conv(y, 4))).nodes]
    assert ops == ["table", "table", "concat", "reshape", "transpose", "reshape", "conv"]


def shuffled(net: RandomNet, x: str, groups: int) -> str:
    _, height, width, channels = net.shape(x)
    split = net.reshape(x, 1, height, width, groups, channels // groups)
    return net.reshape(net.transpose(split, (0, 1, 2, 4, 3)), 1, height, width, channels)


def test_a_shuffle_goes_into_the_weights_behind_it() -> None:
    net = RandomNet()
    x = shuffled(net, net.table(net.input(1, 5, 6, 12)), 3)
    graph = net.graph(net.conv(x, 5), net.conv(x, 4, size=1))
    after = simplify(graph)
    assert [node.op for node in after.nodes] == ["table", "conv", "conv"]
    same_outputs(graph, after)


def test_a_shuffle_goes_into_the_weights_before_it() -> None:
    net = RandomNet()
    x = shuffled(net, net.conv(net.input(1, 5, 6, 4), 12), 3)
    graph = net.graph(net.conv(x, 12, groups=3))
    after = simplify(graph)
    assert [node.op for node in after.nodes] == ["conv", "conv"]
    same_outputs(graph, after)


def test_a_flattened_image_in_another_order() -> None:
    net = RandomNet()
    x = net.table(net.input(1, 5, 6, 4))
    flat = net.reshape(net.transpose(x, (0, 3, 1, 2)), 1, 1, 1, 120)
    graph = net.graph(net.conv(flat, 7, size=1))
    after = simplify(graph)
    assert [node.op for node in after.nodes] == ["table", "reshape", "conv"]
    same_outputs(graph, after)


def test_shuffles_go_into_weights_beyond_int8_too() -> None:
    net = RandomNet()
    x = shuffled(net, net.conv(net.input(1, 5, 6, 4), 12), 3)
    graph = net.graph(net.conv(x, 12, groups=3), net.conv(shuffled(net, net.table(net.input(1, 5, 6, 8)), 2), 4))
    wide = [
        replace(node, rest=net.random.integers(-128, 128, (1, *node.weights.shape)).astype(np.int8))
        if isinstance(node, ir.Conv)
        else node
        for node in graph.nodes
    ]
    graph = replace(graph, nodes=tuple(wide))
    after = simplify(graph)
    assert sorted(node.op for node in after.nodes) == ["conv", "conv", "conv", "table"]
    same_outputs(graph, after)


def test_shuffles_that_stay() -> None:
    """Between grouped convolutions, where others see the channels too, and where bytes change their pixel."""
    net = RandomNet()
    x = net.conv(net.input(1, 5, 6, 12), 12, groups=3)
    seen = net.conv(net.input(1, 4, 5, 6), 6)
    turned = net.transpose(net.conv(net.input(1, 4, 5, 6), 6), (0, 2, 1, 3))
    graph = net.graph(net.conv(shuffled(net, x, 3), 12, groups=3), seen, shuffled(net, seen, 2), net.conv(turned, 3))
    assert permute_weights(graph) is graph


def test_a_product_takes_its_operand_transposed() -> None:
    net = RandomNet()
    a, b = net.input(2, 5, 6), net.input(1, 12, 7)
    turned = net.transpose(net.reshape(b, 2, 6, 7), (0, 2, 1))
    outputs = net.matmul(a, turned, transposed=True), net.matmul(net.input(2, 3, 7), turned)
    graph = net.graph(*outputs)
    after = simplify(graph)
    assert [node.op for node in after.nodes] == ["reshape", "matmul", "matmul"]
    assert [node.transposed for node in after.nodes if isinstance(node, ir.MatMul)] == [False, True]
    same_outputs(graph, after)


def test_transpositions_behind_element_wise_nodes() -> None:
    net = RandomNet()
    a, b = net.conv(net.input(1, 4, 5, 6), 6), net.input(1, 4, 5, 6)
    total = net.elementwise("ADD", net.transpose(a, (0, 3, 1, 2)), net.transpose(b, (0, 3, 1, 2)))
    y = net.transpose(net.table(total), (0, 2, 3, 1))
    graph = net.graph(y)
    after = simplify(graph)
    assert [node.op for node in after.nodes] == ["conv", "add", "table"]
    same_outputs(graph, after)


def test_a_transposition_before_an_element_wise_node_stays_without_a_second() -> None:
    net = RandomNet()
    graph = net.graph(net.conv(net.table(net.transpose(net.input(1, 4, 5, 6), (0, 3, 1, 2))), 3))
    assert sink_transposes(graph) is graph


@pytest.mark.parametrize("seed", range(60))
def test_composed_copies(seed: int) -> None:
    """One copy in place of two does what both do, element by element."""
    rng = np.random.default_rng(seed)
    shape = tuple(int(n) for n in rng.integers(1, 5, 4))
    view = _random_view(rng, ir.positions(shape))
    first = ir.Copy.between(view, ir.positions(view.shape))
    again = ir.positions(view.shape).reshape(_random_shape(rng, view.size))
    inner = _random_view(rng, again)
    second = ir.Copy.between(inner, ir.positions(inner.shape))
    assert first is not None and second is not None
    one = copies.composed(first, second)
    if one is not None:
        expected = view.ravel()[inner].ravel()
        source = sum_of(one.source, one.sizes, one.source_steps)
        result = np.full(expected.size, -1)
        result[sum_of(one.target, one.sizes, one.target_steps)] = source
        np.testing.assert_array_equal(result, expected)


def sum_of(start: int, sizes: tuple[int, ...], steps: tuple[int, ...]) -> np.ndarray:
    """Positions that loops go through."""
    places = np.array([start])
    for size, step in zip(sizes, steps, strict=True):
        places = (places[:, None] + np.arange(size) * step).ravel()
    return places


def _random_view(rng: np.random.Generator, places: np.ndarray) -> np.ndarray:
    cuts = []
    for size in places.shape:
        first = int(rng.integers(0, size)) if rng.random() < 0.3 else 0
        cuts.append(slice(first, size, int(rng.integers(1, 3)) if rng.random() < 0.2 else 1))
    return places[tuple(cuts)].transpose(rng.permutation(places.ndim))


def _random_shape(rng: np.random.Generator, size: int) -> tuple[int, ...]:
    shape = []
    while size > 1:
        factors = [n for n in range(2, size + 1) if size % n == 0]
        shape.append(int(rng.choice(factors)))
        size //= shape[-1]
    return tuple(shape) or (1,)


# --- all of them ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", range(80))
def test_outputs_keep_every_byte(seed: int) -> None:
    for before in (random_network(seed, 12), random_movement(seed)):
        after = simplify(before)
        assert simplify(after) is after
        assert len(after.nodes) <= len(before.nodes)
        same_outputs(before, after, seed)


@pytest.mark.parametrize("seed", range(8))
def test_compiled_after_all_passes(seed: int) -> None:
    graph = random_movement(seed)
    compiled = CompiledNetwork(generate(simplify(graph), CONFIG, Options()))
    value = np.random.default_rng(seed).integers(-128, 128, graph.inputs[0].shape).astype(np.int8)
    expected = reference.run(graph, value)
    for name, array in compiled.run(value).outputs.items():
        np.testing.assert_array_equal(array, expected[name])


def test_every_pass_finds_something() -> None:
    """The random networks above are a test of each pass."""
    found = set()
    for seed in range(80):
        for graph in (random_network(seed, 12), random_movement(seed)):
            for change in PASSES:
                after = change(graph)
                if after is not graph:
                    found.add(change)
                graph = after
    assert found | {fold_constants, compute_tables, fold_strides} == {*PASSES}  # which have tests of their own
