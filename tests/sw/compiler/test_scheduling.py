"""What stays in SRAM, what is loaded ahead, what runs side by side; and the cycles that come of it."""

from dataclasses import replace
from weakref import WeakKeyDictionary

import numpy as np
import pytest

from dovetail.isa.config.resolved import Config
from dovetail.isa.instructions.table import Op, Unit
from dovetail.isa.timing.run import time_program
from dovetail.sw.compiler import draft, search
from dovetail.sw.compiler.emit.arena import Arena, Room
from dovetail.sw.compiler.emit.hazards import races
from dovetail.sw.compiler.emit.operations import Compute, Form, Task, Transfer
from dovetail.sw.compiler.emit.words import Emitter
from dovetail.sw.compiler.options import Options
from dovetail.sw.compiler.partition.outline import partition
from dovetail.sw.compiler.plan.residency import Plan, Work
from dovetail.sw.network import reference
from dovetail.sw.random.networks import RandomNet, random_network
from dovetail.sw.runtime.compiled_network import CompiledNetwork, compile_network
from tests.slow import slow

MEGABYTE = Config(ic_lanes=8, oc_lanes=8, sram="1 MiB")
WIDE = Config(ic_lanes=16, oc_lanes=16, sram="1 MiB", bus=128)
SMALL = Config(ic_lanes=8, oc_lanes=8, sram="64 KiB")
BUSY = Config(
    ic_lanes=16, oc_lanes=32, pixel_lanes=2, sram="1 MiB", banks=32, bus=256, requant_lanes=64, vector_lanes=32
)
"""1,024 multipliers that are busy for three quarters of MobileNetV2."""


def check(compiled: CompiledNetwork) -> None:
    """The model's outputs equal the interpreter's, and nothing races."""
    rng = np.random.default_rng(3)
    inputs = {port.name: rng.integers(-128, 128, port.shape).astype(np.int8) for port in compiled.graph.inputs}
    result = compiled.run(inputs)
    for name, value in reference.run(compiled.graph, inputs).items():
        np.testing.assert_array_equal(result.outputs[name], value)
    assert result.cycles == compiled.report().cycles
    assert not any(races(timeline) for timeline in result.timeline)


def chain(net: RandomNet, size: int) -> str:
    x = net.conv(net.input(1, size, size, 8), 16)
    x = net.conv(x, 0, multiplier=1)
    return net.conv(x, 24, size=1)


def residual(net: RandomNet, size: int) -> str:
    """A sum with the block's input, and one with a shortcut that comes after the other operand."""
    start = net.conv(net.input(1, size, size, 8), 16)
    x = net.elementwise("ADD", start, net.conv(net.conv(start, 16), 16))
    y = net.conv(x, 24)
    return net.rescale(net.elementwise("SUBTRACT", y, net.conv(x, 24, size=1)))


# --- residents --------------------------------------------------------------------------------------------------


def test_a_chain_moves_its_input_its_weights_and_its_output_only() -> None:
    net = RandomNet(1)
    compiled = compile_network(net.graph(chain(net, 12)), SMALL)
    check(compiled)
    first, second, third = compiled.code.layers
    weights = [packed for _, packed in compiled.code.packers]
    assert [layer.moved_bytes for layer in (first, second, third)] == [
        12 * 12 * 8 + weights[0]().size,
        weights[1]().size,
        weights[2]().size + 12 * 12 * 24,
    ]
    names = {node.outputs[0] for node in compiled.graph.nodes[:2]}
    assert not names & set(compiled.code.where)
    assert not names & set(compiled.run({"t0": np.zeros((1, 12, 12, 8), np.int8)}).tensors)


def test_kept_tensors_are_in_system_memory() -> None:
    net = RandomNet(1)
    compiled = compile_network(net.graph(chain(net, 12)), SMALL, keep_tensors=True)
    assert set(compiled.code.where) == set(compiled.graph.tensors)
    moved = sum(layer.moved_bytes for layer in compiled.code.layers)
    assert moved >= sum(layer.least_bytes for layer in compiled.code.layers)


