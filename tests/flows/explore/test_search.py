"""Searches: which points they hand out, and how much of the front they find."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from dovetail.flows.explore.pricing.cost import Cost
from dovetail.flows.explore.results.row import Row, front_of, row_of
from dovetail.flows.explore.search import sampled, search_of
from dovetail.flows.explore.search.listed import shuffled
from dovetail.flows.explore.space.design_space import Plan, Point, Space, Workload
from dovetail.flows.options.parameters import label
from dovetail.isa.config.given import ConfigError
from dovetail.isa.config.resolved import Config
from dovetail.sw.errors import DovetailError

SPACE = Space(
    (Workload("zoo:dscnn"),),
    Config.load("8x8"),
    {
        "ic_lanes": (4, 8, 12, 16, 24, 32),
        "oc_lanes": (4, 8, 12, 16, 24, 32),
        "depthwise": ("none", "emulated", "native"),
        "bus": (32, 64, 128, 256),
        "sram": tuple(65536 << n for n in range(7)),
    },
    ("48 <= pe <= 576",),
    objectives=("cycles", "sram", "pe"),
)
"""2,520 points."""


def cost_of(config: Config) -> Cost:
    """A made-up cost with the bends of a real one: the slower of array and memory, depthwise beside it."""
    depthwise = {
        "none": 0,
        "emulated": 4_000_000 // config.ic_lanes,
        "native": 1_000_000 // (config.oc_lanes * config.pixel_lanes),
    }
    compute = 10_000_000 // config.macs_per_cycle + depthwise[config.depthwise]
    traffic = 1_000_000 + 40_000_000_000 // config.sram
    memory = 8 * traffic // config.bus
    host = (("dw", "depthwise", 9),) if config.depthwise == "none" else ()
    return Cost(max(compute, memory) + min(compute, memory) // 10, 10_000_000, compute, traffic, 0, {}, host)


def row(space: Space, point: Point) -> Row:
    return row_of(space, point, [cost_of(point.config)] if isinstance(point.config, Config) else [])


def run(space: Space, most: int = 7, stop: int = 0) -> list[Row]:
    """The rows of a search, told in another order than asked for; ``stop``: as if killed after so many."""
    search, rows = search_of(space), []
    while points := search.ask(most):
        for point in reversed(points):
            rows.append(row(space, point))
            search.tell(rows[-1])
            if len(rows) == stop:
                return rows
    return rows


def front(space: Space, rows: list[Row]) -> set[tuple[float, ...]]:
    return {tuple(rows[i].values[name] for name in space.objectives) for i in front_of(space, rows)}


@pytest.fixture(scope="module")
def everything() -> list[Row]:
    return run(SPACE)


def planned(*args: object, **changes: object) -> Space:
    return replace(SPACE, search=Plan(*args), **changes)  # type: ignore[arg-type]


def numbers(rows: list[Row]) -> list[int]:
    return [each.number for each in rows]


def test_exhaustive(everything: list[Row]) -> None:
    assert search_of(SPACE).total == len(everything) == 2520
    search = search_of(SPACE)
    asked = [point for _ in range(36) for point in search.ask(70)]
    assert [point.number for point in asked] == list(SPACE.numbers())
    assert search.ask(1) == []


def test_shuffled() -> None:
    assert sorted(shuffled(100, 1)) == list(range(100))
    assert list(shuffled(100, 1)) == list(shuffled(100, 1)) != list(shuffled(100, 2))
    assert list(shuffled(0, 1)) == [] and next(shuffled(10**30, 1)) < 10**30


def test_random() -> None:
    space = planned("random", 300, 5)
    assert search_of(space).total == 300
    drawn = numbers(run(space))
    assert len(set(drawn)) == 300 and set(drawn) <= set(SPACE.numbers())
    assert drawn == numbers(run(space)) != numbers(run(planned("random", 300, 6)))
    assert [point.number for point in search_of(space).ask(300)] == sorted(drawn, key=SPACE.rank)
    counts = [sum(SPACE.indices(number)[4] == index for number in drawn) for index in range(7)]
    assert min(counts) > 20  # 43 on average
    assert search_of(planned("random", 9999)).total == 2520


def test_narrowing_finds_the_front_with_a_part_of_the_points(everything: list[Row]) -> None:
    space = planned("narrow")
    rows = run(space)
    assert len(set(numbers(rows))) == len(rows) < 0.45 * len(everything)
    assert front(SPACE, rows) == front(SPACE, everything)
    assert sorted(numbers(rows)) == sorted(numbers(run(space, most=1000)))  # however many are asked for at a time


def test_narrowing_waits_for_its_generation() -> None:
    search = search_of(planned("narrow"))
    points = search.ask(10**6)
    assert points and search.ask(1) == []
    for point in points[1:]:
        search.tell(row(SPACE, point))
        assert search.ask(1) == []
    search.tell(row(SPACE, points[0]))
    assert search.ask(1)


def test_narrowing_keeps_to_its_points() -> None:
    assert len(run(planned("narrow", 50))) == 50
    assert len(run(planned("narrow", 200))) == 200


def test_narrowing_starts_where_nothing_is_feasible(everything: list[Row]) -> None:
    """Only 1 % of the points keep the limit on cycles, and none of the coarse grid: it goes where least is missing."""
    limit = sorted(row.values["cycles"] for row in everything if row.values["host_macs"] == 0)[10]
    space = planned("narrow", constraints=("48 <= pe <= 576", f"cycles <= {limit}", "host_macs == 0"))
    rows = run(space)
    assert front(space, rows) == front(space, run(replace(space, search=Plan())))
    assert len(rows) < len(everything) / 2


def test_narrowing_goes_round_points_that_fail() -> None:
    space = Space(SPACE.workloads, Config(), {"pe": (4, 64, 128, 256), "stripe": (8, 16, 32)}, search=Plan("narrow"))
    rows = run(replace(space, objectives=("cycles", "pe")))
    assert any(row.error for row in rows) and len(rows) == len(set(numbers(rows)))


def test_lanes_are_ordered_by_multipliers() -> None:
    lanes = tuple((ic, oc) for ic in (4, 8, 16, 32) for oc in (32, 4, 16, 8))
    space = Space(
        SPACE.workloads, Config.load("8x8"), {"lanes": lanes, "sram": (65536, 1 << 20)}, search=Plan("narrow")
    )
    space = replace(space, objectives=("cycles", "pe"))
    assert front(space, run(space)) == front(space, run(replace(space, search=Plan())))


def test_narrowing_draws_from_everywhere_while_nothing_has_a_cost() -> None:
    """Of 64 stripes the grid has 1, 32 and 64, and constraints or failures leave none of these."""
    space = Space(SPACE.workloads, Config.load("8x8"), {"stripe": tuple(range(1, 65))}, search=Plan("narrow"))
    ruled_out = replace(space, constraints=("stripe == 7",))
    assert [row.axes["stripe"] for row in run(ruled_out)] == [7]
    failing = replace(space, axes={"stripe": (*range(90, 300), 8, *range(500, 600))})
    assert any(row.values for row in run(failing))
    assert len(run(replace(failing, axes={"stripe": tuple(range(90, 300))}))) == 210


@pytest.mark.parametrize("method", ["random", "narrow", "optuna"])
def test_a_huge_space(method: str) -> None:
    if method == "optuna":
        pytest.importorskip("optuna")
    axes = {name: tuple(range(1, 65)) for name in ("ic_lanes", "oc_lanes", "stripe")}
    latencies = {name: tuple(range(1, 4097)) for name in ("read_latency", "write_latency")}
    space = replace(planned(method, 20), axes=axes | latencies, constraints=("ic_lanes <= oc_lanes", "lut <= 60000"))
    assert len(space) > 4e12
    with pytest.raises(
        DovetailError, match=r"^scenarios must be 1,000 or fewer for each choice, not 16,777,216: give few"
    ):
        search_of(space)
    assert len(run(replace(space, scenario={"read_latency": 40, "write_latency": 20}))) == 20


def test_unknown_plans() -> None:
    with pytest.raises(ConfigError, match=r"^search must be one of exhaustive, random, optuna, narrow, not 'best'$"):
        Plan("best")
    with pytest.raises(ConfigError, match=r"^sampler must be one of nsga2, nsga3, tpe, gp, not 'cmaes'$"):
        Plan("optuna", sampler="cmaes")
    with pytest.raises(ConfigError, match=r"^points must be at least 1, or 0 for as many as the search wants, not -1$"):
        Plan(points=-1)


# --- Optuna -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("sampler", "points", "share"), [("nsga2", 200, 0.15), ("nsga3", 100, 0.05), ("tpe", 40, 0.02)]
)
def test_samplers(sampler: str, points: int, share: float, everything: list[Row]) -> None:
    pytest.importorskip("optuna")
    space = planned("optuna", points, 1, sampler)
    rows = run(space)
    assert search_of(space).total == len(rows) == len(set(numbers(rows))) == points
    assert set(numbers(rows)) <= set(SPACE.numbers())
    truth = front(SPACE, everything)
    assert len(front(SPACE, rows) & truth) >= share * len(truth)
    assert set(numbers(rows)) == set(numbers(run(space, most=50)))


@pytest.fixture
def small_batches(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("optuna")
    monkeypatch.setitem(sampled.BATCH, "nsga2", 10)


@pytest.mark.parametrize("stops", [(4,), (9, 11, 14), (3, 3, 20, 29)])
def test_an_interrupted_study_goes_on(stops: tuple[int, ...], tmp_path: Path, small_batches: None) -> None:
    whole = run(planned("optuna", 30))
    space = planned("optuna", 30, 0, "nsga2", str(tmp_path / "study.log"))
    for stop in stops:
        run(space, stop=stop)
    assert set(numbers(run(space))) == set(numbers(whole))
    more = run(planned("optuna", 40, 0, "nsga2", str(tmp_path / "study.log")))
    assert len(more) == 40 and set(numbers(whole)) < set(numbers(more))


def test_interrupted_while_trials_are_asked_for(
    tmp_path: Path, small_batches: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    space = planned("optuna", 30, 0, "nsga2", str(tmp_path / "study.log"))
    take = sampled.Sampled._take

    def dies(self: sampled.Sampled, number: int | None) -> None:
        take(self, number)
        if len(self._new) == 14:
            raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(sampled.Sampled, "_take", dies)
        with pytest.raises(KeyboardInterrupt):
            run(space)
    assert set(numbers(run(space))) == set(numbers(run(planned("optuna", 30))))


def test_optuna_may_see_every_point(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Samplers come back to points that they know; those that are left are drawn then, after an interruption too."""
    optuna = pytest.importorskip("optuna")
    lanes = tuple(range(1, 32))
    axes = {"ic_lanes": lanes, "oc_lanes": lanes, "depthwise": ("none", "native"), "matmul": (True,)}
    space = Space(SPACE.workloads, Config.load("8x8"), axes, ("ic_lanes == 31 and oc_lanes > 28",), ("cycles",))
    space = replace(space, search=Plan("optuna", 99))
    assert sorted(numbers(run(space))) == sorted(space.numbers())
    enqueue = optuna.Study.enqueue_trial

    def dies(self: object, params: object) -> None:
        enqueue(self, params)
        raise KeyboardInterrupt

    kept = replace(space, search=replace(space.search, storage=str(tmp_path / "study.log")))
    with monkeypatch.context() as patch:
        patch.setattr(optuna.Study, "enqueue_trial", dies)
        with pytest.raises(KeyboardInterrupt):
            run(kept)
    assert sorted(numbers(run(kept))) == sorted(space.numbers())
    for sampler in ("nsga2", "nsga3", "tpe"):
        one = replace(space, axes={}, constraints=(), search=Plan("optuna", 1, sampler=sampler))
        assert numbers(run(one)) == [0]


