"""The accelerator for Vivado: Verilog with AXI ports that package as an IP, constraints, Tcl scripts; and its lint."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path

from amaranth import Shape
from amaranth.lib.wiring import Out

import dovetail
from dovetail.cosim.rtl.verilate import verilator_root
from dovetail.flows.fpga.design.pll import MHZ
from dovetail.flows.fpga.tools import BuildError
from dovetail.flows.fpga.vivado.assertions import MACRO, assertions
from dovetail.hw.accelerator import HOST_PREFIX, MEMORY_PREFIX, Accelerator
from dovetail.hw.verilog import TOP, to_verilog
from dovetail.isa.common.files import write_atomically
from dovetail.isa.common.sizes import format_bytes
from dovetail.isa.config.resolved import Config

PART = "xc7z020clg400-1"
"""A Zynq-7020, unless the user names another part."""
WRAPPER = f"{TOP}_axi"
FILES = (f"{TOP}.v", f"{WRAPPER}.v", f"{TOP}_ooc.xdc", f"{TOP}.vlt", "settings.tcl", "project.tcl", "package_ip.tcl")
"""What an export consists of."""

WAIVERS = {
    "ALWNEVER": "a process without inputs: its signal keeps its initial value",
    "ASCRANGE": "signals of no bits, [-1:0], to which nothing is connected",
    "CASEINCOMPLETE": "every case stands behind an assignment of the default",
    "CASEOVERLAP": "cases stand in order of priority: the first that applies counts",
    "CMPCONST": "bounds that a configuration makes equal to a signal's range",
    "DECLFILENAME": "all modules are in one file",
    "PROCASSINIT": "registers have a value at power-on besides the one of their reset",
    "UNDRIVEN": "fields of instructions that a configuration does not have; nothing reads them",
    "UNSIGNED": "bounds that a configuration makes 0",
    "UNUSEDSIGNAL": "results and fields of which a configuration uses a part only",
    "VARHIDDEN": "a register inside a module may have the name of the module's instance",
    "WIDTHEXPAND": "Verilog extends the narrower operand, as is meant",
    "WIDTHTRUNC": "`!` of several bits: whether all are 0",
}
"""Rules of Verilator's lint that are waived for the generated core, with reasons."""
OWN_WAIVERS = {"UNUSEDSIGNAL": "AWPROT and ARPROT are ports of AXI4-Lite, which every user may access alike"}
"""The same for the wrapper."""

UNUSED = {
    f"{MEMORY_PREFIX}arcache": (4, "4'b0011"),
    f"{MEMORY_PREFIX}arprot": (3, "3'b000"),
    f"{MEMORY_PREFIX}awcache": (4, "4'b0011"),
    f"{MEMORY_PREFIX}awprot": (3, "3'b000"),
}
"""Signals of AXI4 that never change, with bits and value: normal memory that may be buffered, data of a user."""


@dataclass(frozen=True)
class Port:
    """A port of the wrapper. ``inner``: whether the core has it as well; ``value``: constant that drives it."""

    name: str
    output: bool
    bits: int
    inner: bool = True
    value: str = ""

    @property
    def bus(self) -> str:
        """The bus that it belongs to, or nothing."""
        return next((p.strip("_") for p in (HOST_PREFIX, MEMORY_PREFIX) if self.name.startswith(p)), "")


MOST_SRAM = 64 * 2**20
"""Bytes of SRAM that are exported; few parts have half of it. Amaranth writes the initial content word by word."""


def export(config: Config, folder: Path, *, part: str = PART, frequency: int = 100 * MHZ) -> list[Path]:
    """Write everything into a folder, which is made. ``frequency``: Hz of the constraint. Returns the files.

    Raises BuildError for a part that is no name, and for a configuration whose SRAM is too large.
    """
    if config.sram > MOST_SRAM:
        raise BuildError(
            f"sram must be at most {format_bytes(MOST_SRAM)} for Vivado, not {format_bytes(config.sram)}:"
            " the initial content of every word is written out, which takes gigabytes"
        )
    common = settings(config, part, frequency)
    source = files("dovetail.flows.fpga.vivado") / "tcl"
    core = Accelerator(config, simulation=False)
    texts = {
        f"{WRAPPER}.v": wrapper(core),
        **to_verilog(core, simulation=False, name=TOP),
        f"{TOP}_ooc.xdc": constraints(frequency),
        f"{TOP}.vlt": waivers(),
        "settings.tcl": common,
        **{name: (source / name).read_text(encoding="utf-8") for name in ("project.tcl", "package_ip.tcl")},
    }
    folder.mkdir(parents=True, exist_ok=True)
    for name in FILES:
        write_atomically(folder / name, texts[name])
    return [folder / name for name in FILES]


def ports(core: Accelerator) -> list[Port]:
    """The ports of the wrapper besides clock and reset, bus by bus."""
    found = [
        Port(name, member.flow == Out, Shape.cast(member.shape).width)
        for name, member in core.signature.members.items()
    ]
    found += [Port(name, True, bits, inner=False, value=value) for name, (bits, value) in UNUSED.items()]
    found += [Port(f"{HOST_PREFIX}{name}", False, 3, inner=False) for name in ("arprot", "awprot")]
    return sorted(found, key=lambda port: (not port.bus, port.bus, port.name))


