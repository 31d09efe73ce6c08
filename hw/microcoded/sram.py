"""The microcoded accelerator's SRAM: one port of 32 bits, in block RAM or two of the iCE40 UP5K's single-port RAMs."""

from amaranth import Cat, ClockSignal, Const, Instance, Module, ResetSignal, Signal
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from dovetail.hw.memory.cells import block_ram, read_row
from dovetail.isa.config.resolved import Config

MODULE = "dovetail_microcoded_sram"
LARGEST = 64 << 10
"""Bytes of two single-port RAMs."""
UP5K = "iCE40UP5K"
"""The device that has them."""


class MicrocodedSram(wiring.Component):
    """One access per cycle, read or write.

    Parameters
    ----------
    config: its size.
    simulation: take the Verilog module of :func:`microcoded_sram_verilog`, which a reset clears.

    Members
    -------
    addr: of a 32-bit word. ``write``: bytes to write, of ``data``; with none it is read.
    word: what was read in the cycle before.
    """

    def __init__(self, config: Config, *, simulation: bool) -> None:
        if not simulation and config.sram > LARGEST:
            raise ValueError(f"sram must be at most {LARGEST} bytes in hardware, not {config.sram}")
        self.config = config
        self.simulation = simulation
        super().__init__(
            {
                "addr": In((config.sram // 4 - 1).bit_length()),
                "write": In(4),
                "data": In(32),
                "word": Out(32),
            }
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        if self.simulation:
            m.submodules.memory = Instance(
                module_of(self.config),
                i_clk=ClockSignal(),
                i_rst=ResetSignal(),
                i_addr=self.addr,
                i_write=self.write,
                i_data=self.data,
                o_word=self.word,
            )
        elif getattr(platform, "device", "") == UP5K:
            self._single_port_ram(m)
        else:
            cells = block_ram(width=32, depth=self.config.sram // 4)
            m.submodules.cells = cells
            write = cells.write_port(granularity=8)
            row = read_row(m, cells, name="row", addr=self.addr, en=~self.write.any(), platform=platform)
            m.d.comb += [write.addr.eq(self.addr), write.data.eq(self.data), write.en.eq(self.write), self.word.eq(row)]
        return m

    def _single_port_ram(self, m: Module) -> None:
        for half in range(2):
            word = Signal(16, name=f"word{half}")
            enable = self.write[2 * half : 2 * half + 2]
            m.submodules[f"half{half}"] = Instance(
                "SB_SPRAM256KA",
                i_CLOCK=ClockSignal(),
                i_ADDRESS=self.addr,
                i_DATAIN=self.data[16 * half : 16 * half + 16],
                i_MASKWREN=Cat(enable[0].replicate(2), enable[1].replicate(2)),
                i_WREN=enable.any(),
                i_CHIPSELECT=Const(1),
                i_STANDBY=Const(0),
                i_SLEEP=Const(0),
                i_POWEROFF=Const(1),
                o_DATAOUT=word,
            )
            m.d.comb += self.word[16 * half : 16 * half + 16].eq(word)


def module_of(config: Config) -> str:
    """The name of the simulation form's module. A system may hold several of different sizes."""
    return f"{MODULE}_{config.sram}"


def microcoded_sram_verilog(config: Config) -> str:
    """The simulation form: zero after a reset."""
    depth = config.sram // 4
    bits = (depth - 1).bit_length()
    return f"""module {module_of(config)}(input clk, input rst,
    input [{bits - 1}:0] addr, input [3:0] write, input [31:0] data, output reg [31:0] word);
  reg [31:0] cells [0:{(1 << bits) - 1}];
  reg was_reset = 0;
  integer i;
  initial for (i = 0; i < {1 << bits}; i = i + 1) cells[i] = 32'd0;
  always @(posedge clk) begin
    if (write == 0) word <= cells[addr];
    for (i = 0; i < 4; i = i + 1) if (write[i]) cells[addr][8*i +: 8] <= data[8*i +: 8];
    was_reset <= rst;
    if (was_reset & ~rst) for (i = 0; i < {1 << bits}; i = i + 1) cells[i] = 32'd0;
  end
endmodule
"""
