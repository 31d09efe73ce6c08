"""Verilog of a component or of the whole accelerator, as text."""

from amaranth.back import verilog
from amaranth.lib import wiring

from dovetail.hw.accelerator import Accelerator
from dovetail.hw.sram import simulation_sources
from dovetail.isa.config import Config

TOP = "dovetail"


def to_verilog(design: Config | wiring.Component, *, simulation: bool, name: str = TOP) -> dict[str, str]:
    """Verilog files by name; the same text for the same design.

    Parameters
    ----------
    design: a configuration (gives the whole accelerator) or a component of ``hw``.
    simulation: for a configuration, the form for Verilator, with the simulation form of the SRAM in a file of its own.
    name: module name of the top; its file is ``<name>.v``.
    """
    files = {}
    if isinstance(design, Config):
        if simulation:
            files = simulation_sources(design)
        design = Accelerator(design, simulation=simulation)
    text = verilog.convert(design, name=name, emit_src=False, strip_internal_attrs=True)
    return {f"{name}.v": text, **files}