def test_a_sampler_knows_the_constraints(tmp_path: Path) -> None:
    optuna = pytest.importorskip("optuna")
    file = str(tmp_path / "study.log")
    space = planned("optuna", 100, 0, "nsga2", file, "mine", constraints=("48 <= pe", "cycles <= 300000"))
    rows = {row.number: row for row in run(space)}
    storage = optuna.storages.JournalStorage(optuna.storages.journal.JournalFileBackend(file))
    study = optuna.load_study(study_name="mine", storage=storage)
    done = [trial for trial in study.trials if trial.state == optuna.trial.TrialState.COMPLETE]
    assert len(done) >= 100
    assert {trial.user_attrs["configuration"] for trial in done} == {label(space.point(number).axes) for number in rows}
    feasible = [row for row in rows.values() if row.feasible and row.values["host_macs"] == 0]
    assert feasible and {tuple(trial.values) for trial in study.best_trials} == front(space, feasible)


@pytest.mark.parametrize(
    ("plan", "message"),
    [
        (Plan("optuna", 9, storage="no://x"), "^storage must be a file or the URL of a database, not no://x: "),
        (Plan("optuna", 9, storage="{}/none/x"), "^storage must be a file or the URL of a database, not .*none/x: "),
        (
            Plan("optuna", 9, 1, "nsga3", "{}/x", "s"),
            "^study s of .*x must have been made for this space, sampler and seed, but its sampler is another one;",
        ),
    ],
)
def test_storages_that_do_not_fit(plan: Plan, message: str, tmp_path: Path) -> None:
    pytest.importorskip("optuna")
    run(planned("optuna", 5, 1, "nsga2", str(tmp_path / "x"), "s"))
    plan = replace(plan, storage=plan.storage.format(tmp_path))
    with pytest.raises(DovetailError, match=message):
        search_of(replace(SPACE, search=plan))


def test_missing_packages(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(__import__("sys").modules, "optuna", None)
    with pytest.raises(DovetailError, match=r'^search "optuna" must have .*; pip install "dovetail\[search\]"$'):
        search_of(planned("optuna", 9))


def test_missing_models(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("optuna")
    monkeypatch.setattr("dovetail.flows.explore.search.sampled.find_spec", lambda name: None)
    with pytest.raises(
        DovetailError, match=r'^sampler "gp" must have scipy and torch as well; pip install scipy torch, '
    ):
        search_of(planned("optuna", 9, 0, "gp"))
