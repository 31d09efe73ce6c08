"""Convolutions of few channels whose kernels become channels."""

from dataclasses import replace
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import pytest

from dovetail.isa.config.presets import PRESETS
from dovetail.isa.config.resolved import Config
from dovetail.isa.instructions.table import Unit
from dovetail.isa.numerics.rounding import Rounding
from dovetail.isa.numerics.softmax import onnx_exponentials
from dovetail.isa.timing.run import time_program
from dovetail.sw import frontend
from dovetail.sw.compiler.compile import Code, emit
from dovetail.sw.compiler.draft import Draft
from dovetail.sw.compiler.options import Options
from dovetail.sw.compiler.partition.bands import Cascade
from dovetail.sw.compiler.partition.im2col import _forms, in_turn
from dovetail.sw.compiler.partition.outline import in_bands, partition
from dovetail.sw.compiler.plan.choices import Way
from dovetail.sw.compiler.search import plan
from dovetail.sw.network import ir, reference
from dovetail.sw.passes.integer.edit import with_others
from dovetail.sw.random.networks import RandomNet
from dovetail.sw.runtime.compiled_network import CompiledNetwork, compile_network
from dovetail.sw.runtime.saved_program import load_program
from tests.sw.compiler.test_along_rows import EIGHT, SIXTEEN
from tests.sw.compiler.test_scheduling import check

SQUARE = Config(ic_lanes=8, oc_lanes=8, sram="64 KiB")
PIXELS = Config(ic_lanes=4, oc_lanes=16, pixel_lanes=2, sram="64 KiB")
CONFIGS = pytest.mark.parametrize("config", [SQUARE, PIXELS, SIXTEEN], ids=["8x8", "4x16x2", "16x16"])
FORMS = pytest.mark.parametrize("form", [0, 1], ids=["kernels", "rows"])
LAYERS = [
    ((16, 16, 3), {"size": 3, "stride": 2, "pads": (0, 0, 1, 1)}),
    ((32, 32, 3), {"size": 7, "stride": 2}),
    ((19, 23, 3), {"size": 5, "stride": 2, "pads": (0, 1, 0, 2)}),
    ((20, 17, 1), {"size": 5, "stride": 3, "pads": (1, 0, 4, 0)}),
    ((16, 30, 3), {"size": 5, "stride": 1, "pads": (0, 0, 0, 0)}),
    ((9, 9, 2), {"size": 3, "stride": 1, "pads": (2, 2, 2, 2)}),
    ((6, 7, 8), {"size": 5, "stride": 4, "pads": (20, 20, 20, 20)}),
]


def image(shape: tuple[int, int, int], **parameters: Any) -> ir.Graph:
    """A convolution of an image, and one behind it."""
    net = RandomNet(7)
    x = net.conv(net.input(1, *shape), **{"channels": 40, **parameters})
    return net.graph(net.conv(x, 24, size=1))


def with_form(graph: ir.Graph, form: int) -> ir.Graph:
    """The graph whose first node that has kernels with rows has this form, whether it pays or not."""
    node = next(node for node in graph.nodes if isinstance(node, ir.Conv) and node.kernel[0] > 1)
    nodes, copied = list(_forms(graph, node))[form]
    return with_others(graph, {node.name: nodes}, [copied])


def check_form(graph: ir.Graph, config: Config, form: int) -> Code:
    """Bytes and cycles of every plan of the graph in a form: effort 0 and 1, in SRAM and through system memory."""
    formed = with_form(graph, form)
    inputs = [np.random.default_rng(3).integers(-128, 128, port.shape).astype(np.int8) for port in graph.inputs]
    for name, value in reference.run(formed, inputs).items():
        np.testing.assert_array_equal(value, reference.run(graph, inputs)[name])
    for way in (Way(0, False), Way(0, True), Way(1, True, by_bank=True, overtakes=True)):
        check(CompiledNetwork(emit(Draft(partition(formed, config, Options(effort=way.effort)), way))))
    code = emit(plan(partition(formed, config, Options(effort=0))))
    assert code.layers[0].kind == "im2col"
    return code


@CONFIGS
@FORMS
@pytest.mark.parametrize(("shape", "parameters"), LAYERS)
def test_bytes(config: Config, form: int, shape: tuple[int, int, int], parameters: dict[str, Any]) -> None:
    """With padding on every side and without; strides that leave rows out; whether it pays or not."""
    check_form(image(shape, **parameters), config, form)


@CONFIGS
@FORMS
def test_dilated_rows(config: Config, form: int) -> None:
    graph = image((18, 13, 3), size=3)
    first = graph.nodes[0]
    assert isinstance(first, ir.Conv)
    first = replace(first, dilation=(2, 1), pads=(3, 1, 1, 1))
    check_form(replace(graph, nodes=(first, *graph.nodes[1:])).check(), config, form)


