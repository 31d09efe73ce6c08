"""Two configurations compared: exact losses, the ideal they are measured by, and the sentences about them."""

from __future__ import annotations

import json
from dataclasses import replace
from fractions import Fraction
from functools import cache
from typing import Any

import pytest

from dovetail.isa.config.given import MemoryTiming
from dovetail.isa.config.resolved import Config
from dovetail.sw.analysis.explain.causes import CAUSES
from dovetail.sw.analysis.explain.comparison import compare
from dovetail.sw.analysis.explain.explainer import explain
from dovetail.sw.analysis.explain.explanation import Explanation, LayerExplanation
from dovetail.sw.analysis.explain.sentences import answer, short, summary
from dovetail.sw.compiler.partition.host_cost import default_host
from dovetail.sw.host.work import HostWork
from dovetail.sw.runtime.compiled_network import compile_network

BASE = Config(ic_lanes=8, oc_lanes=8, sram="64 KiB")
OTHERS = {
    "more PEs": Config(ic_lanes=8, oc_lanes=16, sram="64 KiB"),
    "fewer PEs": Config(ic_lanes=4, oc_lanes=4, sram="64 KiB"),
    "wider bus": BASE.replace(bus=256),
    "more SRAM": Config(ic_lanes=8, oc_lanes=8, sram="512 KiB"),
    "no depthwise": Config(ic_lanes=8, oc_lanes=8, sram="64 KiB", depthwise="none"),
    "slower memory": BASE.replace(memory=MemoryTiming(read_latency=200)),
}


@cache
def explained(network: str, config: Config) -> Explanation:
    return explain(compile_network(f"zoo:{network}", config))


@pytest.mark.parametrize("other", OTHERS)
@pytest.mark.parametrize("network", ["dscnn", "mobilenet_v2_block"])
def test_losses_are_exact(network: str, other: str) -> None:
    first, second = explained(network, BASE), explained(network, OTHERS[other])
    comparison = compare(first, second)
    assert comparison.lost == second.cycles - first.cycles / comparison.ratio
    assert comparison.lost == sum(comparison.losses.values()) == sum(layer.lost for layer in comparison.layers)
    for name in CAUSES:
        total = sum(layer.losses.get(name, Fraction()) for layer in comparison.layers)
        assert total == comparison.losses.get(name, 0)
    assert sum(layer.cycles[0] for layer in comparison.layers) == first.cycles
    assert sum(layer.cycles[1] for layer in comparison.layers) == second.cycles
    assert json.loads(json.dumps(comparison.to_dict()))["lost"] == float(comparison.lost)
    assert all(line == line.rstrip() for line in answer(comparison))


def test_nothing_lost_to_itself() -> None:
    comparison = compare(explained("dscnn", BASE), explained("dscnn", BASE))
    assert not comparison.lost and not comparison.losses and not comparison.changes
    assert answer(comparison) == [f"the configurations are equal: {comparison.cycles[0]:,} cycles"]


@pytest.mark.parametrize(
    ("changes", "resource", "ratio"),
    [
        ({"oc_lanes": 24, "requant_lanes": 2, "bus": 256}, "PEs", Fraction(3)),
        ({"ic_lanes": 4, "oc_lanes": 4, "requant_lanes": 2}, "PEs", Fraction(1, 4)),
        ({"bus": 32, "vector_lanes": 2}, "bytes per cycle on the bus", Fraction(1, 2)),
        ({"memory": MemoryTiming(beat_cycles=3)}, "bytes per cycle on the bus", Fraction(1, 3)),
        ({"vector_lanes": 1, "requant_lanes": 2}, "", Fraction(1)),
        ({"depthwise": "none"}, "", Fraction(1)),
        ({"stripe": 16, "memory": MemoryTiming(read_latency=9)}, "", Fraction(1)),
    ],
)
def test_what_the_ideal_is(changes: dict[str, Any], resource: str, ratio: Fraction) -> None:
    first, second = (bare(config) for config in (BASE, BASE.replace(kernel_rows=None, **changes)))
    comparison = compare(first, second)
    assert (comparison.resource, comparison.ratio) == (resource, ratio)
    assert {"memory", *comparison.changes} >= set(changes)


def bare(config: Config, *layers: tuple[str, dict[str, int]], network: str = "net", host: int = 0) -> Explanation:
    """An explanation of layers by hand: (name, shares)."""
    peak, bandwidth = config.macs_per_cycle, Fraction(config.bus_bytes, config.like_fixed.beat_cycles)
    explained = tuple(
        LayerExplanation(
            name=name, kind="conv", macs=0, cycles=sum(shares.values()), read_bytes=0, write_bytes=0, peak=peak,
            bandwidth=bandwidth, shares=shares, ahead=0, next=None,
        )
        for name, shares in layers
    )  # fmt: skip
    shares = {name: sum(layer.shares.get(name, 0) for layer in explained) for name in CAUSES}
    work = HostWork({"soft": host} if host else {}, 0, 0, default_host())
    return Explanation(
        network=network, config=config.to_dict(), macs=0, host_macs=0, host=work, cycles=sum(shares.values()),
        read_bytes=0, write_bytes=0, peak=peak, bandwidth=bandwidth,
        shares={name: cycles for name, cycles in shares.items() if cycles}, layers=explained, next=(),
    )  # fmt: skip


