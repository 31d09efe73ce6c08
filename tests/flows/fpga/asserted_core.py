"""Runs random programs on the exported Verilog with its assertions, under Verilator, in a process that one may end.

python -m tests.flows.fpga.asserted_core CACHE
"""

import random
import sys
from pathlib import Path
from typing import Any

from dovetail.cosim.compare.fuzz import random_case, random_timing
from dovetail.cosim.compare.lockstep import compare
from dovetail.cosim.rtl import rtl_engine
from dovetail.cosim.rtl.block import driver
from dovetail.cosim.rtl.verilate import Design, verilate
from dovetail.flows.fpga.vivado import ip
from dovetail.flows.fpga.vivado.assertions import MACRO
from dovetail.hw.accelerator import Accelerator
from dovetail.hw.verilog import TOP, to_verilog
from dovetail.isa.config.resolved import Config
from dovetail.sw.model.accelerator import Model

CONFIG = Config(
    ic_lanes=2, oc_lanes=2, sram="32 KiB", banks=4, depthwise="none", requant_lanes=1, bus=32, outstanding=2,
    matmul=False, elementwise=False, activation=False,
)  # fmt: skip
PROGRAMS = 60
END = "ran to the end"


def design() -> Design:
    """The export, with trace ports, below a module with the names that the driver of the lockstep tests knows."""
    core = Accelerator(CONFIG, simulation=False, trace=True)
    top = [f"module {rtl_engine.TOP}(input clk, input rst"]
    joined = [".aclk(clk)", ".aresetn(!rst)"]
    for port in ip.ports(core):
        if port.inner:
            top.append(f", {'output' if port.output else 'input'} [{port.bits - 1}:0] {port.name}")
            joined.append(f".{port.name}({port.name})")
        elif not port.output:
            joined.append(f".{port.name}({port.bits}'d0)")
    top.append(f");\n  {ip.WRAPPER} axi({', '.join(joined)});\nendmodule\n")
    texts = {f"{rtl_engine.TOP}.v": "".join(top), f"{ip.WRAPPER}.v": ip.wrapper(core)}
    return Design(
        verilog=texts | to_verilog(core, simulation=False, name=TOP),
        top=rtl_engine.TOP,
        driver={name: driver(name) for name in rtl_engine.DRIVER},
        flags=("--assert", f"+define+{MACRO}"),
        defines=(f"BUS_BYTES={CONFIG.bus_bytes}", f"HAS_VECTOR={int(CONFIG.vector)}"),
    )


def main() -> None:
    """Each program as it is, equal to the model, and again on a bus that stalls. A broken core may do what it wants,
    but for breaking an assertion."""
    cache = Path(sys.argv[1])
    library = verilate(design(), cache)

    def accelerator_library(*_: Any, **__: Any) -> Path:
        return library

    rtl_engine.accelerator_library = accelerator_library
    engine = rtl_engine.RtlEngine(CONFIG, cache=cache, limit=200_000, form="fpga")
    equal = 0
    for seed in range(PROGRAMS):
        config = CONFIG.replace(memory=random_timing(seed))
        program = random_case(config, seed).program
        try:
            engine.reset()
            engine.timing = config.memory
            got = engine.run(program.memory.copy(), *program.arguments)
            want = Model(config).run(program.memory.copy(), *program.arguments)
            equal += compare(want, got).equal
            engine.stall(seed, one_in=random.Random(seed).choice((2, 5, 20)), longest=30)
            engine.run(program.memory.copy(), *program.arguments)
        except rtl_engine.RtlError as error:
            print(error)
    print(f"{equal} of {PROGRAMS} equal, {END}")


if __name__ == "__main__":
    main()
