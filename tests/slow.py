"""Parameters of tests: what the default tests leave to the slow ones."""

from typing import Any

import pytest


def slow(*values: Any) -> Any:
    """A parameter, or several for one case, of a slow test."""
    return pytest.param(*values, marks=pytest.mark.slow)
