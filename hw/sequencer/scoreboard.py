"""Tracks which unit holds which bank's read or write port, and which bytes its operation reads and writes."""

from itertools import combinations
from typing import Any

from amaranth import Cat, Const, Module, Signal, Value
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from dovetail.hw.common.ports import Claims, sources, targets
from dovetail.isa.config.resolved import Config
from dovetail.isa.instructions.table import Unit


class Claimant(wiring.Signature):
    """A unit's side: ``verify`` asks for the masks in one cycle; ``conflict`` (a bank port is taken) and ``race`` (what
    another unit's operation writes is read, or the other way round) answer in the same cycle, ``blocked`` if it is
    either, and ``granted``, only with ``verify``, says whether the unit takes them. ``release`` in the unit's end cycle
    gives them back after it. ``reads``, ``writes``, ``sources`` and ``target`` are there from the cycle before
    ``verify`` to the end cycle."""

    def __init__(self, config: Config) -> None:
        self.config = config
        super().__init__(
            {
                "verify": Out(1),
                **Claims(config).members,
                "granted": Out(1),
                "release": Out(1),
                "conflict": In(1),
                "race": In(1),
                "blocked": In(1),
            }
        )


class Scoreboard(wiring.Component):
    """Claims of the four units.

    Members
    -------
    units: one claimant per unit, in the order of :class:`Unit`.
    reads, writes: banks whose read port, and whose write port, each unit holds.

    Latency
    -------
    A claim granted in cycle v holds from v + 1 up to and including the release cycle. Of claims granted in one cycle
    the lower unit's already counts for higher ones. Masks and spans are compared a cycle before they are needed.
    """

    def __init__(self, config: Config) -> None:
        self.config = config
        super().__init__(
            {
                "units": In(Claimant(config)).array(len(Unit)),
                "reads": Out(config.banks).array(len(Unit)),
                "writes": Out(config.banks).array(len(Unit)),
            }
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        banks = self.config.banks
        held = [Signal(name=f"{unit.name.lower()}_held") for unit in Unit]
        held_reads = [Signal(banks, name=f"{unit.name.lower()}_reads") for unit in Unit]
        held_writes = [Signal(banks, name=f"{unit.name.lower()}_writes") for unit in Unit]
        clashes, shared = {}, {}
        either = {}  # clash or race, in one register: a unit's `granted` waits for those of the lower units
        for pair in combinations(Unit, 2):
            one, other = pair
            clash, races = self._clash(one, other), self._races(one, other)
            clashes[pair] = Signal(name=f"{one.name.lower()}_{other.name.lower()}_clash")
            either[pair] = Signal(name=f"{one.name.lower()}_{other.name.lower()}_either")
            m.d.sync += [clashes[pair].eq(clash), either[pair].eq(clash | Cat(races).any())]
            if races:
                shared[pair] = Signal(name=f"{one.name.lower()}_{other.name.lower()}_shared")
                m.d.sync += shared[pair].eq(Cat(races).any())
        for unit in Unit:
            port = self.units[unit]
            conflicts, races, blocks = [], [], []
            for other in Unit:
                if other == unit:
                    continue
                runs: Value = held[other]
                if other < unit:
                    runs = runs | self.units[other].granted
                pair = min(unit, other), max(unit, other)
                conflicts.append(clashes[pair] & runs)
                if pair in shared:
                    races.append(shared[pair] & runs)
                blocks.append(either[pair] & runs)
            m.d.comb += [
                port.conflict.eq(Cat(conflicts).any()),
                port.race.eq(Cat(races).any()),
                port.blocked.eq(Cat(blocks).any()),
                self.reads[unit].eq(held_reads[unit]),
                self.writes[unit].eq(held_writes[unit]),
            ]
            for holds, asked in ((held, Const(1, 1)), (held_reads, port.reads), (held_writes, port.writes)):
                takes, stays = (flag.replicate(len(asked)) for flag in (port.granted, ~port.release))
                m.d.sync += holds[unit].eq(asked & takes | holds[unit] & stays)
        return m

    def _clash(self, one: Unit, other: Unit) -> Value:
        """Whether two units need one port of a bank."""
        a, b = self.units[one], self.units[other]
        return ((a.reads & b.reads) | (a.writes & b.writes)).any()

    def _races(self, one: Unit, other: Unit) -> list[Value]:
        """What two units' operations may do to one another: per two spans, whether one writes what the other reads."""
        return [
            _overlap(target, source)
            for writer, reader in ((one, other), (other, one))
            for target in [self.units[writer].target] * targets(self.config, writer)
            for source in list(self.units[reader].sources)[: sources(self.config, reader)]
        ]


def _overlap(a: Any, b: Any) -> Value:
    """Whether two spans have a byte in common."""
    return a.valid & b.valid & (a.start < b.end) & (b.start < a.end)
