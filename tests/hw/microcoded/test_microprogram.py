"""The microcoded accelerator's microprogram and the form it takes on a device; what it does is tested in lockstep."""

from itertools import count

import pytest
from amaranth.back import verilog

from dovetail.hw.microcoded.assembler import CODE, TABLES, Alu, Assembler, If
from dovetail.hw.microcoded.microcode import build
from dovetail.hw.microcoded.sram import UP5K, MicrocodedSram
from dovetail.isa.config.resolved import Config

CONFIG = Config.load("icebreaker")


def assembler() -> Assembler:
    return Assembler({}, count(), count(TABLES))


def test_the_microprogram_fits() -> None:
    program = build(CONFIG)
    assert 500 < len(program.program()) <= CODE
    constants = set(program.constants.values()) | set(program.tables)
    assert len(constants) == len(program.constants) + len(program.tables)
    preset = ("ID", "VERSION", "CONFIG_HASH_LO", "CONFIG_HASH_HI")
    assert constants.isdisjoint(place for name, place in program.names.items() if name not in preset)


def test_both_ways_of_a_choice_are_equally_long() -> None:
    u = assembler()
    u.choose(Alu.SUB, "a", "b", If.ZERO, (Alu.ADD, "c", "a"), (Alu.ADD, "c", "b"))
    rows = u.program()
    assert len(rows) == 3  # comparison, one way with a jump over the other


def test_what_cannot_be_assembled() -> None:
    u = assembler()
    u.label("here")
    with pytest.raises(ValueError, match="label here must be unique"):
        u.label("here")
    u.nop(CODE + 1)
    with pytest.raises(ValueError, match=f"at most {CODE} words, not {CODE + 1}"):
        u.program()


class Up5k:
    """A platform of that device, to be elaborated with."""

    device = UP5K


def test_single_port_ram_is_for_the_device_that_has_it() -> None:
    ram = MicrocodedSram(CONFIG, simulation=False)
    assert verilog.convert(ram, platform=Up5k()).count("SB_SPRAM256KA ") == 2
    assert "SB_SPRAM" not in verilog.convert(MicrocodedSram(CONFIG, simulation=False))
    with pytest.raises(ValueError, match="sram must be at most 65536 bytes in hardware, not 131072"):
        MicrocodedSram(CONFIG.replace(sram="128 KiB"), simulation=False)
