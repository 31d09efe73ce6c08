"""Which unit holds which bank's read or write port."""

from amaranth import Module, Signal
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from dovetail.isa.config import Config
from dovetail.isa.instructions import Unit


class Claimant(wiring.Signature):
    """A unit's side: ``verify`` asks for the masks in one cycle; ``conflict`` answers in the same cycle, and
    ``granted`` says whether the unit takes them. ``release`` in the unit's end cycle gives them back after it."""

    def __init__(self, config: Config) -> None:
        self.config = config
        super().__init__(
            {
                "verify": Out(1),
                "reads": Out(config.n_banks),
                "writes": Out(config.n_banks),
                "granted": Out(1),
                "release": Out(1),
                "conflict": In(1),
            }
        )


class Scoreboard(wiring.Component):
    """Bank claims of the four units.

    Members
    -------
    units: one claimant per unit, in the order of :class:`Unit`.
    reads: banks whose read port each unit holds.

    Latency
    -------
    A claim granted in cycle v holds from v + 1 up to and including the release cycle; of claims granted in one cycle
    the lower unit's counts for the higher ones at once.
    """

    def __init__(self, config: Config) -> None:
        self.config = config
        super().__init__(
            {
                "units": In(Claimant(config)).array(len(Unit)),
                "reads": Out(config.n_banks).array(len(Unit)),
            }
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        banks = self.config.n_banks
        held_reads = [Signal(banks, name=f"{unit.name.lower()}_reads") for unit in Unit]
        held_writes = [Signal(banks, name=f"{unit.name.lower()}_writes") for unit in Unit]
        for unit in Unit:
            port = self.units[unit]
            taken_reads = taken_writes = 0
            for other in Unit:
                if other == unit:
                    continue
                taken_reads |= held_reads[other]
                taken_writes |= held_writes[other]
                if other < unit:
                    rival = self.units[other]
                    taken_reads |= rival.reads & rival.granted.replicate(banks)
                    taken_writes |= rival.writes & rival.granted.replicate(banks)
            m.d.comb += [
                port.conflict.eq((port.reads & taken_reads).any() | (port.writes & taken_writes).any()),
                self.reads[unit].eq(held_reads[unit]),
            ]
            with m.If(port.verify & port.granted):
                m.d.sync += [held_reads[unit].eq(port.reads), held_writes[unit].eq(port.writes)]
            with m.Elif(port.release):
                m.d.sync += [held_reads[unit].eq(0), held_writes[unit].eq(0)]
        return m
