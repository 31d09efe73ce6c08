"""The space files of the documentation are what they say, and run."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from dovetail.flows import cli
from dovetail.flows.explore.space_file import load

FOLDER = Path(__file__).parents[3] / "docs" / "examples" / "spaces"


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


def test_two_networks(capsys: pytest.CaptureFixture[str]) -> None:
    assert load(FOLDER / "two_networks.toml").count() == 450
    data = swept("two_networks.toml", capsys, "--points", "8")
    assert data["points"] == 8 and data["failed"] == 0
