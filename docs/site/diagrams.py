"""The block diagrams of the pages: ``python docs/site/diagrams.py docs/images`` writes them as SVG.

Each has its own background, and colours for light and for dark, so it can be read wherever it is shown.
"""

import sys
from collections.abc import Sequence
from html import escape
from pathlib import Path

STYLE = """
text { font: 14px system-ui, sans-serif; fill: #1b2430 }
.small { font-size: 12px; fill: #526070 } .type { font: 12px ui-monospace, monospace; fill: #8a3d00 }
.page { fill: #fbfcfe } .line { stroke: #526070; stroke-width: 1.5; fill: none } .tip { fill: #526070 }
rect { stroke-width: 1.3; rx: 7px } .front { fill: #e4ebfb; stroke: #5b7fd1 } .unit { fill: #e3f3e6; stroke: #4f9a5f }
.store { fill: #fdf0d8; stroke: #c98f2b } .outside { fill: #eef0f3; stroke: #8b96a5 }
.group { fill: none; stroke: #8b96a5; stroke-dasharray: 5 4 }
@media (prefers-color-scheme: dark) {
  text { fill: #e8edf4 } .small { fill: #a9b5c4 } .type { fill: #ffb37a } .page { fill: #161b22 }
  .line { stroke: #a9b5c4 } .tip { fill: #a9b5c4 }
  .front { fill: #22315a; stroke: #7d9be6 } .unit { fill: #1e3d28; stroke: #6fbb80 }
  .store { fill: #47371a; stroke: #dba94e } .outside { fill: #2a313b; stroke: #78849a } .group { stroke: #78849a }
}
"""
TIP = (
    '<marker id="tip" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="8" markerHeight="8" orient="auto-start-reverse">'
    '<path class="tip" d="M0 0 8 4 0 8z"/></marker>'
)
Point = tuple[int, int]