def wrapper(core: Accelerator) -> str:
    """The module that Vivado packages: the core with AXI's names for clock and reset, and attributes for its buses."""
    config, found = core.config, ports(core)
    lines = [
        f"// The accelerator {config.hash:016x} with the names that Vivado's IP packager understands.",
        "// Made by `dovetail build --export vivado`.",
        f"module {WRAPPER} (",
        *_attributes(
            "xilinx.com:signal:clock:1.0 aclk CLK", f"aclk, ASSOCIATED_BUSIF {_buses()}, ASSOCIATED_RESET aresetn"
        ),
        "  input wire aclk,",
        *_attributes("xilinx.com:signal:reset:1.0 aresetn RST", "aresetn, POLARITY ACTIVE_LOW"),
        "  input wire aresetn,",
    ]
    told: set[str] = set()
    for port in found:
        lines += _port_attributes(port, config, first=port.bus not in told)
        told.add(port.bus)
        width = f"[{port.bits - 1}:0] " if port.bits > 1 else ""
        lines.append(
            f"  {'output' if port.output else 'input'} wire {width}{port.name}{'' if port is found[-1] else ','}"
        )
    connected = [".clk(aclk)", ".rst(reset)", *(f".{port.name}({port.name})" for port in found if port.inner)]
    lines += [
        ");",
        "  reg reset;",
        "  always @(posedge aclk) reset <= !aresetn;",
        *(f"  assign {port.name} = {port.value};" for port in found if port.value),
        f"  {TOP} core (",
        ",\n".join(f"    {connection}" for connection in connected),
        "  );",
        *assertions(config),
        "endmodule",
    ]
    return "\n".join(lines) + "\n"


def _buses() -> str:
    return ":".join(prefix.strip("_") for prefix in (HOST_PREFIX, MEMORY_PREFIX))


def _port_attributes(port: Port, config: Config, *, first: bool) -> Iterator[str]:
    if not port.bus:
        yield from _attributes("xilinx.com:signal:interrupt:1.0 irq INTERRUPT", "irq, SENSITIVITY LEVEL_HIGH")
        return
    signal = port.name.removeprefix(f"{port.bus}_").upper()
    if port.name.startswith(MEMORY_PREFIX):
        about = (
            f"PROTOCOL AXI4, DATA_WIDTH {config.bus}, ADDR_WIDTH 32, ID_WIDTH 0, HAS_BURST 1, MAX_BURST_LENGTH 256,"
            f" SUPPORTS_NARROW_BURST 0, NUM_READ_OUTSTANDING {config.outstanding},"
            f" NUM_WRITE_OUTSTANDING {config.outstanding}, READ_WRITE_MODE READ_WRITE"
        )
    else:
        about = "PROTOCOL AXI4LITE, DATA_WIDTH 32, READ_WRITE_MODE READ_WRITE"
    yield from _attributes(
        f"xilinx.com:interface:aximm:1.0 {port.bus} {signal}", f"{port.bus}, {about}" if first else ""
    )


def _attributes(info: str, parameter: str) -> Iterator[str]:
    yield f'  (* X_INTERFACE_INFO = "{info}" *)'
    if parameter:
        yield f'  (* X_INTERFACE_PARAMETER = "XIL_INTERFACENAME {parameter}" *)'


def constraints(frequency: int) -> str:
    """The clock, for synthesis by itself; in a design the clock comes from outside."""
    return (
        "# The clock of dovetail_axi when it is synthesised by itself.\n"
        f"create_clock -name aclk -period {1e9 / frequency:.3f} [get_ports aclk]\n"
    )


def settings(config: Config, part: str, frequency: int) -> str:
    """What the Tcl scripts have in common. Raises BuildError for a part that is no name."""
    if not part.replace("-", "").replace("_", "").isalnum():
        raise BuildError(f"part must be a name such as {PART}, not {part!r}")
    version = ".".join(dovetail.__version__.split(".")[:2])
    lanes = f"{config.array} lanes"
    text = f"int8 accelerator, {lanes}, {format_bytes(config.sram)}, {config.hash:016x}"
    return (
        "# What project.tcl and package_ip.tcl have in common.\n"
        "set here [file dirname [file normalize [info script]]]\n"
        f"set part {part}\n"
        f"set period {1e9 / frequency:.3f}\n"
        f"set version {version}\n"
        f"set description {{{text}}}\n"
    )


def waivers() -> str:
    """Verilator's control file: the rules that are waived, with the reasons."""
    lines = ["`verilator_config"]
    for file, rules in ((f"{TOP}.v", WAIVERS), (f"{WRAPPER}.v", OWN_WAIVERS)):
        for rule, why in rules.items():
            lines += [f"// {why}", f'lint_off -rule {rule} -file "*/{file}"']
    return "\n".join(lines) + "\n"


def lint(folder: Path) -> str:
    """What Verilator's lint, with all warnings, says about an export, with assertions: nothing if it is clean. Raises
    ToolError."""
    root = verilator_root()
    command = [str(root / "bin" / "verilator_bin"), "--lint-only", "-Wall", f"+define+{MACRO}", "--top-module", WRAPPER]
    sources = [str(folder.resolve() / name) for name in (f"{TOP}.vlt", f"{WRAPPER}.v", f"{TOP}.v")]
    environment = {**os.environ, "VERILATOR_ROOT": str(root)}
    done = subprocess.run([*command, *sources], env=environment, text=True, capture_output=True)
    return (done.stderr + done.stdout).strip() if done.returncode else ""
