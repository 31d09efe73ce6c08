"""Speed of the software side on MobileNetV1 1.0 224: compile plus exact timing, cold and warm; model inference; the
timing of a program alone, before memories of every kind, and of four at one memory.

    python benchmarks/software_speed.py [NETWORK]

Prints medians of several runs, in seconds. Run it on an idle machine.
"""

import argparse
import statistics
import time
from collections.abc import Callable, Mapping
from functools import partial
from unittest import mock

import numpy as np

import dovetail
from dovetail.isa.config.system import WINDOW, Part, System
from dovetail.isa.timing.core import engine
from dovetail.isa.timing.run import time_program
from dovetail.isa.timing.system import Begun, time_system
from dovetail.sw import frontend
from dovetail.sw.compiler.plan import choices
from dovetail.sw.runtime.compiled_network import compile_network


def median(action: Callable[[int], object], runs: int) -> float:
    """Median seconds of ``action(0)``, ``action(1)``, ..."""
    times = []
    for number in range(runs):
        start = time.perf_counter()
        action(number)
        times.append(time.perf_counter() - start)
    return statistics.median(times)


def alone_once(config: dovetail.Config, words: np.ndarray, _: int) -> None:
    """Times a program of one accelerator."""
    time_program(config, words)


def together_once(system: System, begun: Mapping[str, Begun], _: int) -> None:
    """Times the programs of a system."""
    time_system(system, begun)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("network", nargs="?", default="zoo:mobilenet_v1", help="network file or zoo name")
    parser.add_argument("--runs", type=int, default=7, help="runs per figure (default 7)")
    arguments = parser.parse_args()
    graph = frontend.load(arguments.network)
    config = dovetail.Config(ic_lanes=8, oc_lanes=8, sram="512 KiB")
    print(
        f"{arguments.network}: {graph.total_macs:,} MACs, {config.ic_lanes} x {config.oc_lanes},"
        f" {config.sram >> 10} KiB"
    )

    def sweep_point(number: int) -> None:
        changed = config.replace(sram=(512 + 64 * number) << 10, banks=None, outstanding=4 + number % 3)
        compile_network(graph, changed).report()

    def same_point(_: int) -> None:
        compile_network(graph, config).report()

    def without_choice(_: int) -> None:
        choices.forget()
        compile_network(graph, config).report()

    print(f"compile + timing, a configuration not seen before: {median(sweep_point, arguments.runs):.3f} s")
    same_point(0)
    print(f"compile + timing, the same configuration again:    {median(same_point, arguments.runs):.3f} s")
    print(f"the same, with all plans tried again:              {median(without_choice, arguments.runs):.3f} s")
    compiled = compile_network(graph, config)
    random = np.random.default_rng(1)
    inputs = random.integers(-128, 128, (arguments.runs + 1, *graph.inputs[0].shape)).astype(graph.inputs[0].dtype)
    compiled.run(inputs[-1])
    seconds = median(lambda number: compiled.run(inputs[number]), arguments.runs)
    print(f"model inference, bit-exact:                        {seconds:.3f} s")
    small = config.replace(sram="64 KiB", banks=None)
    words = np.array(compile_network(graph, small).code.segments[0].words)
    times = median(lambda _: time_program(small, words), 3 * arguments.runs)
    print(f"exact times of a program of {len(words):,} words:       {1000 * times:.2f} ms")
    for name in ("fixed", "sdram", "ddr3-1600-x16", "ddr4-2400-x16"):
        one = small.replace(memory=name)
        system = System(tuple(Part(f"a{n}", one, WINDOW * n) for n in range(4)), memory=one.memory)
        begun = {part.name: Begun(words) for part in system.accelerators}
        alone = median(partial(alone_once, one, words), arguments.runs)
        four = median(partial(together_once, system, begun), arguments.runs)
        print(f"with {name + ':':16} one accelerator {1000 * alone:6.2f} ms, a system of four {1000 * four:6.2f} ms")
    with mock.patch.object(engine, "library", lambda: None):
        times = median(lambda _: time_program(small, words), arguments.runs)
    print(f"the same in Python, as where there is no compiler: {1000 * times:.2f} ms")


if __name__ == "__main__":
    main()
