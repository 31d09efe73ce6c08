"""Who is next."""

from amaranth import Module, Mux, Signal, Value
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out


class RoundRobin(wiring.Component):
    """Grants one of several requests, beginning behind the one taken last.

    The grant is in a register, so that what it chooses from is not mixed with how it is found: an
    interconnect of four managers would take three times the LUTs.

    Parameters
    ----------
    requesters: how many there are.

    Members
    -------
    coming: the requests of the next cycle, a bit each.
    grant: one of this cycle's requests; none without a request.
    take: the grant is used in this cycle: next time it comes last.

    Latency
    -------
    ``grant`` follows ``coming`` a cycle later. After a reset requester 0 comes first. A request that stays is granted
    after at most ``requesters`` - 1 grants of others.
    """

    def __init__(self, requesters: int) -> None:
        self.requesters = requesters
        super().__init__({"coming": In(requesters), "grant": Out(requesters), "take": In(1)})

    def elaborate(self, platform: object) -> Module:
        m = Module()
        behind = Signal(self.requesters)  # those behind the one taken last
        then = Signal(self.requesters)  # the same in the next cycle
        wanted = Signal(self.requesters)

        def first(requests: Value) -> Value:
            return (requests & -requests)[: self.requesters]

        m.d.comb += [
            then.eq(Mux(self.take & self.grant.any(), ~(self.grant | (self.grant - 1)), behind)),
            wanted.eq(self.coming & then),
        ]
        m.d.sync += [
            behind.eq(then),
            self.grant.eq(Mux(wanted.any(), first(wanted), first(self.coming))),
        ]
        return m
