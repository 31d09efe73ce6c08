"""Timetables, by hand."""

from dovetail.sw.compiler.devices.routes import Leg
from dovetail.sw.compiler.devices.timetable import Visit, dealt, timetable

MEMBERS = [[0], [1]]
FRONT, BACK, ALL = Leg(0, 1, 0), Leg(1, 2, 1), Leg(0, 2, 1)
CYCLES = {FRONT: 10.0, BACK: 20.0, ALL: 25.0}


def test_a_pipeline_of_two() -> None:
    table = timetable([(FRONT, BACK)] * 3, MEMBERS, CYCLES.__getitem__, 2)
    # 0..10 and 10..30; 10..20 and 30..50; the third one waits for the first one's place: 30..40 and 50..70
    assert table.visits == (
        Visit(0, FRONT, 0, ()),
        Visit(1, FRONT, 0, ()),
        Visit(0, BACK, 1, (0,)),
        Visit(2, FRONT, 0, (2,)),
        Visit(1, BACK, 1, (1,)),
        Visit(2, BACK, 1, (3,)),
    )
    assert (table.slots, table.cycles) == ((0, 1, 0), 70)


def test_one_place_lets_no_two_inferences_overlap() -> None:
    table = timetable([(FRONT, BACK)] * 3, MEMBERS, CYCLES.__getitem__, 1)
    assert (table.slots, table.cycles) == ((0, 0, 0), 90)


def test_inferences_on_one_accelerator_need_no_place() -> None:
    table = timetable([(ALL,)] * 2, [[0], [1, 2]], CYCLES.__getitem__, 1)
    assert [visit.accelerator for visit in table.visits] == [1, 2]
    assert table.cycles == 25


def test_routes_are_mixed_where_that_is_faster() -> None:
    cycles = {FRONT: 20.0, BACK: 20.0, ALL: 25.0, Leg(0, 2, 0): 100.0}
    table = dealt([(FRONT, BACK), (ALL,), (Leg(0, 2, 0),)], 4, MEMBERS, cycles.__getitem__)
    # All in two legs: 20 + 4 * 20. One on the second accelerator alone begins at once: 25 + 3 * 20.
    assert table.cycles == 85
    assert [visit.leg for visit in table.visits].count(ALL) == 1
    assert max(table.slots) == 1
