"""CPU seconds to compile, and the cycles that they buy: per network and effort, and per number of layers.

    python benchmarks/compile_speed.py [NETWORK ...] [--efforts 0 1 2] [--layers 10 50 200]

Cold: nothing is known; warm: the schedule cache on disk is, as in the second process that meets these layers.
"""

import argparse
import tempfile
import time
from pathlib import Path

from dovetail.isa.config.resolved import Config
from dovetail.isa.timing import operations
from dovetail.sw import frontend
from dovetail.sw.compiler.emit.operations import forms_of
from dovetail.sw.compiler.plan import array_time, choices, schedule_cache, tiling
from dovetail.sw.network import ir
from dovetail.sw.random.networks import RandomNet
from dovetail.sw.runtime.compiled_network import CompiledNetwork, compile_network

CONFIGS = {
    "8x8, 1 MiB": Config(ic_lanes=8, oc_lanes=8, sram="1 MiB"),
    "16x16, 1 MiB, 128-bit bus": Config(ic_lanes=16, oc_lanes=16, sram="1 MiB", bus=128),
}


def seconds(graph: ir.Graph, config: Config, effort: int) -> tuple[float, CompiledNetwork]:
    """CPU seconds of a compilation in a process that knows nothing, and its outcome."""
    tiling.forget()
    choices.forget()
    array_time.stripe_of.cache_clear()
    forms_of.cache_clear()
    operations.forget()
    start = time.process_time()
    compiled = compile_network(graph, config, effort=effort)
    return time.process_time() - start, compiled


def chain(layers: int, *, equal: bool) -> ir.Graph:
    """Convolutions of one shape, or each with other channels than the one before."""
    net = RandomNet(seed=1)
    x = net.input(1, 28, 28, 64)
    for number in range(layers):
        x = net.conv(x, 64 if equal else 32 + number * 8 % 97, size=1)
    return net.graph(x)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("networks", nargs="*", default=["zoo:mobilenet_v1", "zoo:resnet50"], metavar="NETWORK")
    parser.add_argument("--efforts", nargs="+", type=int, default=[0, 1, 2])
    parser.add_argument("--layers", nargs="+", type=int, default=[10, 50, 100, 200])
    arguments = parser.parse_args()
    print("network, configuration, effort: seconds cold, warm; cycles (over the roofline bound)")
    for name in arguments.networks:
        graph = frontend.load(name)
        for title, config in CONFIGS.items():
            for effort in arguments.efforts:
                with tempfile.TemporaryDirectory() as folder:
                    schedule_cache.use(Path(folder))
                    cold, _ = seconds(graph, config, effort)
                    warm, compiled = seconds(graph, config, effort)
                    schedule_cache.use(None)
                report = compiled.report()
                print(
                    f"{name}, {title}, {effort}: {cold:.2f}, {warm:.2f}; {report.cycles:,} ({report.over_bound:.4f})",
                    flush=True,
                )
    print("chain of pointwise convolutions, effort 1: seconds cold (milliseconds per layer)")
    config = CONFIGS["8x8, 1 MiB"]
    for equal in (True, False):
        for layers in arguments.layers:
            cold, _ = seconds(chain(layers, equal=equal), config, 1)
            kind = "equal" if equal else "different"
            print(f"{layers} {kind} layers: {cold:.2f} ({1000 * cold / layers:.1f})", flush=True)


if __name__ == "__main__":
    main()
