"""Sipeed's Tang Nano 20K, a board that amaranth-boards 0.0.21 lacks; its commands are those of today's open tools."""

from typing import Any, ClassVar

from amaranth.build import Attrs, Clock, Pins, Resource
from amaranth.vendor import GowinPlatform
from amaranth_boards.resources import LEDResources, SDRAMResource, UARTResource

THREE_VOLTS = Attrs(IO_TYPE="LVCMOS33")


class TangNano20kPlatform(GowinPlatform):
    """The board: GW2AR-18, oscillator of 27 MHz, serial port of the debugger, six lights.

    The SDRAM is a second die in the package. Its wires end at pins that have no number, so they are named by their
    place on the die, as Apicula's database gives it (`sip_cst`).
    """

    part = "GW2AR-LV18QN88C8/I7"
    family = "GW2AR-18C"
    default_clk = "clk27"
    resources: ClassVar = [
        Resource("clk27", 0, Pins("4", dir="i"), Clock(27e6), THREE_VOLTS),
        *LEDResources(pins="15 16 17 18 19 20", invert=True, attrs=THREE_VOLTS),
        UARTResource(0, rx="70", tx="69", attrs=Attrs(IO_TYPE="LVCMOS33", PULL_MODE="UP")),
        SDRAMResource(
            0,
            clk="IOR11B",
            cke="IOL13A",
            cs_n="IOL14B",
            we_n="IOL12B",
            ras_n="IOL13B",
            cas_n="IOL14A",
            ba="IOR13A IOR12A",
            a="IOR14A IOR13B IOR14B IOR15A IOL16B IOL17B IOL16A IOL17A IOL15B IOL15A IOR12B",
            dq="IOL3A IOL3B IOL8A IOL8B IOL9A IOL9B IOL11A IOL11B IOR9B IOR9A IOR5B IOR6A IOR5A IOR4B IOR3B IOR3A"
            " IOL39B IOL39A IOL35B IOL35A IOL30B IOL30A IOL20A IOL18B IOR17A IOR16A IOR16B IOR17B IOR18A IOR18B IOR44A"
            " IOR44B",
            dqm="IOL12A IOR11A IOL18A IOR15B",
            attrs=THREE_VOLTS,
        ),
    ]
    connectors: ClassVar[list[Any]] = []
    required_tools: ClassVar = ["yosys", "nextpnr-himbaechel-gowin", "gowin_pack"]
    command_templates: ClassVar = [
        *GowinPlatform._apicula_command_templates[:1],
        r"""
        {{invoke_tool("nextpnr-himbaechel-gowin")}}
            {{quiet("--quiet")}}
            {{get_override("nextpnr_opts")|options}}
            --log {{name}}.tim
            --device {{platform.part}}
            --vopt family=GW2A-18C
            --vopt cst={{name}}.cst
            --json {{name}}.syn.json
            --write {{name}}.pnr.json
        """,
        r"""
        {{invoke_tool("gowin_pack")}}
            -d GW2A-18C
            -o {{name}}.fs
            {{get_override("gowin_pack_opts")|options}}
            {{name}}.pnr.json
        """,
    ]
