"""Delay lines."""

from amaranth import Cat, Module, Signal, Value


def delayed(m: Module, name: str, value: Value, cycles: int, *, reset_less: bool = False) -> list[Value]:
    """``value`` and its copies 1 .. ``cycles`` later.

    All copies are in one register: a simulator shifts it faster than it copies many small ones.
    """
    width = len(value)
    line = Signal(width * cycles, name=f"{name}_line", reset_less=reset_less)
    if cycles:
        m.d.sync += line.eq(Cat(value, line))
    return [value, *(line[n * width :][:width] for n in range(cycles))]
