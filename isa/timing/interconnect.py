"""Timing of the interconnect between several managers and one memory.

Times are cycles. An address is *presented* from the first cycle of its VALID on, *accepted* by the manager's slice,
*granted*, and then *offered* to memory, which *takes* it:

    accepted = max(presented, granted(the manager's address before) + 1)
    granted  = the first cycle >= accepted + SLICE, and >= taken(the address granted before), in which it is its turn
    offered  = granted + OUTPUT
    taken    = the first cycle >= offered in which memory takes it

In a cycle with a grant, of those who have waited since `accepted + SLICE` it goes to the first one behind the manager
that was granted last; in the beginning that is manager 0. Reads and writes have a round robin each.

Read data and responses come DATA cycles after memory has given them. Write data go to memory in whole bursts, in the
order in which memory has taken their addresses, through a buffer of two beats. With beats numbered over all bursts:

    accepted(i) = max(presented(i), accepted(i - 1) + 1, taken(i - 2) + 1, taken(address of its burst) + TURN)
    offered(i)  = max(accepted(i) + DATA, taken(i - 1) + 1)
"""

from typing import NamedTuple

SLICE = 1
"""Cycles from the acceptance of an address to its grant, at the least."""
OUTPUT = 1
"""Cycles from the grant of an address to its offer to memory."""
DATA = 1
"""Cycles that a beat or a response takes, in either direction."""
TURN = 1
"""Cycles from memory's taking of a write's address to its first beat's acceptance, at the least."""
PLACES = 2
"""Write beats between managers and memory, at most."""
READ_ADDED, WRITE_ADDED = SLICE + OUTPUT + DATA, 2 * DATA
"""Cycles that memory's latencies grow by, as a manager sees them: the ways of an address and of its data; of a beat and
of its response."""
NEVER = 1 << 62
"""Later than any cycle."""


class Grant(NamedTuple):
    """An address that is granted to ``manager`` in ``cycle``."""

    cycle: int
    manager: int

    @property
    def offered(self) -> int:
        """The cycle from which on memory sees it."""
        return self.cycle + OUTPUT


class Addresses:
    """An address channel. Whoever uses it keeps the order of time: before a :meth:`grant`, every address that is
    presented in an earlier cycle must be known, and memory's answer to the grant before it."""

    def __init__(self, managers: int) -> None:
        self.free = [0] * managers  # from when on a slice accepts an address
        self.asks = [NEVER] * managers  # from when on it asks for a grant
        self.output = 0  # from when on there may be a grant
        self.latest = managers - 1

    def present(self, manager: int, cycle: int) -> int:
        """An address is presented from ``cycle`` on: the cycle of its acceptance. The manager's address before it must
        be granted."""
        accepted = max(cycle, self.free[manager])
        self.asks[manager] = accepted + SLICE
        self.free[manager] = NEVER
        return accepted

    def due(self) -> Grant | None:
        """The next grant, if no other address is presented before its cycle."""
        cycle = max(self.output, min(self.asks))
        if cycle >= NEVER:
            return None
        managers = len(self.asks)
        turns = ((self.latest + n) % managers for n in range(1, managers + 1))
        return Grant(cycle, next(manager for manager in turns if self.asks[manager] <= cycle))

    def grant(self, grant: Grant) -> None:
        """Carries a grant out."""
        self.latest = grant.manager
        self.asks[grant.manager] = NEVER
        self.free[grant.manager] = grant.cycle + 1
        self.output = NEVER

    def taken(self, cycle: int) -> None:
        """Memory has taken the address of the latest grant in ``cycle``."""
        self.output = cycle


class WriteData:
    """The way of write beats to memory."""

    def __init__(self) -> None:
        self.accepted = -1  # the latest beat's acceptance
        self.leaves = [-1] * PLACES  # when memory took the latest beats, oldest first

    def accept(self, presented: int, address: int) -> int:
        """The cycle in which a beat is accepted that a manager presents from ``presented`` on; memory took its burst's
        address in the cycle ``address``."""
        self.accepted = max(presented, self.accepted + 1, self.leaves[0] + 1, address + TURN)
        return self.accepted

    @property
    def offered(self) -> int:
        """The cycle from which on memory sees the beat accepted last."""
        return max(self.accepted + DATA, self.leaves[-1] + 1)

    def taken(self, cycle: int) -> None:
        """Memory has taken that beat."""
        self.leaves = [*self.leaves[1:], cycle]
