"""The files of a SystemC platform: sources, Verilog, the configuration, a Makefile, an example.

The example is programs, the memory that they find, and what the model leaves behind.
"""

import random
from collections.abc import Mapping
from importlib.resources import files

import numpy as np

from dovetail.cosim.rtl.block import driver
from dovetail.cosim.rtl.setting import Setting
from dovetail.cosim.rtl.verilate import yosys
from dovetail.hw.sequencer.frontend import PAGES_BITS
from dovetail.hw.verilog import to_verilog
from dovetail.isa.config.given import ConfigError, MemoryTiming
from dovetail.isa.config.resolved import Config
from dovetail.isa.generate.cheader import cheader
from dovetail.isa.host import ADDRESS_BITS, host_registers
from dovetail.isa.instructions.table import Unit
from dovetail.isa.timing.dma import MAX_BURST
from dovetail.sw.model.accelerator import Model
from dovetail.sw.random.programs.legal import legal_program
from dovetail.sw.runtime.engine import sram_program

TOP = "dovetail"
BUS = "axi_bus.h"
"""Of the RTL engine: what every memory behind the AXI4 port needs."""
FOLDER = "example"
"""Of the example, in the platform's."""
PERIOD_NS = 10
"""Of the clock; what a cycle is to a platform."""


def platform_files(config: Config) -> Mapping[str, str]:
    """Texts by file name. Raises :class:`~dovetail.isa.common.cplusplus.ToolError` without Yosys."""
    with yosys():
        verilog = to_verilog(config, simulation=True, trace=False, name=TOP)
    sources = (path for path in files("dovetail.cosim.systemc").iterdir() if path.name.endswith((".h", ".cpp")))
    return {
        **{path.name: path.read_text() for path in sources},
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
    if not isinstance(memory, MemoryTiming):
        raise ConfigError(f"memory must be fixed on the SystemC platform, not {memory.label}")
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
    offsets = ", ".join(f"0x{register.offset:03x}" for register in host_registers().values())
    lines += [f"constexpr uint32_t REGISTERS[] = {{{offsets}}};  // offsets of all host registers"]
    return "\n".join([*lines, "", "}  // namespace config", "}  // namespace dovetail", ""])


def example_files(config: Config, programs: list[Setting]) -> dict[str, bytes]:
    """Files by name: the platform's ``script``, and of every program the memory before it and behind it."""
    files: dict[str, bytes] = {}
    script: list[str] = []
    for number, program in enumerate(programs):
        model = Model(config)
        model.write_sram(program.sram)
        if program.sram.any():
            files[f"sram{number}.bin"] = sram_program(Unit.LOAD, program.sram)[0].tobytes()
            script += [f"load {FOLDER}/sram{number}.bin", "run 0:1:0"]
        files[f"image{number}.bin"] = program.memory.tobytes()
        result = model.run(program.memory.copy(), *program.arguments)
        files[f"expected{number}.bin"] = result.memory.tobytes()
        script += [
            f"load {FOLDER}/image{number}.bin",
            f"run {program.program}:{program.pages}:{program.base}",
            f"save {FOLDER}/memory{number}.bin",
        ]
    files["script"] = "".join(f"{line}\n" for line in script).encode()
    return {f"{FOLDER}/{name}": data for name, data in files.items()}


def random_example(config: Config) -> list[Setting]:
    """A random program, for a folder without a network: it uses what the configuration has."""
    program = legal_program(random.Random(0), config)
    sram = np.zeros(config.sram, np.uint8)
    return [Setting(program.memory, *program.arguments, sram=sram)]
