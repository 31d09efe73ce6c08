"""When the host starts jobs, and what jobs it refuses."""

from collections.abc import Sequence

import pytest

from dovetail.isa.config.given import ConfigError
from dovetail.isa.config.resolved import Config
from dovetail.isa.config.system import Part, System
from dovetail.isa.timing.jobs import LONGEST, STARTED, WRITTEN, AnyJob, HostJob, Job, check_jobs, spans

SYSTEM = System((Part("left", Config(), 0), Part("right", Config(), 4096)))


def jobs(*rows: tuple[str, tuple[int, ...]]) -> list[Job]:
    return [Job(name, (), after=after) for name, after in rows]


def origins(given: Sequence[AnyJob], reaction: int, lasted: list[int], faulted: list[bool]) -> list[int | None]:
    return [span and span[0] for span in spans(given, reaction, lasted, faulted)]


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


def test_a_start_interrupts_a_layer_that_the_host_computes() -> None:
    given: list[AnyJob] = [HostJob(1000), Job("left", (), earliest=500), Job("right", (), after=(0,))]
    start = 10 + WRITTEN
    assert spans(given, 10, [0, 70, 7], [False] * 3) == [
        (0, 1000 + start),
        (510 + STARTED, 510 + STARTED + 70),
        (1000 + start + 10 + STARTED, 1000 + start + 10 + STARTED + 7),
    ]


def test_a_program_that_is_ready_with_a_layer_goes_first() -> None:
    given: list[AnyJob] = [HostJob(5), Job("left", ())]
    assert spans(given, 10, [0, 70], [False] * 2) == [(10 + WRITTEN, 15 + WRITTEN), (10 + STARTED, 80 + STARTED)]
    # What a layer makes ready in a cycle competes with what is ready by an interrupt in the same one.
    given = [HostJob(100), Job("left", (), after=(0,)), Job("right", (), earliest=100)]
    assert spans(given, 10, [0, 1, 1], [False] * 3)[1:] == [
        (110 + STARTED, 111 + STARTED),
        (110 + WRITTEN + 10 + STARTED, 111 + WRITTEN + 10 + STARTED),
    ]


def test_layers_do_not_interrupt_each_other() -> None:
    given: list[AnyJob] = [
        HostJob(30, earliest=20),
        HostJob(50, earliest=10),
        HostJob(5, earliest=20),
        HostJob(5, after=(1,)),
    ]
    assert spans(given, 1, [0] * 4, [False] * 4) == [(60, 90), (10, 60), (90, 95), (95, 100)]


def test_no_layer_is_computed_behind_a_fault() -> None:
    given: list[AnyJob] = [Job("left", ()), HostJob(7, after=(0,)), Job("right", (), after=(1,)), HostJob(9)]
    assert [span is None for span in spans(given, 1, [5] * 4, [True] + [False] * 3)] == [False, True, True, False]


@pytest.mark.parametrize("cycles", [0, -1, LONGEST + 1])
def test_cycles_of_the_host_that_cannot_be(cycles: int) -> None:
    with pytest.raises(ConfigError, match=rf"^job 1: the host's cycles must be 1..{LONGEST}, not {cycles}$"):
        check_jobs(SYSTEM, [Job("left", ()), HostJob(cycles)])


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
