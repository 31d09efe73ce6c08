"""Energy by component and by layer: parts and layers add up, and what is not counted is said."""

from __future__ import annotations

from dataclasses import replace

import pytest

from dovetail.isa.config.resolved import Config
from dovetail.sw.analysis.cost.activity import activity_of, layer_activity
from dovetail.sw.analysis.cost.energy import COMPONENTS, energy_of, energy_report, load_table
from dovetail.sw.errors import DovetailError
from dovetail.sw.runtime.compiled_network import compile_network

SMALL = Config(ic_lanes=8, oc_lanes=8, sram="64 KiB")
NETWORKS = ("zoo:dscnn", "zoo:attention_block")


@pytest.mark.parametrize("network", NETWORKS)
def test_events_of_layers_add_up(network: str) -> None:
    compiled = compile_network(network, SMALL, effort=0)
    whole, layers = activity_of(compiled), layer_activity(compiled)
    for name, count in whole.items():
        if name == "fetched_words" or name.startswith("busy_"):
            assert all(layer[name] == 0 for layer in layers)
        else:
            assert sum(layer[name] for layer in layers) == count, name


@pytest.mark.parametrize("network", NETWORKS)
def test_energy_of_layers_adds_up(network: str) -> None:
    compiled = compile_network(network, SMALL, effort=0)
    table = replace(load_table("45nm"), cycle_multiplier=0.1, cycle_sram_byte=1e-4)
    report = energy_report(compiled, table)
    expected = energy_of(SMALL, activity_of(compiled), compiled.report().cycles, table)
    assert report.whole == expected
    assert list(COMPONENTS) == list(expected.parts)
    for name, part in expected.parts.items():
        layers = sum(layer.energy.parts[name] for layer in report.layers)
        assert layers + (report.instructions if name == "instructions" else 0) == pytest.approx(part)
    assert sum(report.shares.values()) == pytest.approx(1)
    assert sum(layer["total"] for layer in report.to_dict()["layers"]) + report.to_dict()["instructions"] == (
        pytest.approx(expected.total * 1e-6)
    )


def test_a_depthwise_layer_multiplies_for_itself() -> None:
    """By hand: the array's energy of a layer is its multiplies alone."""
    compiled = compile_network("zoo:dscnn", SMALL, effort=0)
    table = load_table("45nm")
    for layer, events in zip(energy_report(compiled, table).layers, layer_activity(compiled), strict=True):
        assert layer.energy.parts["array"] == pytest.approx(events["multiplies"] * 0.3)
        assert (layer.kind in ("conv", "depthwise", "dense")) == (events["multiplies"] > 0)


def test_what_is_not_counted() -> None:
    compiled = compile_network("zoo:attention_block", SMALL, effort=0)
    assert energy_report(compiled).not_counted == (
        "the host",
        "registers, control and wires",
        "the clock tree and leakage",
    )
    leaking = replace(load_table("45nm"), cycle_multiplier=0.1)
    assert energy_report(compiled, leaking).not_counted == ("the host", "registers, control and wires")


def test_the_microcoded_engine_has_none() -> None:
    compiled = compile_network("zoo:attention_block", Config.load("icebreaker"), effort=0)
    with pytest.raises(DovetailError, match="energy is estimated for serial = false only"):
        layer_activity(compiled)
