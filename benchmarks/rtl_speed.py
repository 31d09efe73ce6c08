"""Speed of the Verilated accelerator: cycles per CPU second on convolutions, and on a MobileNetV1 of the zoo.

    python benchmarks/rtl_speed.py [--beside CHECKOUT] [--repeats 5] [--cache FOLDER] [8x8 16x16 1x64 64x1 ...]

``--beside`` measures another checkout of Dovetail, such as `git worktree add ../before v1.0` makes, in the same run.
The two take turns, so what else the machine does hits both alike; the ratio is the median of those of the turns. Each
compiles the programs itself, since instructions and schedules may differ.
"""

import argparse
import json
import os
import random
import statistics
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from dovetail.cosim.rtl.rtl_engine import RtlEngine
from dovetail.cosim.rtl.setting import LoadedProgram, settings_of
from dovetail.isa.config.resolved import Config
from dovetail.isa.instructions.table import PAGE_BYTES, PAGE_WORDS, Op, Unit, cfg, pack, to_bytes
from dovetail.sw import frontend
from dovetail.sw.frontend.parsed_file import NetworkFile
from dovetail.sw.runtime.compiled_network import compile_network
from dovetail.sw.zoo.imagenet import mobilenet_v1

ROOT = Path(__file__).parents[1]
PACKAGE = ".pkg"
"""Folder of a checkout that has the package."""
MACS = 40_000_000
"""Multiplications of the convolutions, roughly."""