@CONFIGS
@FORMS
def test_channels_of_a_larger_tensor(config: Config, form: int) -> None:
    """Between the pixels of the operand are other bytes, so each tap has an instruction."""
    net = RandomNet(5)
    whole = net.conv(net.input(1, 9, 12, 16), 16, size=1)
    part = net.slice(whole, *(slice(None),) * 3, slice(4, 8))
    formed = with_form(net.graph(net.conv(part, 24), whole), form)
    for way in (Way(0, False), Way(0, True)):
        draft = Draft(partition(formed, config, Options(effort=0)), way)
        assert part in draft.partition.parts
        check(CompiledNetwork(emit(draft)))


def test_random_layers() -> None:
    random = Random(11)
    for _ in range(12):
        size, stride = random.choice([2, 3, 5]), random.choice([1, 2, 3])
        shape = random.randint(size, 24), random.randint(size, 24), random.randint(1, 5)
        pads = tuple(random.randint(0, size) for _ in range(4))
        graph = image(shape, size=size, stride=stride, pads=pads, channels=random.choice([5, 16, 40]))
        check_form(graph, random.choice([SQUARE, PIXELS, SIXTEEN]), random.choice([0, 1]))


@FORMS
@pytest.mark.parametrize("bands", [2, 3, 5])
def test_bands_of_rows(form: int, bands: int) -> None:
    """A band of the copies has the rows that the convolution's band needs, and padding where the image ends."""
    whole = partition(with_form(image((33, 20, 3), size=5, stride=2), form), SQUARE, Options(effort=0))
    cut = in_bands(whole, [Cascade(whole.graph.nodes, bands)])
    assert cut
    check(CompiledNetwork(emit(Draft(cut, Way(0, True)))))


@FORMS
@pytest.mark.parametrize("plain", [{0}, {0, 2, 4}, {1, 2}, {0, 1, 2, 3, 4}])
def test_bands_that_are_not_copied(form: int, plain: set[int]) -> None:
    """They are computed as in the graph before; reports have a line for either layer, copies first."""
    graph = image((33, 20, 3), size=5, stride=2)
    whole = partition(with_form(graph, form), SQUARE, Options(effort=0))
    copies, single, _ = whole.graph.nodes
    cut = in_bands(whole, [Cascade((copies, single), 5, graph.nodes[0], frozenset(plain))])
    assert cut
    code = emit(Draft(cut, Way(0, True)))
    check(CompiledNetwork(code))
    assert [layer.name for layer in code.layers][-2:] == [node.name for node in graph.nodes]
    assert [layer.kind for layer in code.layers][:-2] == ["im2col"] * (len(plain) < 5)
    assert sum(node.op == "im2col" for node in cut.graph.nodes) == 5 - len(plain)


def test_bands_that_see_padding_alone() -> None:
    """There are none then, and the image is copied at once."""
    empty = image((6, 7, 8), size=5, stride=4, pads=(20, 20, 20, 20))
    assert in_turn(with_form(empty, 0), SQUARE, empty, partly=True) == [[]]
    whole = image((33, 20, 3), size=5, stride=2)
    ((cascade,),) = in_turn(with_form(whole, 0), SQUARE, whole, partly=False)
    assert (cascade.bands, cascade.plain) == (8, frozenset())


def test_as_many_bands_are_copied_as_the_vector_unit_has_time_for() -> None:
    """They lie between the others, where their copies are there when the array comes to them; where it is close, all
    may be copied as well."""
    graph = frontend.load("zoo:mobilenet_v1")

    def plain(config: Config, *, partly: bool) -> list[list[list[int]]]:
        formed = with_form(graph, 0)
        return [[sorted(one.plain) for one in way] for way in in_turn(formed, config, graph, partly=partly)]

    large = Config(ic_lanes=16, oc_lanes=16, sram=1 << 20)
    assert plain(large, partly=True) == [[[0, 2, 6]]]
    assert plain(Config(ic_lanes=4, oc_lanes=32, pixel_lanes=2, sram=1 << 20), partly=True) == [[[0, 1, 4, 7]]]
    assert plain(replace(SQUARE, sram=1 << 20), partly=True) == [[[]], [[0]]]
    assert plain(large, partly=False) == [[[]]]


def test_where_it_may_pay() -> None:
    """Not with full lanes, or for a single row; nor without a vector unit. Where there is more to copy than to compute
    some rows may be copied, and the effort is not 0."""
    good: dict[str, Any] = {"size": 7, "stride": 2}

    def may(graph: ir.Graph, config: Config = SQUARE, effort: int = 1) -> bool:
        return partition(graph, config, Options(effort=effort)).im2col is not None

    assert may(image((32, 32, 3), **good))
    assert not may(image((32, 32, 16), **good))
    assert not may(image((32, 32, 3), size=1))
    assert not may(image((32, 32, 3), **good, channels=8), SIXTEEN, effort=0)
    assert may(image((32, 32, 3), **good, channels=8), SIXTEEN)
    assert not may(image((32, 32, 3), **good), replace(SQUARE, pooling=False, elementwise=False, activation=False))
    assert not may(image((32, 32, 3), **good), Config(**PRESETS["icebreaker"]))


