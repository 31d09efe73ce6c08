"""Confirmation on the RTL: which points, in what order, and that a cost that is not true is found out."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from dovetail.cosim.compare.lockstep import Comparison
from dovetail.cosim.compare.networks import Verdict as NetworkVerdict
from dovetail.flows.cli import main
from dovetail.flows.explore import confirm
from dovetail.flows.explore.confirm import Check, ConfirmError, Job, Plan, Queue, chosen, difference_of, plan
from dovetail.flows.explore.pricing.cost import Cost, Outcome
from dovetail.flows.explore.pricing.evaluation import price
from dovetail.flows.explore.space import networks
from dovetail.flows.explore.space.design_space import Space, Workload
from dovetail.flows.explore.store import result_store
from dovetail.flows.explore.store.recorder import Recorder
from dovetail.flows.explore.store.result_store import Store
from dovetail.flows.options.confirmation import Confirmed, confirm_sweep
from dovetail.isa.common.cplusplus import ToolError
from dovetail.isa.config.resolved import Config
from dovetail.sw import frontend

AXES: Mapping[str, Any] = {"sram": (64 << 10, 128 << 10), "read_latency": (20, 40, 60)}
SPACE = Space((Workload("zoo:autoencoder"),), Config(ic_lanes=4, oc_lanes=4), AXES, objectives=("cycles", "sram"))


def cost_of(cycles: int) -> Cost:
    return Cost(cycles, 100, 10, 50, 50, {"dense": cycles})


@pytest.fixture
def cache(tmp_path: Path) -> Path:
    return tmp_path / "cache"


def store_of(folder: Path, *, right: bool = False, extra: int = 0, points: tuple[int, ...] = tuple(range(6))) -> Store:
    """A store with a sweep; costs are ``right``, with so many cycles too much, or made up."""
    file = networks.read(SPACE.workloads[0])
    store = Store(folder / "results.sqlite", write=True)
    with Recorder(store, SPACE, [file], len(points)) as recorder:
        found = [SPACE.point(number) for number in points]
        recorder.visit(found)
        graph = frontend.load("zoo:autoencoder")
        for point in found:
            assert point.config is not None
            cycles = price(graph, point.config).cycles + extra if right else 1000 + point.number
            recorder.put(file.hash, point.config, Outcome(cost_of(cycles)))
        recorder.finish()
    return store


def test_the_best_and_as_many_at_random(tmp_path: Path) -> None:
    with store_of(tmp_path) as store:
        results = store.results()
        numbers = [row.number for row in chosen(results, 2)]
        assert numbers[:2] == [row.number for row in results.ranked()[:2]]
        assert len(set(numbers)) == 4
        assert [row.number for row in chosen(results, 2)] == numbers
        assert len(chosen(results, None)) == len(chosen(results, 100)) == 6


def test_checks_that_share_a_build_follow_one_another(tmp_path: Path, cache: Path) -> None:
    with store_of(tmp_path) as store:
        todo = plan(store, chosen(store.results(), None), cache)
        assert (todo.builds, todo.missing, todo.known) == (2, 2, 0)
        sizes = [check.config.sram for check in todo.checks]
        assert sizes in ([65536] * 3 + [131072] * 3, [131072] * 3 + [65536] * 3)
        assert {check.cycles for check in todo.checks} == set(range(1000, 1006))


def test_a_build_is_made_once_while_others_go_on() -> None:
    small, large = (Config(ic_lanes=4, oc_lanes=4, sram=size << 10) for size in (64, 128))
    checks = [Check(number, 0, config, 1) for number, config in enumerate((small, small, small, large, large))]
    queue = Queue(checks)
    assert [queue.take(), queue.take(), queue.take()] == [checks[0], checks[3], None]
    queue.built(checks[3])
    assert [queue.take(), queue.take()] == [checks[4], None]
    queue.built(checks[0])
    queue.built(checks[4])
    assert [queue.take(), queue.take(), queue.take()] == [checks[1], checks[2], None]


def test_what_the_rtl_has_said_is_not_asked_again(tmp_path: Path, cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with store_of(tmp_path) as store:
        store.confirm(0, True)
        store.confirm(1, False, "cycles: stored 1, RTL 2")
        with monkeypatch.context() as patch:
            patch.setattr(result_store, "hardware", lambda: "another RTL")
            store.confirm(2, True)
        assert [row.confirmed for row in store.results().rows[:3]] == ["equal", "differs", ""]
        todo = plan(store, chosen(store.results(), None), cache)
        assert todo.known == 2
        assert sorted(check.number for check in todo.checks) == [2, 3, 4, 5]
        done = Plan((0, 1), 2, (), 0, 0)
        differences = confirm.confirm(store, done, cache=cache, notify=lambda done, verdict: None)
        assert differences == [(1, "point 1, zoo:autoencoder: cycles: stored 1, RTL 2")]


def test_a_sweep_of_another_version_is_refused(tmp_path: Path, cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with store_of(tmp_path) as store:
        rows = chosen(store.results(), None)
        monkeypatch.setattr(confirm, "version", lambda: "other")
        with pytest.raises(ConfirmError, match="sweep must be of this version of Dovetail to be confirmed"):
            plan(store, rows, cache)


def test_a_network_that_has_changed_is_refused(tmp_path: Path, cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    other = networks.read(Workload("zoo:dscnn"))
    with store_of(tmp_path) as store:
        todo = plan(store, chosen(store.results(), None), cache)
        monkeypatch.setattr(networks, "read", lambda workload: other)
        with pytest.raises(ConfirmError, match="network must be the one of the sweep, but has changed"):
            confirm.confirm(store, todo, cache=cache, notify=lambda done, verdict: None)


def test_without_a_compiler_there_is_one_error(tmp_path: Path, cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with store_of(tmp_path) as store:
        todo = plan(store, chosen(store.results(), None), cache)
        monkeypatch.setenv("PATH", "")
        with pytest.raises(ToolError, match=r"g\+\+ is not on PATH"):
            confirm.confirm(store, todo, cache=cache, notify=lambda done, verdict: None)
        assert not store.confirmed()


@pytest.mark.parametrize(
    ("rtl", "first", "difference"),
    [
        (700, "", ""),
        (701, "", "cycles: stored 700, RTL 701"),
        (700, "memory: 1 bytes differ", "segment 0: memory: 1 bytes differ"),
    ],
)
def test_bytes_and_the_stored_cycles_must_be_those_of_the_rtl(
    rtl: int, first: str, difference: str, cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def verify(*arguments: Any, **options: Any) -> list[NetworkVerdict]:
        return [NetworkVerdict((Comparison(not first, rtl, rtl, True, True, True, first),))]

    monkeypatch.setattr(confirm, "verify", verify)
    job = Job((networks.read(SPACE.workloads[0]),), SPACE, cache, None)
    config = SPACE.point(0).config
    assert isinstance(config, Config)
    assert difference_of(job, Check(0, 0, config, 700)) == difference


@pytest.mark.parametrize("count", ["0", "-1", "many"])
def test_how_many_points_is_a_number_or_all(count: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["sweep", "zoo:autoencoder", f"--confirm={count}"]) == 2
    assert f"--confirm: must be a number of points above 0, or all, not '{count}'" in capsys.readouterr().err


def test_the_command_says_what_differs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def confirmed(store: Store, count: int | str, **options: Any) -> Confirmed:
        assert (count, len(store.results().rows)) == (3, 1)
        return Confirmed({"points": 1}, ["RTL          DIFFERENT: 1 of 1 points"], 1)

    monkeypatch.setattr("dovetail.flows.commands.sweep.confirm_sweep", confirmed)
    assert main(["sweep", "zoo:autoencoder", "--jobs", "1", "--confirm", "3", "--output", str(tmp_path)]) == 1
    assert "RTL          DIFFERENT: 1 of 1 points" in capsys.readouterr().out


@pytest.mark.slow
def test_true_costs_are_confirmed_and_others_found_out(tmp_path: Path) -> None:
    (tmp_path / "true").mkdir()
    with store_of(tmp_path / "true", right=True, points=(0, 1)) as store:
        outcome = confirm_sweep(store, "all", shown=False)
        assert outcome.data == {"points": 2, "equal": 2, "builds": 1, "differences": []}
        assert outcome.code == 0
        assert [row.confirmed for row in store.results().rows] == ["equal", "equal"]
    with store_of(tmp_path, right=True, extra=1, points=(0,)) as store:
        outcome = confirm_sweep(store, 1, shown=False)
        assert outcome.code == 1
        (difference,) = outcome.data["differences"]
        assert difference.startswith("point 0, zoo:autoencoder: cycles: stored ")
        assert [row.confirmed for row in store.results().rows] == ["differs"]
