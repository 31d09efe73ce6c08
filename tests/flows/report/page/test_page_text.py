"""The page as text: it refers to nothing outside, allows its own script and style alone, and no data breaks out."""

from __future__ import annotations

import json
import re
from base64 import b64encode
from hashlib import sha256
from typing import Any

import pytest

from dovetail.flows.explore.results.sweep_results import Results
from dovetail.flows.report.page import policy, render, render_live
from dovetail.flows.report.page.payload import embedded, states_of
from tests.flows.report.page.synthetic import REASON


def data_in(html: str) -> Any:
    found = re.search(r'<script type="application/json" id="data">(.*?)</script>', html, re.DOTALL)
    assert found
    return json.loads(found[1])


def test_no_text_of_the_data_ends_its_element(study: Results) -> None:
    html = render(study)
    assert REASON not in html
    assert "<i>kws" not in html
    assert html.count("</script>") == 2
    assert [row[1] for row in data_in(html)["rows"] if row[1]] == [REASON]


@pytest.mark.parametrize("text", ["</script>", "<!--", "]]>", "&lt;", "<script>", "\u2028"])
def test_embedded_text_is_the_same_again(text: str) -> None:
    assert json.loads(embedded(text)) == text
    assert not set("<>&") & set(embedded(text))


def test_the_policy_allows_this_script_and_this_style_alone(study: Results) -> None:
    html = render(study)
    blocks = re.findall(r"<(style|script)>(.*?)</\1>", html, re.DOTALL)
    assert [kind for kind, _ in blocks] == ["style", "script"]
    for kind, text in blocks:
        digest = b64encode(sha256(text.encode()).digest()).decode()
        assert f"{kind}-src 'sha256-{digest}'" in html
    assert "default-src 'none'" in html
    assert "connect-src 'none'" in html
    assert "connect-src 'self'" in render_live("title")
    assert "unsafe" not in policy("'none'")


def test_nothing_is_referred_to_outside(study: Results) -> None:
    html = render(study).replace("http://www.w3.org/2000/svg", "")
    assert not re.findall(r"https?://|//[a-z]+\.[a-z]|@import|url\(", html)


def test_the_same_results_give_the_same_page(study: Results) -> None:
    assert render(study) == render(study)


def test_the_title_of_a_live_page_is_text() -> None:
    assert "<b>net" not in render_live("<b>net</b>")


def test_the_front_is_that_of_the_results(study: Results) -> None:
    states = states_of(study)
    assert states["front"] == [row.number for row in study.rows if row.front]
    assert states["infeasible"] == [row.number for row in study.rows if row.costs and not row.feasible]
    left = {row.number for row in study.rows if row.costs and row.feasible and row.axes["depthwise"] == "none"}
    assert left
    assert set(states["aside"]) == left


@pytest.mark.parametrize("top", [0, 1, 2, 4, 20])
def test_what_is_explained_first(study: Results, top: int) -> None:
    ranked = study.ranked()
    front = [row for row in ranked if row.front]
    rows = study.worth_explaining(top)
    assert len({row.number for row in rows}) == min(top, len(ranked))
    assert sum(row.front for row in rows) == min(top, len(front))
    if top > 1:
        assert rows[0] == front[0]
        assert rows[-1] == (front[-1] if top <= len(front) else ranked[:top][-1])
