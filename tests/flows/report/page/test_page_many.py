"""10,080 points in a browser: the document stays small, and everything still answers."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from dovetail.flows.explore.results.sweep_results import Results
from dovetail.flows.report.page import render

pytestmark = pytest.mark.slow


def test_ten_thousand_points(open_page: Callable[[str], Any], many: Results) -> None:
    page = open_page(render(many))
    assert page.text("#count") == "10,080 points"
    assert len(page.numbers()) < 100
    page.click("th[data-key='cycles'] button")
    priced = sorted((row.values["cycles"], row.number) for row in many.rows if row.costs)
    assert page.numbers()[:20] == [number for _, number in priced[:20]]
    page.js("document.querySelector('.scroll').scrollTop = 5000 * 28")
    page.until(lambda: 4990 <= int(page.js("return document.querySelector('tr[data-number]').dataset.index")) <= 5000)
    middle = int(page.js("return document.querySelector('tr[data-number]').dataset.index"))
    assert page.numbers()[0] == priced[middle][1]
    wanted = {row.number for row in many.rows if row.costs and row.values["cycles"] < 2e6}
    shown = page.filter("cycles", "< 2M")
    assert page.text("#count") == f"{len(wanted):,} of 10,080"
    assert set(shown) <= wanted
    page.row(shown[0])
    assert page.texts("#selected thead th")[0].startswith(f"A #{shown[0]}")
    assert page.js("return document.querySelectorAll('*').length") < 6000
    assert page.requests() == []
