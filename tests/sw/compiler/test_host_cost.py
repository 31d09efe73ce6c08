"""What the host costs: the table of a user, and the cycles that reports count."""

from __future__ import annotations

import re
from dataclasses import asdict, replace
from pathlib import Path

import pytest

from dovetail.isa.config.resolved import Config
from dovetail.sw.compiler.options import Options
from dovetail.sw.compiler.partition.host_cost import (
    DEFAULT,
    LOADS,
    NEEDED,
    HostCost,
    OperatorCost,
    default_host,
    hosts,
    load_host_cost,
)
from dovetail.sw.errors import CompileError
from dovetail.sw.network import ir
from dovetail.sw.runtime.clock import frequency_text, rate_text, time_text
from dovetail.sw.runtime.compiled_network import compile_network
from dovetail.sw.runtime.saved_program import load_program

CONFIG = Config(ic_lanes=8, oc_lanes=8, sram="64 KiB")
TABLE = """
name = "Cortex"
error = "within 20 %"
clock = 50e6
round_trip = 900
macs_per_cycle = 8
values_per_cycle = 0.25
[operators.softmax]
values_per_cycle = 0.5
"""
PLAIN = HostCost(2000, 0.5, 0.25)


def test_a_table_is_read(tmp_path: Path) -> None:
    path = tmp_path / "host.toml"
    path.write_text(TABLE)
    own = (OperatorCost("softmax", 8, 0.5),)
    cost = load_host_cost(path)
    assert cost == HostCost(900, 8, 0.25, operators=own, clock=50e6, name="Cortex", error="within 20 %")
    assert cost.basis == (
        "Cortex in cycles of 50 MHz: 8 MACs or 0.25 values a cycle, rates of their own for softmax, 900 cycles"
        " per start of the accelerator; error within 20 %"
    )
    assert Options.from_dict(asdict(Options(host=cost))).host == cost


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("round_trip = ", "table of host costs must be TOML: Invalid value"),
        ("round_trip = 1.5", "round trip must be 0 to 1000000000000 cycles, a whole number, not 1.5"),
        ("round_trip = true", "round trip must be 0 to 1000000000000 cycles, a whole number, not True"),
        ("macs = 1", "macs is not a key of host costs; known: round_trip, macs_per_cycle, values_per_cycle, operators"),
        ("macs_per_cycle = nan", "the host's macs_per_cycle must be a number above 0 (1e-12 to 1e+12), not nan"),
        ('macs_per_cycle = "8"', "the host's macs_per_cycle must be a number above 0 (1e-12 to 1e+12), not '8'"),
        ("values_per_cycle = 0", "the host's values_per_cycle must be a number above 0 (1e-12 to 1e+12), not 0"),
        ("clock = 0", "the clock of host costs must be 1 to 1e+12 Hz, not 0"),
        ("name = 3", "the host's name must be a text, not 3"),
        ("operators = [1]", "operators must be tables such as [operators.softmax], not [1]"),
        (
            "[operators]\nsoftmax = 4",
            "operators.softmax must be a table with macs_per_cycle or values_per_cycle, not 4",
        ),
        ("[operators.softmax]\nmacs = 4", "operators.softmax.macs is not a key of host costs; known: macs_per_cycle"),
        ("[operators.softmax]\nmacs_per_cycle = -1", "the host's softmax.macs_per_cycle must be a number above 0"),
        ("[operators.softmax]\ncall = -1", "softmax.call must be 0 to 1000000000000 cycles, a whole number, not -1"),
        ("[operators.a]\nresults_per_cycle = 0", "the host's a.results_per_cycle must be a number above 0"),
        (
            "load_bytes_per_cycle = 0",
            "the host's load_bytes_per_cycle must be a number above 0 (1e-12 to 1e+12), not 0",
        ),
        ("a = " + "[" * 3000, "table of host costs must be TOML: "),
        ("# " + "x" * (1 << 20), "table of host costs must have at most 1,048,576 bytes"),
        ("a = \ud800", "table of host costs must be TOML: "),
    ],
)
def test_a_bad_table_is_one_line(text: str, message: str, tmp_path: Path) -> None:
    path = tmp_path / "host.toml"
    needed = "".join(f"{name} = 1\n" for name in NEEDED if name not in text.partition("[")[0])
    path.write_bytes((needed + text).encode("utf-8", "surrogatepass"))
    with pytest.raises(CompileError) as caught:
        load_host_cost(path)
    assert str(caught.value).startswith(f"{path}: {message}")
    assert "\n" not in str(caught.value)


def test_a_table_must_be_there(tmp_path: Path) -> None:
    with pytest.raises(CompileError, match=re.escape("no.toml: table of host costs must be a TOML file (No such file")):
        load_host_cost(tmp_path / "no.toml")


@pytest.mark.parametrize("missing", NEEDED)
def test_a_table_says_what_everything_else_costs(missing: str, tmp_path: Path) -> None:
    path = tmp_path / "host.toml"
    path.write_text("".join(f"{name} = 1\n" for name in NEEDED if name != missing) + "[operators.conv]\ncall = 1\n")
    with pytest.raises(CompileError, match=f"^{path}: {missing} must be given$"):
        load_host_cost(path)


NORMS = "zoo:bert_tiny?depth=1&tokens=4&channels=16"


