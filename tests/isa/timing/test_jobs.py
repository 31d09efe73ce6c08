"""When the host starts jobs, and what jobs it refuses."""

import pytest

from dovetail.isa.config.given import ConfigError
from dovetail.isa.config.resolved import Config
from dovetail.isa.config.system import Part, System
from dovetail.isa.timing.jobs import STARTED, WRITTEN, Job, check_jobs, origins

SYSTEM = System((Part("left", Config(), 0), Part("right", Config(), 4096)))


def jobs(*rows: tuple[str, tuple[int, ...]]) -> list[Job]:
    return [Job(name, (), after=after) for name, after in rows]


def test_the_host_starts_one_job_at_a_time_in_the_order_of_readiness() -> None:
    given = jobs(("left", ()), ("right", ()), ("left", (1,)), ("right", (0,)))
    # 0 begins at once, 1 when the host is free again. 1 ends first, so its follower on the right has to wait for 0.
    first, second = 10 + STARTED, 10 + WRITTEN + 10 + STARTED
    ends = first + 1000, second + 100
    assert origins(given, 10, [1000, 100, 5, 5], [False] * 4) == [
        first,
        second,
        ends[0] + 10 + STARTED,
        ends[0] + 10 + WRITTEN + 10 + STARTED,
    ]


def test_a_job_is_not_ready_before_its_earliest_cycle() -> None:
    given = [Job("left", (), earliest=500), Job("right", ()), Job("right", (), earliest=40)]
    # 1 has ended in cycle 38; the host takes 2 in cycle 40.
    assert origins(given, 10, [5, 5, 5], [False] * 3) == [510 + STARTED, 10 + STARTED, 73]


def test_nothing_starts_behind_a_fault() -> None:
    given = jobs(("left", ()), ("right", (0,)), ("left", ()), ("right", ()))
    assert origins(given, 1, [7, 7, 7, 7], [True, False, False, False]) == [1 + STARTED, None, None, None]
    given = jobs(("left", ()), ("right", ()), ("left", ()), ("right", ()))
    assert origins(given, 1, [7, 7, 7, 7], [True, False, False, False])[3] is not None


WRONG = {
    "job 1: accelerator must be one of left, right, not 'lft'; did you mean \"left\"?": (("left", ()), ("lft", ())),
    "job 0: after must be numbers of jobs, 0..1, not 2": (("left", (2,)), ("left", ())),
    "jobs must not wait for one another in a circle, as in 1 -> 1": (("left", ()), ("right", (1,))),
    "jobs must not wait for one another in a circle, as in 0 -> 1 -> 0": (("left", (1,)), ("left", ())),
    "jobs must not wait for one another in a circle, as in 1 -> 2 -> 1": (
        ("left", ()),
        ("right", (2,)),
        ("right", (0,)),
        ("left", (0, 1)),
    ),
}


@pytest.mark.parametrize("text", WRONG)
def test_jobs_that_are_refused(text: str) -> None:
    with pytest.raises(ConfigError) as found:
        check_jobs(SYSTEM, jobs(*WRONG[text]))
    assert str(found.value) == text
