"""The C99 header ``dovetail_isa.h``: opcodes, registers, fields and causes for drivers and test benches."""

from collections.abc import Iterable, Iterator

from dovetail.isa import host, program
from dovetail.isa.config.given import MAX_PARAMETERS
from dovetail.isa.instructions import table
from dovetail.isa.timing.dma import BOUNDARY

PREFIX = "DOVETAIL"

HELPERS = f"""\
/* The word that writes a register, and the word that makes a unit wait for another. */
static inline uint64_t dovetail_cfg(uint8_t reg, uint32_t value) {{
    return (uint64_t){PREFIX}_OP_CFG | (uint64_t)reg << {PREFIX}_CFG_REG_SHIFT
        | (uint64_t)value << {PREFIX}_CFG_VALUE_SHIFT;
}}

static inline uint64_t dovetail_sync(uint8_t unit, uint8_t on, uint32_t pending) {{
    return (uint64_t){PREFIX}_OP_SYNC | (uint64_t)unit << {PREFIX}_SYNC_UNIT_SHIFT
        | (uint64_t)on << {PREFIX}_SYNC_ON_SHIFT | (uint64_t)pending << {PREFIX}_SYNC_PENDING_SHIFT;
}}
"""


def cheader() -> str:
    """The text of the header."""
    lines = [
        "/* Dovetail instruction set. Made by `dovetail isa --c-header`; change isa/ instead. */",
        "#ifndef DOVETAIL_ISA_H",
        "#define DOVETAIL_ISA_H",
        "",
        "#include <stdint.h>",
        *_section("Sizes"),
        _define("WORD_BYTES", table.WORD_BYTES),
        _define("PAGE_WORDS", table.PAGE_WORDS),
        _define("PAGE_BYTES", table.PAGE_BYTES),
        _define("QUEUE_DEPTH", table.QUEUE_DEPTH),
        _define("PARAMETERS", MAX_PARAMETERS, "host registers PARAM that an accelerator has at most"),
        _define("BASE_BYTES", BOUNDARY, "BASE is a multiple of it"),
        _define("PROGRAM_MAGIC", f'"{program.MAGIC.decode()}"', "the first bytes of program files"),
        _define("PROGRAM_VERSION", program.VERSION, "format version of program files"),
        *_section("Units"),
        *(_define(f"UNIT_{unit.name}", int(unit)) for unit in table.Unit),
        _define("UNIT_COUNT", len(table.Unit)),
        *_list("UNITS", "X(name) for every unit", [unit.name for unit in table.Unit]),
        *_section("Opcodes"),
        *(_define(f"OP_{op.name}", f"0x{op:02x}u", row.doc) for op, row in table.INSTRUCTIONS.items()),
        *_section("Fields of instruction words (masks are of the 64-bit word)"),
        *_fields("", (table.OPCODE,), 64),
        *(line for op, row in table.INSTRUCTIONS.items() for line in _fields(f"{op.name}_", row.fields, 64)),
        *_section("Registers: the number for CFG, then the fields of packed ones"),
        *_registers(),
        *_section("Causes"),
        *(_define(f"CAUSE_{cause.name}", int(cause), doc) for cause, doc in table.CAUSE_DOC.items()),
        *_list("CAUSES", "X(name, text) for every cause", [f'{c.name}, "{doc}"' for c, doc in table.CAUSE_DOC.items()]),
        *_host(),
        "",
        HELPERS,
        "#endif",
    ]
    return "\n".join(lines) + "\n"


def _section(title: str) -> tuple[str, ...]:
    return "", f"/* {title} */"


def _define(name: str, value: int | str, doc: str = "") -> str:
    text = f"{value}u" if isinstance(value, int) else value
    return f"#define {PREFIX}_{name} {text}" + (f" /* {doc} */" if doc else "")


def _list(name: str, doc: str, rows: Iterable[str]) -> Iterator[str]:
    """A macro that applies another one to every row."""
    yield f"/* {doc} */"
    yield f"#define {PREFIX}_{name}(X) \\"
    yield from " \\\n".join(f"    X({row})" for row in rows).split("\n")


def _fields(prefix: str, fields: tuple[table.Field, ...], width: int) -> Iterator[str]:
    suffix = "ull" if width > 32 else "u"
    for field in fields:
        name = f"{prefix}{field.name.upper()}"
        yield _define(f"{name}_SHIFT", field.low, field.doc)
        yield _define(f"{name}_MASK", f"0x{field.mask:0{width // 4}x}{suffix}")


def _registers() -> Iterator[str]:
    for unit, registers in table.REGISTERS.items():
        for register in registers.values():
            name = f"{unit.name}_{register.name}"
            yield _define(f"REG_{name}", f"0x{register.number:02x}u", register.doc)
            yield from _fields(f"{name}_", register.fields, 32)


def _host() -> Iterator[str]:
    yield from _section("Host registers: byte offsets on the AXI4-Lite port")
    yield _define("HOST_ID_VALUE", f"0x{host.ID:08x}u", "what ID reads as")
    yield _define("HOST_VERSION_VALUE", host.VERSION, "what VERSION reads as")
    for register in host.HOST_REGISTERS.values():
        yield _define(f"HOST_{register.name}", f"0x{register.offset:03x}u", register.doc)
        yield from _fields(f"HOST_{register.name}_", register.fields, 32)