def test_what_others_read_is_stored_too() -> None:
    net = RandomNet(1)
    x = net.conv(net.input(1, 12, 12, 8), 16)
    compiled = compile_network(net.graph(net.conv(x, 8), x), SMALL)
    check(compiled)
    assert {port.tensor for port in compiled.graph.outputs} <= set(compiled.code.where)
    assert compiled.code.layers[1].moved_bytes < compiled.code.layers[1].least_bytes


def test_concatenated_and_turned_tensors_stay() -> None:
    """Parts are written in place, pixels apart; a slice and a transpose are copied within SRAM."""
    net = RandomNet(2)
    x = net.conv(net.input(1, 9, 9, 8), 16)
    parts = [net.conv(x, 8), net.average(x, (3, 3), (1, 1), (1, 1, 1, 1)), net.table(x)]
    y = net.concat(3, *parts)
    z = net.slice(y, slice(None), slice(1, 8), slice(None), slice(4, 36))
    compiled = compile_network(net.graph(net.conv(net.transpose(z, (0, 2, 1, 3)), 8)), MEGABYTE)
    check(compiled)
    assert set(compiled.code.where) == {"t0", compiled.graph.outputs[0].tensor}
    codes = [compiled.code.segments[0].words[at] & 0xFF for at in compiled.code.segments[0].layers]
    assert codes.count(Op.MOV) == 2


def test_the_tensor_that_saves_most_stays() -> None:
    """Two of three banks' worth each: of two in a row only one can stay, the one whose reader waits for its loads."""
    works = [
        Work(("in",), "a", None, 90000, 0),
        Work(("a",), "b", None, 90000, 0),
        Work(("b",), "c", None, 10, 0),
    ]
    sizes = {"in": 4096, "a": 10 * 4096, "b": 10 * 4096, "c": 4096}
    plan = Plan(SMALL, works, sizes, {"c"})
    assert plan.residents.keys() == {"b"}
    assert (plan.residents["b"].begin, plan.residents["b"].end) == (1, 2)
    assert plan.space(2).input_at == plan.residents["b"].bank * SMALL.bank_bytes
    assert sum(banks for _, banks in plan.space(2).free) == 6
    assert not Plan(SMALL, works, sizes, {"c"}, enabled=False).residents


def test_tensors_that_no_longer_live_make_room() -> None:
    works = [Work((f"t{n}",), f"t{n + 1}", None, 10000, 0) for n in range(6)]
    plan = Plan(SMALL, works, {f"t{n}": 6 * 4096 for n in range(7)}, {"t6"})
    assert plan.residents.keys() == {"t1", "t2", "t3", "t4", "t5"}
    for number in range(1, 5):
        one, two = plan.residents[f"t{number}"], plan.residents[f"t{number + 1}"]
        assert one.bank + one.banks <= two.bank or two.bank + two.banks <= one.bank


def test_tensors_move_to_make_room() -> None:
    """There are always five banks for ``d``, but not the same ones until another tensor moves."""
    makes = ("in", "a"), ("a", "b"), ("b", "p"), ("p", "e1"), ("e1", "d"), ("p", "e2"), ("e2", "o")
    works = [Work((source,), made, None, 9000, 0) for source, made in makes]
    works[-1] = replace(works[-1], reads=("e2", "d"))
    sizes = dict.fromkeys(("in", "o"), 4096) | dict.fromkeys(("a", "b", "p", "e1", "e2"), 4 * 4096) | {"d": 5 * 4096}
    as_they_come, moved = (Plan(SMALL, works, sizes, {"o"}, moves=moves) for moves in (False, True))
    assert as_they_come.residents.keys() == {"a", "b", "p", "e1", "e2"} and as_they_come.crowded
    assert moved.residents.keys() == {"a", "b", "p", "e1", "e2", "d"}
    for number in range(len(works)):
        banks = [
            k for one in moved.residents.values() if number in one.steps for k in range(one.bank, one.bank + one.banks)
        ]
        assert len(banks) == len(set(banks)) == SMALL.banks - moved.free(number) // SMALL.bank_bytes


