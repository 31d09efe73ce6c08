"""The list of proofs."""

from dovetail.cosim.formal.proof import Proof
from dovetail.cosim.formal.proofs.control import ControlHarness
from dovetail.cosim.formal.proofs.dma import LoadHarness, StoreHarness
from dovetail.cosim.formal.proofs.frontend import FrontendHarness
from dovetail.cosim.formal.proofs.host import HostHarness
from dovetail.cosim.formal.proofs.queue import QueueHarness
from dovetail.cosim.formal.proofs.run import RunHarness
from dovetail.cosim.formal.proofs.scoreboard import ScoreboardHarness
from dovetail.cosim.formal.proofs.walkers import WalkersHarness
from dovetail.isa.config.resolved import Config

SMALL = Config(pe=8, sram="32 KiB", banks=4, bus=32, outstanding=2)
"""Few banks, a narrow bus, two bursts in flight: the least in which every property means something."""
SMALL_TEXT = "4 banks, bus 32 bits, outstanding 2"

_ALL = (
    Proof("queue", "Queue", "depth 4", lambda: QueueHarness(depth=4), "prove", 1, 8),
    Proof("run", "Run", "", RunHarness, "prove", 1, 8),
    Proof("host", "Host", "", lambda: HostHarness(SMALL), "prove", 1, 8),
    Proof(
        *("control", "UnitControl and Queue", "unit LOAD, queue depth 4"),
        lambda: ControlHarness(SMALL, depth=4),
        *("prove", 1, 12),
    ),
    Proof("scoreboard", "Scoreboard", "4 banks, all units", lambda: ScoreboardHarness(SMALL), "prove", 1, 6),
    Proof("load", "LoadCore", SMALL_TEXT, lambda: LoadHarness(SMALL), "prove", 5, 14),
    Proof("store", "StoreCore", SMALL_TEXT, lambda: StoreHarness(SMALL), "prove", 7, 20, slow=True),
    Proof(
        *("frontend", "Frontend", "bus 32 bits, programs of fewer than 16 pages"),
        lambda: FrontendHarness(SMALL, page_bits=4),
        *("prove", 1, 8),
        slow=True,
    ),
    Proof(
        *("walkers", "BurstWalker and BeatWalker", "bus 32 bits, rows of at most 8 KiB"),
        lambda: WalkersHarness(bus_bytes=4, span_bits=13),
        *("prove", 1, 12),
        slow=True,
    ),
    Proof(
        *("walkers_wide", "BurstWalker and BeatWalker", "bus 512 bits, rows of at most 8 KiB"),
        lambda: WalkersHarness(bus_bytes=64, span_bits=13),
        *("prove", 1, 12),
        slow=True,
    ),
)

PROOFS: dict[str, Proof] = {proof.name: proof for proof in _ALL}
"""By name."""
