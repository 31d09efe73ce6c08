"""What makes docs/networks.md, on a network that takes no time."""

from functools import partial
from importlib import import_module
from pathlib import Path

import pytest

from dovetail.isa.config.resolved import Config

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"


def test_a_network_is_measured_and_equal(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(BENCHMARKS)
    networks, collection = map(import_module, ("networks", "collection"))
    monkeypatch.setattr(networks, "CONFIGS", {"small": Config(ic_lanes=8, oc_lanes=8, sram="64 KiB")})
    name = "inception_block"
    record = networks.measure(collection.Entry("zoo", name, partial(collection._zoo, name)))
    lines = networks.table({name: record}, ()).splitlines()
    (about,) = (line for line in lines if line.startswith(f"| zoo:{name} | {record.macs:,} | {record.layers} | "))
    assert about.endswith(f"| ONNX Runtime on the uint8 form | {record.agreement.compared:,} | yes |")
    (row,) = (line for line in lines if line.startswith(f"| zoo:{name} | 100.0 % | "))
    assert f"| {record.points['small'].cycles:,} |" in row
