"""Neighbours on the array and on the vector unit run beside each other, in an order that changes no result."""

from itertools import combinations

import numpy as np
import pytest

from dovetail.isa.config.resolved import Config
from dovetail.isa.instructions.table import Op, Unit
from dovetail.sw.compiler.emit.beside import Order
from dovetail.sw.compiler.emit.operations import Compute, Form, Task, Transfer
from dovetail.sw.random.networks import RandomNet
from dovetail.sw.runtime.compiled_network import CompiledNetwork, compile_network
from tests.sw.compiler.test_scheduling import MEGABYTE, SMALL, WIDE, check

BANK = SMALL.bank_bytes


def compute(unit: Unit, read: int, write: int, cycles: int = 64) -> Compute:
    """One that takes about so many cycles."""
    registers = {"IN_ADDR": read, "IN_BYTES": 64, "OUT_ADDR": write, "OUT_BYTES": 64, "IN_ROWS": 1, "ROW_BYTES": 64}
    registers |= {"GEOMETRY": 0x01010101, "TILE": 0x10000 | cycles, "BLOCKS": 0x00010001}
    if unit == Unit.ARRAY:
        registers |= {"KC": 1, "STRIPE": 1}
    op = Op.CONV if unit == Unit.ARRAY else Op.MOV
    return Compute(Form(unit, op, registers), (), ((read, 64),), (write, 64))


def ordered(before: list[Task], tasks: list[Task]) -> list[Task]:
    order = Order(SMALL)
    found = [*order.follow(before, beside=False), *order.follow(tasks, beside=True), *order.rest()]
    assert len(found) == len(before) + len(tasks)
    return found


def test_tasks_alternate_where_nothing_is_against_it() -> None:
    """The pooling of a tile goes before the tile behind the next one."""
    first = [Task(0, [], [compute(Unit.ARRAY, 0, BANK + 512 * n)]) for n in range(4)]
    second = [Task(1, [], [compute(Unit.VECTOR, BANK + 512 * n, 2 * BANK + 512 * n)]) for n in range(4)]
    assert [task.layer for task in ordered(first, second)][:3] == [0, 0, 1]


def test_a_task_does_not_overtake_what_it_reads_or_overwrites() -> None:
    reads = Task(0, [], [compute(Unit.ARRAY, 0, BANK)])
    loads = Task(1, [Transfer(0, 32, 64)], [compute(Unit.VECTOR, 2 * BANK, 3 * BANK)])
    assert ordered([reads], [loads])[0] is reads
    stores = Task(0, [], [compute(Unit.ARRAY, 0, BANK)], [Transfer(4096, BANK, 64)])
    loads = Task(1, [Transfer(4100, 2 * BANK, 64)], [compute(Unit.VECTOR, 2 * BANK, 3 * BANK)])
    assert ordered([stores], [loads])[0] is stores


def test_a_task_does_not_overtake_one_that_needs_the_same_port() -> None:
    """Different bytes of one bank, both written: the units would wait for each other."""
    first = [Task(0, [], [compute(Unit.ARRAY, 0, BANK + 64 * n)]) for n in range(4)]
    second = [Task(1, [], [compute(Unit.VECTOR, 2 * BANK, BANK + 512)])]
    assert [task.layer for task in ordered(first, second)] == [0, 0, 0, 0, 1]


@pytest.mark.parametrize("seed", range(20))
def test_whatever_meets_keeps_its_order(seed: int) -> None:
    rng = np.random.default_rng(seed)

    def task(layer: int) -> Task:
        cells = rng.integers(0, 40, 6) * 48
        computes = [compute(rng.choice([Unit.ARRAY, Unit.VECTOR]), int(cells[0]), int(cells[1]) + 4 * BANK)]
        loads = [Transfer(int(cells[2]), int(cells[3]), 64)] if rng.random() < 0.3 else []
        stores = [Transfer(int(cells[4]), int(cells[5]) + 4 * BANK, 64)] if rng.random() < 0.3 else []
        return Task(layer, loads, computes, stores)

    def touched(task: Task) -> tuple[set[tuple[str, int]], set[tuple[str, int]]]:
        """Every byte read, and every byte written."""
        reads, writes = set[tuple[str, int]](), set[tuple[str, int]]()
        for one in task.computes:
            reads |= {("sram", at) for first, size in one.reads for at in range(first, first + size)}
            writes |= {("sram", at) for at in range(one.write[0], sum(one.write))}
        for transfers, memory, sram in ((task.loads, reads, writes), (task.stores, writes, reads)):
            for moved in transfers:
                memory |= {("memory", at) for at in range(moved.memory, moved.memory + moved.length)}
                sram |= {("sram", at) for at in range(moved.sram, moved.sram + moved.length)}
        return reads, writes

    before, tasks = ([task(layer) for _ in range(12)] for layer in range(2))
    place = {id(task): n for n, task in enumerate(ordered(before, tasks))}
    for one, other in combinations([*before, *tasks], 2):
        (reads, writes), (later_reads, later_writes) = touched(one), touched(other)
        if one.layer == other.layer or writes & (later_reads | later_writes) or reads & later_writes:
            assert place[id(one)] < place[id(other)]


