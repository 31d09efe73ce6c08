"""The interactive handle: values, names, memories, time, waves, errors; its example; the whole accelerator."""

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from amaranth.hdl import Module, Signal, signed, unsigned
from amaranth.lib import data, wiring
from amaranth.lib.wiring import In, Out

from dovetail.cosim.handle.design import Handle
from dovetail.hw.sequencer.queue import Queue
from dovetail.isa.common.cplusplus import ToolError
from dovetail.isa.config.resolved import Config
from dovetail.isa.host import CONTROL_START, HOST_REGISTERS, ID
from dovetail.isa.instructions.table import PAGE_BYTES, Op, to_bytes

EXAMPLE = Path(__file__).resolve().parents[3] / "docs/examples/handle.py"

VERILOG = """
module stage #(parameter WIDTH = 4) (input clk, input rst_n, input [WIDTH-1:0] d, output reg [WIDTH-1:0] q);
  always @(posedge clk) q <= rst_n ? d : 0;
endmodule
module chain #(parameter WIDTH = 4) (
    input clk, input rst_n, input stop, input [WIDTH-1:0] d, output [WIDTH-1:0] q, output [99:0] wide);
  genvar n;
  wire [WIDTH-1:0] between [0:2];
  assign between[0] = d;
  generate for (n = 0; n < 2; n = n + 1) begin : part
    stage #(WIDTH) one (clk, rst_n, between[n], between[n+1]);
  end endgenerate
  assign q = between[2];
  assign wide = {4'd9, {(96-WIDTH){1'b0}}, d};
  always @(posedge clk) if (stop) $finish;
endmodule
"""


class Point(data.Struct):  # type: ignore[misc]
    """A structure for a port."""

    x: signed(8)  # type: ignore[valid-type]
    y: unsigned(70)  # type: ignore[valid-type]


class Adder(wiring.Component):  # type: ignore[misc]
    """Without a clock; a structure, signed values, a name that Python uses."""

    point: In(Point)  # type: ignore[valid-type]
    sum: Out(signed(72))  # type: ignore[valid-type]

    def elaborate(self, platform: object) -> Module:
        m = Module()
        half = Signal(signed(72))
        m.d.comb += [half.eq(self.point.x), self.sum.eq(half + self.point.y)]
        return m


def test_values_of_any_width(build_cache: Path) -> None:
    with Handle(Adder(), cache=build_cache) as adder:
        adder.point = {"x": -3, "y": 1 << 69}
        assert adder.sum == (1 << 69) - 3
        assert (adder.fields("point").x, adder.fields("point").y) == (-3, 1 << 69)
        adder.point = {"x": -3, "y": 1}
        assert (adder.sum.signed, adder.sum, adder.sum.width) == (-2, (1 << 72) - 2, 72)
        assert repr(adder["half"]) == "72'hfffffffffffffffffd"
        assert adder["point.x"] == 0xFD
        adder.point = -1
        assert adder["point"] == (1 << 78) - 1
        for value in (1 << 78, -(1 << 77) - 1):
            with pytest.raises(ValueError, match=f"point has 78 bits, which do not hold {value}"):
                adder.point = value
        with pytest.raises(ValueError, match="the design has no clock"):
            adder.tick()
        with pytest.raises(ValueError, match="the design has no reset"):
            adder.reset()
        with pytest.raises(ValueError, match="sum is an output"):
            adder.sum = {"x": 1}
        with pytest.raises(ValueError, match="half is not a port with a structure"):
            adder.fields("half")


