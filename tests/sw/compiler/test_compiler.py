"""Compiled networks on the model equal the graph interpreter, for every way to tile, split and place them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from dovetail.isa.common.sizes import ceil_div
from dovetail.isa.config.given import MemoryTiming
from dovetail.isa.config.resolved import Config
from dovetail.isa.numerics.add import onnx_sum, tflite_sum
from dovetail.isa.numerics.multiplier import encode_multiplier
from dovetail.isa.numerics.rounding import Rounding
from dovetail.isa.program import Program, ProgramError
from dovetail.sw.compiler.compile import generate
from dovetail.sw.compiler.layer import ConvLayer
from dovetail.sw.compiler.options import Options
from dovetail.sw.compiler.plan import tiling
from dovetail.sw.errors import CompileError
from dovetail.sw.network import ir, reference
from dovetail.sw.network.layout import Layout
from dovetail.sw.runtime.compiled_network import CompiledNetwork, compile_network
from dovetail.sw.runtime.saved_program import load_program

SMALL = Config(ic_lanes=4, oc_lanes=4, sram="32 KiB", banks=16, stripe=16, requant_lanes=2)


class Builder:
    """Builds small graphs with random weights."""

    def __init__(self, shape: tuple[int, ...], seed: int = 1, rounding: Rounding = Rounding.TFLITE) -> None:
        self.random = np.random.default_rng(seed)
        self.rounding = rounding
        self.tensors = {"x": ir.Tensor("x", (1, *shape), np.float32(0.05), 3)}
        self.nodes: list[ir.Node] = []
        self.last = "x"

    def _tensor(self, shape: tuple[int, ...]) -> str:
        name = f"t{len(self.tensors)}"
        self.tensors[name] = ir.Tensor(name, shape, np.float32(0.05), -5)
        return name

    def _requant(self, channels: int, fan_in: int) -> ir.Requant:
        real = self.random.uniform(0.2, 1.0, channels) / (60 * fan_in**0.5)
        if self.rounding == Rounding.ONNX:
            real = real.astype(np.float32)
        mult, shift = encode_multiplier(real, self.rounding)
        return ir.Requant(mult.astype(np.int32), shift.astype(np.int32), self.rounding, 3, -5, -120, 110)

    def _rest(self, count: int, size: tuple[int, ...]) -> NDArray[np.int8]:
        """Zero for all input channels but a few, where there are more."""
        rest = self.random.integers(-128, 128, (count, *size)).astype(np.int8)
        rest[..., : size[-1] // 3] = 0
        rest[..., 5 * size[-1] // 6 :] = 0
        return rest

    def conv(
        self,
        channels: int,
        kernel: ir.Pair = (3, 3),
        stride: ir.Pair = (1, 1),
        pads: ir.Pads = (1, 1, 1, 1),
        dilation: ir.Pair = (1, 1),
        depthwise: bool = False,
        terms: int = 1,
        wide: Sequence[int] = (),
        tap: ir.Pair | None = None,
    ) -> Builder:
        """``terms``: int8 arrays whose sum the weights are, of the output channels ``wide`` if there are, of depthwise
        ones at one ``tap`` if it is named."""
        _, height, width, inputs = self.tensors[self.last].nhwc
        outputs = inputs if depthwise else channels
        shape = (
            1,
            ir.window_size(height, kernel[0], stride[0], dilation[0], pads[0], pads[2]),
            ir.window_size(width, kernel[1], stride[1], dilation[1], pads[1], pads[3]),
            outputs,
        )
        name = self._tensor(shape)
        fan_in = kernel[0] * kernel[1] * (1 if depthwise else inputs)
        size = (*kernel, inputs) if depthwise else (outputs, *kernel, inputs)
        rest = self._rest(terms - 1, size) if terms > 1 else None
        if rest is not None and wide:
            rest.swapaxes(1, -1 if depthwise else 1)[:, [n for n in range(outputs) if n not in wide]] = 0
        if rest is not None and tap:
            rest *= np.eye(kernel[0] * kernel[1], dtype=np.int8)[tap[0] * kernel[1] + tap[1]].reshape(1, *kernel, 1)
        kind = ir.Depthwise if depthwise else ir.Conv
        self.nodes.append(
            kind(
                name=f"n{len(self.nodes)}",
                inputs=(self.last,),
                outputs=(name,),
                weights=self.random.integers(-127, 128, size).astype(np.int8),
                bias=self.random.integers(-5000, 5000, outputs).astype(np.int32),
                requant=self._requant(outputs, fan_in),
                stride=stride,
                pads=pads,
                dilation=dilation,
                rest=rest,
            )
        )
        self.last = name
        return self

    def add(self, other: str) -> Builder:
        if self.rounding == Rounding.TFLITE:
            params = tflite_sum(0.05, -5, 0.031, 3, 0.06, -9, lo=-100)
        else:
            params = onnx_sum(0.05, -5, 0.031, 3, 0.06, -9, lo=-100)
        name = self._tensor(self.tensors[self.last].shape)
        self.nodes.append(
            ir.Elementwise(name=f"n{len(self.nodes)}", inputs=(self.last, other), outputs=(name,), params=params)
        )
        self.last = name
        return self

    def pool(self, kernel: ir.Pair, stride: ir.Pair, pads: ir.Pads = (0, 0, 0, 0), average: bool = False) -> Builder:
        _, height, width, channels = self.tensors[self.last].nhwc
        shape = (
            1,
            ir.window_size(height, kernel[0], stride[0], 1, pads[0], pads[2]),
            ir.window_size(width, kernel[1], stride[1], 1, pads[1], pads[3]),
            channels,
        )
        name = self._tensor(shape)
        number, source = f"n{len(self.nodes)}", (self.last,)
        node: ir.Node
        if average:
            node = ir.AvgPool(
                name=number,
                inputs=source,
                outputs=(name,),
                kernel=kernel,
                stride=stride,
                pads=pads,
                rounding=self.rounding,
            )
        else:
            node = ir.MaxPool(name=number, inputs=source, outputs=(name,), kernel=kernel, stride=stride, pads=pads)
        self.nodes.append(node)
        self.last = name
        return self

    def graph(self) -> ir.Graph:
        def port(name: str) -> ir.Port:
            tensor = self.tensors[name]
            return ir.Port(name, name, "int8", tensor.scale, tensor.zero_point, Layout.plain(tensor.shape))

        return ir.Graph((port("x"),), (port(self.last),), self.tensors, tuple(self.nodes), "test").check()


def check(graph: ir.Graph, config: Config, mode: str = "free", seed: int = 0) -> CompiledNetwork:
    """Every tensor the accelerator wrote equals the interpreter's, and cycles equal the report's."""
    compiled = CompiledNetwork(generate(graph, config, Options(mode, keep_tensors=True)))
    x = np.random.default_rng(seed).integers(-128, 128, graph.inputs[0].shape).astype(np.int8)
    expected = reference.evaluate(graph, graph.bind(x), keep_all=True)
    result = compiled.run(x)
    for node in graph.nodes:
        for name in node.outputs:
            np.testing.assert_array_equal(result.tensors[name], expected[name], err_msg=f"{node.name} {name}")
    assert result.cycles == compiled.report().cycles
    report = compiled.report()
    assert sum(layer.cycles for layer in report.layers) == report.cycles
    return compiled


SHAPES: dict[str, Callable[[], Builder]] = {
    "plain": lambda: Builder((9, 11, 8)).conv(12),
    "packed first layer": lambda: Builder((17, 16, 3)).conv(8, stride=(2, 2), pads=(0, 0, 1, 1)),
    "dilated": lambda: Builder((12, 13, 5)).conv(7, dilation=(2, 3), pads=(2, 3, 2, 3)),
    "wide kernel": lambda: Builder((14, 9, 2)).conv(6, kernel=(10, 4), stride=(2, 2), pads=(4, 1, 5, 1)),
    "pointwise": lambda: Builder((7, 7, 33)).conv(19, kernel=(1, 1), pads=(0, 0, 0, 0)),
    "dense": lambda: Builder((1, 1, 200)).conv(37, kernel=(1, 1), pads=(0, 0, 0, 0)),
    "depthwise": lambda: Builder((13, 10, 21)).conv(0, depthwise=True),
    "depthwise stride": lambda: Builder((14, 14, 9)).conv(0, stride=(2, 2), pads=(0, 0, 1, 1), depthwise=True),
    "wide weights": lambda: Builder((9, 11, 20)).conv(12, terms=2),
    "wide weights, packed": lambda: Builder((17, 16, 3)).conv(8, stride=(2, 2), pads=(0, 0, 1, 1), terms=3),
    "wide weights, pointwise": lambda: Builder((7, 7, 33)).conv(19, kernel=(1, 1), pads=(0, 0, 0, 0), terms=2),
    "wide weights in the middle": lambda: (
        Builder((7, 7, 33)).conv(40, (1, 1), pads=(0, 0, 0, 0), terms=2, wide=(17, 21)).conv(6)
    ),
    "wide weights at the ends, packed": lambda: Builder((17, 16, 3)).conv(29, (5, 3), terms=2, wide=(2, 28)),
    "wide weights, depthwise": lambda: Builder((14, 14, 21)).conv(0, stride=(2, 2), depthwise=True, terms=2),
    "one wide weight, depthwise": lambda: Builder((13, 10, 70)).conv(
        0, stride=(2, 2), pads=(0, 0, 1, 1), depthwise=True, terms=2, wide=(40,), tap=(2, 1)
    ),
    "one wide weight, depthwise, between others": lambda: (
        Builder((8, 9, 21))
        .conv(37, (1, 1), pads=(0, 0, 0, 0))
        .conv(0, depthwise=True, terms=3, wide=(14, 27), tap=(1, 2))
        .conv(9, (1, 1), pads=(0, 0, 0, 0))
    ),
    "maximum": lambda: Builder((12, 12, 10)).pool((3, 3), (2, 2), (1, 1, 1, 1)),
    "average": lambda: Builder((8, 6, 10)).pool((8, 6), (1, 1), average=True),
    "residual": lambda: Builder((8, 8, 6)).conv(6).conv(6).add("t1"),
    "chain": lambda: (
        Builder((16, 16, 3))
        .conv(8, stride=(2, 2))
        .conv(0, depthwise=True)
        .conv(16, kernel=(1, 1), pads=(0, 0, 0, 0))
        .pool((8, 8), (1, 1), average=True)
    ),
}
CONFIGS = {
    "4x4": SMALL,
    "3x5": Config(ic_lanes=3, oc_lanes=5, sram="64 KiB", stripe=7, bus=32),
    "1x16": Config(ic_lanes=1, oc_lanes=16, sram="64 KiB", bus=128),
    "16x1 emulated": Config(ic_lanes=16, oc_lanes=1, sram="32 KiB", banks=4, depthwise="emulated"),
    "8x8 host": Config(ic_lanes=8, oc_lanes=8, depthwise="none", pooling=False, elementwise=False, activation=False),
}


@pytest.mark.parametrize("mode", ["free", "channels"])
@pytest.mark.parametrize("config", CONFIGS)
@pytest.mark.parametrize("shape", SHAPES)
def test_equals_the_interpreter(shape: str, config: str, mode: str) -> None:
    check(SHAPES[shape]().graph(), CONFIGS[config], mode)


@pytest.mark.parametrize("shape", ["plain", "pointwise", "residual", "average", "depthwise"])
def test_onnx_rounding(shape: str) -> None:
    builder = SHAPES[shape]()
    graph = builder.graph()
    assert graph  # the shapes are those of the table; rebuild with the other rounding
    onnx = {
        "plain": lambda: Builder((9, 11, 8), rounding=Rounding.ONNX).conv(12),
        "pointwise": lambda: Builder((7, 7, 33), rounding=Rounding.ONNX).conv(19, (1, 1), pads=(0, 0, 0, 0)),
        "residual": lambda: Builder((8, 8, 6), rounding=Rounding.ONNX).conv(6).conv(6).add("t1"),
        "average": lambda: Builder((8, 6, 10), rounding=Rounding.ONNX).pool((8, 6), (1, 1), average=True),
        "depthwise": lambda: Builder((13, 10, 21), rounding=Rounding.ONNX).conv(0, depthwise=True),
    }[shape]()
    check(onnx.graph(), SMALL)


def test_the_roofline_knows_how_often_the_bus_has_a_beat() -> None:
    slow = SMALL.replace(memory=MemoryTiming(beat_cycles=3))
    fast, third = (compile_network("zoo:autoencoder", config).report() for config in (SMALL, slow))
    assert fast.bound == ceil_div(fast.least_bytes, SMALL.bus_bytes) and third.bound == 3 * fast.bound
    assert third.cycles >= third.bound


def test_rows_are_tiled_when_a_layer_exceeds_the_sram() -> None:
    graph = Builder((40, 40, 16)).conv(16).graph()
    compiled = check(graph, SMALL)
    assert sum(1 for layer in compiled.code.layers) == 1
    assert compiled.report().moved_bytes > 2 * 40 * 40 * 16


def test_input_channels_are_split_when_weights_do_not_fit() -> None:
    graph = Builder((2, 2, 1200)).conv(9, kernel=(3, 3)).graph()
    compiled = check(graph, SMALL)
    assert "of 1200 channels" not in compiled.code.layers[0].tiles


@pytest.mark.parametrize("effort", [0, 1, 3])
def test_layers_beside_one_whose_weights_are_wide(effort: int) -> None:
    """What follows it tile by tile, and what it is copied to."""
    net = Builder((8, 8, 16)).conv(24, terms=2).conv(0, depthwise=True, terms=2).conv(16, (1, 1), pads=(0, 0, 0, 0))
    graph = net.conv(16, (1, 1), pads=(0, 0, 0, 0), terms=2).add("t3").graph()
    compiled = CompiledNetwork(generate(graph, SMALL, Options(effort=effort)))
    x = np.random.default_rng(1).integers(-128, 128, graph.inputs[0].shape).astype(np.int8)
    result = compiled.run(x)
    assert not compiled.code.host_reasons
    np.testing.assert_array_equal(result.outputs["t5"], reference.run(graph, x)["t5"])
    assert result.cycles == compiled.report().cycles


def test_input_channels_and_terms_of_weights_are_split_together() -> None:
    builder = Builder((2, 2, 1200)).conv(9, terms=2)
    compiled = check(builder.graph(), SMALL)
    assert "of 1200 channels" not in compiled.code.layers[0].tiles


def test_input_channels_are_split_where_taps_are_repeated() -> None:
    builder = Builder((3, 3, 5000)).conv(24, (1, 1), pads=(0, 0, 0, 0), terms=2, wide=(11,))
    compiled = check(builder.graph(), SMALL)
    assert "of 5000 channels" not in compiled.code.layers[0].tiles


def test_a_part_of_a_tile_is_as_wide_as_another_tile() -> None:
    """Four of the first tile's channels, and all of the last one's: the same instruction, but for where pixels go."""
    compiled = check(Builder((4, 4, 2000)).conv(12, (1, 1), pads=(0, 0, 0, 0), terms=2, wide=(5,)).graph(), SMALL)
    assert "x 8 of 2000 channels" in compiled.code.layers[0].tiles


def test_wide_weights_take_no_pass_of_their_own() -> None:
    """Blocks of output channels with such weights take twice the steps, the others and the result's place are those of
    any layer: a dense one in a network takes as many bytes as without, but for the weights."""

    def compiled(wide: Sequence[int]) -> CompiledNetwork:
        net = Builder((16, 16, 16)).conv(32, (1, 1), pads=(0, 0, 0, 0))
        net.conv(64, (1, 1), pads=(0, 0, 0, 0), terms=2 if wide else 1, wide=wide)
        return CompiledNetwork(generate(net.conv(8, (1, 1), pads=(0, 0, 0, 0)).graph(), Config(), Options()))

    plain, wide = compiled(()), compiled((40,))
    assert wide.report().moved_bytes - plain.report().moved_bytes == 4 * 64
    (_, few, _), (_, more, _) = plain.report().layers, wide.report().layers
    assert 0 < more.cycles - few.cycles < 4 * 16 * 16 + 150  # its steps, and two more instructions


@pytest.mark.parametrize("vector", [True, False])
def test_results_beside_sums_are_copied_to_their_place(vector: bool) -> None:
    """A depthwise layer whose weights are wide moves its weights only, where there is a vector unit."""
    net = (
        Builder((16, 16, 24))
        .conv(32, (1, 1), pads=(0, 0, 0, 0))
        .conv(0, depthwise=True, terms=2, wide=(14,), tap=(0, 2))
    )
    graph = net.conv(8, (1, 1), pads=(0, 0, 0, 0)).graph()
    config = Config() if vector else Config(pooling=False, elementwise=False, activation=False)
    compiled = CompiledNetwork(generate(graph, config, Options()))
    x = np.random.default_rng(1).integers(-128, 128, graph.inputs[0].shape).astype(np.int8)
    for name, expected in reference.run(graph, x).items():
        np.testing.assert_array_equal(compiled.run(x).outputs[name], expected)
    moved = compiled.report().layers[1].moved_bytes
    # Blocks of eight channels: records, three rows of taps of two words; the wide one has records and a tap once more.
    weights = 4 * (8 * 16 + 3 * 2 * 16) + 8 * 16 + 16
    assert moved == weights + (0 if vector else 16 * 16 * 32)


def test_a_layer_too_large_for_the_sram_runs_on_the_host() -> None:
    large = Builder((110, 110, 4)).conv(4, kernel=(110, 110), pads=(0, 0, 0, 0))
    compiled = check(large.conv(4, kernel=(1, 1), pads=(0, 0, 0, 0)).graph(), SMALL)
    (reason,) = compiled.code.host_reasons.values()
    assert compiled.code.host_reasons == {"n0": reason}
    assert reason.startswith("its smallest tile ") and "give more SRAM" in reason


WIDE: dict[str, Callable[[], Builder]] = {
    "plain": lambda: Builder((4, 3000, 16)).conv(4),
    "stride, dilation": lambda: Builder((5, 1500, 12)).conv(9, stride=(2, 2), dilation=(1, 2), pads=(1, 2, 1, 2)),
    "packed": lambda: Builder((5, 6000, 3)).conv(8, stride=(2, 2), pads=(0, 0, 1, 1)),
    "depthwise": lambda: Builder((4, 2500, 16)).conv(0, stride=(2, 2), depthwise=True),
    "one row": lambda: Builder((1, 400, 10)).conv(12, (1, 1), pads=(0, 0, 0, 0)).conv(6, (1, 3), pads=(0, 1, 0, 1)),
}


@pytest.mark.parametrize("config", ["4x4", "16x1 emulated"])
@pytest.mark.parametrize("shape", WIDE)
def test_rows_are_cut_when_one_exceeds_the_sram(shape: str, config: str) -> None:
    graph = WIDE[shape]().graph()
    compiled = CompiledNetwork(generate(graph, CONFIGS[config], Options(effort=1)))
    assert not compiled.code.host_reasons
    assert "columns" in compiled.code.layers[-1].tiles
    x = np.random.default_rng(0).integers(-128, 128, graph.inputs[0].shape).astype(np.int8)
    result = compiled.run(x)
    name = graph.outputs[0].tensor
    np.testing.assert_array_equal(result.tensors[name], reference.evaluate(graph, graph.bind(x))[name])


def test_channel_tiling_never_cuts_rows() -> None:
    layer = ConvLayer(56, 56, 64, 56, 56, 128, (1, 1), (1, 1), (1, 1), 0, 0, "conv", False)
    config = Config(pe=64, dataflow="output")
    plan = tiling.choose(config, layer, tiling.Space.whole(config), Options(tiling="channels"))
    assert plan.rows == 56 and plan.in_channels == 64


def test_unknown_tiling_is_refused() -> None:
    with pytest.raises(CompileError, match="tiling must be one of free, channels, not 'rows'"):
        Options("rows")


def test_memory_is_reused_unless_tensors_are_kept() -> None:
    builder = Builder((32, 32, 8))
    for _ in range(6):
        builder.conv(8)
    graph = builder.graph()
    reused = generate(graph, SMALL, Options())
    kept = generate(graph, SMALL, Options(keep_tensors=True))
    assert reused.memory_bytes < kept.memory_bytes


@pytest.mark.parametrize("network", ["dscnn", "inception_block", "attention_block"])
def test_saved_program_runs_like_the_compiled_one(network: str, tmp_path: Path) -> None:
    path = tmp_path / "net.dvt"
    compiled = compile_network(f"zoo:{network}", Config(depthwise="none"))
    compiled.save(path)
    loaded = load_program(path)
    x = np.random.default_rng(3).integers(-128, 128, compiled.graph.inputs[0].shape).astype(np.int8)
    ours, theirs = compiled.run(x), loaded.run(x)
    assert ours.cycles == theirs.cycles
    for name, value in ours.outputs.items():
        np.testing.assert_array_equal(value, theirs.outputs[name])
    with pytest.raises(ProgramError, match="program must run on configuration"):
        load_program(path, Config(ic_lanes=4, oc_lanes=4))
    assert Program.load(path).segments
