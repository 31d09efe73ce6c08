"""The files of a SystemC platform: sources, Verilog, the configuration, a Makefile."""

from collections.abc import Mapping
from importlib.resources import files

from dovetail.cosim.rtl.block import driver
from dovetail.cosim.rtl.verilate import yosys
from dovetail.hw.sequencer.frontend import PAGES_BITS
from dovetail.hw.verilog import to_verilog
from dovetail.isa.config.resolved import Config
from dovetail.isa.generate.cheader import cheader
from dovetail.isa.host import ADDRESS_BITS, HOST_REGISTERS
from dovetail.isa.timing.dma import MAX_BURST

TOP = "dovetail"
SOURCES = (
    "dovetail_accelerator.h",
    "dovetail_bridge.h",
    "dovetail_burst.h",
    "dovetail_host.h",
    "dovetail_memory.h",
    "dovetail_rtl.h",
    "dovetail_server.h",
    "dovetail_view.h",
    "main.cpp",
)
BUS = "axi_bus.h"
"""Of the RTL engine: what every memory behind the AXI4 port needs."""
PERIOD_NS = 10
"""Of the clock; what a cycle is to a platform."""


def platform_files(config: Config) -> Mapping[str, str]:
    """Texts by file name. Raises :class:`~dovetail.cosim.rtl.verilate.ToolError` without Yosys."""
    with yosys():
        verilog = to_verilog(config, simulation=True, trace=False, name=TOP)
    own = files("dovetail.cosim.systemc")
    return {
        **{name: own.joinpath(name).read_text() for name in SOURCES},
        BUS: driver(BUS),
        **verilog,
        "Makefile": makefile(),
        "config.toml": config.to_toml(),
        "dovetail_config.h": config_header(config),
        "dovetail_isa.h": cheader(),
    }


def makefile() -> str:
    """What builds the folder."""
    return files("dovetail.cosim.systemc").joinpath("platform.mk").read_text()


def config_header(config: Config) -> str:
    """What the sources must know of a configuration, as C++."""
    memory = config.memory
    values: dict[str, dict[str, int | str]] = {
        "unsigned": {
            "BUS_BYTES": config.bus_bytes,
            "BURST_BYTES": MAX_BURST * config.bus_bytes,
            "REGISTER_BYTES": 1 << ADDRESS_BITS,
            "PERIOD_NS": PERIOD_NS,
            "READ_LATENCY": memory.read_latency,
            "WRITE_LATENCY": memory.write_latency,
            "BEAT_CYCLES": memory.beat_cycles,
        },
        "uint32_t": {"PAGES_MASK": f"0x{(1 << PAGES_BITS) - 1:x}u"},
        "uint64_t": {"HASH": f"0x{config.hash:016x}ull"},
    }
    lines = ["// One accelerator's configuration; made by dovetail.", "#pragma once", "", "#include <cstdint>", ""]
    lines += ["namespace dovetail {", "namespace config {", ""]
    for kind, constants in values.items():
        lines += [f"constexpr {kind} {name} = {value};" for name, value in constants.items()]
    offsets = ", ".join(f"0x{register.offset:03x}" for register in HOST_REGISTERS.values())
    lines += [f"constexpr uint32_t REGISTERS[] = {{{offsets}}};  // offsets of all host registers"]
    return "\n".join([*lines, "", "}  // namespace config", "}  // namespace dovetail", ""])
