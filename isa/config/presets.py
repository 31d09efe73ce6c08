"""The presets: configurations with a name."""

from dovetail.isa.config.given import MICROCODED, Given

_ECP5 = Given(ic_lanes=8, banks=4, vector_lanes=1, elementwise=False, bus=32, kernel_rows=1)
"""For an ECP5-85F, the faster the smaller: few narrow banks keep the SRAM's multiplexers small. One lane of the
requantiser takes longer than the array does for one kernel row at a time."""
_ULX3S: Given = {**_ECP5, "sram": "64 KiB", "matmul": False}

PRESETS: dict[str, Given] = {
    "default": {},
    "8x8": {"ic_lanes": 8, "oc_lanes": 8, "sram": "512 KiB"},
    "16x16": {"ic_lanes": 16, "oc_lanes": 16, "sram": "512 KiB"},
    "4x8x2": {"ic_lanes": 4, "oc_lanes": 8, "pixel_lanes": 2, "sram": "512 KiB"},
    "4x16x4": {"ic_lanes": 4, "oc_lanes": 16, "pixel_lanes": 4, "sram": "512 KiB", "bus": 128},
    "small": {
        "ic_lanes": 8,
        "oc_lanes": 8,
        "sram": "32 KiB",
        "banks": 4,
        "requant_lanes": 2,
        "stripe": 16,
    },
    "icebreaker": {
        "ic_lanes": 4,
        "oc_lanes": 4,
        "sram": "64 KiB",
        "banks": 4,
        "serial": True,
        **MICROCODED,
    },
    "ulx3s": {**_ULX3S, "oc_lanes": 8, "requant_lanes": 1},
    "ulx3s-8x16": {**_ULX3S, "oc_lanes": 16, "requant_lanes": 2},
    "ecp5-evn": {**_ECP5, "oc_lanes": 8, "requant_lanes": 1, "sram": "128 KiB"},
    **{
        f"study-{pe}-{sram}-{dataflow}": {"pe": pe, "dataflow": dataflow, "sram": sram}
        for pe in (64, 128)
        for sram in ("512KiB", "1MiB", "256MiB")
        for dataflow in ("input", "output")
    },
}
"""What each gives, by name: :meth:`dovetail.isa.config.resolved.Config.load` makes it a configuration."""