def test_by_hand() -> None:
    """Layer a halves its steps but still waits for as many loads; b is new on the accelerator; c is gone from it."""
    double = BASE.replace(oc_lanes=16)
    first = bare(BASE, ("a", {"multiply": 1000, "load": 301}), ("c", {"vector": 40}), host=9)
    second = bare(double, ("a", {"multiply": 500, "load": 301}), ("b", {"store": 7}))
    comparison = compare(first, second)
    assert comparison.cycles == (1341, 808)
    assert (comparison.ratio, comparison.lost) == (Fraction(2), Fraction(275, 2))
    assert comparison.losses == {"vector": -20, "load": Fraction(301, 2), "store": 7}
    assert [(layer.name, layer.cycles, layer.lost) for layer in comparison.layers] == [
        ("a", (1301, 801), Fraction(301, 2)),
        ("b", (0, 7), 7),
        ("c", (40, 0), -20),
    ]
    assert answer(comparison) == [
        "128 instead of 64 PEs: 1.66x as fast, not 2x: 808 cycles instead of 1,341, 138 above 1,341 / 2",
        "beside these 0 instead of 9 cycles of the host, an estimate",
        "lost: 158 cycles",
        "           150  96%  loads (bus 64 on both): a",
        "             7   4%  stores (bus 64 on both): b",
        "won: 20 cycles",
        "            20 100%  vector reads (vector_lanes 4 on both): c",
    ]


def test_what_else_differs() -> None:
    first = bare(BASE, ("a", {"multiply": 64}))
    second = bare(Config(ic_lanes=8, oc_lanes=4, sram="1 MiB", stripe=16), ("a", {"multiply": 128}))
    lines = answer(compare(first, second))
    assert lines == [
        "32 instead of 64 PEs: 0.50x as fast, as it should be: 128 cycles instead of 64",
        "different as well: sram 64 KiB -> 1 MiB, stripe 32 -> 16, requant_lanes 4 -> 2, vector_lanes 4 -> 2",
    ]


def test_small_causes_are_one() -> None:
    shares = dict.fromkeys(list(CAUSES)[:6], 1000) | {"store": 3}
    lines = answer(compare(bare(BASE), bare(BASE.replace(stripe=16), ("a", shares))))
    assert [line.split("  ")[-1] for line in lines[2:]] == [
        "multiplying: a",
        "idle input lanes (ic_lanes 8 on both): a",
        "idle output lanes (oc_lanes 8 on both): a",
        "idle pixel lanes (pixel_lanes 1 on both): a",
        "input reads (pixel_lanes 1 on both): a",
        "other causes",
        "different: stripe 32 -> 16",
    ]
    assert lines[1] == "lost: 6,003 cycles"
    assert lines[-2].split() == ["1,003", "17%", "other", "causes"]


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("conv0", "conv0"),
        ("n" * 32, "n" * 32),
        ("model/activation_2/Relu;model/batch_normalization_2/FusedBatchNormV3", "model/activation_2/Relu"),
        ("a_folder_of_the_network/another_folder/convolution", "..." + "etwork/another_folder/convolution"[-29:]),
    ],
)
def test_names_are_short(name: str, text: str) -> None:
    assert short(name) == text
    assert len(short(name)) <= 32


def test_networks_must_be_the_same() -> None:
    with pytest.raises(ValueError, match="networks must be the same, not net and other"):
        compare(bare(BASE), bare(BASE, network="other"))


def test_nothing_on_the_accelerator() -> None:
    other = BASE.replace(stripe=16)
    lines = answer(compare(bare(BASE, ("a", {"multiply": 64})), bare(other, host=5)))
    assert lines[:2] == [
        "0 cycles instead of 64: without a layer on the accelerator there is nothing to compare",
        "beside these 5 instead of 0 cycles of the host, an estimate",
    ]


def test_summary() -> None:
    explanation = replace(explained("dscnn", BASE), host=HostWork({}, 0, 0, default_host()))
    lines = summary(explanation)
    assert lines[0].startswith(f"zoo:dscnn: {explanation.cycles:,} cycles, ")
    assert lines[1].startswith("cycles go to: the array ")
    limit = next(what for what in explanation.next if what.resource == "array")
    assert lines[3].startswith(f"with the array free: {limit.cycles:,} cycles (-")
    assert lines[5].startswith("with the array, weight reads and the requantiser free: ")
    assert len(lines) - 3 - len(explanation.ladder) in (0, 1)
    host = HostWork({"soft": explanation.cycles}, 1, 0, default_host())
    basis = host.cost.basis
    assert summary(replace(explanation, host=host, host_macs=1234)) == [
        lines[0],
        f"beside these {explanation.cycles:,} cycles of the host, an estimate for 1,234 MACs: 50.0% of all ({basis})",
        *lines[1:],
    ]


def test_times_at_a_clock() -> None:
    slow = replace(default_host(), clock=50e6)  # at 100 MHz it takes as long, so twice the cycles
    explanation = bare(BASE, ("a", {"multiply": 1_000_000}))
    explanation = replace(explanation, host=HostWork({"soft": 500_000}, 1, 0, slow))
    lines = summary(explanation, 100e6)
    assert lines[1].startswith("beside these 1,000,000 cycles of the host, an estimate: 50.0% of all (")
    assert lines[2] == "at 100 MHz: 10 ms on the accelerator, about 10 ms on the host, 20 ms in all, 50 inferences/s"
    assert answer(compare(explanation, explanation), 100e6)[1] == "at 100 MHz: 10 ms -> 10 ms"


def test_summary_without_a_layer() -> None:
    assert summary(bare(BASE)) == ["net: no layer runs on the accelerator"]