def test_rows_that_do_not_fit_keep_their_form() -> None:
    """A row of 4,000 pixels of 27 bytes is more than the SRAM."""
    graph = image((9, 4000, 3), size=3)
    assert partition(graph, SQUARE, Options()).im2col is None
    compiled = compile_network(graph, SQUARE)
    assert kinds(compiled.code)[0] == "conv"
    check(compiled)


def kinds(code: Code) -> list[str]:
    return [layer.kind for layer in code.layers]


def test_the_better_form_wins() -> None:
    """As with the first layer of a MobileNet: what wins is never worse than the form of the file."""
    graph = frontend.load("zoo:mobilenet_v1?resolution=64")
    for config, wanted in ((SQUARE, "im2col"), (Config(ic_lanes=8, oc_lanes=32, sram="64 KiB"), "conv")):
        compiled = compile_network(graph, config)
        assert kinds(compiled.code)[0] == wanted
        divided = partition(graph, config, Options())
        plain = Draft(divided, Way(1, True)).cycles({}, None)
        assert plain is not None and compiled.report().cycles <= plain
        assert compiled.report().macs == graph.total_macs


def test_cycles() -> None:
    """27 of 32 products of the first layer's steps count, not 27 of 48."""
    graph = frontend.load("zoo:mobilenet_v1?resolution=64")
    divided = partition(graph, SQUARE, Options())
    assert divided.im2col
    before, after = (Draft(one, Way(1, True, by_bank=True)).cycles({}, None) for one in (divided, divided.im2col))
    assert (before, after) == (1_045_993, 1_039_154)


def test_the_array_computes_beside_the_copies() -> None:
    """The convolution begins long before the last copy."""
    divided = partition(image((64, 64, 3), size=3, stride=2), replace(SQUARE, sram=256 << 10), Options()).im2col
    assert divided
    code = emit(Draft(divided, Way(1, True, by_bank=True)))
    (segment,) = code.segments
    timeline = time_program(code.config, segment.words)
    work = ~timeline.is_fetch
    vector, array = (timeline.start[work & (timeline.unit == unit)] for unit in (Unit.VECTOR, Unit.ARRAY))
    assert 2 * array[0] < vector[-1]


@pytest.mark.parametrize(
    ("network", "sram", "bands"),
    [("mobilenet_v1?resolution=64", 64, "8 bands"), ("mobilenet_v2", 256, "8 bands"), ("dscnn", 64, "")],
)
def test_a_saved_program_has_it(network: str, sram: int, bands: str, tmp_path: Path) -> None:
    """At once or in bands, and the last layer in passes between tiles."""
    comes_back(compile_network(f"zoo:{network}", SQUARE.replace(sram=sram << 10, banks=None)), bands, tmp_path)


def test_a_saved_program_has_it_in_some_bands(tmp_path: Path) -> None:
    compiled = compile_network("zoo:mobilenet_v2?resolution=96", Config(ic_lanes=8, oc_lanes=32, sram="256 KiB"))
    assert compiled.code.layers[1].tiles.endswith(", 8 bands")
    check(compiled)
    assert compiled.report().cycles == 602_949
    comes_back(compiled, "5 bands", tmp_path)


def comes_back(compiled: CompiledNetwork, bands: str, tmp_path: Path) -> None:
    """The first layer is copied in so many bands, also when the program has been saved and loaded."""
    assert kinds(compiled.code)[0] == "im2col"
    assert compiled.code.layers[0].tiles == bands
    compiled.save(tmp_path / "program.dvt")
    read = load_program(tmp_path / "program.dvt")
    assert read.report().layers == compiled.report().layers
    assert [node.op for node in read.graph.nodes] == [node.op for node in compiled.graph.nodes]


def along_rows(shape: tuple[int, int, int], **parameters: Any) -> ir.Graph:
    """A convolution of an image, and a softmax of each of its pixels."""
    net = RandomNet(7)
    x = net.conv(net.input(1, *shape), **{"channels": 40, **parameters})
    out = net.tensor(*net.shape(x))
    table = onnx_exponentials(0.1, net.shape(x)[-1])
    net.node(ir.Softmax, (x,), out, form=Rounding.ONNX, levels=256, zero_out=-128, exponentials=table)
    return net.graph(out)


@pytest.mark.parametrize("config", [EIGHT, SIXTEEN, replace(SIXTEEN, sram=64 << 10)])
@pytest.mark.parametrize("rows", [0, 64])
@pytest.mark.parametrize(("shape", "parameters"), LAYERS[1:4])
def test_along_rows(config: Config, rows: int, shape: tuple[int, int, int], parameters: dict[str, Any]) -> None:
    graph = with_form(along_rows(shape, **parameters), 1)
    way = Way(0, True, rows > 0, rows, by_bank=rows > 0)
    check(CompiledNetwork(emit(Draft(partition(graph, config, Options(effort=0)), way))))


def test_the_array_takes_fewer_cycles_along_rows() -> None:
    """147 of 160 lanes have a tap instead of 147 of 224."""
    report = compile_network(along_rows((32, 32, 3), size=7, stride=2), SIXTEEN, effort=0).report()
    assert (report.cycles, report.macs) == (11_428, 16 * 16 * 147 * 40)
