"""Files from before TFLite's int8 quantisation: uint8 activations, and uint8 weights with a zero point."""

from __future__ import annotations

from dataclasses import replace

from dovetail.sw.frontend.tflite.file import Info, TfliteFile
from dovetail.sw.network.layout import as_signed

SIGNED_ONLY = {"MEAN", "ABS", "LEAKY_RELU", "BATCH_MATMUL"}
"""Operators whose uint8 kernels are no shifted int8 ones, or are not known to be."""


def is_unsigned(file: TfliteFile) -> bool:
    """Whether activations are uint8, and none int8."""
    dtypes = {info.tensor.dtype for info in file.infos if info.value is None}
    return "uint8" in dtypes and "int8" not in dtypes


def signed(info: Info) -> Info:
    """A uint8 tensor as the int8 one whose values and zero points are 128 lower; any other as it is."""
    if info.tensor.dtype != "uint8":
        return info
    return replace(
        info,
        tensor=replace(info.tensor, dtype="int8", zero_point=info.tensor.zero_point - 128),
        zero_points=info.zero_points - 128,
        value=None if info.value is None else as_signed(info.value),
    )
