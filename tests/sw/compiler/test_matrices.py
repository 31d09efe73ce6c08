"""Matrices of products that stay in SRAM, side by side with other second operands: bytes, cycles, and places."""

from collections import Counter
from itertools import pairwise
from random import Random

import numpy as np
import pytest

from dovetail.isa.config.resolved import Config
from dovetail.isa.instructions.checks import View
from dovetail.isa.instructions.table import Op, Unit
from dovetail.sw import frontend
from dovetail.sw.compiler import search
from dovetail.sw.compiler.compile import Code, emit, generate
from dovetail.sw.compiler.draft import Draft
from dovetail.sw.compiler.emit.products import records_of
from dovetail.sw.compiler.options import Options
from dovetail.sw.compiler.partition.outline import partition
from dovetail.sw.compiler.plan.choices import Way
from dovetail.sw.compiler.plan.residency import Plan, Work
from dovetail.sw.network import ir
from dovetail.sw.random.networks import RandomNet
from dovetail.sw.runtime.compiled_network import CompiledNetwork
from tests.sw.compiler.decoder import decoder
from tests.sw.compiler.test_in_place import run_all
from tests.sw.compiler.test_scheduling import check

EIGHT = Config(ic_lanes=8, oc_lanes=8, sram="1 MiB", softmax=1, norm=1)


def shared(net: RandomNet) -> str:
    """Three products with one matrix from outside, one with what the first one makes, and one with itself."""
    outside, x = net.input(1, 2, 8, 8), net.input(1, 2, 8, 8)
    y = net.matmul(x, outside)
    z = net.matmul(net.matmul(y, outside), y, transposed=True)
    return net.matmul(net.matmul(z, z), outside)


def graph_of(name: str) -> ir.Graph:
    if name:
        return frontend.load(f"zoo:{name}")
    net = RandomNet(5)
    return net.graph(shared(net))


def code_of(graph: ir.Graph, config: Config, way: Way) -> Code:
    """Of one way alone."""
    return emit(Draft(partition(graph, config, Options(effort=way.effort)), way))


@pytest.mark.parametrize(
    "config",
    [
        EIGHT,
        EIGHT.replace(banks=4, sram="128 KiB"),
        Config(ic_lanes=4, oc_lanes=16, pixel_lanes=2, sram="64 KiB", bus=128, softmax=2, norm=4),
        Config(ic_lanes=16, oc_lanes=16, sram="256 KiB", vector_lanes=16, parameters=2, softmax=1, norm=1),
    ],
    ids=["8x8", "4 banks", "4x16x2", "16x16"],
)
@pytest.mark.parametrize(
    "name",
    ["", "attention_block", "bert_tiny?depth=1&tokens=12&channels=16", "cct?depth=1&channels=16&resolution=16"],
)
def test_bytes_and_cycles(name: str, config: Config) -> None:
    graph = graph_of(name)
    check(CompiledNetwork(code_of(graph, config, Way(0, True, by_bank=True, matrices=True))))


def random_products(seed: int) -> ir.Graph:
    """Products, sums, convolutions, copies and tables of what is there, whatever fits."""
    net, choose = RandomNet(seed), Random(seed)
    heads, rows, depth = choose.choice([1, 2, 4]), choose.choice([1, 3, 17, 33]), choose.choice([2, 8, 24])
    made = [net.input(1, heads, rows, depth), net.input(1, heads, depth, rows), net.constant(1, heads, rows, depth)]
    while len(made) < 14:
        a = choose.choice(made)
        *_, columns = shape = net.shape(a)
        alike = [b for b in made if net.shape(b) == shape]
        matrices = [
            (b, turned) for b in made for turned in (False, True) if net.shape(b)[3 if turned else 2] == columns
        ]
        match choose.choices(("product", "sum", "convolution", "copy"), (5, 2, 2, 1))[0]:
            case "product" if matrices:
                made.append(net.matmul(a, *choose.choice(matrices)))
            case "sum":
                made.append(net.elementwise(choose.choice(["ADD", "MULTIPLY"]), a, choose.choice(alike)))
            case "convolution":
                made.append(net.conv(a, columns, 1))
            case "copy":
                made.append(net.transpose(a, (0, 1, 3, 2)))
            case _:
                made.append(net.table(a))
    return net.graph(made[-1], made[-2])


@pytest.mark.parametrize("seed", range(16))
def test_random_products(seed: int) -> None:
    """A way with matrices in SRAM, and the best of all ways, also those of a smaller SRAM."""
    graph = random_products(seed)
    config = Config(ic_lanes=8, oc_lanes=8, sram="64 KiB") if seed % 2 else EIGHT.replace(sram="128 KiB", banks=32)
    check(CompiledNetwork(code_of(graph, config, Way(seed % 3 > 0, True, by_bank=True, matrices=True))))
    check(CompiledNetwork(generate(graph, config, Options(effort=0))))