class Drawing:
    """Boxes, arrows and words; lengths are pixels, from the top left."""

    def __init__(self, width: int, height: int, title: str) -> None:
        self.width, self.height, self.title = width, height, title
        self.parts: list[str] = []

    def box(self, kind: str, x: int, y: int, width: int, height: int, name: str, *lines: str) -> None:
        """A box with its name, and smaller lines below; those of a `group` stand at the top."""
        self.parts.append(f'<rect class="{kind}" x="{x}" y="{y}" width="{width}" height="{height}"/>')
        top = y + 19 if kind == "group" else y + height // 2 + 5 - 8 * len(lines)
        self.text(x + width // 2, top, name)
        for number, line in enumerate(lines, 1):
            self.text(x + width // 2, top + 17 * number, line, "small")

    def text(self, x: int, y: int, text: str, kind: str = "", anchor: str = "middle") -> None:
        """A line of text."""
        name = f' class="{kind}"' if kind else ""
        self.parts.append(f'<text{name} x="{x}" y="{y}" text-anchor="{anchor}">{escape(text)}</text>')

    def arrow(self, *points: Point, both: bool = False) -> None:
        """An arrow through points."""
        path = " ".join(f"{x},{y}" for x, y in points)
        start = ' marker-start="url(#tip)"' if both else ""
        self.parts.append(f'<polyline class="line" points="{path}" marker-end="url(#tip)"{start}/>')

    def svg(self) -> str:
        """The file's text."""
        size = f'width="{self.width}" height="{self.height}" viewBox="0 0 {self.width} {self.height}"'
        body = "\n".join(self.parts)
        return (
            f'<svg xmlns="http://www.w3.org/2000/svg" {size} role="img" aria-label="{escape(self.title)}">\n'
            f"<style>{STYLE}</style>\n<defs>{TIP}</defs>\n"
            f'<rect class="page" width="{self.width}" height="{self.height}"/>\n{body}\n</svg>\n'
        )


def overview() -> Drawing:
    """The whole of it: a network and a configuration in, one program, and what is made of it."""
    d = Drawing(920, 330, "A network and a configuration become one program, on which model and RTL agree")
    d.box("outside", 20, 40, 160, 60, "your network", "ONNX or TFLite")
    d.box("outside", 20, 220, 160, 60, "a configuration", "PEs, SRAM, dataflow, bus")
    d.box("front", 250, 40, 150, 60, "compiler", "tiles, residents, waits")
    d.box("front", 250, 220, 150, 60, "generator", "Amaranth HDL")
    d.arrow((180, 70), (250, 70))
    d.arrow((180, 250), (250, 250))
    d.arrow((215, 250), (215, 85), (250, 85))
    d.box("unit", 500, 40, 170, 60, "fast model", "bytes and cycles, exact")
    d.box("unit", 500, 220, 170, 60, "RTL", "Verilator, cocotb, boards")
    d.arrow((400, 70), (500, 70))
    d.text(450, 62, "program", "type")
    d.arrow((450, 70), (450, 235), (500, 235))
    d.arrow((400, 258), (500, 258))
    d.text(442, 275, "Verilog", "type")
    d.arrow((585, 100), (585, 220), both=True)
    d.box("store", 500, 136, 170, 48, "equal", "every byte, every cycle")
    d.box("outside", 740, 20, 160, 100, "architect", "sweep, explain,", "area, energy")
    d.box("outside", 740, 200, 160, 100, "engineers", "verify, fuzz, prove;", "bitstream, C driver")
    d.arrow((670, 70), (740, 70))
    d.arrow((670, 250), (740, 250))
    return d


def accelerator() -> Drawing:
    """The accelerator: front end, queues, units, SRAM, buses."""
    d = Drawing(
        920, 560, "The accelerator: host registers, front end, four queues, four units, SRAM, and the AXI buses"
    )
    d.box("outside", 20, 20, 150, 56, "host", "AXI4-Lite")
    d.box("front", 230, 20, 170, 56, "registers", "start, status, counters")
    d.box("front", 460, 20, 300, 56, "front end", "fetches pages, decodes, dispatches")
    d.arrow((170, 48), (230, 48), both=True)
    d.arrow((400, 48), (460, 48), both=True)
    names = ("LOAD", "ARRAY", "VECTOR", "STORE")
    does = (
        ("memory to SRAM",),
        ("convolutions and", "matrix products"),
        ("pooling, element-wise,", "activations, copies"),
        ("SRAM to memory",),
    )
    for column, (name, lines) in enumerate(zip(names, does, strict=True)):
        x = 30 + 180 * column
        middle = x + 75
        d.arrow((610, 76), (610, 104), (middle, 104), (middle, 126))
        d.box("front", x, 126, 150, 40, "queue", "16 words")
        d.arrow((middle, 166), (middle, 190))
        d.box("front", x, 190, 150, 40, "control", "checks, claims")
        d.arrow((middle, 230), (middle, 254))
        d.box("unit", x, 254, 150, 80, name, *lines)
        if name == "LOAD":
            d.arrow((middle, 334), (middle, 386))
        elif name == "STORE":
            d.arrow((middle, 386), (middle, 334))
        else:
            d.arrow((middle, 386), (middle, 334), both=True)
    d.text(638, 99, "words", "type", "start")
    d.box("front", 760, 126, 140, 208, "scoreboard", "claims of all units:", "conflicts and races", "stop the run")
    d.arrow((720, 210), (760, 210), both=True)
    d.box(
        "store",
        30,
        386,
        690,
        62,
        "SRAM",
        "banks, each with one read port and one write port; a port belongs to one unit at a time",
    )
    d.box("outside", 30, 484, 690, 56, "system memory", "AXI4: the read channel is LOAD's, the write channel STORE's")
    d.arrow((50, 484), (50, 466), (12, 466), (12, 294), (30, 294))
    d.arrow((720, 294), (740, 294), (740, 512), (720, 512))
    d.text(58, 476, "beats, and pages of the program", "small", "start")
    return d


def unit() -> Drawing:
    """The array unit."""
    d = Drawing(920, 400, "The array unit: loops, input window, weights, multipliers, accumulators, drain")
    d.box("front", 30, 20, 220, 56, "control", "registers, checks, claims")
    d.box("unit", 320, 20, 240, 56, "loops", "block, stripe, tap: a step per cycle")
    d.arrow((250, 48), (320, 48))
    d.text(285, 40, "go", "type")
    d.box("store", 30, 130, 130, 240, "SRAM", "claimed banks")
    d.box("unit", 220, 130, 180, 70, "window", "addresses of a pixel's taps,", "zero point outside")
    d.box("unit", 220, 250, 180, 70, "weights", "stream, or matrix B;", "the next block ahead")
    d.arrow((160, 165), (220, 165))
    d.text(190, 157, "bytes", "type")
    d.arrow((160, 285), (220, 285))
    d.text(190, 277, "words", "type")
    d.box("unit", 470, 165, 170, 120, "multipliers", "ic x oc lanes, int8;", "a tree of adders", "per output lane")
    d.arrow((400, 165), (435, 165), (435, 200), (470, 200))
    d.arrow((400, 285), (435, 285), (435, 250), (470, 250))
    d.box("unit", 700, 165, 190, 80, "accumulators", "int32, two buffers", "of a stripe's pixels")
    d.arrow((640, 205), (700, 205))
    d.text(670, 197, "sums", "type")
    d.box("unit", 700, 290, 190, 80, "drain", "bias, requantiser:", "scale, round, clamp")
    d.arrow((795, 245), (795, 290))
    d.text(803, 272, "int32", "type", "start")
    d.arrow((700, 345), (160, 345))
    d.text(560, 337, "int8 results, requant_lanes per cycle", "small")
    d.arrow((440, 76), (440, 104), (310, 104), (310, 130))
    d.arrow((440, 104), (555, 104), (555, 165))
    d.text(450, 96, "steps", "type", "start")
    return d


def compiler() -> Drawing:
    """The compiler's stages, and the type that each arrow carries."""
    d = Drawing(
        860,
        570,
        "The compiler: read, parse, build, passes, partition, plan, emit, report, and what goes between them",
    )
    stages: Sequence[tuple[str, str, str, str, str]] = (
        ("outside", "file", "ONNX, TFLite, packed", "or a built-in network", "bytes"),
        ("front", "read", "the file in memory", "", "NetworkFile"),
        ("front", "parse", "once; cut where the first", "unknown operator is", "ParsedFile"),
        ("front", "build", "one node per operation,", "8-bit tensors", "Graph"),
        ("front", "passes", "fold and fuse", "", "Graph"),
        ("unit", "partition", "accelerator or host,", "by a rule with a name", "Partition"),
        ("unit", "plan", "the draft that takes", "the fewest cycles", "Draft"),
        ("unit", "emit", "words, addresses, weights", "", "Code"),
        ("store", "compiled network", "run, report, save", "", ""),
    )
    columns = (20, 330, 650)
    spots = [(x, y) for y, row in zip((30, 160, 290), (columns, columns[::-1], columns), strict=True) for x in row]
    ways = [
        ((210, 65), (330, 65)),
        ((520, 65), (650, 65)),
        ((745, 100), (745, 160)),
        ((650, 195), (520, 195)),
        ((330, 195), (210, 195)),
        ((115, 230), (115, 290)),
        ((210, 325), (330, 325)),
        ((520, 325), (650, 325)),
    ]
    labels = ((270, 56), (585, 56), (788, 135), (585, 186), (270, 186), (157, 265), (270, 316), (585, 316))
    for (kind, name, first, second, _), (x, y) in zip(stages, spots, strict=True):
        d.box(kind, x, y, 190, 70, name, *(line for line in (first, second) if line))
    for stage, way, (x, y) in zip(stages, ways, labels, strict=False):
        d.arrow(*way)
        d.text(x, y, stage[4], "type")
    d.arrow((775, 360), (775, 415))
    d.text(808, 393, "Program", "type")
    d.box("outside", 690, 415, 150, 46, "saved program")
    d.arrow((660, 360), (660, 390), (560, 390), (560, 438), (520, 438))
    d.text(610, 382, "words", "type")
    d.box("unit", 330, 415, 190, 46, "timing", "the rules that the RTL obeys")
    d.arrow((330, 438), (210, 438))
    d.text(270, 430, "Timeline", "type")
    d.box("store", 20, 415, 190, 46, "Report", "cycles, layer by layer")
    d.arrow((670, 360), (670, 523), (520, 523))
    d.text(590, 515, "words", "type")
    d.box("outside", 330, 498, 190, 50, "engine", "model, RTL or board")
    d.arrow((330, 523), (210, 523))
    d.text(270, 515, "RunResult", "type")
    d.box("store", 20, 500, 190, 46, "Result", "outputs, cycles, counters")
    return d


def board() -> Drawing:
    """What a bitstream holds around the accelerator."""
    d = Drawing(920, 400, "The board's design: UART, host link, accelerator and memory")
    d.box("group", 180, 20, 720, 360, "BoardDesign")
    d.box("outside", 20, 100, 110, 60, "host", "USB serial")
    d.box("front", 210, 60, 130, 50, "Receiver", "UART")
    d.box("front", 210, 150, 130, 50, "Transmitter", "UART")
    d.arrow((130, 115), (165, 115), (165, 85), (210, 85))
    d.text(170, 78, "rx", "type", "start")
    d.arrow((210, 175), (165, 175), (165, 145), (130, 145))
    d.text(170, 192, "tx", "type", "start")
    d.box("front", 420, 95, 130, 70, "HostLink", "frames")
    d.arrow((340, 85), (380, 85), (380, 115), (420, 115))
    d.text(360, 78, "bytes", "type")
    d.arrow((420, 145), (380, 145), (380, 175), (340, 175))
    d.box("unit", 700, 95, 170, 70, "Accelerator", "interrupt to the link")
    d.arrow((550, 130), (700, 130), both=True)
    d.text(625, 122, "AXI4-Lite, irq", "type")
    d.box("store", 420, 270, 450, 70, "memory", "bram, sdram or spram: system memory of the program")
    d.arrow((485, 165), (485, 270), both=True)
    d.text(493, 222, "words of 32 bits", "type", "start")
    d.arrow((785, 165), (785, 270), both=True)
    d.text(777, 222, "AXI4, bus bits", "type", "end")
    d.box("outside", 20, 275, 110, 60, "SDRAM chip", "sdram only")
    d.arrow((130, 305), (420, 305), both=True)
    d.box("outside", 20, 190, 110, 56, "LEDs", "busy, fault")
    d.arrow((450, 165), (450, 232), (130, 232))
    return d


def systemc() -> Drawing:
    """The SystemC platform."""
    d = Drawing(920, 330, "The SystemC platform: host, accelerator and memory, bound by TLM-2.0 sockets")
    d.box("outside", 20, 40, 130, 60, "script", "on stdin")
    d.box("front", 230, 30, 300, 80, "Host", "loosely timed initiator,", "quantum keeper, DMI")
    d.arrow((150, 70), (230, 70))
    d.box("unit", 230, 205, 300, 90, "Accelerator", "Rtl: the Verilated module", "View: the model in a process")
    d.box("store", 670, 205, 230, 90, "Memory", "latencies, broken parts,", "DMI, debug transport")
    d.arrow((310, 110), (310, 205))
    d.text(302, 162, "registers", "type", "end")
    d.arrow((450, 205), (450, 110))
    d.text(458, 162, "irq", "type", "start")
    d.arrow((530, 250), (670, 250))
    d.text(600, 242, "memory", "type")
    d.arrow((530, 70), (785, 70), (785, 205))
    d.text(640, 62, "memory", "type")
    return d


DRAWINGS = {
    "overview": overview,
    "accelerator": accelerator,
    "unit": unit,
    "compiler": compiler,
    "board": board,
    "systemc": systemc,
}

if __name__ == "__main__":
    for name, draw in DRAWINGS.items():
        (Path(sys.argv[1]) / f"{name}.svg").write_text(draw().svg())