def test_reports_count_what_the_host_takes(tmp_path: Path) -> None:
    """By hand: every node on the host by its tensors, and a round trip per segment."""
    compiled = compile_network("zoo:attention_block", CONFIG, effort=0, host=PLAIN)
    graph, report = compiled.graph, compiled.report()
    work = report.host_work
    on_host = [node for node in graph.nodes if node.name in report.host and not isinstance(node, ir.FREE)]
    assert work.nodes and list(work.nodes) == [node.name for node in on_host]
    for node in on_host:
        size = sum(graph.tensors[name].size for name in (*node.inputs, *node.outputs))
        assert work.nodes[node.name] == 4 * size + 2 * graph.macs(node)
    assert work.starts == len(compiled.code.segments)
    assert work.cycles == sum(work.nodes.values()) + 2000 * work.starts
    assert report.total() == report.cycles + work.cycles
    assert report.latency(1e6) == pytest.approx(report.total() / 1e3)
    assert report.fps(1e6) == pytest.approx(1e6 / report.total())
    path = tmp_path / "saved.dvt"
    compiled.save(path)
    assert load_program(path).report().host_work == work


def test_a_clock_of_its_own_keeps_the_host_s_time() -> None:
    compiled = compile_network("zoo:attention_block", CONFIG, effort=0, host=replace(PLAIN, clock=100e6))
    report = compiled.report()
    host = report.host_work.cycles
    assert (report.total(), report.total(100e6), report.total(200e6)) == (
        report.cycles + host,
        report.cycles + host,
        report.cycles + 2 * host,
    )


def test_kinds_have_rates_of_their_own() -> None:
    compiled = compile_network("zoo:attention_block", CONFIG, effort=0)
    graph = compiled.graph
    node = next(node for node in graph.nodes if node.op == "qlinearsoftmax")
    other = next(node for node in graph.nodes if node.op != "qlinearsoftmax" and not isinstance(node, ir.FREE))
    slow = replace(PLAIN, operators=(OperatorCost("qlinearsoftmax", 1.0, 0.125),))
    assert slow.cycles(graph, node) == 2 * PLAIN.cycles(graph, node)
    assert slow.cycles(graph, other) == PLAIN.cycles(graph, other)


def test_a_kind_that_the_host_does_not_run_is_named() -> None:
    """A misspelt one would change nothing, and nobody would know."""
    kinds = ("qlinearsoftmax", "layernormalization", "soft_max")
    cost = replace(PLAIN, operators=tuple(OperatorCost(kind, 1, 1) for kind in kinds))
    work = compile_network(NORMS, CONFIG, effort=0, host=cost).report().host_work
    assert (work.unused, work.guessed) == (("soft_max",), ("dequantize_float", "quantize"))
    assert work.basis.endswith(
        "error not measured; without rates of their own, so of unknown error: dequantize_float, quantize;"
        " no layer of kind soft_max is on the host"
    )


def test_times_in_words() -> None:
    texts = [time_text(cycles, 100e6) for cycles in (0, 1, 1e3, 123_456, 99_999_999_9, 1e13)]
    assert texts == ["0 ns", "10 ns", "10 µs", "1.235 ms", "10 s", "100,000 s"]
    assert frequency_text(1e6, 100e6) == "100 inferences/s"
    assert rate_text(4e6, 1e6, 100e6) == "0.4 GB/s"


def test_calls_and_results_of_a_kind(tmp_path: Path) -> None:
    path = tmp_path / "host.toml"
    needed = "round_trip = 0\nmacs_per_cycle = 2\nvalues_per_cycle = 4\n"
    path.write_text(f"{needed}[operators.conv]\ncall = 100\nresults_per_cycle = 0.5\n")
    (own,) = load_host_cost(path).operators
    assert own.cycles(macs=20, values=40, results=7) == 100 + 10 + 10 + 14
    assert HostCost.from_dict(asdict(load_host_cost(path))).operators == (own,)
    assert OperatorCost("conv", 2, 4).cycles(20, 40, 7) == 20


def test_floats_are_a_kind_of_their_own() -> None:
    graph = compile_network(NORMS, CONFIG, effort=0).graph
    node = next(node for node in graph.nodes if node.op == "layernormalization")
    kinds = (OperatorCost("layernormalization_float", 1, 1), OperatorCost("layernormalization", 2, 2))
    size = 2 * graph.tensors[node.outputs[0]].size
    assert replace(PLAIN, operators=kinds).cycles(graph, node) == size
    assert replace(PLAIN, operators=kinds[1:]).cycles(graph, node) == size / 2


def test_inputs_and_outputs_count_where_a_table_says_so() -> None:
    """The block's input is in another order than the accelerator's; the output, of host nodes, too."""
    kinds = (OperatorCost("copy", 1, 1), OperatorCost("reorder", 1, 0.5))
    compiled = compile_network("zoo:mobilenet_v2_block", CONFIG, effort=0, host=replace(PLAIN, operators=kinds))
    graph, work = compiled.graph, compiled.report().host_work
    assert work.nodes == {
        "input input": 4 * graph.tensors[graph.inputs[0].tensor].size,
        "output output": 4 * graph.tensors[graph.outputs[0].tensor].size,
    }
    assert compile_network("zoo:mobilenet_v2_block", CONFIG, effort=0, host=PLAIN).report().host_work.nodes == {}


def test_the_table_that_comes_along() -> None:
    assert hosts() == (DEFAULT,) == ("vexriscv",)
    cost = default_host()
    assert cost == load_host_cost("vexriscv") == Options().host == Options.from_dict(asdict(Options())).host
    assert cost.name.startswith("VexRiscv") and "half within" in cost.error
    assert all(getattr(cost, name) for name in LOADS)
    assert cost.start_up(1000, 10_000) == pytest.approx(1000 / 0.04108 + 10_000 / 0.5965, rel=0.3)
    assert PLAIN.start_up(1000, 10_000) is None
    assert f"rates of their own for {len(cost.operators)} kinds of layers" in cost.basis


def test_a_name_that_is_no_table() -> None:
    with pytest.raises(
        CompileError, match=r"^cortex: table of host costs must be a TOML file \(.*\) or one of vexriscv$"
    ):
        load_host_cost("cortex")