def test_registers_and_memories(build_cache: Path) -> None:
    with Handle(Queue(depth=4), cache=build_cache) as queue:
        queue.reset()
        assert queue.ports == (
            *("clk", "i__valid", "o__ready", "kept", "clear", "rst"),
            *("i__payload", "i__ready", "o__valid", "o__payload"),
        )
        assert {"tail", "level", "entries", "i__payload.kind"} <= set(queue.names)
        assert not any("$" in name for name in dir(queue))
        queue.i__valid = 1
        queue.i__payload = {"kind": 2, "code": 5, "value": 77, "pc": 1}
        queue.clock.tick(6)
        assert (queue.level, queue.tail, queue.i__ready) == (4, 0, 0)
        assert list(queue.entries) == [int(queue.i__payload)] * len(queue.entries)
        queue.i__valid = 0
        queue.o__ready = 1
        queue.entries[1] = 6 << 2
        queue.tick()
        assert (queue.level, queue.i__ready, queue.fields("o__payload").code) == (3, 1, 6)
        queue.o__ready = 0
        queue.full = 1
        assert (queue.full, queue.i__ready) == (1, 0)
        queue["full"], queue.many, queue.o__ready = 0, 0, 1
        assert (queue.i__ready, queue.o__valid) == (1, 1)
        queue.tick()
        assert queue.o__valid == 0
        with pytest.raises(IndexError, match="row must be below 4, not 4"):
            _ = queue.entries[4]
        with pytest.raises(ValueError, match="entries is not a signal; write one of its members or rows"):
            queue.entries = 1
        with pytest.raises(ValueError, match="o__valid is an output"):
            queue.o__valid = 1


def test_two_handles_of_one_design_are_apart(build_cache: Path) -> None:
    with Handle(Queue(depth=4), cache=build_cache) as one, Handle(Queue(depth=4), cache=build_cache) as two:
        one.i__valid = 1
        one.tick()
        two.tick()
        assert (one.level, two.level) == (1, 0)


def test_wrong_names_get_the_nearest(build_cache: Path) -> None:
    with Handle(Queue(depth=4), cache=build_cache) as queue:
        with pytest.raises(AttributeError, match="'o_valid' is no signal; did you mean o__valid"):
            _ = queue.o_valid
        with pytest.raises(AttributeError, match="'o_ready' is no signal; did you mean o__ready"):
            queue.o_ready = 1
        with pytest.raises(KeyError, match=r"'fifo\.tail' is no signal; did you mean tail\?"):
            queue["fifo.tail"]
        with pytest.raises(KeyError, match=r"dir\(\) lists the names at the top"):
            queue["zzzzzzzz"]