def convolutions(config: Config) -> list[int]:
    """Words that run 3x3 convolutions of 16 x 16 pixels, from SRAM to SRAM."""
    kc = -(-64 // config.ic_lanes)
    blocks = max(1, min(4, 64 // config.oc_lanes))
    pitch = 18 * kc * config.ic_lanes
    values = {
        "IN_ADDR": 0,
        "IN_BYTES": 18 * pitch,
        "Y_STEP": pitch,
        "X_STEP": kc * config.ic_lanes,
        "KY_STEP": pitch,
        "KX_STEP": kc * config.ic_lanes,
        "IN_ROWS": 18,
        "ROW_BYTES": pitch,
        "GEOMETRY": pack(Unit.ARRAY, "GEOMETRY", kh=3, kw=3, stride_y=1, dilation_y=1),
        "TILE": pack(Unit.ARRAY, "TILE", height=16, width=16),
        "QUANT": pack(Unit.ARRAY, "QUANT", zero_in=0, zero_out=0, lo=-128, hi=127),
        "OUT_ADDR": 3 * config.sram // 4,
        "OUT_BYTES": 256 * blocks * config.oc_lanes,
        "OUT_Y_STEP": 16 * blocks * config.oc_lanes,
        "OUT_X_STEP": blocks * config.oc_lanes,
        "BLOCKS": pack(Unit.ARRAY, "BLOCKS", count=blocks, last=config.oc_lanes),
        "KC": kc,
        "W_ADDR": config.sram // 2,
        "W_BYTES": blocks * (config.param_rows(config.oc_lanes) + 9 * kc * config.weight_rows) * config.word_bytes,
        "STRIPE": config.stripe,
        "MODE": 0,
    }
    macs = 256 * 9 * kc * config.ic_lanes * blocks * config.oc_lanes
    words = [cfg(Unit.ARRAY, name, value) for name, value in values.items()]
    return words + [int(Op.CONV)] * max(1, MACS // macs) + [int(Op.END)]


def loaded(words: list[int]) -> LoadedProgram:
    """A program alone in memory."""
    pages = -(-len(words) // PAGE_WORDS)
    memory = np.zeros(-(-pages * PAGE_BYTES // 4096) * 4096, np.uint8)
    memory[: 8 * len(words)] = np.frombuffer(to_bytes(words), np.uint8)
    return LoadedProgram(memory, 0, pages)


def mobilenet(config: Config) -> LoadedProgram:
    """MobileNetV1 of half the width for 128 x 128 pixels."""
    graph = frontend.load(NetworkFile("mobilenet_v1", mobilenet_v1(0.5, 128)))
    (port,) = graph.inputs
    sample = np.random.default_rng(0).integers(-128, 128, port.shape).astype(port.dtype)
    (setting,) = settings_of(compile_network(graph, config), sample)
    return setting


def config_of(name: str) -> Config:
    """The accelerator of an array such as ``8x8``."""
    ic, oc = map(int, name.split("x"))
    return Config(ic_lanes=ic, oc_lanes=oc, sram="512 KiB", bus=128 if ic * oc >= 256 else 64)


def work(name: str, cache: Path, tuned: bool) -> None:
    """Answer on standard output: the seconds of the build, then for each line of input, the name of a program, the
    cycles and CPU seconds of a run of it."""
    config = config_of(name)
    start = time.perf_counter()
    options: dict[str, Any] = {"tuned": True} if tuned else {}  # not known to older checkouts
    engine = RtlEngine(config, cache=cache, **options)
    print(time.perf_counter() - start, flush=True)
    programs = {"convolutions": loaded(convolutions(config)), "mobilenet_v1": mobilenet(config)}
    engine.write_sram(np.frombuffer(random.Random(0).randbytes(config.sram), np.uint8).copy())
    for line in sys.stdin:
        program = programs[line.strip()]
        memory = program.memory.copy()
        arguments = getattr(program, "arguments", (program.program, program.pages, program.base))  # of older checkouts
        start = time.process_time()
        result = engine.run(memory, *arguments)
        seconds = time.process_time() - start
        if result.fault:
            raise SystemExit(f"{name}: {result.fault}")
        print(json.dumps([result.cycles, seconds]), flush=True)


@dataclass
class Checkout:
    """A process that simulates the accelerator of a checkout."""

    folder: Path
    process: "subprocess.Popen[str]"
    build: float

    @staticmethod
    def start(folder: Path, name: str, cache: Path, tuned: bool) -> "Checkout":
        """With an array's accelerator, which is built if it is not yet."""
        if not (folder / PACKAGE / "dovetail").is_dir():
            raise SystemExit(f"--beside must be a checkout of Dovetail, not {folder}")
        process = subprocess.Popen(
            [sys.executable, __file__, "--worker", "--cache", str(cache), *(["--tuned"] if tuned else []), name],
            env={**os.environ, "PYTHONPATH": str((folder / PACKAGE).resolve())},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        checkout = Checkout(folder, process, 0)
        checkout.build = float(checkout._answer())
        return checkout

    def _answer(self) -> Any:
        assert self.process.stdout
        line = self.process.stdout.readline()
        if not line:
            raise SystemExit(f"{self.folder}: the simulation ended with exit code {self.process.wait()}")
        return json.loads(line)

    def run(self, program: str) -> tuple[int, float]:
        """Cycles, and cycles per second."""
        assert self.process.stdin
        print(program, file=self.process.stdin, flush=True)
        cycles, seconds = self._answer()
        return cycles, cycles / seconds


def measure(name: str, folders: list[Path], cache: Path, repeats: int, tuned: bool) -> None:
    """Print speeds of one array in each checkout, and the ratio of the first to the second."""
    checkouts = [Checkout.start(folder, name, cache, tuned and not n) for n, folder in enumerate(folders)]
    for program in ("convolutions", "mobilenet_v1"):
        runs = [[checkout.run(program) for checkout in checkouts] for _ in range(repeats)]
        for n, checkout in enumerate(checkouts):
            speeds = sorted(run[n][1] / 1e6 for run in runs)
            build = f"{'build' if checkout.build > 2 else 'cached'} {checkout.build:.1f} s"
            print(
                f"{name:>6} {program:12} {runs[0][n][0]:9} cycles, M cycles/s: median {statistics.median(speeds):5.2f},"
                f" best {speeds[-1]:5.2f}; {build}  {checkout.folder if n else ''}",
                flush=True,
            )
        if len(checkouts) > 1:
            ratio = statistics.median(run[0][1] / run[1][1] for run in runs)
            print(f"{name:>6} {program:12} ratio {ratio:.2f}", flush=True)
    for checkout in checkouts:
        checkout.process.communicate()


def main() -> None:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("arrays", nargs="*", default=["8x8", "16x16", "1x64", "64x1"], help="ic_lanes x oc_lanes")
    parser.add_argument("--beside", type=Path, metavar="CHECKOUT", help="another checkout to compare with")
    parser.add_argument("--repeats", type=int, default=5, help="runs of each program")
    parser.add_argument("--cache", type=Path, help="folder of the builds; default: that of this checkout")
    parser.add_argument("--tuned", action="store_true", help="measure tuned builds of this checkout")
    parser.add_argument("--worker", action="store_true", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    for name in arguments.arrays:
        if arguments.worker:
            work(name, arguments.cache, arguments.tuned)
        else:
            from dovetail.isa.common.build_cache import default_cache  # an older checkout has none

            folders = [ROOT, *([arguments.beside] if arguments.beside else [])]
            measure(name, folders, (arguments.cache or default_cache()).absolute(), arguments.repeats, arguments.tuned)


if __name__ == "__main__":
    main()
