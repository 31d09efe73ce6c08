"""Text to instruction words and back.

One instruction or directive per line, ``#`` starts a comment, upper and lower case are alike::

    cfg load.MEM_ADDR 0x1000        # a register, by number
    cfg array.TILE height=7 width=7 # a packed register, by all its fields
    cfg load.MEM_ADDR 64 param=3    # plus the host register PARAM3
    sync array on load pending 0    # "pending 0" may be left out
    conv
    end
    .word 0x0000000000000099        # any word at all, legal or not
    .zero 3                         # three words of zero, such as fill a page after END

Numbers are decimal, ``0x`` or ``0b``; negative ones wrap to the width of their field.
"""

from collections.abc import Iterable
from itertools import groupby

from dovetail.isa.common.suggestion import nearest
from dovetail.isa.instructions.table import (
    CAUSE_DOC,
    CFG_PARAM,
    INSTRUCTIONS,
    REGISTERS,
    WORD_BYTES,
    Cause,
    Decoded,
    Op,
    Register,
    Unit,
    cfg,
    decode,
    pack,
    sync,
    unpack,
)

WORD_BITS = 8 * WORD_BYTES
MAX_ZERO = 1 << 20
"""The most words that one ``.zero`` may give."""


class AssemblyError(ValueError):
    """A line of assembly text breaks a rule; the text names line and rule."""


def assemble(text: str) -> list[int]:
    """The words of ``text``. Raises :class:`AssemblyError`, which names the line."""
    words: list[int] = []
    for number, line in enumerate(text.splitlines(), 1):
        tokens = line.partition("#")[0].split()
        if not tokens:
            continue
        try:
            words += _line(tokens[0].lower(), tokens[1:])
        except ValueError as error:
            raise AssemblyError(f"line {number}: {error}") from None
    return words


def disassemble(words: Iterable[int], *, numbers: bool = False) -> str:
    """Text that :func:`assemble` turns into the same words, one line each; runs of zero words share one.

    Illegal words are ``.word`` with the reason in a comment. ``numbers`` adds each word's index, the
    number that a fault reports, as a comment.
    """
    lines = []
    index = 0
    for zero, group in groupby(words, key=lambda word: word == 0):
        run = list(group)
        texts = [f".zero {len(run)}"] if zero else [format_word(word) for word in run]
        for text in texts:
            lines.append(f"{text:<44} # {index}" if numbers else text)
            index += len(run) if zero else 1
    return "".join(f"{line}\n" for line in lines)


def format_word(word: int) -> str:
    """The line of one word."""
    decoded = decode(word)
    if decoded.fault != Cause.NONE or decoded.op is None:
        return f".word 0x{word:0{WORD_BITS // 4}x}  # {decoded.fault.name}: {CAUSE_DOC[decoded.fault]}"
    if decoded.op == Op.CFG:
        assert decoded.register is not None
        return _format_cfg(decoded, decoded.register)
    if decoded.op == Op.SYNC:
        assert decoded.unit is not None and decoded.on is not None
        return f"sync {decoded.unit.name.lower()} on {decoded.on.name.lower()} pending {decoded.value}"
    return decoded.op.name.lower()


def _format_cfg(decoded: Decoded, register: Register) -> str:
    target = f"cfg {register.unit.name.lower()}.{register.name}"
    param = [f"{CFG_PARAM.name}={decoded.param}"] if decoded.param else []
    if register.fields:
        values = unpack(register.unit, register.name, decoded.value)
        return " ".join([target, *(f"{name}={value}" for name, value in values.items()), *param])
    return " ".join([target, str(decoded.value) if decoded.value < 1 << 16 else hex(decoded.value), *param])


def _line(mnemonic: str, operands: list[str]) -> list[int]:
    if mnemonic == "cfg":
        return [_cfg(operands)]
    if mnemonic == "sync":
        return [_sync(operands)]
    if mnemonic == ".word":
        return [_number(_single(mnemonic, operands), "word", 0, (1 << WORD_BITS) - 1)]
    if mnemonic == ".zero":
        return [0] * _number(_single(mnemonic, operands), ".zero", 1, MAX_ZERO)
    plain = {op.name.lower(): op for op, row in INSTRUCTIONS.items() if not row.fields}
    if mnemonic in plain:
        if operands:
            raise ValueError(f"{mnemonic} takes no operand, not {operands[0]!r}")
        return [int(plain[mnemonic])]
    raise ValueError(_unknown("instruction", mnemonic, ("cfg", "sync", *plain, ".word", ".zero")))


