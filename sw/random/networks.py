"""Random networks of every operator, for tests of the compiler, the model and the RTL.

Equal seeds give equal networks.
"""

from __future__ import annotations

from collections.abc import Callable
from math import prod

import numpy as np

from dovetail.isa.numerics.add import onnx_sum, tflite_sum
from dovetail.isa.numerics.multiplier import encode_multiplier
from dovetail.isa.numerics.multiply import scaled_product
from dovetail.isa.numerics.rounding import Rounding
from dovetail.isa.numerics.vector import VectorOperation
from dovetail.sw.network import ir
from dovetail.sw.network.layout import Layout


class RandomNet:
    """A graph with random parameters and weights, built node by node; every method returns the name of its result."""

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

    def of_sums(self, *shape: int) -> str:
        name = f"t{len(self.tensors)}"
        self.tensors[name] = ir.Tensor(name, shape, dtype="int32")
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
        return ir.Requant.encode(real, self.rounding, *zeros, min(lo, 0), max(hi, 0), where="random")

    def window(self, x: str, kernel: ir.Pair, stride: ir.Pair, pads: ir.Pads, dilation: ir.Pair = (1, 1)) -> ir.Pair:
        _, height, width, _ = self.tensors[x].nhwc
        return (
            ir.window_size(height, kernel[0], stride[0], dilation[0], pads[0], pads[2]),
            ir.window_size(width, kernel[1], stride[1], dilation[1], pads[1], pads[3]),
        )

    def conv(
        self,
        x: str,
        channels: int,
        size: int = 3,
        stride: int = 1,
        groups: int = 1,
        multiplier: int = 0,
        pads: ir.Pads | None = None,
    ) -> str:
        """Padded by size // 2 unless ``pads`` are given; depthwise with a multiplier."""
        depth = self.shape(x)[3]
        channels = depth * multiplier if multiplier else channels
        pads = pads or (size // 2,) * 4
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

    def sums(self, x: str, channels: int) -> str:
        """int32 sums: of a dense layer of so many channels, or of rows with one another where there are none."""
        depth = self.shape(x)[-1]
        count = prod(self.shape(x)) // depth
        rows = self.reshape(x, *((1, 1) if channels else ()), count, depth)
        zero = self.zero(rows)
        requant = ir.Requant.of_sums(zero, self.rounding)
        if not channels:
            out = self.of_sums(count, count)
            return self.node(ir.MatMul, (rows, rows), out, requant=requant, zero_b=zero, transposed=True)
        return self.node(
            ir.Conv,
            (rows,),
            self.of_sums(1, 1, count, channels),
            weights=self.random.integers(-128, 128, (channels, 1, 1, depth)).astype(np.int8),
            bias=self.random.integers(-(2**31), 2**31, channels).astype(np.int32),
            requant=requant,
            kind="dense",
        )

    def elementwise(self, kind: str, a: str, b: str) -> str:
        out = self.tensor(*np.broadcast_shapes(self.shape(a), self.shape(b)))
        za, zb, zy = self.zero(a), self.zero(b), self.zero(out)
        if kind == "MULTIPLY":
            real = self.random.uniform(0.003, 0.02)
            params = scaled_product(float(np.float32(real)), za, zb, zy, self.rounding, lo=-110, hi=100)
        else:
            make = tflite_sum if self.rounding == Rounding.TFLITE else onnx_sum
            params = make(0.05, za, 0.031, zb, 0.06, zy, lo=-100, operation=VectorOperation[kind])
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

    def clamp(self, x: str, lo: int, hi: int = 127) -> str:
        make = {"kernel": (1, 1), "stride": (1, 1), "pads": (0, 0, 0, 0), "lo": lo, "hi": hi}
        return self.node(ir.MaxPool, (x,), self.tensor(*self.shape(x)), **make)

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
            return ir.Port(name, name, tensor.dtype, tensor.scale, tensor.zero_point, Layout.plain(tensor.shape))

        ins, outs = (tuple(port(name) for name in names) for names in (self.inputs, outputs))
        return ir.Graph(ins, outs, self.tensors, tuple(self.nodes), "random").check()


def random_network(seed: int, size: int) -> ir.Graph:
    """A chain of ``size`` random operators on an image, some of which read earlier results too; of some seeds the sums
    of a product are the result."""
    net = RandomNet(seed, Rounding(seed % 2))
    output = _chain(net, size)
    if seed % 4 == 3:
        output = net.sums(output, int(net.random.choice([0, 1, 7, 40])))
    return net.graph(net.table(output) if output in net.inputs else output)


def random_movement(seed: int) -> ir.Graph:
    """Ten random nodes that move bytes, clamp or compute element by element, on an image; two outputs."""
    net = RandomNet(seed, Rounding(seed % 2))
    rng = net.random
    x = net.input(1, 2 * int(rng.integers(1, 4)), 2 * int(rng.integers(1, 4)), 4)
    for _ in range(10):
        _, height, width, channels = net.shape(x)
        same = [name for name in net.tensors if net.shape(name) == net.shape(x)]
        match int(rng.integers(0, 9)):
            case 0 | 1:
                x = net.transpose(x, (0, *(1 + int(axis) for axis in rng.permutation(3))))
            case 2:
                x = net.concat(int(rng.integers(1, 4)), x, str(rng.choice(same)))
            case 3 if channels > 1:
                half = channels // 2
                x = net.slice(x, *[slice(None)] * 3, slice(half, None) if rng.random() < 0.5 else slice(0, half))
            case 4 if height > 1:
                x = net.slice(x, slice(None), slice(0, height // 2))
            case 5:
                x = net.reshape(x, 1, width, height, channels)
            case 6:
                x = net.clamp(x, int(rng.integers(-128, 0)))
            case 7:
                x = net.elementwise("ADD", x, str(rng.choice(same)))
            case 8:
                x = net.table(x) if rng.random() < 0.5 else net.conv(x, 4, size=1)
    return net.graph(net.table(x), str(rng.choice(net.inputs + [node.outputs[0] for node in net.nodes])))


def _chain(net: RandomNet, size: int) -> str:
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
