"""System memory: no buffer in the way of another, results in the place of operands, little more than the least."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dovetail.isa.config.resolved import Config
from dovetail.sw import frontend
from dovetail.sw.compiler.compile import generate
from dovetail.sw.compiler.emit.hazards import races
from dovetail.sw.compiler.memory import ALIGN, Buffer, align, allocate, least
from dovetail.sw.compiler.options import Options
from dovetail.sw.network import ir, reference
from dovetail.sw.random.networks import RandomNet
from dovetail.sw.runtime.compiled_network import CompiledNetwork, compile_network
from tests.slow import slow

CONFIG = Config(ic_lanes=4, oc_lanes=4, sram="32 KiB", banks=16)


def buffers_of(*buffers: tuple[int, int, int]) -> dict[str, Buffer]:
    """(pages, first, last) each."""
    return {f"b{n}": Buffer(pages * ALIGN - n, first, last) for n, (pages, first, last) in enumerate(buffers)}


@st.composite
def random_buffers(draw: st.DrawFn) -> dict[str, Buffer]:
    spans = st.tuples(st.integers(1, 9), st.integers(-1, 20), st.integers(0, 12))
    return buffers_of(*((pages, first, first + length) for pages, first, length in draw(st.lists(spans, max_size=30))))


@given(random_buffers(), st.sampled_from([0, 3 * ALIGN]))
def test_no_two_buffers_meet(buffers: dict[str, Buffer], base: int) -> None:
    where, end = allocate(buffers, base)
    assert set(where) == set(buffers)
    for a, one in buffers.items():
        assert base <= where[a] and where[a] % ALIGN == 0 and where[a] + one.size <= end
        for b, other in buffers.items():
            apart = where[a] + one.size <= where[b] or where[b] + other.size <= where[a]
            assert a == b or apart or one.last < other.first or other.last < one.first
    assert end - base >= least(buffers.values())
    assert end == max([base, *(where[name] + align(buffer.size) for name, buffer in buffers.items())])


def test_least_is_what_is_needed_at_one_time() -> None:
    assert least([]) == 0
    assert least(buffers_of((3, 0, 2), (4, 2, 5), (5, 3, 3), (2, 6, 9)).values()) == 9 * ALIGN


def test_a_better_order_is_found() -> None:
    """The largest first would take 16 pages: the first two buffers between the others, which do not meet."""
    buffers = buffers_of((5, 8, 12), (3, 6, 11), (8, 1, 6), (8, 12, 13))
    _, end = allocate(buffers, 0)
    assert end == least(buffers.values()) == 13 * ALIGN


@pytest.mark.parametrize("tiling", ["free", "channels"])
@pytest.mark.parametrize(
    "name",
    [
        *("resnet8", "dscnn", "inception_block", "shuffle_block", "attention_block", "bert_tiny?depth=2&tokens=40"),
        slow("mobilenet_v1"),
        slow("mobilenet_v2?width=0.5&resolution=96"),
        slow("resnet50?width=0.25&resolution=64"),
    ],
)
def test_networks_take_the_least(name: str, tiling: str) -> None:
    code = compile_network(f"zoo:{name}", Config(ic_lanes=8, oc_lanes=8, sram="512 KiB"), tiling=tiling).code
    assert code.stream_offset - code.constants_bytes == code.least_activations


# A result in the place of an operand -------------------------------------------------------------


def chain(net: RandomNet) -> tuple[str, str]:
    x = net.rescale(net.input(1, 17, 13, 9))
    return x, net.table(x)


def rescaled_input(net: RandomNet) -> tuple[str, str]:
    x = net.input(1, 30, 30, 9)
    return x, net.rescale(x)


def sum_of_two(net: RandomNet) -> tuple[str, str]:
    a, b = (net.conv(net.input(1, 17, 13, 9), 11) for _ in range(2))
    return a, net.elementwise("ADD", a, b)


def twice_the_same(net: RandomNet) -> tuple[str, str]:
    x = net.conv(net.input(1, 17, 13, 9), 11)
    return x, net.elementwise("ADD", x, x)


def seen_under_another_shape(net: RandomNet) -> tuple[str, str]:
    x = net.conv(net.input(1, 16, 16, 9), 12)
    return x, net.table(net.reshape(x, 1, 32, 8, 12))


def scaled_by_channel(net: RandomNet) -> tuple[str, str]:
    x = net.conv(net.input(1, 19, 13, 60), 70)
    return x, net.elementwise("MULTIPLY", net.conv(net.input(1, 1, 1, 9), 70, size=1), x)


TAKING = [chain, rescaled_input, sum_of_two, twice_the_same, seen_under_another_shape, scaled_by_channel]


@pytest.mark.parametrize("make", TAKING)
def test_a_result_takes_the_place_of_what_ends_with_it(make: Callable[[RandomNet], tuple[str, str]]) -> None:
    net = RandomNet(1)
    operand, result = make(net)
    code = compiled_and_run(net.graph(net.conv(result, 5))).code
    assert code.where[operand] == code.where[result]


def read_again(net: RandomNet) -> tuple[str, str]:
    x = net.conv(net.input(1, 17, 13, 9), 11)
    y = net.table(x)
    return x, net.elementwise("ADD", net.conv(y, 11), x)


def of_another_size(net: RandomNet) -> tuple[str, str]:
    x = net.conv(net.input(1, 17, 13, 9), 11)
    return x, net.conv(x, 11, size=1)


def inside_another(net: RandomNet) -> tuple[str, str]:
    x, y = (net.conv(net.input(1, 17, 13, 9), 11) for _ in range(2))
    return x, net.concat(3, net.table(x), y)


@pytest.mark.parametrize("make", [read_again, of_another_size, inside_another])
def test_it_does_not_where_bytes_are_still_wanted_or_lie_otherwise(
    make: Callable[[RandomNet], tuple[str, str]],
) -> None:
    net = RandomNet(2)
    operand, result = make(net)
    graph = net.graph(net.conv(result, 5))
    code = compiled_and_run(graph).code
    node = next(node for node in graph.nodes if operand in node.inputs)
    a, b = ((code.where[name], code.where[name] + graph.tensors[name].size) for name in (operand, node.outputs[0]))
    assert a[1] <= b[0] or b[1] <= a[0]


@pytest.mark.parametrize("again", [False, True])
def test_a_variable_is_left_in_its_place_unless_it_is_read_again(again: bool) -> None:
    """A window over the last rows: the next value begins behind the last node that reads the present one, or not."""
    net = RandomNet(4)
    x = net.input(1, 1, 13, 9)
    before = net.input(1, 3, 13, 9)
    net.tensors[before] = replace(net.tensors[before], zero_point=net.zero(x), scale=net.tensors[x].scale)
    joined = net.concat(1, before, x)
    after = net.slice(joined, slice(None), slice(1, 4))
    y = net.conv(joined, 11)
    if again:
        y = net.conv(net.concat(1, y, net.conv(before, 11)), 5)
    state = ir.State("rows", before, after, np.full((1, 3, 13, 9), 3, np.int8))
    graph = replace(net.graph(y), states=(state,))
    ports = tuple(port for port in graph.inputs if port.tensor != before)
    compiled = compiled_and_run(replace(graph, inputs=ports).check())
    assert compiled.code.in_place(state) != again


def test_network_outputs_keep_their_bytes() -> None:
    net = RandomNet(3)
    x = net.conv(net.input(1, 17, 13, 9), 11)
    y = net.table(x)
    graph = net.graph(y)
    port = replace(graph.outputs[0], name="early", tensor=x)
    code = compiled_and_run(replace(graph, outputs=(*graph.outputs, port)).check()).code
    assert code.where[x] != code.where[y]


def test_nothing_is_shared_when_tensors_are_kept() -> None:
    net = RandomNet(1)
    _, result = sum_of_two(net)
    graph = net.graph(net.conv(net.table(result), 5))
    code = generate(graph, CONFIG, Options(keep_tensors=True))
    places = sorted((code.where[name], code.where[name] + tensor.size) for name, tensor in graph.tensors.items())
    assert all(first[1] <= second[0] for first, second in pairwise(places))


def compiled_and_run(graph: ir.Graph) -> CompiledNetwork:
    """Compile so that every tensor goes through system memory; outputs equal the interpreter's, nothing races."""
    compiled = CompiledNetwork(generate(graph, CONFIG, Options("channels")))
    rng = np.random.default_rng(1)
    inputs = {port.name: rng.integers(-128, 128, port.shape).astype(np.int8) for port in graph.inputs}
    result = compiled.run(inputs)
    for name, value in reference.run(graph, inputs).items():
        np.testing.assert_array_equal(result.outputs[name], value)
    assert not any(races(timeline) for timeline in result.timeline)
    return compiled


def test_networks_with_residuals_and_activations() -> None:
    for name in ("resnet8", "hard_swish_block", "mobilenet_v2_block", "attention_block"):
        compiled_and_run(frontend.load(f"zoo:{name}"))
