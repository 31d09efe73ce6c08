"""Random small accelerators for tests."""

import random

from dovetail.isa.config.given import BUS_WIDTHS, PIXEL_LANES, ConfigError, MemoryTiming
from dovetail.isa.config.resolved import Config


def random_config(rng: random.Random, *, vector: bool | None = None) -> Config:
    """A small accelerator with any lanes, banks, bus and memory timing."""

    def part() -> bool:
        return rng.random() < 0.8 if vector is None else vector

    while True:
        banks = rng.randint(4, 12)
        depthwise = rng.choice(("native", "native", "emulated", "none"))
        wide = rng.random() < 0.2
        pixel_lanes = rng.choice((1, 1, *PIXEL_LANES))
        try:
            config = Config(
                ic_lanes=rng.choice((1, 2, 3, 5, 8, 12, 16, 64 if wide else 4)),
                oc_lanes=rng.choice((1, 2, 3, 5, 8, 12, 16, 64 if wide else 4)),
                pixel_lanes=pixel_lanes,
                sram=banks * (8 << 10),
                banks=banks,
                stripe=rng.choice((1, 2, 7, 16, 32, 64 * pixel_lanes)),
                requant_lanes=rng.choice((None, None, 1, 2, 3)),
                vector_lanes=rng.choice((None, 1, 3, 4, 8)),
                depthwise=depthwise,
                bus=rng.choice(BUS_WIDTHS),
                outstanding=rng.choice((1, 2, 4, 16)),
                matmul=rng.random() < 0.8,
                pooling=part(),
                elementwise=part(),
                activation=part(),
                # These draw no number: seeds stay what they were.
                softmax=int(vector is not False and banks % 3 == 0),
                norm={5: 1, 9: 4}.get(banks, 0) if vector is not False else 0,
                memory=MemoryTiming(
                    read_latency=rng.choice((1, 7, 40)),
                    write_latency=rng.choice((1, 5, 20)),
                    beat_cycles=rng.choice((1, 1, 1, 2, 3)),
                ),
            )
        except ConfigError:
            continue
        if config.norm and config.elementwise and config.outstanding > 1:
            config = config.replace(norm_bits=16)
        return with_rows(config, 4) if config.softmax and banks % 6 == 0 else config


def with_rows(config: Config, most: int) -> Config:
    """With as many rows of a softmax at once as the vector unit's lanes allow, up to ``most``."""
    return config.replace(softmax=min(most, 1 << config.vector_lanes.bit_length() - 1))
