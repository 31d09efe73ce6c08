"""The space files of the documentation are what they say, and run."""

from __future__ import annotations

import json
import re
from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest

from dovetail.flows import cli
from dovetail.flows.explore.space.deployment import SYSTEM_PARAMETERS
from dovetail.flows.explore.space.design_space import HOSTS, METHODS, SAMPLERS, Plan
from dovetail.flows.explore.space.expressions import FUNCTIONS
from dovetail.flows.explore.space.file import TABLES, load, read
from dovetail.flows.explore.space.metrics import METRICS, SYSTEM_METRICS
from dovetail.flows.options.parameters import SETTINGS
from dovetail.sw.analysis.cost.energy import DEFAULT_TABLE
from dovetail.sw.compiler.options import TILINGS

DOCS = Path(__file__).parents[3] / "docs"
FOLDER = DOCS / "examples" / "spaces"


def swept(name: str, capsys: pytest.CaptureFixture[str], *flags: str) -> Any:
    assert cli.main(["sweep", str(FOLDER / name), "--json", "--jobs", "1", "--no-schedule-cache", *flags]) == 0
    return json.loads(capsys.readouterr().out)


def test_mobilenet_v1(capsys: pytest.CaptureFixture[str]) -> None:
    space = load(FOLDER / "mobilenet_v1.toml")
    assert space.count() == 10_080
    points = list(space)
    assert len({point.config for point in points}) == 10_080 and not any(point.error for point in points)
    assert len({(point.axes["ic_lanes"], point.axes["oc_lanes"]) for point in points}) == 30
    data = swept("mobilenet_v1.toml", capsys, "--search", "random", "--points", "2")
    assert data["points"] == 2 and data["failed"] == 0


def test_keywords(capsys: pytest.CaptureFixture[str]) -> None:
    assert load(FOLDER / "keywords.toml").count() == 20
    data = swept("keywords.toml", capsys)
    assert data["points"] == 20 and data["failed"] == 0


@pytest.mark.slow
def test_two_networks(capsys: pytest.CaptureFixture[str]) -> None:
    assert load(FOLDER / "two_networks.toml").count() == 450
    data = swept("two_networks.toml", capsys, "--points", "8")
    assert data["points"] == 8 and data["failed"] == 0


def test_systems(capsys: pytest.CaptureFixture[str]) -> None:
    assert load(FOLDER / "systems.toml").count() == 10
    data = swept("systems.toml", capsys, "--search", "random", "--points", "2")
    assert data["points"] == 2 and data["failed"] == 0


def test_the_page_names_everything() -> None:
    text = (DOCS / "spaces.md").read_text(encoding="utf-8")
    for m in (METRICS | {name: m for name, m in SYSTEM_METRICS.items() if name not in METRICS}).values():
        assert f"| `{m.name}` | {m.unit} | {'more' if m.more else 'less'} | {m.doc} |" in text
    names = [*SETTINGS, *SYSTEM_PARAMETERS, *FUNCTIONS, *TABLES, *(field.name for field in fields(Plan))]
    assert [name for name in names if not re.search(rf"[`\[]{name}\b", text)] == []
    choices = [*METHODS, *SAMPLERS, *HOSTS, *TILINGS, DEFAULT_TABLE]
    assert [name for name in choices if f'`"{name}"`' not in text] == []


def test_the_page_s_example(tmp_path: Path) -> None:
    text = (DOCS / "spaces.md").read_text(encoding="utf-8")
    example = "\n".join(line[4:] for line in text.split("\n    [[network]]")[1].split("\nThe file")[0].split("\n"))
    assert read("[[network]]\n" + example, "spaces.md", tmp_path).count() == 30 * 7
