"""Delay lines, and a gated clock for simulation.

Verilator evaluates all logic of a clock at each of its edges, used or not. What rests behind a gated clock costs a
simulation nothing. The gate is a latch that is transparent while the clock is low: the gated clock never glitches, its
edges are edges of the clock, and flip-flops on either side see each other as in one domain. Not for FPGAs, nor for
Amaranth's simulator.

Every gate, also one inside a gated block, is fed by the one clock that is never gated, the domain of
:func:`never_gate`: an edge is then a matter of that clock and of latches, and no logic lies between them.
"""

from amaranth import (
    Cat,
    ClockDomain,
    ClockSignal,
    DomainRenamer,
    Elaboratable,
    Instance,
    Module,
    ResetSignal,
    Signal,
    Value,
)

MODULE = "dovetail_clock_gate"

VERILOG = f"""\
module {MODULE}(input clk, input enable, output gated);
  reg open;
  always @* if (!clk) open = enable;
  assign gated = clk & open;
endmodule
"""

STAGES = 4
"""Stages of a pipeline that share a gated clock: each gate takes some time in every cycle."""
UNGATED = "ungated"
"""Domain of the clock that feeds all gates."""


def never_gate(m: Module) -> None:
    """Make the clock of ``m`` the one that feeds all gates in and below it. Once, above all gated blocks."""
    m.domains += ClockDomain(UNGATED, local=True, reset_less=True)
    m.d.comb += ClockSignal(UNGATED).eq(ClockSignal())


def gated_sources() -> dict[str, str]:
    """Verilog files, by name, that a design with gated clocks needs beside the generated ones."""
    return {f"{MODULE}.v": VERILOG}


def _gate(m: Module, domain: str, enable: Value) -> None:
    """Make a domain's clock one that runs while ``enable`` is set."""
    m.submodules[f"{domain}_gate"] = Instance(
        MODULE, i_clk=ClockSignal(UNGATED), i_enable=enable, o_gated=ClockSignal(domain)
    )


def gate_clock(m: Module, block: Elaboratable, *, awake: Value, name: str, simulation: bool) -> Elaboratable:
    """``block``, to be made a submodule of ``m``; in ``simulation`` its clock is stopped while it is not ``awake``.

    No register of the block may change unless it is ``awake``. The clock is called ``<name>_clock``. The block's reset
    is a register of that clock: otherwise all its logic would be evaluated at each edge of the ungated clock.

    ``m`` is the module that :func:`never_gate` has seen, or below it. A block in a gated block is awake only while that
    block is.
    """
    if not simulation:
        return block
    domain = f"{name}_clock"
    m.domains += ClockDomain(domain, local=True)
    m.domains += ClockDomain(f"{domain}_reset", local=True, reset_less=True)
    reset = Signal(name=f"{domain}_reset")
    m.d.comb += [ClockSignal(f"{domain}_reset").eq(ClockSignal(domain)), ResetSignal(domain).eq(reset)]
    m.d[f"{domain}_reset"] += reset.eq(ResetSignal())
    _gate(m, domain, awake | ResetSignal() | reset)
    return DomainRenamer(domain)(block)


def stage_clocks(m: Module, name: str, valid: Value, *, simulation: bool) -> list[str]:
    """The clock domain of each stage of a pipeline whose registers are not reset.

    In ``simulation`` ``STAGES`` stages in a row share a clock, which is stopped unless something enters one of them.
    ``valid``: a bit per stage, each a register.
    """
    if not simulation:
        return ["sync"] * len(valid)
    domains: list[str] = []
    for first in range(0, len(valid), STAGES):
        enters = valid[first : first + STAGES]
        domain = f"{name}_{first}_clock"
        m.domains += ClockDomain(domain, local=True, reset_less=True)
        _gate(m, domain, enters.any())
        domains += [domain] * len(enters)
    return domains


def delayed(m: Module, name: str, value: Value, cycles: int, *, reset_less: bool = False) -> list[Value]:
    """``value`` and its copies 1 .. ``cycles`` later.

    All copies are in one register: a simulator shifts it faster than it copies many small ones.
    """
    width = len(value)
    line = Signal(width * cycles, name=f"{name}_line", reset_less=reset_less)
    if cycles:
        m.d.sync += line.eq(Cat(value, line))
    return [value, *(line[n * width :][:width] for n in range(cycles))]
