"""The host port's registers in CMSIS-SVD 1.3, for debuggers and for tools that make headers and Rust crates."""

from xml.etree.ElementTree import Element, SubElement, indent, tostring

from dovetail.isa.host import ADDRESS_BITS, HOST_REGISTERS, VERSION, HostField, HostRegister
from dovetail.isa.instructions.table import CAUSE_DOC

ACCESS = {"r": "read-only", "rw": "read-write", "pulse": "write-only", "w1c": "read-write"}
NOTE = "Made by `dovetail isa --svd`; change isa/host.py instead."


def svd(base: int = 0) -> str:
    """The text of the file. ``base``: where the system has the port; a multiple of its 4 KiB."""
    if base % (1 << ADDRESS_BITS) or not 0 <= base < 1 << 64:
        raise ValueError(f"base must be a multiple of {1 << ADDRESS_BITS} below 2^64, not {base:#x}")
    device = Element("device", schemaVersion="1.3")
    device.set("xmlns:xs", "http://www.w3.org/2001/XMLSchema-instance")
    device.set("xs:noNamespaceSchemaLocation", "CMSIS-SVD.xsd")
    _add(device, name="dovetail", version=f"{VERSION}", description=f"Dovetail accelerator. {NOTE}")
    _add(device, addressUnitBits="8", width="32", size="32", access="read-write", resetValue="0x0")
    _add(device, resetMask="0xffffffff")
    peripheral = SubElement(SubElement(device, "peripherals"), "peripheral")
    _add(peripheral, name="DOVETAIL", description="Host registers; other addresses answer SLVERR")
    _add(peripheral, baseAddress=f"{base:#x}")
    block = SubElement(peripheral, "addressBlock")
    _add(block, offset="0x0", size=f"{1 << ADDRESS_BITS:#x}", usage="registers")
    registers = SubElement(peripheral, "registers")
    for register in HOST_REGISTERS.values():
        _register(SubElement(registers, "register"), register)
    indent(device)
    return '<?xml version="1.0" encoding="utf-8"?>\n' + tostring(device, encoding="unicode") + "\n"


def _add(parent: Element, **texts: str) -> None:
    for name, text in texts.items():
        SubElement(parent, name).text = text


def _register(element: Element, register: HostRegister) -> None:
    _add(element, name=register.name, description=register.doc, addressOffset=f"{register.offset:#x}")
    _add(element, access=ACCESS[register.access], resetValue=f"{register.reset or 0:#x}")
    _add(element, resetMask="0x0" if register.reset is None else "0xffffffff")
    fields = SubElement(element, "fields")
    for field in register.parts:
        _field(SubElement(fields, "field"), register, field)


def _field(element: Element, register: HostRegister, field: HostField) -> None:
    _add(element, name=field.name, description=field.doc, bitOffset=f"{field.low}", bitWidth=f"{field.width}")
    _add(element, access=ACCESS[field.access])
    if field.access == "w1c":
        _add(element, modifiedWriteValues="oneToClear")
    if register.name == "CAUSE":
        values = SubElement(element, "enumeratedValues")
        for cause, doc in CAUSE_DOC.items():
            _add(SubElement(values, "enumeratedValue"), name=cause.name, description=doc, value=f"{int(cause)}")
