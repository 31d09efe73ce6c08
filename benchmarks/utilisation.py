"""How busy the multipliers are over a whole network, by the shape of the array, beside what its lanes allow.

    python benchmarks/utilisation.py [NETWORK ...] [--lanes 8x8 16x16x4 ...] [--sram 1MiB] [--markdown]
    python benchmarks/utilisation.py --lanes 16x32x2 --set requant_lanes=64 vector_lanes=32 banks=32

Utilisation: the network's MACs over what all multipliers could do in the cycles of an inference, which the timing
model counts. Ideal: the same if nothing ever waited, only remainders counted, see `ideal_cycles`. The bus has 64 bits
up to 128 multipliers, 128 up to 256, else 256.
"""

import argparse
import time
from collections.abc import Sequence
from math import prod

from dovetail.flows.options.parameters import LANES, named_lanes
from dovetail.isa.common.sizes import ceil_div
from dovetail.isa.config.given import ConfigError
from dovetail.isa.config.resolved import Config
from dovetail.sw import frontend
from dovetail.sw.network import ir
from dovetail.sw.network.nodes import Conv, Depthwise, MatMul
from dovetail.sw.runtime.compiled_network import compile_network

NETWORKS = ("zoo:mobilenet_v1", "zoo:mobilenet_v2", "zoo:resnet50")
SHAPES = ("8x8", "4x8x2", "8x16", "4x8x4", "4x16x2", "16x16", "4x16x4", "4x32x2", "32x32", "8x32x4")


def bus_of(pe: int) -> int:
    """Bits of the bus beside so many multipliers."""
    return 64 if pe <= 128 else 128 if pe <= 256 else 256


def ideal_cycles(graph: ir.Graph, lanes: Sequence[int]) -> int:
    """Cycles of a network's MACs if nothing ever waits, on (input, output, pixel) lanes.

    Pixels, blocks of output channels and steps are rounded up to whole lanes. A convolution takes a tap's channels, in
    steps of the input lanes, or, where these are few, all that a window has (im2col). Of a depthwise one, input lanes
    take whole kernel rows of a channel, or part of one, output lanes channels, and pixel lanes pixels of a row (in
    hardware, a step is one kernel row at most, and pixel lanes take further channels).
    """
    total = 0
    for node in graph.nodes:
        if isinstance(node, Conv):
            _, height, width, _ = graph.tensors[node.outputs[0]].nhwc
            channels, kh, kw, depth = node.weights.shape
            steps = min(kh * kw * ceil_div(depth, lanes[0]), ceil_div(kh * kw * depth, lanes[0]))
            blocks = node.groups * ceil_div(channels // node.groups, lanes[1])
            total += ceil_div(height * width, lanes[2]) * steps * blocks
        elif isinstance(node, Depthwise):
            _, height, width, _ = graph.tensors[node.outputs[0]].nhwc
            kh, kw, channels = node.weights.shape
            rows = lanes[0] // kw
            steps = ceil_div(kh, rows) if rows else kh * ceil_div(kw, lanes[0])
            total += height * ceil_div(width, lanes[2]) * steps * ceil_div(channels, lanes[1])
        elif isinstance(node, MatMul):
            out, depth = graph.tensors[node.outputs[0]].shape, graph.tensors[node.inputs[0]].shape[-1]
            pixels = prod(out[:-2]) * ceil_div(out[-2], lanes[2])
            total += pixels * ceil_div(depth, lanes[0]) * ceil_div(out[-1], lanes[1])
    return total


def setting(text: str) -> tuple[str, int]:
    """A parameter and its number."""
    name, _, number = text.partition("=")
    return name, int(number)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("networks", nargs="*", default=NETWORKS, metavar="NETWORK")
    parser.add_argument("--lanes", nargs="+", default=SHAPES, metavar="LANES")
    parser.add_argument("--sram", default="1MiB")
    parser.add_argument(
        "--set", nargs="+", default=[], type=setting, metavar="NAME=NUMBER", help="other parameters of all shapes"
    )
    parser.add_argument("--markdown", action="store_true", help="print rows of a table")
    arguments = parser.parse_args()
    line = "| {} | {} | {} | {} | {} | {} |" if arguments.markdown else "{:20} {:10} {:>6} {:>12} {:>12} {:>7}"
    print(line.format("network", "lanes", "PEs", "cycles", "utilisation", "ideal"))
    if arguments.markdown:
        print("|---|---|---|---|---|---|")
    for source in arguments.networks:
        graph = frontend.load(source)
        for text in arguments.lanes:
            lanes = named_lanes(LANES.parse(text))
            pe = prod(lanes.values())
            start = time.process_time()
            try:
                values = {**lanes, "sram": arguments.sram, "bus": bus_of(pe), **dict(arguments.set)}
                report = compile_network(graph, Config.from_dict(values)).report()
            except ConfigError as error:
                parser.error(f"{text}: {error}")
            ideal = graph.total_macs / (pe * ideal_cycles(graph, tuple(lanes.values())))
            name = source.removeprefix("zoo:")
            row = (name, text, pe, f"{report.cycles:,}", f"{report.utilisation:.1%}", f"{ideal:.1%}")
            seconds = "" if arguments.markdown else f"   {time.process_time() - start:.0f} s"
            print(line.format(*row) + seconds, flush=True)


if __name__ == "__main__":
    main()