def test_a_tensor_keeps_off_what_a_sum_still_reads() -> None:
    """The array makes ``d`` while the vector unit adds ``a`` to the last tile of what comes of ``b``."""
    makes = ("in", "a"), ("a", "b"), ("b", "c"), ("c", "d"), ("d", "o")
    works = [Work((source,), made, None, 9000, 0) for source, made in makes]
    works[2] = replace(works[2], reads=("b", "a"), operand="a")
    for moves in (False, True):
        plan = Plan(SMALL, works, dict.fromkeys(("in", "a", "b", "c", "d", "o"), 4 * 4096), {"o"}, moves=moves)
        assert plan.residents.keys() == {"a", "b", "c", "d"} and plan.crowded != moves
        assert (plan.residents["a"].mask & plan.residents["d"].mask == 0) == moves


# --- side by side -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("config", "size"), [(SMALL, 8), (SMALL, 30), (MEGABYTE, 30), (Config(sram="32 KiB"), 40)])
def test_sums_follow_the_convolution_tile_by_tile(config: Config, size: int) -> None:
    """Whatever is resident: the other operand, the result, both or neither."""
    net = RandomNet(4)
    compiled = compile_network(net.graph(residual(net, size)), config)
    check(compiled)
    names = [layer.name for layer in compiled.code.layers]
    assert names == ["n0", "n1", "n2", "n3", "n4", "n5", "n6", "n7"]
    followed = {node.inputs[1] for node in compiled.graph.nodes if node.op in ("add", "subtract")}
    assert not followed & set(compiled.code.where)


def test_a_table_follows_a_convolution() -> None:
    net = RandomNet(5)
    compiled = compile_network(net.graph(net.table(net.conv(net.input(1, 30, 30, 8), 24))), SMALL)
    check(compiled)
    (timeline,) = compiled.report().timeline
    table = timeline.op == Op.ACT_LUT
    array = timeline.op == Op.CONV_RELU
    assert table.sum() > 2
    assert timeline.start[table].min() < timeline.end[array].max()


def test_a_result_that_two_read_is_not_passed_on_tile_by_tile() -> None:
    net = RandomNet(5)
    x = net.conv(net.input(1, 10, 10, 8), 8)
    compiled = compile_network(net.graph(net.elementwise("ADD", net.table(x), net.conv(x, 8))), SMALL)
    check(compiled)


# --- loads ahead ------------------------------------------------------------------------------------------------


def test_weights_of_the_next_layers_come_beside_the_computation() -> None:
    net = RandomNet(1)
    compiled = compile_network(net.graph(chain(net, 24)), MEGABYTE)
    (timeline,), (segment,) = compiled.report().timeline, compiled.code.segments
    layer = np.array([segment.layers.get(int(pc), -1) for pc in timeline.pc])
    second = timeline.start[(timeline.unit == Unit.ARRAY) & (layer == 1)].min()
    assert timeline.start[(timeline.op == Op.DMA_READ) & (layer == 2)].max() < second


def test_a_load_waits_for_what_it_replaces_only() -> None:
    """Two loads of a later task: one overwrites what an earlier one reads, the other does not."""

    def compute(read: int, write: int) -> Compute:
        registers = {"IN_ADDR": read, "IN_BYTES": 64, "OUT_ADDR": write, "OUT_BYTES": 64, "IN_ROWS": 1, "ROW_BYTES": 64}
        registers |= {"GEOMETRY": 0x01010101, "TILE": 0x00010001, "BLOCKS": 0x00100010}
        return Compute(Form(Unit.VECTOR, Op.MOV, registers), (), ((read, 64),), (write, 64))

    emitter = Emitter(SMALL)
    first = Task(0, [Transfer(0, 0, 64)], [compute(0, 8192)])
    second = Task(1, [Transfer(4096, 16384, 64), Transfer(8192, 0, 64)], [compute(0, 24576)])
    emitter.add([first, second])
    assert [(load.after, load.due) for load in emitter._loads] == [(0, 0), (0, 1), (1, 1)]


