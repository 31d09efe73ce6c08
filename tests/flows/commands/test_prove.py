"""The command ``dovetail prove``."""

import argparse
import json
from pathlib import Path

import pytest

from dovetail.cosim.formal.catalogue import PROOFS, manual
from dovetail.cosim.formal.prover import Verdict
from dovetail.flows.cli import main
from dovetail.flows.commands import prove

COMMITTED = Path(__file__).parents[3] / "docs" / "formal.md"


@pytest.fixture
def verdicts(monkeypatch: pytest.MonkeyPatch) -> dict[str, Verdict]:
    """Verdicts that the command gets instead of those of the tools."""
    known: dict[str, Verdict] = {}
    monkeypatch.setattr(prove, "prove", lambda proof, cache, **_: known.get(proof.name, Verdict("proved", 1, 0.5)))
    return known


def test_all_quick_proofs(verdicts: dict[str, Verdict], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["prove", "--json"]) == 0
    data = json.loads(capsys.readouterr().out)
    assert data["ok"]
    assert [p["name"] for p in data["proofs"]] == [p.name for p in PROOFS.values() if not p.slow]
    assert main(["prove", "--all"]) == 0
    out = capsys.readouterr().out
    assert all(name in out for name in PROOFS) and "everything is proved" in out


def test_what_is_not_proved_is_named(verdicts: dict[str, Verdict], capsys: pytest.CaptureFixture[str]) -> None:
    verdicts["run"] = Verdict("failed", 6, 1.0, ("the first fault stays",), "out/run.vcd")
    verdicts["queue"] = Verdict("unreached", 1, 1.0, ("a full queue",))
    assert main(["prove", "run", "queue"]) == 1
    out = capsys.readouterr().out
    assert "run: violated:\n    the first fault stays\n    waves: out/run.vcd" in out
    assert "queue: proved, but never reached:\n    a full queue" in out


def test_list(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["prove", "--list", "--json", "queue"]) == 0
    (row,) = json.loads(capsys.readouterr().out)["proofs"]
    assert "the n-th entry out is the n-th entry in" in row["properties"]
    assert main(["prove", "--list", "run"]) == 0
    assert "a start is ignored while busy" in capsys.readouterr().out


def test_user_errors(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["prove", "foo"]) == 2
    assert "unknown proof 'foo'; known: queue, run" in capsys.readouterr().err
    assert main(["prove", "run", "--depth", "0"]) == 2
    assert "--depth must be positive, not 0" in capsys.readouterr().err


def test_the_manual_is_up_to_date(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    text = manual()
    assert COMMITTED.read_text() == text, "run: dovetail prove --manual --output docs/formal.md"
    assert main(["prove", "--manual", "--output", str(tmp_path / "formal.md")]) == 0
    assert (tmp_path / "formal.md").read_text() == text
    capsys.readouterr()
    assert main(["prove", "--manual"]) == 0
    assert capsys.readouterr().out == text


def test_options_are_documented() -> None:
    parser = argparse.ArgumentParser()
    prove.add_arguments(parser)
    assert all(action.help for action in parser._actions)
