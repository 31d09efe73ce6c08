"""The interconnect: every handshake in the cycle that the rule says, and everything arrives where it belongs."""

import random

import pytest

from dovetail.hw.system.interconnect import Interconnect, Manager
from dovetail.hw.system.width import Widener
from tests.hw.benches import simulate
from tests.hw.netlist import Netlist
from tests.hw.system.traffic import Bench, draw, predicted

CASES = {
    "one": ([Manager(32, 2)], None),
    "two": ([Manager(32, 1), Manager(32, 3)], None),
    "three, mixed": ([Manager(32, 2), Manager(128, 1), Manager(64, 4)], None),
    "five, wider memory": ([Manager(32, 2)] * 5, 64),
    "sixteen": ([Manager(32, 2)] * 16, None),
}


@pytest.mark.parametrize("busy", [False, True], ids=["random", "busy"])
@pytest.mark.parametrize("case", CASES)
def test_every_handshake_is_where_the_rule_says(case: str, busy: bool) -> None:
    managers, bus = CASES[case]
    interconnect = Interconnect(managers, bus=bus)
    rng = random.Random(f"{case} {busy}")
    count = 96 // len(managers) if len(managers) > 2 else 40
    reads, writes = (draw(rng, interconnect.managers, count, writes=way, busy=busy) for way in (False, True))
    bench = Bench(interconnect, reads, writes)
    simulate(interconnect, bench.finish, background=tuple(bench.processes()))
    for record, direction, way in ((bench.read, reads, False), (bench.write, writes, True)):
        expected = predicted(interconnect, direction, writes=way)
        assert vars(record) == vars(expected)


def test_no_input_leads_to_an_output() -> None:
    """Outputs to memory are registers. A manager's come from registers alone, through a choice of lanes at most."""
    netlist = Netlist(Interconnect([Manager(32, 2), Manager(64, 2), Manager(32, 1)]))
    outputs = list(netlist.outputs())
    assert sorted(name for name, bit in outputs if netlist.reached_by_inputs(bit)) == []
    loose = {name for name, bit in outputs if not netlist.from_register(bit)}
    assert sorted(name for name in loose if name.startswith("memory_")) == []


def test_construction() -> None:
    with pytest.raises(ValueError, match=r"^managers must be 1\.\.16, not 0$"):
        Interconnect([])
    with pytest.raises(ValueError, match=r"^managers must be 1\.\.16, not 17$"):
        Interconnect([Manager(32, 1)] * 17)
    with pytest.raises(ValueError, match=r"^bus must be at least that of the widest manager, 128, not 64$"):
        Interconnect([Manager(32, 1), Manager(128, 1)], bus=64)
    with pytest.raises(ValueError, match=r"^AXI data width must be a power of two of at least 32 bits, not 48$"):
        Interconnect([Manager(48, 1)])
    with pytest.raises(ValueError, match=r"^narrow must be less than wide, 64, not 64$"):
        Widener(64, 64, outstanding=1)