def test_verilog_files(build_cache: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "chain.v"
    path.write_text(VERILOG)
    with Handle(path, flags=["-GWIDTH=7"], cache=build_cache) as chain:
        assert chain.d.width == 7
        assert chain.rst_n == 1
        chain.d = 0x55
        chain.clock.tick()
        assert (chain["part[0].one.q"], chain.q, chain.wide >> 96, chain.wide & 0x7F) == (0x55, 0, 9, 0x55)
        assert dir(chain["part[1]"]) == ["one"]
        assert "q" in dir(chain["part[1].one"])
        chain["part[1].one"].q = 3
        assert chain.q == 3
        chain.tick()
        assert chain.q == 0x55
        chain.reset()
        assert (chain.q, chain.rst_n) == (0, 1)
        chain.d = 1
        chain.stop = 1
        chain.tick(10)
        assert chain.finished
        assert chain.q == 0  # nothing moves after $finish
    with Handle([path], top="stage", cache=build_cache) as stage:
        assert "part[0]" not in dir(stage)
        assert not stage.finished
    with pytest.raises(ToolError, match="verilator_bin failed"):
        Handle(path, flags=["-GDEPTH=7"], cache=build_cache)
    with pytest.raises(TypeError, match="design must be a component, a configuration or Verilog files, not 7"):
        Handle(7, cache=build_cache)
    with pytest.raises(FileNotFoundError):
        Handle(tmp_path / "none.v", cache=build_cache)


def test_unusual_clock(build_cache: Path, tmp_path: Path) -> None:
    path = tmp_path / "toggle.v"
    path.write_text("module toggle(input hclk, output reg q = 0); always @(posedge hclk) q <= !q; endmodule")
    with Handle(path, clock="hclk", cache=build_cache) as toggle:
        toggle.tick(3)
        assert toggle.q == 1
    with pytest.raises(ValueError, match="q is not an input"):
        Handle(path, clock="q", cache=build_cache)
    with pytest.raises(KeyError, match="'clock' is no signal; did you mean hclk"):
        Handle(path, clock="clock", cache=build_cache)


def test_waves(build_cache: Path, tmp_path: Path) -> None:
    path = tmp_path / "queue.vcd"
    with Handle(Queue(depth=4), cache=build_cache) as queue:
        queue.waves(path)
        queue.i__valid = 1
        queue.tick(3)
        queue.waves(None)
        assert path.stat().st_size
        text = path.read_text()
        assert "$scope module dut" in text and " tail " in text and "b011 " in text
        queue.waves(path)
        with pytest.raises(ValueError, match=r"path must end in \.vcd"):
            queue.waves(tmp_path / "queue.txt")
        with pytest.raises(FileNotFoundError, match="there is no folder"):
            queue.waves(tmp_path / "none" / path.name)
    queue.close()
    assert repr(queue) == "<closed handle>"
    with pytest.raises(ValueError, match="the handle is closed"):
        queue.tick()
    with pytest.raises(ValueError, match="the handle is closed"):
        _ = queue.level


def test_example_prints_what_it_says(build_cache: Path) -> None:
    done = subprocess.run([sys.executable, str(EXAMPLE), str(build_cache)], text=True, capture_output=True, check=True)
    assert done.stdout.splitlines() == [
        "-> clk         1'h1",
        "-> i__valid    1'h0",
        "-> o__ready    1'h0",
        "-> kept        1'h0",
        "-> clear       1'h0",
        "-> rst         1'h0",
        "-> i__payload  78'h0",
        "<- i__ready    1'h1",
        "<- o__valid    1'h0",
        "<- o__payload  78'h0",
        "level 3'h1 tail 2'h1 oldest 1000",
        "level 4 ready 0 rows [1000, 2000, 3000, 4000]",
        "ready 1 oldest 1000",
        "'o_valid' is no signal; did you mean o__valid or i__valid?",
        "level 0 waves written",
    ]


@pytest.mark.slow  # compiles the accelerator with all its signals: a minute
def test_whole_accelerator(build_cache: Path) -> None:
    config = Config(ic_lanes=2, oc_lanes=2, sram="32 KiB", depthwise="none")
    with Handle(config, cache=build_cache) as acc:
        acc.reset()
        acc.s_axil_rready = acc.s_axil_bready = 1
        acc.s_axil_araddr = HOST_REGISTERS["ID"].offset
        acc.s_axil_arvalid = 1
        acc.tick(2)
        assert (acc.s_axil_rvalid, acc.s_axil_rdata) == (1, ID)
        acc.s_axil_arvalid = 0

        def write(name: str, value: int) -> None:
            acc.s_axil_awaddr, acc.s_axil_wdata, acc.s_axil_wstrb = HOST_REGISTERS[name].offset, value, 0xF
            acc.s_axil_awvalid = acc.s_axil_wvalid = 1
            acc.tick(2)
            acc.s_axil_awvalid = acc.s_axil_wvalid = 0
            acc.tick()

        write("PAGES", 1)
        assert acc["core.host.pages"] == 1
        write("CONTROL", CONTROL_START.mask)
        acc.m_axi_arready = 1
        program = to_bytes([int(Op.END)]).ljust(PAGE_BYTES, b"\0")
        _serve(acc, program)
        acc.tick(20)
        assert (acc.trace_busy, acc["core.host.first.cause"]) == (0, 0)
        cells = acc["core.sram.memory.cells"]
        assert (len(cells), cells.width) == (config.sram // 8, 64)  # pieces of 64 bits
        cells[5] = 1 << cells.width - 1
        assert acc["core.sram.memory.cells"][5] == 1 << cells.width - 1
        assert len(acc.core.sequencer.load_queue.entries) == 16


def _serve(acc: Any, page: bytes) -> None:
    """Answer the fetch of one page."""
    for _ in range(50):
        if acc.m_axi_arvalid:
            break
        acc.tick()
    first, beats, size = int(acc.m_axi_araddr), int(acc.m_axi_arlen) + 1, 1 << int(acc.m_axi_arsize)
    assert (first, beats * size) == (0, PAGE_BYTES)
    acc.tick()
    acc.m_axi_rvalid = 1
    for beat in range(beats):
        acc.m_axi_rdata = int.from_bytes(page[beat * size :][:size], "little")
        acc.m_axi_rlast = beat == beats - 1
        acc.tick()
    acc.m_axi_rvalid = 0
