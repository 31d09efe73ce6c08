"""The list of planted faults fits the RTL and the suite; and, slow, every one of them is caught."""

import ast
import importlib.util
import sys
from pathlib import Path
from typing import Any

import pytest

_spec = importlib.util.spec_from_file_location("campaign", Path(__file__).with_name("campaign.py"))
assert _spec and _spec.loader
campaign = importlib.util.module_from_spec(_spec)
sys.modules["campaign"] = campaign
_spec.loader.exec_module(campaign)

FAULTS = campaign.faults()


def test_at_least_forty_different_faults() -> None:
    assert len({(fault.file, fault.new) for fault in FAULTS}) == len(FAULTS) >= 40


@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.what)
def test_fault_can_be_planted_and_its_test_exists(fault: Any) -> None:
    assert (campaign.ROOT / fault.file).read_text().count(fault.old) == 1
    path, _, name = fault.caught_by.partition("::")
    tree = ast.parse((campaign.ROOT / path).read_text())
    functions = {node.name for node in tree.body if isinstance(node, ast.FunctionDef)}
    assert not name or name.partition("[")[0] in functions


def test_the_table_is_of_these_faults() -> None:
    text = (campaign.ROOT / "docs" / "mutations.md").read_text()
    caught = dict.fromkeys(FAULTS, campaign.TESTS_FAILED)
    assert text == campaign.table(FAULTS, caught)


@pytest.mark.slow
@pytest.mark.parametrize("test", sorted({fault.caught_by for fault in FAULTS}))
def test_every_fault_is_caught(test: str) -> None:
    codes = campaign.campaign([fault for fault in FAULTS if fault.caught_by == test], jobs=1)
    assert {task: campaign.verdict(task, code) for task, code in codes.items()} == {
        task: "passes" if isinstance(task, str) else "caught" for task in codes
    }
