"""The history of a run against the counters, a word-by-word account of SRAM, and the trace viewer's format."""

import json
from collections import defaultdict
from functools import lru_cache
from itertools import pairwise
from typing import Any

import numpy as np
import pytest

from dovetail.isa.common.sizes import ceil_div
from dovetail.isa.config.resolved import Config
from dovetail.isa.instructions.checks import View, regions
from dovetail.isa.instructions.table import Op, Unit
from dovetail.sw.analysis.chrome_trace import LAYERS, PROCESS, UNITS, chrome_trace
from dovetail.sw.analysis.history import History, history, levels
from dovetail.sw.runtime.compiled_network import CompiledNetwork, compile_network

NETWORKS = ("zoo:dscnn", "zoo:attention_block", "zoo:mobilenet_v2_block")


@lru_cache
def compiled(network: str) -> CompiledNetwork:
    return compile_network(network, Config(sram="64 KiB"), effort=0)


@lru_cache
def history_of(network: str) -> History:
    return history(compiled(network))


@lru_cache
def trace_of(network: str) -> dict[str, Any]:
    trace: dict[str, Any] = json.loads(chrome_trace(history_of(network)))
    return trace


@pytest.mark.parametrize("network", NETWORKS)
def test_operations_and_waits_add_up_to_the_counters(network: str) -> None:
    run, report = history_of(network), compiled(network).report()
    assert run.cycles == report.cycles
    for unit, counters in report.counters.items():
        assert sum(event.end - event.start for event in run.events if event.unit == unit) == counters.busy
        assert sum(wait.end - wait.start for wait in run.waits if wait.unit == unit) == counters.token


@pytest.mark.parametrize("network", NETWORKS)
def test_what_crosses_the_bus_is_what_the_layers_moved(network: str) -> None:
    operations = [event for event in history_of(network).events if event.layer is not None]
    assert sum(event.moved for event in operations) == compiled(network).report().moved_bytes


def test_layers_follow_one_another_without_gaps() -> None:
    run = history_of("zoo:dscnn")
    assert [layer.start for layer in run.layers] == [0, *(layer.end for layer in run.layers[:-1])]
    assert run.layers[-1].end == run.cycles


@pytest.mark.parametrize("network", NETWORKS)
def test_lives_are_those_of_every_single_word(network: str) -> None:
    net = compiled(network)
    word, offset = net.config.word_bytes, 0
    expected: dict[int, list[tuple[int, int]]] = defaultdict(list)  # per word the cycles of each of its lives
    for run in net.report().timeline:
        open_: dict[int, tuple[int, int]] = {}
        for _, element in sorted((int(start), n) for n, start in enumerate(run.start) if run.op[n]):
            start, end = int(run.start[element]) + offset, int(run.end[element]) + 1 + offset
            claimed = regions(Op(int(run.op[element])), View(Unit(int(run.unit[element])), run.registers[element]))
            for address, size in claimed.reads:
                for n in range(address // word, ceil_div(address + size, word)):
                    if n in open_:
                        open_[n] = open_[n][0], end
            for address, size in claimed.writes:
                for n in range(address // word, ceil_div(address + size, word)):
                    if n in open_ and open_[n][1]:
                        expected[n].append(open_[n])
                    open_[n] = start, 0
        for n, last in open_.items():
            if last[1]:
                expected[n].append(last)
        offset += run.cycles
    found: dict[int, list[tuple[int, int]]] = defaultdict(list)
    for life in history_of(network).lives:
        for n in range(life.address // word, (life.address + life.size) // word):
            found[n].append((life.start, life.end))
    assert found == expected


def test_roles_say_what_sram_holds() -> None:
    roles = {life.role for life in history_of("zoo:attention_block").lives}
    assert {"weights", "tensors loaded", "results"} <= roles
    weights = sum(life.size for life in history_of("zoo:dscnn").lives if life.role == "weights")
    assert weights >= 22_000  # of the network's 23,756 int8 weights and biases, streams padded to lanes


def test_levels_add_up_what_overlaps() -> None:
    assert levels([(0, 10, 5), (5, 10, 1), (10, 12, 6), (20, 21, 3)]) == ((0, 5), (5, 6), (12, 0), (20, 3), (21, 0))
    assert levels([]) == ()


@pytest.mark.parametrize("clock", [None, 187e6])
@pytest.mark.parametrize("network", NETWORKS)
def test_slices_of_a_thread_do_not_overlap(network: str, clock: float | None) -> None:
    """In nanoseconds, in which Perfetto counts."""
    threads: dict[int, list[tuple[int, int]]] = defaultdict(list)
    for event in json.loads(chrome_trace(history_of(network), clock))["traceEvents"]:
        if event["ph"] == "X":
            start, length = round(1000 * event["ts"]), round(1000 * event["dur"])
            assert (start / 1000, length / 1000) == (event["ts"], event["dur"])
            threads[event["tid"]].append((start, start + length))
    assert set(threads) == {*(UNITS + unit for unit in Unit), LAYERS}
    assert PROCESS not in threads  # Perfetto takes such a thread for the main one
    for slices in threads.values():
        slices.sort()
        assert all(end <= start for (_, end), (start, _) in pairwise(slices))


def test_trace_events_have_the_members_that_the_format_asks_for() -> None:
    trace = trace_of("zoo:dscnn")
    members = {
        "X": {"name", "cat", "ph", "ts", "dur", "pid", "tid", "args"},
        "C": {"name", "ph", "ts", "pid", "args"},
        "M": {"name", "ph", "pid", "args"},
    }
    for event in trace["traceEvents"]:
        assert members[event["ph"]] <= event.keys() <= members[event["ph"]] | {"tid"}
        if event["ph"] == "C":
            assert all(isinstance(value, int) for value in event["args"].values())
    names = {e["args"]["name"] for e in trace["traceEvents"] if e["name"] == "thread_name"}
    assert names == {"layers", *(unit.name for unit in Unit)}
    assert trace["displayTimeUnit"] == "ns"


def test_trace_durations_are_the_counters_at_any_clock() -> None:
    run = history_of("zoo:dscnn")
    busy = compiled("zoo:dscnn").report().counters[Unit.ARRAY].busy
    for clock, scale in ((None, 1.0), (250e6, 1 / 250)):
        events = json.loads(chrome_trace(run, clock))["traceEvents"]
        array = [e for e in events if e["ph"] == "X" and e["tid"] == UNITS + Unit.ARRAY]
        mine = [e["dur"] for e in array if e["cat"] == "operation"]
        assert sum(mine) == pytest.approx(busy * scale, abs=1e-3 * len(mine) if clock else 0)


def test_a_run_of_the_model_has_the_history_of_the_timing_rules() -> None:
    net = compiled("zoo:dscnn")
    (port,) = net.graph.inputs
    result = net.run(np.ones(port.shape, port.dtype))
    assert history(net, result.timeline) == history_of("zoo:dscnn")
