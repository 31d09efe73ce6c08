"""What several parts of the microprogram share: an operation's first and last cycle, checks, the flag."""

from collections.abc import Sequence

from dovetail.hw.microcoded.assembler import Action, Alu, Assembler, If, Special
from dovetail.isa.config.resolved import Config
from dovetail.isa.instructions.table import Cause, Unit

ADD, SUB, ADC, AND, OR, XOR = Alu.ADD, Alu.SUB, Alu.ADC, Alu.AND, Alu.OR, Alu.XOR
SHL, SHR, SAR, READ = Alu.SHL, Alu.SHR, Alu.SAR, Alu.READ
BELOW, NOT_BELOW = If.below(), If.not_below()


def begin(u: Assembler, unit: Unit) -> None:
    """An operation's first cycle; it has no reserved bits set."""
    u(ADD, None, "rest", when=If.NOT_ZERO, to="RESERVED")
    u(Alu.CYCLE, "since", "pc", action=Action.BEGIN, to=int(unit))


def end(u: Assembler, unit: Unit) -> None:
    """An operation's last cycle."""
    u(Alu.CYCLE, "until", "pc", action=Action.END, to=int(unit))
    name = f"{unit.name}_BUSY"
    u(SUB, "until", "until", "since")
    u(ADD, "until", "until", 1)
    u(ADD, name, name, "until")


def flag(u: Assembler, alu: Alu, a: object, b: object, when: If) -> None:
    """Sets the flag if a condition holds."""
    u(alu, None, a, b, when=when, mark=True)  # type: ignore[arg-type]


def unflag(u: Assembler) -> None:
    """Clears the flag, and keeps what the bus answered."""
    u(ADD, special=Special.CLEAR_FLAGS, to=1)


def zeroes(u: Assembler, unit: Unit, names: Sequence[str | tuple[str, int, int]]) -> None:
    """The check ZERO_SIZE: registers, or (name, low, mask) of a field."""
    for name in names:
        if isinstance(name, tuple):
            u(SHR, "n", f"{unit.name}.{name[0]}", name[1])
            flag(u, AND, "n", name[2], If.ZERO)
        else:
            flag(u, ADD, f"{unit.name}.{name}", 0, If.ZERO)
    checked(u, unit, Cause.ZERO_SIZE)


def checked(u: Assembler, unit: Unit, cause: Cause) -> None:
    """A check's verdict."""
    u(ADD, when=If.FLAG, to=f"{unit.name}.{cause.name}")


def region(u: Assembler, config: Config, unit: Unit, name: str, end: str) -> None:
    """The check SRAM_RANGE of a region, and its end."""
    u(ADD, end, f"{unit.name}.{name}_ADDR", f"{unit.name}.{name}_BYTES", when=If.CARRY, mark=True)
    flag(u, SUB, config.sram, end, BELOW)


def apart(u: Assembler, a: str, a_end: str, b: str, b_end: str) -> None:
    """Sets the flag if a < b_end and b < a_end; four instructions."""
    no, end = u.fresh("no"), u.fresh("end")
    u(SUB, None, a, b_end, when=NOT_BELOW, to=no)
    flag(u, SUB, b, a_end, BELOW)
    u(ADD, to=end)
    u.label(no)
    u.nop(2)
    u.label(end)
