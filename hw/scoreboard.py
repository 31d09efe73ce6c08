"""Which unit holds which bank's read or write port, and which bytes its operation reads and writes."""

from itertools import combinations
from typing import Any

from amaranth import Cat, Module, Signal, Value
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from dovetail.hw.ports import sources, spans, targets
from dovetail.isa.config import Config
from dovetail.isa.instructions import Unit


class Claimant(wiring.Signature):
    """A unit's side: ``verify`` asks for the masks in one cycle; ``conflict`` (a bank port is taken) and ``race`` (what
    another unit's operation writes is read, or the other way round) answer in the same cycle, and ``granted`` says
    whether the unit takes them. ``release`` in the unit's end cycle gives them back after it. ``sources`` and
    ``target`` are there from the cycle before ``verify`` to the end cycle."""

    def __init__(self, config: Config) -> None:
        self.config = config
        super().__init__(
            {
                "verify": Out(1),
                "reads": Out(config.n_banks),
                "writes": Out(config.n_banks),
                **spans(config),
                "granted": Out(1),
                "release": Out(1),
                "conflict": In(1),
                "race": In(1),
            }
        )


class Scoreboard(wiring.Component):
    """Claims of the four units.

    Members
    -------
    units: one claimant per unit, in the order of :class:`Unit`.
    reads: banks whose read port each unit holds.

    Latency
    -------
    A claim granted in cycle v holds from v + 1 up to and including the release cycle; of claims granted in one cycle
    the lower unit's counts for the higher ones at once. Spans are compared a cycle before they matter.
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
        held = [Signal(name=f"{unit.name.lower()}_held") for unit in Unit]
        held_reads = [Signal(banks, name=f"{unit.name.lower()}_reads") for unit in Unit]
        held_writes = [Signal(banks, name=f"{unit.name.lower()}_writes") for unit in Unit]
        shared = self._shared(m)
        for unit in Unit:
            port = self.units[unit]
            taken_reads = taken_writes = 0
            races = []
            for other in Unit:
                if other == unit:
                    continue
                taken_reads |= held_reads[other]
                taken_writes |= held_writes[other]
                runs: Value = held[other]
                if other < unit:
                    rival = self.units[other]
                    taken_reads |= rival.reads & rival.granted.replicate(banks)
                    taken_writes |= rival.writes & rival.granted.replicate(banks)
                    runs = runs | rival.granted
                pair = min(unit, other), max(unit, other)
                if pair in shared:
                    races.append(shared[pair] & runs)
            m.d.comb += [
                port.conflict.eq((port.reads & taken_reads).any() | (port.writes & taken_writes).any()),
                port.race.eq(Cat(races).any()),
                self.reads[unit].eq(held_reads[unit]),
            ]
            with m.If(port.verify & port.granted):
                m.d.sync += [held[unit].eq(1), held_reads[unit].eq(port.reads), held_writes[unit].eq(port.writes)]
            with m.Elif(port.release):
                m.d.sync += [held[unit].eq(0), held_reads[unit].eq(0), held_writes[unit].eq(0)]
        return m

    def _shared(self, m: Module) -> dict[tuple[Unit, Unit], Value]:
        """Per two units that can race: whether one of them writes what the other reads, a register."""
        result: dict[tuple[Unit, Unit], Value] = {}
        for one, other in combinations(Unit, 2):
            pairs = [
                _overlap(target, source)
                for writer, reader in ((one, other), (other, one))
                for target in [self.units[writer].target] * targets(self.config, writer)
                for source in list(self.units[reader].sources)[: sources(self.config, reader)]
            ]
            if pairs:
                pair = Signal(name=f"{one.name.lower()}_{other.name.lower()}_shared")
                m.d.sync += pair.eq(Cat(pairs).any())
                result[one, other] = pair
        return result


def _overlap(a: Any, b: Any) -> Value:
    """Whether two spans have a byte in common."""
    return a.valid & b.valid & (a.start < b.end) & (b.start < a.end)
