"""Speed of the Verilated accelerator: cycles per CPU second on a program of convolutions.

python benchmarks/rtl_speed.py [--cache FOLDER] [8x8 16x16 1x64 64x1 ...]
"""

import argparse
import random
import time
from pathlib import Path

import numpy as np

from dovetail.cosim.rtl.rtl_engine import RtlEngine
from dovetail.cosim.rtl.verilate import default_cache
from dovetail.isa.config.resolved import Config
from dovetail.isa.instructions.table import PAGE_BYTES, PAGE_WORDS, Op, Unit, cfg, pack, to_bytes

MACS = 40_000_000
"""Multiplications of a program, roughly."""


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


def measure(name: str, cache: Path) -> None:
    """Print build time and speed of one array."""
    ic, oc = map(int, name.split("x"))
    config = Config(ic_lanes=ic, oc_lanes=oc, sram="512 KiB")
    start = time.perf_counter()
    engine = RtlEngine(config, cache=cache)
    build = time.perf_counter() - start
    words = convolutions(config)
    pages = -(-len(words) // PAGE_WORDS)
    memory = np.zeros(-(-pages * PAGE_BYTES // 4096) * 4096, np.uint8)
    memory[: 8 * len(words)] = np.frombuffer(to_bytes(words), np.uint8)
    rng = random.Random(0)
    engine.write_sram(np.frombuffer(rng.randbytes(config.sram), np.uint8).copy())
    start = time.process_time()
    result = engine.run(memory, 0, pages)
    seconds = time.process_time() - start
    if result.fault:
        raise SystemExit(f"{name}: {result.fault}")
    speed = result.cycles / seconds
    rate = speed * result.counters[Unit.ARRAY].busy / result.cycles * ic * oc
    print(
        f"{name:>6}: {result.cycles:9} cycles in {seconds:6.2f} s, {speed / 1e6:5.2f} M cycles/s,"
        f" up to {rate / 1e6:6.0f} MMAC/s, {'build' if build > 1 else 'cached'} {build:.1f} s",
        flush=True,
    )


def main() -> None:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("arrays", nargs="*", default=["8x8", "16x16", "1x64", "64x1"], help="ic_lanes x oc_lanes")
    parser.add_argument("--cache", type=Path, default=default_cache(), help="folder of the builds")
    arguments = parser.parse_args()
    for name in arguments.arrays:
        measure(name, arguments.cache)


if __name__ == "__main__":
    main()
