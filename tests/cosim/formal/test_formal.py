"""Proofs hold, and each fails when its block is broken."""

import inspect
import textwrap
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

import pytest
from amaranth.hdl import Fragment

from dovetail.cosim.formal import prover
from dovetail.cosim.formal.catalogue import PROOFS
from dovetail.cosim.formal.proof import INVARIANT, Proof, Sentences
from dovetail.cosim.formal.properties import Opened
from dovetail.hw.array.depthwise import RowBuffer
from dovetail.hw.common.walk import PixelWalk, Place
from dovetail.hw.dma.burst import BeatWalker, BurstWalker
from dovetail.hw.dma.load import LoadCore
from dovetail.hw.dma.shell import DmaShell
from dovetail.hw.dma.store import StoreCore
from dovetail.hw.host.registers import Host
from dovetail.hw.sequencer.control import UnitControl
from dovetail.hw.sequencer.frontend import Frontend
from dovetail.hw.sequencer.queue import Queue
from dovetail.hw.sequencer.run import Run
from dovetail.hw.sequencer.scoreboard import Scoreboard
from dovetail.hw.system.arbiter import RoundRobin
from dovetail.hw.system.channels import Addresses, TwoPlaces, WriteData
from dovetail.isa.common.cplusplus import ToolError
from tests.slow import slow

QUICK = ("queue", "run", "addresses")
"""Proofs of the default tests. Of the others these see that most fail when a fault is planted."""


@pytest.mark.parametrize("name", [name if name in QUICK else slow(name) for name in PROOFS])
def test_proof_holds(name: str, build_cache: Path) -> None:
    verdict = prover.prove(PROOFS[name], build_cache)
    assert verdict.passed, verdict


@dataclass(frozen=True)
class Mutation:
    """A fault: in what builds ``block``, ``old`` becomes ``new``. ``within``: cycles from reset in which the
    harness shows a violation; None: the proof does not succeed."""

    proof: str
    block: type
    old: str
    new: str
    within: int | None = None
    slow: bool = False


MUTATIONS = (
    Mutation("queue", Queue, "ready.eq(~full)", "ready.eq(1)", 6),
    Mutation("queue", Queue, "read.addr.eq(behind)", "read.addr.eq(tail[:bits])", 6),
    Mutation("queue", Queue, "full.eq(~taken & (", "full.eq((", 8),
    Mutation("queue", Queue, "push & two_free", "two_free", 8),
    Mutation("queue", Queue, "many | self.o.valid & ~taken", "many | self.o.valid", 6),
    Mutation("queue", Queue, "level[:n].any()", "level[:n].all()", 8),
    Mutation("queue", Queue, "Mux(many, read.data, self.i.payload)", "self.i.payload", 6),
    Mutation("run", Run, "self.start & ~self.busy", "self.start", 4),
    Mutation("run", Run, "Mux(self.halt, 0, self.failed)", "self.failed", 6),
    Mutation("host", Host, "bus.wvalid & ~write & ~bus.bvalid", "bus.wvalid & ~write", 6),
    Mutation("host", Host, "bus.arvalid & ~bus.arready & ~bus.rvalid", "bus.arvalid & ~bus.arready", 6),
    Mutation("host", Host, "given(CONTROL_START) & ~self.busy", "given(CONTROL_START)", 5),
    Mutation("control", UnitControl, "(count - entry.value)", "(count - entry.value - 1)", 5),
    Mutation("control", UnitControl, "entries.ready.eq(~busy & ~self.halt", "entries.ready.eq(~busy", 5),
    Mutation("control", UnitControl, "kept.eq(begins | self.waiting & ~reached)", "kept.eq(begins | self.waiting)", 6),
    Mutation("control", UnitControl, "core.done & ~fetching", "core.done", 10, slow=True),
    Mutation("scoreboard", Scoreboard, "if other < unit:", "if other < 0:", 3),
    Mutation("scoreboard", Scoreboard, "runs | self.units[other].granted", "runs", 3),
    Mutation(
        "loops", Place, "self.registers.get(loop, register)", "self.registers.get(loop, self.registers[outermost])", 4
    ),
    Mutation("pixels", PixelWalk, "self.width == 1), left == 2", "self.width == 1), left == 1", 6),
    Mutation("pixels", PixelWalk, "self.rewind & ~self.restart", "self.rewind", 6),
    Mutation("rows", RowBuffer, "~(self.first", "(self.first", 12),
    Mutation("rows", RowBuffer, "self.first | self.chain", "self.first", 12),
    Mutation("rows", RowBuffer, "Cat(self.bytes, self.before)", "Cat(self.before, self.bytes)", 10),
    Mutation("rows", RowBuffer, "word.eq(at + 1)", "word.eq(word + 1)", 14),
    Mutation("addresses", RoundRobin, "self.coming & then", "self.coming", 8),
    Mutation("addresses", Addresses, "m.If(i.ready)", "m.If(i.valid)", 4),
    Mutation("addresses", Addresses, "~self.o.valid | self.o.ready", "1", 4),
    Mutation("write_data", TwoPlaces, "self.i.valid & ~spared", "self.i.valid", 6),
    Mutation("write_data", WriteData, "places.i.ready & places.i.payload.last", "places.i.payload.last", 6),
    Mutation("interconnect", Addresses, "free & arbiter.grant[k]", "arbiter.grant[k]", 10),
    Mutation("load", DmaShell, "o.ready.eq(ready)", "o.ready.eq(1)", 10),
    Mutation("load", DmaShell, "room.eq(in_flight != config.outstanding)", "room.eq(1)", 14, slow=True),
    Mutation("store", DmaShell, "o.ready.eq(ready)", "o.ready.eq(1)", 10, slow=True),
    Mutation("store", StoreCore, "there_next & open_next", "there_next", slow=True),
    Mutation("store", StoreCore, "any_filled & (sent | ~beat_there)", "any_filled", slow=True),
    Mutation("load", LoadCore, "error.eq(bad)", "error.eq(came_bad)", slow=True),
    Mutation("load", DmaShell, " & (room[size_bits:bits].any() | (room[:size_bits] >= beat.size))", "", slow=True),
    Mutation("load", LoadCore, "ending[-1]", "ending[0]", slow=True),
    Mutation("store", StoreCore, "shell.last_address & ~shell.in_flight.any()", "shell.last_address", slow=True),
    Mutation("store", StoreCore, "last.eq(beat.burst_last)", "last.eq(beat.last)", slow=True),
    Mutation("store", StoreCore, "beats.active & ~taken[exact_log2(BUFFER)]", "beats.active", slow=True),
    Mutation("frontend", Frontend, "active & ~self.halt", "active", 6, slow=True),
    Mutation("walkers", BurstWalker, "in_page >= to_boundary", "in_page > to_boundary + 1", 6, slow=True),
    Mutation("walkers", BeatWalker, "Cat(straddles, ~enters", "Cat(straddles, enters", 6, slow=True),
    Mutation("walkers_wide", BurstWalker, "left[:8] <= limit", "left[:8] < limit", 6),
)


