"""What all tests share."""

import pytest


@pytest.fixture(autouse=True)
def no_schedules_from_elsewhere(monkeypatch: pytest.MonkeyPatch) -> None:
    """The command would keep schedules in the user's folder, and find there what other runs have left."""
    monkeypatch.setenv("DOVETAIL_SCHEDULES", "off")
