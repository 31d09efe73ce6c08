"""A small accelerator, which Verilator compiles in seconds."""

from dovetail.isa.config.resolved import Config

TINY = Config(
    ic_lanes=2,
    oc_lanes=2,
    sram="32 KiB",
    banks=4,
    depthwise="none",
    matmul=False,
    pooling=False,
    elementwise=False,
    activation=False,
    bus=32,
    outstanding=2,
)
