"""Proof of the bank claims: no bank port has two users, and no two operations race."""

from itertools import combinations, permutations
from typing import Any

from amaranth import Cat, Module, Mux, Signal, Value
from amaranth.hdl import Assert, Assume, Cover
from amaranth.lib import wiring
from amaranth.lib.wiring import In

from dovetail.cosim.formal.properties import Opened, before
from dovetail.hw.common.ports import Claims, part, sources, targets
from dovetail.hw.sequencer.scoreboard import Scoreboard
from dovetail.isa.config.resolved import Config
from dovetail.isa.instructions.table import Unit


class ScoreboardHarness(wiring.Component):
    """Four units that ask for any banks and any spans at any time, within the rules of their controls.

    Parameters
    ----------
    config: the accelerator.

    Members
    -------
    verify, take, release: per unit: asks, takes what it is granted, is done.
    claims: per unit: banks that it asks for, and what its operation reads and writes.
    """

    def __init__(self, config: Config) -> None:
        self.config = config
        units = len(Unit)
        super().__init__(
            {
                "verify": In(units),
                "take": In(units),
                "release": In(units),
                "claims": In(Claims(config)).array(units),
            }
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        config = self.config
        scoreboard = Scoreboard(config)
        m.submodules.scoreboard = inner = Opened(scoreboard)
        holds = [Signal(name=f"holds{unit}") for unit in Unit]
        reads = [Signal(config.banks, name=f"reads{unit}") for unit in Unit]
        writes = [Signal(config.banks, name=f"writes{unit}") for unit in Unit]
        known = before(m, 1)
        granted = []
        read_spans: list[list[Any]] = []
        write_spans: list[list[Any]] = []
        for unit in Unit:
            port = scoreboard.units[unit]
            read_spans.append(list(port.sources)[: sources(config, unit)])
            write_spans.append([port.target] * targets(config, unit))
            wiring.connect(m, wiring.flipped(self.claims[unit]), part(port, Claims(config)))
            m.d.comb += [
                port.verify.eq(self.verify[unit]),
                port.granted.eq(port.verify & ~port.blocked & self.take[unit]),
                port.release.eq(self.release[unit]),
            ]
            granted.append(port.granted)
            with m.If(port.granted):
                m.d.sync += [holds[unit].eq(1), reads[unit].eq(port.reads), writes[unit].eq(port.writes)]
            with m.Elif(port.release):
                m.d.sync += [holds[unit].eq(0), reads[unit].eq(0), writes[unit].eq(0)]
            m.d.comb += [
                Assume(~port.release | holds[unit], "a unit releases only what it holds (proof control)"),
                Assume(~port.verify | ~holds[unit], "a unit asks only when it holds nothing (proof control)"),
            ]
            shown = [span.as_value() for span in read_spans[unit] + write_spans[unit]] + [port.reads, port.writes]
            was = [before(m, span) for span in shown]
            for span in read_spans[unit] + write_spans[unit]:
                m.d.comb += Assume(
                    ~(port.verify | holds[unit]) | ~span.valid | (span.start < span.end),
                    "no region is empty or wraps (ZERO_SIZE and SRAM_RANGE come before)",
                )
            m.d.comb += Assert(
                Mux(holds[unit], Cat(port.reads, port.writes), 0) == Cat(reads[unit], writes[unit]),
                "invariant: what a unit holds is what it still shows",
            )
            for now, old in zip(shown, was, strict=True):
                m.d.comb += Assume(
                    ~(port.verify | holds[unit]) | known & (now == old),
                    "what an operation reads and writes is known a cycle before it asks, and stays until its end",
                )

        for one, other in combinations(Unit, 2):
            m.d.comb += [
                Assert((reads[one] & reads[other]) == 0, "no bank's read port is held by two units"),
                Assert((writes[one] & writes[other]) == 0, "no bank's write port is held by two units"),
            ]
        for one, other in permutations(Unit, 2):
            a, b = scoreboard.units[one], scoreboard.units[other]
            with m.If(granted[one] & (holds[other] & ~b.release)):
                m.d.comb += Assert(
                    ((a.reads & reads[other]) == 0) & ((a.writes & writes[other]) == 0),
                    "what is granted is held by no other unit",
                )
            if one < other:
                with m.If(granted[one] & granted[other]):
                    m.d.comb += [
                        Assert(((a.reads & b.reads) == 0) & ((a.writes & b.writes) == 0), "nor granted to another one"),
                        Cover(a.writes.any() & b.writes.any(), "two units are granted banks in one cycle"),
                    ]
            overlaps = self._overlap(write_spans[one], read_spans[other])
            if overlaps:
                with m.If(holds[one] & holds[other]):
                    m.d.comb += [
                        Assert(~_any(overlaps), "no operation reads what another one writes meanwhile"),
                    ]

        for unit in Unit:
            port = scoreboard.units[unit]
            conflicts, races = [], []
            for other in Unit:
                if other == unit:
                    continue
                rival = scoreboard.units[other]
                counts = granted[other] if other < unit else 0
                conflicts.append((port.reads & (reads[other] | (rival.reads & _mask(counts, config.banks)))).any())
                conflicts.append((port.writes & (writes[other] | (rival.writes & _mask(counts, config.banks)))).any())
                shared = self._overlap(write_spans[unit], read_spans[other])
                shared += self._overlap(write_spans[other], read_spans[unit])
                races.append(_any(shared) & (holds[other] | counts))
            with m.If(port.verify):
                m.d.comb += [
                    Assert(
                        port.conflict == _any(conflicts),
                        "conflict exactly if another unit holds a port, or a lower one is granted it now",
                    ),
                    Assert(port.race == _any(races), "race exactly if a running operation writes what is read"),
                    Assert(port.blocked == (port.conflict | port.race), "blocked by either"),
                    Cover(port.race & ~port.conflict, "a race without a conflict"),
                ]
            m.d.comb += [
                Assert(
                    (scoreboard.reads[unit] == reads[unit]) & (scoreboard.writes[unit] == writes[unit]),
                    "the ports shown are those held, released ones free",
                ),
                Assert(inner[f"{unit.name.lower()}_held"] == holds[unit], "invariant: held"),
            ]
        return m

    def _overlap(self, written: list[Any], read: list[Any]) -> list[Value]:
        """Per two spans, whether some byte is in both."""
        return [w.valid & r.valid & ~((w.end <= r.start) | (r.end <= w.start)) for w in written for r in read]


def _any(conditions: list[Value]) -> Value:
    return Cat(conditions).any()


def _mask(bit: Value | int, width: int) -> Value | int:
    return bit.replicate(width) if isinstance(bit, Value) else 0