FIRST = {mutation.proof: mutation for mutation in reversed(MUTATIONS) if not mutation.slow}
"""Of each proof the fault that the default tests plant."""


@pytest.mark.parametrize(
    "mutation",
    [
        pytest.param(m, id=f"{m.proof}-{m.new or m.old}"[:60], marks=() if m in FIRST.values() else pytest.mark.slow)
        for m in MUTATIONS
    ],
)
def test_broken_block_fails(mutation: Mutation, build_cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(mutation.block, builder(mutation.block), mutated(mutation.block, mutation.old, mutation.new))
    proof = PROOFS[mutation.proof]
    if mutation.within is None:
        verdict = prover.prove(proof, build_cache)
        assert verdict.result in ("failed", "unknown"), verdict
    else:
        verdict = prover.prove(replace(proof, mode="bmc", depth=mutation.within), build_cache)
        assert verdict.result == "failed", verdict
    assert verdict.sentences


def builder(block: type) -> str:
    """The method that builds a block: ``elaborate`` of a component; a shell adds itself to its core's module."""
    return "elaborate" if hasattr(block, "elaborate") else "__init__"


def mutated(block: type, old: str, new: str) -> Callable[..., object]:
    """The builder of ``block`` with ``old``, which must occur once, replaced."""
    method = getattr(block, builder(block))
    source = textwrap.dedent(inspect.getsource(method))
    assert source.count(old) == 1, old
    namespace: dict[str, Callable[..., object]] = {}
    exec(source.replace(old, new), method.__globals__, namespace)
    return namespace[builder(block)]


def test_every_proof_has_a_mutation() -> None:
    assert {m.proof for m in MUTATIONS} == set(PROOFS)


def test_every_mutation_can_be_made() -> None:
    for mutation in MUTATIONS:
        mutated(mutation.block, mutation.old, mutation.new)


def test_a_property_that_does_not_hold_is_named_with_waves(
    build_cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Run, "elaborate", mutated(Run, "Mux(self.halt, 0, self.failed)", "self.failed"))
    verdict = prover.prove(PROOFS["run"], build_cache, depth=6, waves=tmp_path)
    assert (verdict.result, verdict.depth) == ("failed", 6)
    assert verdict.waves == str(tmp_path / "run.vcd")
    assert "$enddefinitions" in Path(verdict.waves).read_text()


def test_induction_that_does_not_succeed_is_unknown(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Run, "elaborate", mutated(Run, "Mux(self.halt, 0, self.failed)", "self.failed"))
    assert prover.prove(PROOFS["run"], tmp_path, depth=1).result == "unknown"


def test_a_cover_out_of_reach_is_not_a_proof(tmp_path: Path) -> None:
    verdict = prover.prove(replace(PROOFS["queue"], cover=3), tmp_path)
    assert verdict.result == "unreached"
    assert "full, and an entry leaves" in verdict.sentences


def test_verdicts_are_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first = prover.prove(PROOFS["run"], tmp_path)

    def never(*args: object) -> None:
        raise AssertionError("proved again")

    monkeypatch.setattr(prover, "_run", never)
    assert prover.prove(PROOFS["run"], tmp_path) == first


def test_missing_tools(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr("sysconfig.get_path", lambda _: str(tmp_path))
    with pytest.raises(ToolError, match=r'need yowasp-sby, .*z3; pip install "dovetail\[formal\]"'):
        prover.prove(PROOFS["run"], tmp_path)


def test_depth_must_be_positive(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="depth must be positive, not 0"):
        prover.prove(PROOFS["run"], tmp_path, depth=0)
    with pytest.raises(ValueError, match="mode must be one of prove, bmc, not 'live'"):
        replace(PROOFS["run"], mode="live")


@pytest.mark.parametrize("proof", PROOFS.values(), ids=PROOFS)
def test_every_check_has_a_sentence(proof: Proof) -> None:
    sentences = Sentences(proof.rtlil())
    every = [*sentences.properties, *sentences.invariants, *sentences.assumptions, *sentences.covers]
    assert sentences.properties and sentences.covers
    assert all(every)
    assert proof.mode == "prove" or all(not text.startswith(INVARIANT) for text in sentences.properties)


def test_inner_signals_are_found_by_name() -> None:
    opened = Opened(Queue(depth=4))
    Fragment.get(opened, None)
    assert opened["tail"].name == "tail"
    with pytest.raises(LookupError, match="nothing must name one signal, not 0"):
        opened["nothing"]
