"""The reference study: which configurations it looked at."""

from collections.abc import Mapping, Sequence
from typing import Any

STUDY: Mapping[str, Sequence[Any]] = {
    "pe": (64, 128),
    "sram": (512 << 10, 1 << 20, 256 << 20),
    "dataflow": ("input", "output"),
    "depthwise": ("none", "emulated", "native"),
}
"""Its 36 configurations, as axes of a space."""
