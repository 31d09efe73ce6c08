"""The manual is what the tables say."""

from pathlib import Path

from dovetail.isa.generate.manual import manual
from dovetail.isa.instructions.table import BY_NUMBER, Cause, Op

COMMITTED = Path(__file__).parents[3] / "docs" / "isa.md"


def test_the_committed_manual_is_up_to_date() -> None:
    assert COMMITTED.read_text() == manual(), "run: dovetail isa --manual --output docs/isa.md"


def test_the_manual_names_everything() -> None:
    text = manual()
    names = [op.name for op in Op] + [cause.name for cause in Cause] + [r.name for r in BY_NUMBER.values()]
    assert [name for name in names if f"`{name}`" not in text] == []


def test_code_blocks_are_closed() -> None:
    assert manual().count("```") % 2 == 0
