"""Many small configurations for random programs: between them every value of every parameter."""

import random
from collections.abc import Mapping, Sequence
from typing import Any

from dovetail.isa.common.sizes import ceil_div
from dovetail.isa.config.given import BUS_WIDTHS, DEPTHWISE, FEATURES, MAX_STRIPE, PIXEL_LANES, ConfigError
from dovetail.isa.config.resolved import Config
from dovetail.isa.instructions.table import INSTRUCTIONS, Unit
from dovetail.sw.random.programs.accelerators import with_rows

VECTOR_FEATURES = tuple(
    f for f in FEATURES if any((r.unit, r.feature) == (Unit.VECTOR, f) for r in INSTRUCTIONS.values())
)
"""Of which an accelerator without a vector unit has none."""

MOST_MULTIPLIERS = 128
"""Where there are several pixel lanes."""
VALUES: Mapping[str, Sequence[Any]] = {
    # Odd, prime and large ones, but no more multipliers than Verilator compiles in some seconds.
    "lanes": (
        (1, 1),
        (1, 8),
        (8, 1),
        (2, 3),
        (3, 5),
        (4, 4),
        (5, 2),
        (7, 7),
        (8, 8),
        (12, 4),
        (16, 3),
        (64, 1),
        (1, 64),
    ),
    "pixel_lanes": (1, 2, 1, 4, 1, 8),
    "banks": (4, 5, 6, 8, 11, 16, 32),
    "sram_kib": (32, 32, 40, 48, 64, 96, 128),
    "stripe": (1, 2, 3, 7, 16, 31, MAX_STRIPE * PIXEL_LANES[-1]),
    "requant_lanes": (None, 1, 2, 3, 8),
    "vector_lanes": (None, 1, 2, 3, 5, 8, 16),
    "depthwise": (*DEPTHWISE, "native", "native"),
    "bus": BUS_WIDTHS,
    "outstanding": (1, 2, 3, 4, 16),
    **dict.fromkeys(FEATURES, (True, False, True)),
    "vector": (True, True, True, True, False),
    "parameters": (0, 3, 0, 15, 0, 1),
}
"""What is drawn from. ``lanes`` are (ic_lanes, oc_lanes), ``sram_kib`` the least size: banks are powers of two. Without
``vector``, none of the vector unit's features."""


WHOLE = Config(
    ic_lanes=3,
    oc_lanes=5,
    sram="40 KiB",
    banks=5,
    stripe=7,
    requant_lanes=2,
    vector_lanes=3,
    bus=32,
    outstanding=2,
)
"""A small accelerator with all there is, its lanes and banks no powers of two."""


def configurations(seed: int, count: int) -> list[Config]:
    """``count`` different configurations, always the same for a seed.

    Each parameter takes its values in turn, shuffled, so with as many configurations as a parameter has values nearly
    all of them occur.
    """
    names = "configurations", "softmax", "norm", "rows at once", "rows of a norm", "rows of a kernel", "result pairs"
    rng, more, norms, rows, rows_of_norm, rows_of_kernel, results = (random.Random(f"{name} {seed}") for name in names)
    norm_bits = random.Random(f"norm bits {seed}")
    decks: dict[str, list[Any]] = {name: [] for name in VALUES}
    found: dict[int, Config] = {}
    while len(found) < count:
        drawn = {}
        for name, values in VALUES.items():
            if not decks[name]:
                decks[name] = rng.sample(list(values), len(values))
            drawn[name] = decks[name].pop()
        softmax = more.choice((0, 0, 1)) * rows.choice((1, 2, 4))
        drawn |= {"softmax": softmax, "norm": norms.choice((0, 0, 1)) * rows_of_norm.choice((1, 4))}
        drawn["norm_bits"] = norm_bits.choice((8, 16, 16, 16))
        drawn["kernel_rows"] = min(rows_of_kernel.randint(1, 3), max(1, drawn["lanes"][0] // 3))
        drawn["result_pairs"] = results.random() < 0.7
        config = _config(drawn)
        if config is not None:
            found.setdefault(config.hash, config)
    return list(found.values())


def _config(drawn: dict[str, Any]) -> Config | None:
    """The configuration of drawn values, lanes cut down to what there is; None where they break another rule."""
    ic, oc = drawn.pop("lanes")
    least = drawn.pop("sram_kib") << 10
    bank = 1 << (ceil_div(least, drawn["banks"]) - 1).bit_length()
    while drawn["pixel_lanes"] > 1 and ic * oc * drawn["pixel_lanes"] > MOST_MULTIPLIERS:
        drawn["pixel_lanes"] //= 2
    results = oc * drawn["pixel_lanes"] if drawn["depthwise"] == "native" else oc
    if drawn.pop("result_pairs") and drawn["pixel_lanes"] > 1 and oc % 8 == 0:
        drawn["requant_lanes"] = 2 * oc
    for name, most in (("requant_lanes", results), ("stripe", MAX_STRIPE * drawn["pixel_lanes"])):
        if drawn[name]:
            drawn[name] = min(drawn[name], most)
    if not drawn.pop("vector"):
        drawn |= dict.fromkeys(VECTOR_FEATURES, False) | {"softmax": 0, "norm": 0}
    if not (drawn["norm"] and drawn["elementwise"]):
        drawn["norm_bits"] = 8
    rows = drawn.pop("softmax")
    try:
        config = Config(ic_lanes=ic, oc_lanes=oc, sram=drawn["banks"] * bank, softmax=min(1, rows), **drawn)
    except ConfigError:
        return None
    return with_rows(config, rows) if rows else config
