"""Masks of scores become biases of products: the same bytes as sums, in fewer cycles."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace

import numpy as np
import pytest

from dovetail.isa.config.resolved import Config
from dovetail.isa.instructions.table import Op
from dovetail.sw.compiler.draft import Draft
from dovetail.sw.compiler.emit import masks
from dovetail.sw.compiler.options import Options
from dovetail.sw.compiler.partition.outline import Partition, partition
from dovetail.sw.compiler.plan.choices import Way
from dovetail.sw.frontend import load
from dovetail.sw.network import ir
from dovetail.sw.runtime.compiled_network import CompiledNetwork, compile_network
from tests.slow import slow
from tests.sw.zoo.test_decoders import steps

LENGTH = 12
NAME = f"zoo:decoder_tiny?depth=2&channels=32&heads=2&groups=1&hidden=20&words=30&length={LENGTH}"
CONFIG = Config(ic_lanes=4, oc_lanes=4, sram="128 KiB", banks=16, softmax=1, norm=1, parameters=1)


def graph_of() -> ir.Graph:
    """With scores and their masked form of one scale, as `quantise` makes them."""

    def alike(node: ir.Node) -> ir.Node:
        if not isinstance(node, ir.Elementwise) or not node.name.endswith("_masked"):
            return node
        params = replace(node.params, za=node.params.zy, mult_a=1 << 23, shift_a=1, mult_b=1 << 23, shift_b=2)
        return replace(node, params=replace(params, mult_out=0, shift_out=0))

    graph = load(NAME)
    return replace(graph, nodes=tuple(map(alike, graph.nodes))).check()


def found(part: Partition, graph: ir.Graph, stored: Collection[str] = ()) -> list[masks.Mask]:
    return masks.masks_of(replace(part, graph=graph), graph.nodes, stored)


def parts() -> Partition:
    return partition(graph_of(), CONFIG, Options(effort=0))


def compiled(monkeypatch: pytest.MonkeyPatch, config: Config) -> CompiledNetwork:
    """In the draft in which tasks of many steps run beside each other."""
    monkeypatch.setattr("dovetail.sw.compiler.compile.plan", lambda part: Draft(part, Way(0, True, wide=True)))
    return compile_network(graph_of(), config, effort=0)


@pytest.mark.parametrize("picks", [slow(False), True])
def test_every_position_has_the_same_bytes_as_with_sums(picks: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """With masks of the host, and with rows of a table that a run picks."""
    config = CONFIG.replace(parameters=3 if picks else 1)
    one = compiled(monkeypatch, config)
    assert any(isinstance(node, ir.Pick) for node in one.code.graph.nodes) == picks
    monkeypatch.setattr(masks, "masks_of", lambda *_: [])
    other = compiled(monkeypatch, config)
    assert one.code.segments[0].entry and other.code.segments[0].entry
    cycles = one.report().cycles, other.report().cycles
    assert cycles == ((7_486, 7_261) if picks else (7_742, 7_770))  # rows as short as these gain nothing
    counts = [[op for op in network.report().timeline[0].op.tolist() if op == Op.E_ADD] for network in (one, other)]
    assert len(counts[0]) < len(counts[1])
    logits = set()
    for sample in steps(LENGTH, 30):
        ours, wanted = (network.run(sample).outputs["logits"] for network in (one, other))
        np.testing.assert_array_equal(ours, wanted)
        assert all(np.array_equal(one.state[name], other.state[name]) for name in one.state)
        logits.add(ours.tobytes())
    assert len(logits) == LENGTH


def test_which_sums_they_do() -> None:
    part = parts()
    graph = part.graph
    both = found(part, graph)
    assert [mask.total.name for mask in both] == ["layer0_softmax_masked", "layer1_softmax_masked"]
    assert [mask.product.name for mask in both] == ["layer0_scores", "layer1_scores"]
    for mask in both:
        assert masks.values_of(graph, mask.mask) == {-128, 0}
        assert (mask.columns, mask.top[0x80], mask.top.sum()) == (LENGTH, 0xC0, 0xC0)
    scores = part.roots[both[0].product.outputs[0]]
    assert [mask.total for mask in found(part, graph, {scores})] == [both[1].total]


@pytest.mark.parametrize("values", [{-128, 0, 3}, *(slow(v) for v in (set(), {100}))])
def test_masks_of_other_values_stay_sums(values: set[int], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(masks, "values_of", lambda *_: values)
    part = parts()
    assert not found(part, part.graph)


def test_scores_of_another_scale_stay_sums() -> None:
    part = parts()
    totals = [node for node in part.graph.nodes if node.name == "layer0_softmax_masked"]
    assert isinstance(totals[0], ir.Elementwise)
    params = replace(totals[0].params, mult_a=totals[0].params.mult_a // 2)
    nodes = tuple(replace(node, params=params) if node is totals[0] else node for node in part.graph.nodes)
    assert [mask.total.name for mask in found(part, replace(part.graph, nodes=nodes))] == ["layer1_softmax_masked"]


def test_what_else_reads_scores_needs_them() -> None:
    part = parts()
    product = found(part, part.graph)[0].product
    node = ir.Table(name="see", inputs=product.outputs, outputs=("seen",), values=np.arange(-128, 128).astype(np.int8))
    graph = replace(part.graph, nodes=(*part.graph.nodes, node))
    assert [mask.total.name for mask in found(part, graph)] == ["layer1_softmax_masked"]
