"""Builds of the tests stay in pytest's own cache: a second run compiles nothing."""

from pathlib import Path

import pytest


@pytest.fixture(scope="session")
def build_cache(pytestconfig: pytest.Config) -> Path:
    assert pytestconfig.cache is not None
    return Path(pytestconfig.cache.mkdir("dovetail-builds"))