# --- networks ---------------------------------------------------------------------------------------------------


def times(compiled: CompiledNetwork, layer: int, unit: Unit) -> tuple[int, int]:
    """The first and the last cycle of a layer on a unit."""
    (timeline,), (segment,) = compiled.report().timeline, compiled.code.segments
    number = np.array([segment.layers.get(int(pc), -1) for pc in timeline.pc])
    which = (number == layer) & (timeline.unit == unit) & ~timeline.is_fetch
    return int(timeline.start[which].min()), int(timeline.end[which].max())


@pytest.mark.parametrize("config", [SMALL, MEGABYTE, WIDE, Config(sram="32 KiB")])
def test_pooling_runs_beside_the_convolutions_around_it(config: Config) -> None:
    net = RandomNet(6)
    x = net.conv(net.input(1, 40, 40, 8), 16)
    x = net.average(x, (3, 3), (2, 2), (1, 1, 1, 1))
    compiled = compile_network(net.graph(net.conv(x, 24)), config)
    check(compiled)
    first, units = len(compiled.code.layers) - 3, (Unit.ARRAY, Unit.VECTOR, Unit.ARRAY)  # behind im2col
    before, pool, behind = (times(compiled, first + n, unit) for n, unit in enumerate(units))
    if config.banks > 4:
        assert pool[0] < before[1]
    if config.sram > SMALL.sram:
        assert behind[0] < pool[1]


def test_a_convolution_runs_beside_the_sum_before_it() -> None:
    net = RandomNet(7)
    start = net.conv(net.input(1, 16, 16, 16), 32, size=1)
    x = net.elementwise("ADD", start, net.conv(start, 32, size=1))
    compiled = compile_network(net.graph(net.conv(x, 32)), WIDE)
    check(compiled)
    assert times(compiled, 3, Unit.ARRAY)[0] < times(compiled, 2, Unit.VECTOR)[1]


def test_a_sum_runs_beside_the_operand_that_is_made_first() -> None:
    """A small shortcut behind the block's last convolution: the sum begins as soon as there are rows of both."""
    net = RandomNet(8)
    start = net.conv(net.input(1, 16, 16, 16), 32, size=1)
    x = net.elementwise("ADD", net.conv(start, 32), net.conv(start, 32, size=1))
    compiled = compile_network(net.graph(net.conv(x, 32)), WIDE.replace(vector_lanes=4))
    check(compiled)
    assert times(compiled, 3, Unit.VECTOR)[0] < times(compiled, 1, Unit.ARRAY)[1]


@pytest.mark.parametrize("config", [SMALL, MEGABYTE, WIDE, Config(sram="32 KiB")])
@pytest.mark.parametrize("kind", ["average", "maximum"])
def test_pooling_over_the_plane_follows_channel_by_channel(config: Config, kind: str) -> None:
    net = RandomNet(9)
    x = net.conv(net.input(1, 8, 7, 16), 64)
    kernel, pads = (8, 7), (0, 0, 0, 0)
    x = net.average(x, kernel, (1, 1), pads) if kind == "average" else net.maximum(x, kernel, pads)
    compiled = compile_network(net.graph(net.conv(x, 10, size=1)), config)
    check(compiled)
    assert times(compiled, 1, Unit.VECTOR)[0] < times(compiled, 0, Unit.ARRAY)[1]


def test_pooling_of_a_plane_that_others_read_too() -> None:
    net = RandomNet(10)
    x = net.conv(net.input(1, 8, 7, 16), 64)
    pooled = net.average(x, (8, 7), (1, 1), (0, 0, 0, 0))
    check(compile_network(net.graph(net.elementwise("MULTIPLY", x, pooled)), MEGABYTE))