def _single(mnemonic: str, operands: list[str]) -> str:
    if len(operands) != 1:
        raise ValueError(f"{mnemonic} takes one number, not {' '.join(operands) or 'nothing'!r}")
    return operands[0]


def _cfg(operands: list[str]) -> int:
    if len(operands) < 2:
        raise ValueError("cfg must be given unit.REGISTER and a value or its fields")
    unit_name, dot, name = operands[0].partition(".")
    if not dot:
        raise ValueError(f"register must be unit.REGISTER, not {operands[0]!r}")
    unit = _unit(unit_name)
    register = REGISTERS[unit].get(name.upper())
    if register is None:
        raise ValueError(_unknown(f"register of {unit.name.lower()}", name.upper(), REGISTERS[unit]))
    param, values = _param(operands[-1]), operands[1:]
    if param:
        values = values[:-1]
    if not values:
        raise ValueError("cfg must be given unit.REGISTER and a value or its fields")
    if "=" in values[0]:
        return cfg(unit, register.name, _fields(register, values), param)
    if len(values) != 1:
        raise ValueError(f"cfg takes one value, not {' '.join(values)!r}")
    value = _number(values[0], register.name, -(1 << 31), (1 << 32) - 1) & 0xFFFF_FFFF
    if value & ~register.mask:
        raise ValueError(f"{register.name} must keep its reserved bits zero (mask {register.mask:#x}), not {value:#x}")
    return cfg(unit, register.name, value, param)


def _param(operand: str) -> int:
    """The parameter that the last operand of cfg names; 0 if it is none."""
    name, equals, text = operand.lower().partition("=")
    return _number(text, name, 1, (1 << CFG_PARAM.width) - 1) if equals and name == CFG_PARAM.name else 0


def _fields(register: Register, operands: list[str]) -> int:
    if not register.fields:
        raise ValueError(f"{register.name} has no fields; give one number")
    names = {field.name for field in register.fields}
    values: dict[str, int] = {}
    for operand in operands:
        name, equals, text = operand.lower().partition("=")
        if not equals:
            raise ValueError(f"field must be name=value, not {operand!r}")
        if name not in names:
            raise ValueError(_unknown(f"field of {register.name}", name, names))
        if name in values:
            raise ValueError(f"field {name} of {register.name} must be given once")
        values[name] = _number(text, name)
    missing = [field.name for field in register.fields if field.name not in values]
    if missing:
        raise ValueError(f"{register.name} must be given all its fields; missing: {', '.join(missing)}")
    return pack(register.unit, register.name, **values)


def _sync(operands: list[str]) -> int:
    lower = [operand.lower() for operand in operands]
    if len(lower) not in (3, 5) or lower[1] != "on" or (len(lower) == 5 and lower[3] != "pending"):
        raise ValueError(f"sync must be 'sync UNIT on UNIT [pending N]', not {' '.join(['sync', *operands])!r}")
    pending = _number(lower[4], "pending", 0, (1 << 32) - 1) if len(lower) == 5 else 0
    return sync(_unit(lower[0]), _unit(lower[2]), pending)


def _unit(name: str) -> Unit:
    try:
        return Unit[name.upper()]
    except KeyError:
        raise ValueError(_unknown("unit", name, [unit.name.lower() for unit in Unit])) from None


def _number(text: str, what: str, low: int | None = None, high: int | None = None) -> int:
    try:
        value = int(text, 0)
    except ValueError:
        raise ValueError(f"{what} must be a number, not {text!r}") from None
    if (low is not None and value < low) or (high is not None and value > high):
        raise ValueError(f"{what} must be {low}..{high}, not {text}")
    return value


def _unknown(what: str, name: str, known: Iterable[str]) -> str:
    return f"unknown {what} {name!r}{nearest(name, sorted(known))}"
