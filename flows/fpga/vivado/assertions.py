"""Assertions in the exported Verilog: rules of the bus and of the accelerator that hold whatever a program does.

They are the properties that `dovetail prove` proves for the blocks, as checks in a user's simulation. They are in the
wrapper, behind a macro, and refer to the core by hierarchical names.
"""

from collections.abc import Iterator, Sequence

from dovetail.hw.accelerator import HOST_PREFIX, MEMORY_PREFIX
from dovetail.isa.config.resolved import Config
from dovetail.isa.instructions.table import QUEUE_DEPTH, Unit

MACRO = "DOVETAIL_ASSERT"
CHANNELS = (
    (f"{MEMORY_PREFIX}ar", ("addr", "len", "size", "burst")),
    (f"{MEMORY_PREFIX}aw", ("addr", "len", "size", "burst")),
    (f"{MEMORY_PREFIX}w", ("data", "strb", "last")),
    (f"{HOST_PREFIX}r", ("data", "resp")),
    (f"{HOST_PREFIX}b", ("resp",)),
)
"""Channels on which the accelerator offers something, and what it offers."""


def assertions(config: Config) -> list[str]:
    """Lines of the wrapper, none outside of the macro. The clock is ``aclk``, the reset that the core sees ``reset``,
    the core ``core``."""
    units = [] if config.serial else [*_queues(config), *_banks(config)]  # microcode has neither queues nor claims
    return [
        f"`ifdef {MACRO}",
        "  // Checked at every rising edge; a rule that is broken ends the simulation with its sentence.",
        *_handshakes(),
        *units,
        "`endif",
    ]


def _check(condition: str, sentence: str) -> Iterator[str]:
    yield f'  always @(posedge aclk) if (!reset) assert ({condition}) else $fatal(1, "Dovetail: {sentence}");'


def _handshakes() -> Iterator[str]:
    for channel, payload in CHANNELS:
        name = f"assert_{channel}"
        offered = ", ".join(f"{channel}{part}" for part in payload)
        waits = f"{channel}valid && !{channel}ready"
        title = channel.upper()
        yield f"  reg {name}_waits;  // 0 after a reset"
        yield f"  reg [$bits({{{offered}}}) - 1:0] {name}_was;"
        yield f"  always @(posedge aclk) {name}_waits <= !reset && {waits};"
        yield f"  always @(posedge aclk) {name}_was <= {{{offered}}};"
        held = f"!{name}_waits"
        yield from _check(f"{held} || {channel}valid", f"{title}VALID stays until {title}READY")
        yield from _check(
            f"{held} || {name}_was == {{{offered}}}", f"the payload of {title} is stable until it is taken"
        )


def _units(config: Config) -> Sequence[Unit]:
    return [unit for unit in Unit if unit != Unit.VECTOR or config.vector]


def _queues(config: Config) -> Iterator[str]:
    for unit in _units(config):
        level = f"core.sequencer.{unit.name.lower()}_queue.level"
        yield from _check(f"{level} <= {QUEUE_DEPTH}", f"the queue of {unit.name} holds {QUEUE_DEPTH} entries at most")


def _banks(config: Config) -> Iterator[str]:
    """No port of a bank has two owners, and none has one that is not at work."""
    names = [unit.name.lower() for unit in _units(config)]
    for port in ("reads", "writes"):
        masks = [f"core.sequencer.scoreboard.{name}_{port}" for name in names]
        pairs = [f"({a} & {b})" for n, a in enumerate(masks) for b in masks[n + 1 :]]
        yield from _check(f"({' | '.join(pairs)}) == 0", f"no {port[:-1]} port of a bank belongs to two units")
