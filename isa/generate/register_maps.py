"""The host port's registers for other tools: CMSIS-SVD 1.3 for debuggers and tools that make headers and Rust crates,
SystemRDL 2.0 for tools that make documents, headers and UVM register models."""

from collections.abc import Iterator
from xml.etree.ElementTree import Element, SubElement, indent, tostring

from dovetail.isa.host import ADDRESS_BITS, HOST_REGISTERS, VERSION, HostField, HostRegister
from dovetail.isa.instructions.table import CAUSE_DOC

SVD_ACCESS = {"r": "read-only", "rw": "read-write", "pulse": "write-only", "w1c": "read-write"}


def svd(base: int = 0) -> str:
    """The text of the file. ``base``: where the system has the port; a multiple of its 4 KiB."""
    if base % (1 << ADDRESS_BITS) or not 0 <= base < 1 << 64:
        raise ValueError(f"base must be a multiple of {1 << ADDRESS_BITS} below 2^64, not {base:#x}")
    device = Element("device", schemaVersion="1.3")
    device.set("xmlns:xs", "http://www.w3.org/2001/XMLSchema-instance")
    device.set("xs:noNamespaceSchemaLocation", "CMSIS-SVD.xsd")
    _add(
        device,
        name="dovetail",
        version=f"{VERSION}",
        description="Dovetail accelerator. Made by `dovetail isa --svd`; change isa/host.py instead.",
    )
    _add(device, addressUnitBits="8", width="32", size="32", access="read-write", resetValue="0x0")
    _add(device, resetMask="0xffffffff")
    peripheral = SubElement(SubElement(device, "peripherals"), "peripheral")
    _add(peripheral, name="DOVETAIL", description="Host registers; other addresses answer SLVERR")
    _add(peripheral, baseAddress=f"{base:#x}")
    block = SubElement(peripheral, "addressBlock")
    _add(block, offset="0x0", size=f"{1 << ADDRESS_BITS:#x}", usage="registers")
    registers = SubElement(peripheral, "registers")
    for register in HOST_REGISTERS.values():
        _svd_register(SubElement(registers, "register"), register)
    indent(device)
    return '<?xml version="1.0" encoding="utf-8"?>\n' + tostring(device, encoding="unicode") + "\n"


def _add(parent: Element, **texts: str) -> None:
    for name, text in texts.items():
        SubElement(parent, name).text = text


def _svd_register(element: Element, register: HostRegister) -> None:
    _add(element, name=register.name, description=register.doc, addressOffset=f"{register.offset:#x}")
    _add(element, access=SVD_ACCESS[register.access], resetValue=f"{register.reset or 0:#x}")
    _add(element, resetMask="0x0" if register.reset is None else "0xffffffff")
    fields = SubElement(element, "fields")
    for field in register.parts:
        _svd_field(SubElement(fields, "field"), register, field)


def _svd_field(element: Element, register: HostRegister, field: HostField) -> None:
    _add(element, name=field.name, description=field.doc, bitOffset=f"{field.low}", bitWidth=f"{field.width}")
    _add(element, access=SVD_ACCESS[field.access])
    if field.access == "w1c":
        _add(element, modifiedWriteValues="oneToClear")
    if register.name == "CAUSE":
        values = SubElement(element, "enumeratedValues")
        for cause, doc in CAUSE_DOC.items():
            _add(SubElement(values, "enumeratedValue"), name=cause.name, description=doc, value=f"{int(cause)}")


RDL_ACCESS = {
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
        lines += _rdl_register(register)
    return "\n".join([*lines, "};"]) + "\n"


def _rdl_register(register: HostRegister) -> Iterator[str]:
    yield "    reg {"
    yield f'        desc = "{_text(register.doc)}";'
    for field in register.parts:
        yield from _rdl_field(register, field)
    yield f"    }} {register.name} @ 0x{register.offset:03x};"


def _rdl_field(register: HostRegister, field: HostField) -> Iterator[str]:
    constant = register.reset != 0 and register.access == "r"
    yield "        field {"
    yield f'            desc = "{_text(field.doc)}";'
    yield "            " + " ".join(("sw = r;", "hw = na;") if constant else RDL_ACCESS[field.access])
    if register.name == "CAUSE":
        yield "            encode = dovetail_cause;"
    reset = "" if register.reset is None else f" = 0x{field.get(register.reset):x}"
    yield f"        }} {field.name}[{field.low + field.width - 1}:{field.low}]{reset};"


def _text(doc: str) -> str:
    return doc.replace("\\", "\\\\").replace('"', '\\"')
