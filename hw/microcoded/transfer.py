"""DMA_READ and DMA_WRITE as microprogram: a beat at a time."""

from dovetail.hw.microcoded.assembler import Action, Alu, Assembler, If, Special
from dovetail.hw.microcoded.steps import (
    ADD,
    AND,
    BELOW,
    READ,
    SHL,
    SHR,
    SUB,
    begin,
    checked,
    end,
    flag,
    region,
    unflag,
    zeroes,
)
from dovetail.isa.config.resolved import Config
from dovetail.isa.instructions.table import Cause, Op, Unit


def transfer(u: Assembler, config: Config, unit: Unit) -> None:
    """DMA_READ or DMA_WRITE."""
    p = f"{unit.name}."
    read = unit == Unit.LOAD
    u.label((Op.DMA_READ if read else Op.DMA_WRITE).name)
    begin(u, unit)
    zeroes(u, unit, ["LENGTH", "SRAM_BYTES", ("COUNT", 0, 0xFFFF), ("COUNT", 16, 0xFFFF)])
    region(u, config, unit, "SRAM", "end")
    checked(u, unit, Cause.SRAM_RANGE)

    u(ADD, "plane", p + "MEM_ADDR", "BASE")
    u(ADD, "plane_off")
    u(SHR, "planes", p + "COUNT", 16)
    with u.repeat("planes"):
        u(ADD, "row", "plane")
        u(ADD, "row_off", "plane_off")
        u(AND, "rows", p + "COUNT", 0xFFFF)
        with u.repeat("rows"):
            u(ADD, "address", "row")
            u(ADD, "off", "row_off")
            u(ADD, "bytes", p + "LENGTH")
            u(AND, "lane", "address", 3)
            beat = u.fresh("beat")
            u.label(beat)
            u(AND, "at", "address", -4)
            if read:
                u(READ, "data", "at", action=Action.READ)
            u(SUB, "n", 4, "lane")
            u.choose(SUB, "n", "bytes", BELOW, (ADD, "size", "n"), (ADD, "size", "bytes"))
            u(SUB, "n", 4, "size")
            u(SHR, "mask", 15, "n")
            u(SHL, "mask", "mask", "lane")
            u(SUB, "n", "off", "lane")
            u(ADD, None, "n", p + "SRAM_ADDR", special=Special.POINTER)
            u(ADD, "off", "off", "size", when=If.CARRY, mark=True)
            flag(u, SUB, p + "SRAM_BYTES", "off", BELOW)
            u(ADD, "address", "address", "size")
            u(ADD, "lane")
            if read:
                flag(u, ADD, 0, 0, If.BAD)
                u.choose(ADD, 0, 0, If.FLAG, (ADD, "mask"), (ADD, "mask", "mask"))
                u(ADD, None, "mask", special=Special.MASK)
                for _ in range(4):
                    u(SHR, "data", "data", 8, action=Action.STORE_BYTE)
            else:
                for _ in range(4):
                    u(Alu.BYTE, "data", "data", action=Action.LOAD_BYTE)
                u.choose(ADD, 0, 0, If.FLAG, (ADD, "data"), (ADD, "data", "data"))
                u(ADD, None, "mask", special=Special.MASK)
                u(ADD, None, "at", "data", action=Action.WRITE)
            unflag(u)
            u(SUB, "bytes", "bytes", "size", when=If.NOT_ZERO, to=beat)
            u(ADD, "row", "row", p + "MEM_ROW_STEP")
            u(ADD, "row_off", "row_off", p + "SRAM_ROW_STEP")
        u(ADD, "plane", "plane", p + "MEM_PLANE_STEP")
        u(ADD, "plane_off", "plane_off", p + "SRAM_PLANE_STEP")
    u.label(f"{unit.name}.worked")
    end(u, unit)
    u(ADD, when=If.BAD, to="BUS_READ" if read else "BUS_WRITE")
    u(ADD, "pc", "pc", 1, to="next")