@pytest.mark.parametrize("banks", [8, 16])
def test_every_step_of_a_decoder(banks: int) -> None:
    """In place, with banks set apart for what stays from run to run, and without; queries and keys are matrices too."""
    graph, config = decoder(), EIGHT.replace(banks=banks, parameters=2)
    for wide in (False, True):
        way = Way(0, True, wide, by_bank=True, matrices=True)
        assert way in search._ways(partition(graph, config, Options(effort=0)))
        run_all(CompiledNetwork(code_of(graph, config, way)), graph)


def test_a_product_loads_its_records_only() -> None:
    """Keys and values of an attention are made in SRAM and read there. Else each head loads its own, and records."""
    graph, config = graph_of("attention_block"), EIGHT
    way = Way(0, True, by_bank=True, matrices=True)
    layers = {layer.name: layer for layer in CompiledNetwork(code_of(graph, config, way)).report().layers}
    records = {name: records_of(config, layer) for name, layer in partition(graph, config, Options()).layers.items()}
    assert (layers["scores"].moved_bytes, layers["mix"].moved_bytes) == (records["scores"], records["mix"])
    without = {layer.name: layer for layer in CompiledNetwork(code_of(graph, config, Way(0, True))).report().layers}
    for node in (node for node in graph.nodes if isinstance(node, ir.MatMul)):
        matrices = graph.tensors[node.inputs[1]]
        heads = matrices.size // (matrices.shape[-2] * matrices.shape[-1])
        assert without[node.name].moved_bytes == heads * records[node.name] + matrices.size


def test_what_several_products_read_is_loaded_once() -> None:
    graph = graph_of("")
    outside = graph.inputs[0].tensor
    found = []
    for way in (Way(0, True), Way(0, True, by_bank=True, matrices=True)):
        code = code_of(graph, EIGHT, way)
        at, size = code.where[outside], graph.tensors[outside].size
        (timeline,) = CompiledNetwork(code).run(zeros(graph)).timeline
        loads = [
            View(Unit.LOAD, timeline.registers[n])["MEM_ADDR"]
            for n in np.flatnonzero(timeline.op == Op.DMA_READ).tolist()
        ]
        found.append(sum(at <= address < at + size for address in loads))
    assert found == [3, 1]


def zeros(graph: ir.Graph) -> dict[str, np.ndarray]:
    return {port.name: np.zeros(port.shape, np.int8) for port in graph.inputs}


def plan_of(*pairs: tuple[str, str], size: int, shares: bool = True) -> Plan:
    """Products of given rows and matrices, behind what copies each matrix and each operand."""
    net = RandomNet(1)
    graph = net.graph(net.matmul(net.input(1, 4, 8), net.input(1, 8, 8)))
    layer = partition(graph, EIGHT, Options()).layers[graph.nodes[0].name]
    names = dict.fromkeys(name for pair in pairs for name in pair)
    copies = [Work((f"{name} before",), name, None, 100, 0) for name in names]
    products = [Work(pair, f"{number} out", layer, 100, 0) for number, pair in enumerate(pairs)]
    works = [*copies, *products]
    sizes = {name: size for work in works for name in (*work.reads, work.writes)}
    return Plan(EIGHT, works, sizes, (), shares=shares)


@pytest.mark.parametrize("shares", [False, True])
def test_small_matrices_share_a_bank(shares: bool) -> None:
    """Not with the rows of a product, which are read at the same time, and not with larger ones."""
    pairs = [("a", "k"), ("b", "v"), ("k", "w")]
    found = plan_of(*pairs, size=1000, shares=shares).residents
    assert {"a", "b", "k", "v", "w"} <= found.keys()
    assert (found["v"].bank == found["w"].bank) == shares
    assert all(found[first].bank != found[second].bank for first, second in pairs)
    regions = sorted((one.at(EIGHT), one.at(EIGHT) + 1000) for name, one in found.items() if name in "abkvw")
    assert all(end <= start for (_, end), (start, _) in pairwise(regions))
    large = plan_of(*pairs, size=EIGHT.bank_bytes // 2 + 1, shares=shares).residents
    assert len({large[name].bank for name in "abkvw"}) == 5


def test_a_full_bank_takes_no_more() -> None:
    pairs = [(f"rows {number}", f"matrix {number}") for number in range(5)]
    found = plan_of(*pairs, size=EIGHT.bank_bytes // 2).residents
    banks = Counter(found[matrix].bank for _, matrix in pairs)
    assert sorted(banks.values()) == [1, 2, 2]
