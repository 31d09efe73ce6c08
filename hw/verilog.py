"""Verilog of a component or of the whole accelerator, as text."""

from typing import Any

from amaranth import Shape
from amaranth.back import verilog
from amaranth.lib import wiring

from dovetail.hw.accelerator import Accelerator
from dovetail.hw.board.design import BoardDesign
from dovetail.hw.common.clocking import gated_sources
from dovetail.hw.common.elaboration import checked
from dovetail.hw.memory.sram import simulation_sources
from dovetail.hw.microcoded.sram import microcoded_sram_verilog, module_of
from dovetail.hw.next_state import clocked
from dovetail.hw.replication import replicated
from dovetail.hw.system.design import SystemDesign
from dovetail.isa.common.garbage import uncollected
from dovetail.isa.config.resolved import Config

TOP = "dovetail"


def to_verilog(
    design: Config | wiring.Component, *, simulation: bool, trace: bool | None = None, name: str = TOP
) -> dict[str, str]:
    """Verilog files by name; the same text for the same design. Raises
    :class:`~dovetail.hw.common.elaboration.ElaborationError` where Amaranth warns.

    Parameters
    ----------
    design: a configuration (gives the whole accelerator) or a component of ``hw``.
    simulation: for a configuration, the form for Verilator, with the files of the modules it instantiates. Its reset
        takes effect a cycle late.
    trace: for a configuration, whether it has the ``trace_*`` ports; left out, they come with the simulation form.
    name: module name of the top; its file is ``<name>.v``.
    """
    if not isinstance(design, Config):
        return {f"{name}.v": _convert(design, name)}
    with checked():
        top = Accelerator(design, simulation=simulation, trace=trace)
    return simulation_verilog(top, name=name) if simulation else {f"{name}.v": _convert(top, name)}


def simulation_verilog(top: Any, *, name: str, platform: object = None) -> dict[str, str]:
    """Verilog files, by name, of the simulation form of a component that is or holds the accelerator of its ``config``,
    of a system, or of a board. Its reset takes effect a cycle late. ``platform`` is what it is elaborated with: with
    one, the text is as synthesis has it, otherwise next states are in the blocks of their clocks
    (`dovetail.hw.next_state`) and equal parts are replications (`dovetail.hw.replication`)."""
    inner = f"{name}_core"
    text = _convert(top, inner, platform)
    if platform is None:
        text = replicated(clocked(text))
    files = {f"{name}.v": _with_registered_reset(top, name, inner), f"{inner}.v": text}
    for config in top.configs if isinstance(top, SystemDesign | BoardDesign) else (top.config,):
        if config.serial:
            files[f"{module_of(config)}.v"] = microcoded_sram_verilog(config)
        else:
            files |= simulation_sources(config) | gated_sources()
    return files


def _convert(design: wiring.Component, name: str, platform: object = None) -> str:
    # Amaranth keeps most of the millions of objects that a design becomes: collecting takes a third of the time.
    # Without it 1,024 PEs take 1.1 GB instead of 0.7.
    with checked(), uncollected():
        text: str = verilog.convert(design, name=name, platform=platform, emit_src=False, strip_internal_attrs=True)
    return text


def _with_registered_reset(top: wiring.Component, name: str, inner: str) -> str:
    """A module around ``inner`` whose reset comes from a register.

    All next-state logic depends on the reset; as an input it would make Verilator evaluate that logic for every change
    of any input, on top of the evaluation at the clock.
    """
    ports = [("clk", "input", 1), ("rst", "input", 1)]
    for path, member, _ in top.signature.flatten(top):
        ports.append(
            (
                "__".join(map(str, path)),
                "output" if member.flow == wiring.Out else "input",
                Shape.cast(member.shape).width,
            )
        )
    declared = ", ".join(
        f"{way} [{width - 1}:0] {port}" if width > 1 else f"{way} {port}" for port, way, width in ports
    )
    connected = ", ".join(f".{port}({'reset' if port == 'rst' else port})" for port, _, _ in ports)
    return (
        f"module {name}({declared});\n"
        "  reg reset = 1;\n"
        "  always @(posedge clk) reset <= rst;\n"
        f"  {inner} core({connected});\n"
        "endmodule\n"
    )
