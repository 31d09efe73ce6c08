"""Delay lines, and blocks that rest."""

from amaranth import Cat, Elaboratable, Module, Signal, Value

from dovetail.hw.common.clock_gate import gate_clock


def delayed(m: Module, name: str, value: Value, cycles: int, *, reset_less: bool = False) -> list[Value]:
    """``value`` and its copies 1 .. ``cycles`` later.

    All copies are in one register: a simulator shifts it faster than it copies many small ones.
    """
    width = len(value)
    line = Signal(width * cycles, name=f"{name}_line", reset_less=reset_less)
    if cycles:
        m.d.sync += line.eq(Cat(value, line))
    return [value, *(line[n * width :][:width] for n in range(cycles))]


def resting(m: Module, block: Elaboratable, *, awake: Value, name: str, simulation: bool) -> Elaboratable:
    """``block``; in simulation with a clock that stands still while it is not ``awake``.

    Verilator evaluates the logic of a clock at all its edges, whether something changes or not.
    """
    return gate_clock(m, block, enable=awake, domain=f"{name}_clock") if simulation else block
