"""What the tests of commands share."""

from collections.abc import Callable
from pathlib import Path

import pytest

from dovetail.flows.cli import main

Command = Callable[..., tuple[int, str, str]]


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str]) -> Command:
    """Runs ``dovetail`` with arguments; gives its exit code, stdout and stderr."""

    def run(*argv: str | Path) -> tuple[int, str, str]:
        try:
            code = main([str(each) for each in argv])
        except SystemExit as exit:
            code = int(str(exit.code))
        captured = capsys.readouterr()
        return code, captured.out, captured.err

    return run
