"""The host port's registers in SystemRDL 2.0, for tools that make documents, headers and UVM register models."""

from collections.abc import Iterator

from dovetail.isa.host import HOST_REGISTERS, HostField, HostRegister
from dovetail.isa.instructions.table import CAUSE_DOC

ACCESS = {
    "r": ("sw = r;", "hw = w;"),
    "rw": ("sw = rw;", "hw = r;"),
    "pulse": ("sw = w;", "hw = r;", "singlepulse;"),
    "w1c": ("sw = rw;", "hw = r;", "onwrite = woclr;", "hwset;"),
}
"""Properties of a field, by what a host may do with it."""


def systemrdl() -> str:
    """The text of the file. Registers whose value the configuration decides have no reset value."""
    lines = [
        "// Host registers of a Dovetail accelerator. Made by `dovetail isa --systemrdl`; change isa/host.py instead.",
        "enum dovetail_cause {",
        *(f'    {cause.name} = 4\'d{int(cause)} {{ desc = "{_text(doc)}"; }};' for cause, doc in CAUSE_DOC.items()),
        "};",
        "addrmap dovetail {",
        '    name = "Dovetail accelerator";',
        '    desc = "AXI4-Lite, 32-bit. Other addresses answer SLVERR: they read as zero, a write does nothing.";',
        "    default regwidth = 32;",
        "    default accesswidth = 32;",
    ]
    for register in HOST_REGISTERS.values():
        lines += _register(register)
    return "\n".join([*lines, "};"]) + "\n"


def _register(register: HostRegister) -> Iterator[str]:
    yield "    reg {"
    yield f'        desc = "{_text(register.doc)}";'
    for field in register.parts:
        yield from _field(register, field)
    yield f"    }} {register.name} @ 0x{register.offset:03x};"


def _field(register: HostRegister, field: HostField) -> Iterator[str]:
    constant = register.reset != 0 and register.access == "r"
    yield "        field {"
    yield f'            desc = "{_text(field.doc)}";'
    yield "            " + " ".join(("sw = r;", "hw = na;") if constant else ACCESS[field.access])
    if register.name == "CAUSE":
        yield "            encode = dovetail_cause;"
    reset = "" if register.reset is None else f" = 0x{field.get(register.reset):x}"
    yield f"        }} {field.name}[{field.low + field.width - 1}:{field.low}]{reset};"


def _text(doc: str) -> str:
    return doc.replace("\\", "\\\\").replace('"', '\\"')
