"""Tables for notebooks: every text escaped, columns aligned, long ones cut and counted."""

from xml.etree import ElementTree

import pytest

from dovetail.isa.common.html import MOST, html_table


def test_every_text_is_escaped() -> None:
    bad = "<script>&\"'"
    text = html_table(bad, (bad,), "l", [(bad,)], bad)
    assert "<script" not in text
    assert "".join(ElementTree.fromstring(text).itertext()) == bad * 4


def test_numbers_have_separators_and_sides() -> None:
    table = ElementTree.fromstring(html_table("t", ("name", "n"), "lr", [("a", 1234567), ("b", True)]))
    cells = [[cell.text for cell in row] for row in table.iter("tr")]
    assert cells == [["name", "n"], ["a", "1,234,567"], ["b", "True"]]
    sides = [cell.attrib["style"].split(";")[0] for cell in table.iter("td")]
    assert sides == ["text-align: left", "text-align: right"] * 2


def test_what_is_too_long_is_counted() -> None:
    text = html_table("t", (), "r", [(n,) for n in range(MOST + 1234)])
    assert text.count("<tr>") == MOST
    assert "1,234 more lines" in text


def test_a_row_has_a_cell_for_each_column() -> None:
    with pytest.raises(ValueError):
        html_table("t", (), "lr", [("a",)])
