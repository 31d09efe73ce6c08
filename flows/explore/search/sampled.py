"""Optuna's samplers as a search: NSGA-II, NSGA-III, TPE and Gaussian processes, with Optuna's storage."""

from __future__ import annotations

import hashlib
import warnings
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from functools import cached_property, partial
from importlib.util import find_spec
from itertools import repeat
from typing import TYPE_CHECKING, Any

from dovetail.flows.explore.results.row import Row, violations
from dovetail.flows.explore.search.listed import shuffled
from dovetail.flows.explore.space import space_json
from dovetail.flows.explore.space.design_space import Plan, Point, Space
from dovetail.flows.options.parameters import AXES, FREQUENCY, label
from dovetail.isa.config.given import INT, SIZE
from dovetail.sw.errors import DovetailError, first_line

if TYPE_CHECKING:
    import optuna

BATCH = {"nsga2": 50, "nsga3": 50, "tpe": 10, "gp": 10}
"""Trials that are asked for before any of them is told: the population, or what a model is good for."""

MODELS = {"gp": ("scipy", "torch")}
"""Packages that a sampler needs besides Optuna."""

HOST = ("host_macs", "host_nodes")
LABEL = "configuration"
"""Attribute of a trial that describes it for people."""


class Sampled:
    """Asks Optuna for batches of trials, each once the one before is told.

    Trials are told in their order and every trial has a seed of its own, so that points depend on the seed and the rows
    alone, and a study in a storage goes on as if it had never been interrupted. Points that were tried are not asked
    for again: their trials are told what is known. Those that constraints rule out fail. A batch without any new point
    is followed by one of points that are drawn evenly from those that are left.

    One process may use a study at a time. Raises DovetailError: Optuna is missing, or its study is of another space.
    """

    def __init__(self, space: Space) -> None:
        self.space, self._optuna = space, _optuna(space.search.sampler)
        self._states = self._optuna.trial.TrialState
        self._study = self._open()
        self.total = space.count(space.search.points)
        self._size = max(2, min(BATCH[space.search.sampler], space.search.points or self.total))  # 2: of a population
        self._rows: dict[int, Row] = {}
        self._least: dict[str, float] = {}  # work that is left to the host
        self._seen: set[int] = set()
        self._new: list[bool] = []  # of every trial, whether no earlier one had its point
        self._queue: deque[int] = deque()
        self._waiting: set[int] = set()
        self._enqueued = False  # whether an earlier run left a trial that the next to ask gets
        self._batch: list[int] = []  # the trials that are not told yet
        self._resume()
        if len(self._new) % self._size:
            self._fill()

    def ask(self, most: int) -> list[Point]:
        """Points of this batch, or of the next once all of this one are told."""
        while not self._queue and not self._waiting and (self._batch or len(self._seen) < self.total):
            self._close()
            self._fill()
        numbers = [self._queue.popleft() for _ in range(min(most, len(self._queue)))]
        self._waiting.update(numbers)
        return [self.space.point(number) for number in numbers]

    def tell(self, row: Row) -> None:
        """Record the outcome of a point; Optuna is told when the batch is complete."""
        self._waiting.discard(row.number)
        self._rows[row.number] = row
        for name in HOST if row.values else ():
            self._least[name] = min(self._least.get(name, row.values[name]), row.values[name])

    # --- the study ----------------------------------------------------------------------------------------------

    def _open(self) -> optuna.Study:
        plan = self.space.search
        digest = hashlib.sha256(space_json.dump(replace(self.space, search=Plan())).encode()).hexdigest()[:16]
        try:
            study: optuna.Study = self._optuna.create_study(
                storage=self._storage(),
                study_name=plan.study or f"dovetail-{digest}-{plan.sampler}-{plan.seed}",
                directions=[
                    "maximize" if self.space.known[name].more else "minimize" for name in self.space.objectives
                ],
                load_if_exists=True,
            )
        except Exception as error:  # of any database driver
            text = f"storage must be a file or the URL of a database, not {plan.storage}: {first_line(error)}"
            raise DovetailError(text) from None
        mine = {"space": digest, "sampler": plan.sampler, "seed": plan.seed}
        if not study.trials:
            for key, value in mine.items():
                study.set_user_attr(key, value)
        for key, value in mine.items():
            if study.user_attrs.get(key) != value:
                raise DovetailError(
                    f"study {study.study_name} of {plan.storage} must have been made for this space, sampler and seed,"
                    f" but its {key} is another one; choose another study or storage"
                )
        return study

    def _storage(self) -> Any:
        storage = self.space.search.storage
        if not storage or "://" in storage:
            return storage or None
        return self._optuna.storages.JournalStorage(self._optuna.storages.journal.JournalFileBackend(storage))

    def _resume(self) -> None:
        """Ask again for all points of earlier runs, whose rows the driver knows; go on with what was not told."""
        for trial in self._study.get_trials(deepcopy=False):
            if trial.state == self._states.WAITING:  # the process ended before it asked for it
                self._enqueued = True
                continue
            complete = trial.params.keys() == self._distributions.keys()
            self._take(self._number(trial.params) if complete else None)
            if trial.state == self._states.RUNNING and complete:
                self._batch.append(trial.number)
            elif trial.state == self._states.RUNNING:  # the process ended while it was being asked for
                self._study.tell(trial.number, state=self._states.FAIL)

    def _take(self, number: int | None) -> None:
        """Hand the point of a trial out, if it is new and in the space."""
        self._new.append(number is not None and number not in self._seen and self.space.admits(number))
        if number is not None and self._new[-1]:
            self._seen.add(number)
            self._queue.append(number)

    def _close(self) -> None:
        """Tell Optuna the outcome of the batch, in the order of its trials."""
        trials = self._study.get_trials(deepcopy=False)
        for trial in self._batch:
            self._tell(trials[trial])
        self._batch = []

    def _tell(self, trial: optuna.trial.FrozenTrial) -> None:
        row = self._rows.get(self._number(trial.params))
        names = self.space.objectives
        if row is None or row.config is None or not all(name in row.values for name in names):
            self._study.tell(trial.number, state=self._states.FAIL)
            return
        live = self._optuna.trial.Trial(self._study, trial._trial_id)
        broken = violations(self.space, row.number, row.config, row.values)
        for name, value in (broken | self._on_host(row)).items():
            live.set_constraint(name, value)
        self._study.tell(live, [row.values[name] for name in names])

    def _on_host(self, row: Row) -> dict[str, float]:
        """Work on the host beyond the least so far, as a constraint: rows with more do not compete."""
        if self.space.host == "any" or "host_macs" in self.space.objectives:
            return {}
        worse = {name: row.values[name] - self._least[name] for name in HOST}
        return {name: amount / row.values[name] if amount else 0.0 for name, amount in worse.items()}

    # --- batches ------------------------------------------------------------------------------------------------

    def _fill(self) -> None:
        """Ask Optuna for a batch, up to the end of the plan's points."""
        start = len(self._new) // self._size * self._size  # of this batch: its first trials may be of an earlier run
        stuck = start > 0 and not any(self._new[start - self._size : start])
        spare = self._spare() if stuck else repeat(None)
        while len(self._new) < start + self._size and len(self._seen) < self.total:
            number = None if self._enqueued else next(spare)
            if number is not None:
                self._study.enqueue_trial(self._params(number))
            trial, self._enqueued = self._ask(), False
            self._batch.append(trial.number)
            self._take(self._number(trial.params))
            trial.set_user_attr(LABEL, label(self.space.point(self._number(trial.params)).axes))

    def _ask(self) -> optuna.Trial:
        seed = (self.space.search.seed * 1_000_003 + len(self._new)) % 2**32
        self._study.sampler = self._sampler(seed=seed)
        return self._study.ask(self._distributions)

    @cached_property
    def _sampler(self) -> Callable[..., optuna.samplers.BaseSampler]:
        """Makes a sampler of the plan's kind."""
        name, samplers, distributions = self.space.search.sampler, self._optuna.samplers, self._distributions
        kinds: dict[str, Any] = {
            "nsga2": samplers.NSGAIISampler,
            "nsga3": samplers.NSGAIIISampler,
            "tpe": samplers.TPESampler,
            "gp": samplers.GPSampler,
        }
        kind, options = kinds[name], {"population_size": self._size} if name.startswith("nsga") else {}
        if name != "tpe":  # it takes parameter by parameter; the others look through all trials for those they share
            known = {"infer_relative_search_space": lambda self, study, trial: distributions}
            kind = type(kind.__name__, (kind,), known)
        return partial(kind, **options)

    def _spare(self) -> Iterator[int]:
        """Points that nobody tried, drawn evenly."""
        left = (n for n in shuffled(len(self.space), self.space.search.seed) if n not in self._seen)
        return filter(self.space.admits, left)

    # --- points as Optuna's parameters: the place of a value among the sorted ones, or its text if it has no order ----

    @cached_property
    def _distributions(self) -> dict[str, Any]:
        d = self._optuna.distributions
        return {
            name: d.IntDistribution(0, len(values) - 1)
            if _ordered(name)
            else d.CategoricalDistribution(list(map(str, values)))
            for name, values in self.space.axes.items()
            if len(values) > 1
        }

    def _number(self, params: Mapping[str, Any]) -> int:
        indices = []
        for name, values in self.space.axes.items():
            texts = list(map(str, values))
            value = params.get(name)
            indices.append(0 if value is None else _sorted(values)[value] if _ordered(name) else texts.index(value))
        return self.space.number(indices)

    def _params(self, number: int) -> dict[str, Any]:
        indices = zip(self.space.axes.items(), self.space.indices(number), strict=True)
        return {
            name: _sorted(values).index(index) if _ordered(name) else str(values[index])
            for (name, values), index in indices
            if len(values) > 1
        }


def _ordered(name: str) -> bool:
    return AXES[name].kind in (INT, SIZE, FREQUENCY)


def _sorted(values: Any) -> list[int]:
    return sorted(range(len(values)), key=values.__getitem__)


def _optuna(sampler: str) -> Any:
    """The package. Raises DovetailError where it, or what the sampler needs, is missing."""
    try:
        import optuna
    except ImportError:
        raise DovetailError('search "optuna" must have the package optuna; pip install "dovetail[search]"') from None
    missing = [name for name in MODELS.get(sampler, ()) if find_spec(name) is None]
    if missing:
        names = " and ".join(missing)
        raise DovetailError(
            f'sampler "{sampler}" must have {names} as well; pip install {" ".join(missing)}, or take "tpe"'
        )
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    warnings.filterwarnings("ignore", category=optuna.exceptions.ExperimentalWarning)
    return optuna
