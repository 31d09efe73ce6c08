"""The register maps in SystemRDL and SVD are what independent readers of these formats find in the table."""

from importlib.resources import files
from io import BytesIO
from pathlib import Path
from typing import Any

import pytest

from dovetail.flows.cli import main
from dovetail.isa.generate.register_maps import svd, systemrdl
from dovetail.isa.host import ACCESS, HOST_REGISTERS, ID
from dovetail.isa.instructions.table import Cause

Row = tuple[int, str, int, int, int]
"""Offset, field, low bit, width, reset."""


def expected(register: Any) -> list[Row]:
    value = register.reset or 0
    return [(register.offset, f.name, f.low, f.width, f.get(value)) for f in register.parts]


def test_systemrdl(tmp_path: Path) -> None:
    rdl = pytest.importorskip("systemrdl")
    file = tmp_path / "dovetail.rdl"
    file.write_text(systemrdl())
    compiler = rdl.RDLCompiler()
    compiler.compile_file(str(file))
    top = compiler.elaborate().top
    found = {}
    for register in top.registers():
        rows = []
        for field in register.fields():
            reset = field.get_property("reset") or 0
            rows.append((register.absolute_address, field.inst_name, field.low, field.width, reset))
        found[register.inst_name] = rows
    assert found == {name: expected(register) for name, register in HOST_REGISTERS.items()}
    by_name = {(r.inst_name, f.inst_name): f for r in top.registers() for f in r.fields()}
    assert by_name["CONTROL", "start"].get_property("singlepulse")
    assert not by_name["CONTROL", "start"].is_sw_readable
    assert by_name["STATUS", "done"].get_property("onwrite").name == "woclr"
    assert not by_name["STATUS", "busy"].is_sw_writable
    assert by_name["CONFIG_HASH_LO", "value"].get_property("reset") is None
    names = {member.name: member.value for member in by_name["CAUSE", "value"].get_property("encode")}
    assert names == {cause.name: int(cause) for cause in Cause}


def test_svd(tmp_path: Path) -> None:
    parser = pytest.importorskip("cmsis_svd.parser")
    (tmp_path / "dovetail.svd").write_text(svd(0x4000_0000))
    device = parser.SVDParser.for_xml_file(str(tmp_path / "dovetail.svd")).get_device()
    (peripheral,) = device.peripherals
    assert (peripheral.base_address, device.width) == (0x4000_0000, 32)
    found = {}
    for register in peripheral.registers:
        found[register.name] = [
            (register.address_offset, f.name, f.bit_offset, f.bit_width, register.reset_value >> f.bit_offset & ones)
            for f in register.fields
            for ones in [(1 << f.bit_width) - 1]
        ]
    assert found == {name: expected(register) for name, register in HOST_REGISTERS.items()}
    registers = {register.name: register for register in peripheral.registers}
    assert registers["ID"].reset_value == ID
    done = next(f for f in registers["STATUS"].fields if f.name == "done")
    assert done.modified_write_values.value == "oneToClear"
    values = registers["CAUSE"].fields[0].enumerated_values[0].enumerated_values
    assert {v.name: v.value for v in values} == {cause.name: int(cause) for cause in Cause}


def test_svd_obeys_the_schema() -> None:
    etree = pytest.importorskip("lxml.etree")
    pytest.importorskip("cmsis_svd")
    schemas = [path for path in (files("cmsis_svd") / "schemas").iterdir() if path.name.startswith("CMSIS-SVD_1_3")]
    assert schemas
    for schema in schemas:
        etree.XMLSchema(etree.parse(BytesIO(schema.read_bytes()))).assertValid(etree.fromstring(svd().encode()))


def test_base_is_checked() -> None:
    for base in (4, -4096, 1 << 64):
        with pytest.raises(ValueError, match="base must be a multiple of 4096 below 2"):
            svd(base)


def test_every_access_is_known() -> None:
    assert {field.access for register in HOST_REGISTERS.values() for field in register.parts} == set(ACCESS)


def test_command(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["isa", "--svd", "--output", str(tmp_path / "dovetail.svd")]) == 0
    assert (tmp_path / "dovetail.svd").read_text() == svd()
    capsys.readouterr()
    assert main(["isa", "--systemrdl"]) == 0
    assert capsys.readouterr().out == systemrdl()