@pytest.mark.parametrize("seed", range(12))
def test_the_clock_tells_the_cycles_of_the_program(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    emitters: list[Emitter] = []
    original = Emitter.end

    def end(self: Emitter, limit: int | None = None, **options: bool) -> bool:
        emitters.append(self)
        return original(self, limit, **options)

    monkeypatch.setattr(Emitter, "end", end)
    code = compile_network(random_network(seed, 6), Config(sram="64 KiB")).code
    for segment in code.segments:
        (emitter,) = [emitter for emitter in emitters if emitter.words is segment.words]
        assert emitter.cycles == time_program(code.config, segment.words, address=segment.address).cycles


@pytest.mark.parametrize("seed", range(6))
def test_a_plan_is_given_up_only_if_it_takes_more_cycles(seed: int) -> None:
    config = Config(ic_lanes=8, oc_lanes=8, sram="64 KiB")
    outline = partition(random_network(seed, 12), config, Options())
    for way in search._ways(outline):
        cycles = draft.Draft(outline, way).cycles({}, None)
        assert cycles is not None
        for limit in (cycles, cycles + 1, cycles * 2):
            assert draft.Draft(outline, way).cycles({}, limit) == cycles
        for limit in (cycles - 1, cycles // 2):
            assert draft.Draft(outline, way).cycles({}, limit) is None


# --- room -------------------------------------------------------------------------------------------------------


def test_room_is_taken_where_it_was_out_of_use_for_longest() -> None:
    arena = Arena(SMALL)  # banks of 4 KiB, cells of 256 bytes
    arena.touch((0, 3 * 4096), 9)
    arena.touch((3 * 4096, 4096), 4)
    arena.touch((4 * 4096, 2 * 4096), 7)
    assert arena.touched((4096, 1)) == 9
    assert arena.banks(((0, 6),), 1) == (3, ((0, 3), (4, 2)))
    assert arena.banks(((0, 6),), 3) == (3, ((0, 3),))
    assert arena.banks(((0, 2), (4, 2)), 3) is None
    assert arena.slots(((0, 6),), 2048, 5) == [3 * 4096, 3 * 4096 + 2048, 4 * 4096, 4 * 4096 + 2048, 5 * 4096]
    assert arena.slots(((0, 1),), 3000, 5) == [0]
    assert arena.slots(((0, 1),), 5000, 5) == []


def test_operands_and_results_have_banks_of_their_own() -> None:
    arena = Arena(SMALL)
    room = Room(SMALL, arena, ((0, 6),), operands=True, results=True)
    assert (room.operands, room.results) == (3 * 4096, 3 * 4096)
    assert room.place(4096, 4096) == (0, 4096)
    room = Room(SMALL, arena, ((0, 6), (8, 4)), operands=True, results=True)
    assert (room.operands, room.results) == (6 * 4096, 4 * 4096)
    room = Room(SMALL, arena, ((0, 6),), operands=False, results=True)
    assert (room.operands, room.results) == (0, 6 * 4096)


# --- cycles -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("network", "config", "cycles", "limit"),
    [
        ("mobilenet_v1", MEGABYTE, 9_374_733, 1.1),
        ("mobilenet_v1", WIDE, 2_422_515, 1.22),
        ("mobilenet_v2", BUSY, 391_535, 1.34),
        ("resnet8", SMALL, 204_459, 1.08),
        slow("resnet50", MEGABYTE, 64_448_672, 1.08),
        slow("resnet50", WIDE, 16_312_916, 1.2),
    ],
    ids=lambda value: str(value.ic_lanes) if isinstance(value, Config) else None,
)
def test_networks_come_close_to_the_roofline(network: str, config: Config, cycles: int, limit: float) -> None:
    report = compile_network(f"zoo:{network}", config).report()
    assert report.cycles == cycles
    assert report.over_bound <= limit


@pytest.mark.parametrize("seed", range(12))
def test_operations_that_are_sure_to_come(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """A program is given up before its end only while so many are to come that its clock is exact."""
    promised = WeakKeyDictionary[Emitter, list[int]]()
    advance, end = Emitter.advance, Emitter.end

    def count(emitter: Emitter) -> int:
        return len(emitter._operations) + len(emitter._loads)

    def promise(emitter: Emitter, limit: int | None, *, rest: int = 0, more: int = 0, alone: bool = False) -> bool:
        promised.setdefault(emitter, []).append(count(emitter) + more)
        return advance(emitter, limit, rest=rest, more=more, alone=alone)

    def check_promises(emitter: Emitter, limit: int | None = None, *, alone: bool = False) -> bool:
        assert max(promised.get(emitter, [0])) <= count(emitter)
        checked.append(count(emitter))
        return end(emitter, limit, alone=alone)

    checked: list[int] = []
    monkeypatch.setattr(Emitter, "advance", promise)
    monkeypatch.setattr(Emitter, "end", check_promises)
    compile_network(random_network(seed, 6), (SMALL, WIDE)[seed % 2].replace(sram="32 KiB", banks=None))
    assert checked


@pytest.mark.parametrize("seed", [slow(seed) if seed > 5 else seed for seed in range(12)])
def test_no_program_takes_fewer_cycles_than_the_least(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """What a program is given up by, of networks with more weights than SRAM: layers alone, with sums and pooling
    beside them, and behind a plane that shrinks to a pixel."""
    least = WeakKeyDictionary[Emitter, int]()
    ended: list[tuple[int, int]] = []
    advance, end = Emitter.advance, Emitter.end

    def noted(emitter: Emitter, limit: int | None, *, rest: int = 0, more: int = 0, alone: bool = False) -> bool:
        if alone:  # the price of a layer
            return advance(emitter, limit, rest=rest, more=more, alone=alone)
        now = emitter.clock.free[Unit.ARRAY] + emitter.array_cycles + rest
        least[emitter] = max(now, least.get(emitter, 0))
        return advance(emitter, None, rest=rest, more=more)

    def at_the_end(emitter: Emitter, limit: int | None = None, *, alone: bool = False) -> bool:
        if alone:
            return end(emitter, limit, alone=alone)
        end(emitter)
        ended.append((least[emitter], emitter.cycles))
        return limit is None or emitter.cycles <= limit

    monkeypatch.setattr(Emitter, "advance", noted)
    monkeypatch.setattr(Emitter, "end", at_the_end)
    rng, net = np.random.default_rng(seed), RandomNet(seed)
    x = net.input(1, 6, 6, int(rng.integers(1, 40)))
    for _ in range(3):
        x = net.conv(x, int(rng.integers(60, 200)), int(rng.integers(1, 4)))
        x = net.elementwise("ADD", x, net.conv(x, net.shape(x)[3], 3)) if rng.random() < 0.5 else x
        x = net.average(x, (2, 2), (1, 1), (0, 0, 1, 1)) if rng.random() < 0.5 else x
    x = net.conv(net.average(x, (6, 6), (1, 1), (0, 0, 0, 0)), int(rng.integers(100, 400)), 1)
    config = Config(ic_lanes=8, oc_lanes=8, sram=("32 KiB", "64 KiB")[seed % 2], bus=(32, 64)[seed // 2 % 2])
    compile_network(net.graph(x), config, effort=seed % 2)
    assert ended
    assert all(one <= cycles for one, cycles in ended)


@pytest.mark.parametrize("memory", [{"kind": "sdram"}, {"kind": "dram", "preset": "ddr3-1600-x16"}])
def test_memory_with_rows_is_planned_with_as_a_fixed_one_like_it(memory: dict[str, str]) -> None:
    """Also where plans of smaller memories are given up by the bus."""
    net = RandomNet(1)
    graph = net.graph(net.conv(net.conv(net.input(1, 6, 6, 40), 200, 3), 100, 1))
    config = Config(ic_lanes=8, oc_lanes=8, sram="64 KiB", memory=memory)
    fixed = config.replace(memory=config.like_fixed)
    one, other = (compile_network(graph, some, effort=0).code for some in (config, fixed))
    assert [list(segment.words) for segment in one.segments] == [list(segment.words) for segment in other.segments]
