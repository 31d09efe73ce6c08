"""Sliding windows as ONNX attributes describe them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from dovetail.sw.errors import NetworkError
from dovetail.sw.network import ir
from dovetail.sw.network.layout import Shape


@dataclass(frozen=True)
class Window:
    """Kernel, stride, dilation as (y, x); pads as (top, left, bottom, right); output size."""

    kernel: ir.Pair
    stride: ir.Pair
    dilation: ir.Pair
    pads: ir.Pads
    rows: int
    cols: int


def window_of(attributes: Mapping[str, Any], shape: Shape, kernel: ir.Pair | None) -> Window:
    """The window over an NCHW `shape`; `kernel` where the weights give it.

    `ceil_mode` and `auto_pad` are turned into explicit padding.
    """
    kernel = kernel or _pair(attributes["kernel_shape"])
    stride = _pair(attributes.get("strides", (1, 1)))
    dilation = _pair(attributes.get("dilations", (1, 1)))
    pads = [int(p) for p in attributes.get("pads", (0, 0, 0, 0))]
    mode = attributes.get("auto_pad", b"NOTSET").decode()
    sizes = []
    for axis in range(2):
        size = shape[2 + axis]
        reach = (kernel[axis] - 1) * dilation[axis] + 1
        if mode.startswith("SAME"):
            small, large = ir.same_pads(size, reach, stride[axis])
            pads[axis], pads[axis + 2] = (small, large) if mode == "SAME_UPPER" else (large, small)
        elif mode == "VALID":
            pads[axis], pads[axis + 2] = 0, 0
        span = size + pads[axis] + pads[axis + 2] - reach
        if span < 0:
            raise NetworkError(f"a window of {reach} must fit {size} pixels and their padding")
        out = span // stride[axis] + 1
        if attributes.get("ceil_mode", 0) and span % stride[axis] and out * stride[axis] < size + pads[axis]:
            pads[axis + 2] += stride[axis] - span % stride[axis]
            out += 1
        sizes.append(out)
    return Window(kernel, stride, dilation, (pads[0], pads[1], pads[2], pads[3]), sizes[0], sizes[1])


def _pair(values: Any) -> ir.Pair:
    y, x = (int(v) for v in values)
    return y, x
