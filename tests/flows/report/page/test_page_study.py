"""The page of a small sweep in a browser: every control, by what it does to table, chart and selection."""

from __future__ import annotations

import csv
import shlex
from collections.abc import Callable
from dataclasses import replace
from io import StringIO
from typing import Any

import pytest

from dovetail.flows.cli import parser
from dovetail.flows.explore.results.sweep_results import Results
from dovetail.flows.explore.space.design_space import Space, Workload
from dovetail.flows.options.parameters import config_of
from dovetail.flows.report.charts.colours import SERIES
from dovetail.flows.report.page import render
from dovetail.isa.config.resolved import Config
from tests.flows.report.page.synthetic import STUDY_AXES, results_of

Open = Callable[[str], Any]


@pytest.fixture
def page(open_page: Open, study: Results) -> Any:
    """The page of the study."""
    return open_page(render(study, version="abc"))


def test_what_cannot_be_seen_in_a_name_is_shown(open_page: Open) -> None:
    """Control characters, and marks that turn the direction of writing, are escapes in all that a reader sees."""
    space = Space((Workload("nets/\u202egnp\x1b[2J.onnx"),), Config(), STUDY_AXES, objectives=("cycles", "sram"))
    page = open_page(render(results_of(space)))
    assert "\\u202egnp\\x1b[2J.onnx" in page.text("h1")
    assert "nets/\\u202egnp\\x1b[2J.onnx" in page.text(".facts")
    unseen = (
        "const texts = [document.title, document.body.innerText];"
        "for (const e of document.querySelectorAll('*')) for (const a of e.attributes) texts.push(a.value);"
        "return texts.filter((text) => /[\\u202e\\u001b]/.test(text)).length"
    )
    assert page.js(unseen) == 0


def numbers(results: Results, test: Callable[[Any], bool]) -> list[int]:
    return [row.number for row in results.rows if test(row)]


def test_it_opens_without_asking_anybody(page: Any, study: Results) -> None:
    assert page.text("h1") == "mobilenet_v1 + <i>kws & co.onnx"
    assert page.browser.title == "mobilenet_v1 + <i>kws & co.onnx - Dovetail"
    assert page.text("#count") == "36 points"
    first = study.ranked()
    assert page.numbers()[: len(first)] == [row.number for row in first]  # the front on top
    assert sorted(page.numbers()) == list(range(36))
    assert page.requests() == []
    assert page.js("return document.querySelectorAll('i b, h1 i, .facts i').length") == 0
    assert "nets/<i>kws & co.onnx" in page.text(".facts")
    assert page.texts(".tile b")[0] == "36"
    failed = numbers(study, lambda row: bool(row.error))
    assert len(failed) == 1
    assert page.text(f"tr[data-number='{failed[0]}'] .reason") == study.rows[failed[0]].error
    assert study.rows[failed[0]].error in page.text("#failures")


def test_sorting_by_a_column_and_back(page: Any, study: Results) -> None:
    priced = [row for row in study.rows if row.costs]
    by_cycles = [row.number for row in sorted(priced, key=lambda row: (row.values["cycles"], row.number))]
    page.click("th[data-key='cycles'] button")
    assert page.numbers()[:-1] == by_cycles
    assert page.find("th[data-key='cycles']").get_attribute("aria-sort") == "ascending"
    page.click("th[data-key='cycles'] button")
    falling = [row.number for row in sorted(priced, key=lambda row: (-row.values["cycles"], row.number))]
    assert page.numbers()[:-1] == falling
    assert page.numbers()[-1] == numbers(study, lambda row: bool(row.error))[0]  # what is missing stays last


FILTERS: list[tuple[str, str, Callable[[Any], bool]]] = [
    ("sram", ">= 1 MiB", lambda row: row.config.sram >= 1 << 20),
    ("sram", "512KiB, 256M", lambda row: row.config.sram == 512 << 10),
    ("sram", "512k..2M", lambda row: 512e3 <= row.config.sram <= 2e6),
    ("pe", "!= 64", lambda row: row.config.macs_per_cycle != 64),
    ("pe", "64 | 128", lambda row: True),
    ("pe", "128", lambda row: row.config.macs_per_cycle == 128),
    ("cycles", "> 20M < 45e6", lambda row: 20e6 < row.values.get("cycles", 0) < 45e6),
    ("cycles", "> 20_000_000 & <= 45M", lambda row: 20e6 < row.values.get("cycles", 0) <= 45e6),
    ("utilisation", "< .5", lambda row: 0 < row.values.get("utilisation", 0) < 0.5),
    ("depthwise", "native", lambda row: row.config.depthwise == "native"),
    ("depthwise", "=n", lambda row: False),
    ("depthwise", "!none", lambda row: row.config.depthwise != "none"),
    ("depthwise", "!n", lambda row: row.config.depthwise == "emulated"),
    ("depthwise", "!=n", lambda row: True),
    ("state", "=front", lambda row: row.front),
]


def test_filters(page: Any, study: Results) -> None:
    for key, text, test in FILTERS:
        rows = [replace(row, config=row.config or study.space.point(row.number).config) for row in study.rows]
        wanted = [row.number for row in rows if test(row)]
        assert sorted(page.filter(key, text)) == wanted, text
        assert page.text("#count") == (f"{len(wanted)} of 36" if len(wanted) < 36 else "36 points")
        page.click("#clear")
        assert len(page.numbers()) == 36
    # one that cannot be read says so and filters nothing
    assert len(page.filter("cycles", ">= many")) == 36
    field = page.find(".filters input[data-key='cycles']")
    assert field.get_attribute("aria-invalid") is not None
    assert "cannot read" in field.get_attribute("title")


def test_columns_can_be_chosen(page: Any) -> None:
    assert "kind conv" not in page.js("return [...document.querySelectorAll('th[data-key]')].map((e) => e.dataset.key)")
    page.click("#chooser summary")
    page.frame()
    page.click("#chooser input[value='kind conv']")
    page.click("#chooser input[value='fps']")
    keys = page.js("return [...document.querySelectorAll('th[data-key]')].map((e) => e.dataset.key)")
    assert "kind conv" in keys
    assert "fps" not in keys


def test_the_csv_has_what_passes_the_filters(page: Any, study: Results) -> None:
    page.js(
        "window.saved = []; const make = URL.createObjectURL;"
        "URL.createObjectURL = (blob) => { blob.text().then((text) => saved.push(text)); return make(blob) }"
    )
    kept = page.filter("pe", "128")
    page.click("th[data-key='cycles'] button")
    page.click("#csv")
    page.until(lambda: page.js("return saved.length"))
    rows = list(csv.DictReader(StringIO(page.js("return saved[0]"))))
    assert [int(row["number"]) for row in rows] == page.numbers()
    assert sorted(int(row["number"]) for row in rows) == sorted(kept)
    for row in rows:
        of = study.rows[int(row["number"])]
        assert row["error"] == of.error
        assert row["cycles"] == (str(int(of.values["cycles"])) if of.costs else "")


def test_selected_points_stand_side_by_side(page: Any, study: Results) -> None:
    page.row(20)
    page.row(35)
    assert [text.split()[0] for text in page.texts("#selected thead th")] == ["A", "B"]
    lines = {cells[0]: cells[1:] for cells in page.cells("#selected tbody tr")}
    assert lines["cycles"][0] == f"{int(study.rows[20].values['cycles']):,}"
    assert lines["cycles"][1].startswith(f"{int(study.rows[35].values['cycles']):,}")
    assert page.js("return document.querySelectorAll('#kind-bars .barline').length") == 6  # two networks, and together
    page.row(20)
    page.row(18)
    assert len(page.texts("#selected thead th")) == 2
    first, second = page.texts("#layers .host-note")
    for number, text in ((35, first), (18, second)):
        cycles = study.rows[number].costs[0].cycles
        assert text[1:].startswith(f"{cycles:,} cycles on the accelerator, {cycles / 1e5:.4g} ms at 100 MHz; ")
        assert "; error of " in text and text.endswith("%)")
    assert "the host takes about 2,000 cycles, 20 µs (an estimate: " in first
    assert "the host takes about 2,000 cycles, 20 µs, with 500 MACs left to it (an estimate: " in second


def test_without_explanations_the_difference_is_that_of_the_kinds_of_layers(page: Any, study: Results) -> None:
    page.row(20)
    page.row(35)
    a, b = (study.rows[number].costs[0] for number in (20, 35))
    lines = {cells[0]: cells[1:4] for cells in page.cells("#difference tbody tr")}
    assert lines.pop("cycles")[:2] == [f"{a.cycles:,}", f"{b.cycles:,}"]
    sums = [sum(int(cells[n].replace(",", "")) for cells in lines.values()) for n in (0, 1)]
    same = sum(a.kinds[kind] for kind in a.kinds if a.kinds[kind] == b.kinds[kind])
    assert sums == [a.cycles - same, b.cycles - same]


def test_a_point_can_be_had_again(page: Any, study: Results) -> None:
    for number in (0, 7, 35):
        page.row(number)
    page.click(".texts summary")
    configs = [study.rows[number].config for number in (0, 7, 35)]
    for config, toml in zip(configs, page.texts("pre.toml"), strict=True):
        assert Config.from_toml(toml) == config
    for config, commands in zip(configs, page.texts("pre.command"), strict=True):
        for line, network in zip(commands.splitlines(), study.space.workloads, strict=True):
            program, *words = shlex.split(line)
            args = parser().parse_args(words)
            assert program == "dovetail"
            assert config_of(args) == config
            assert args.network == network.source
            assert (args.tiling, args.effort) == ("free", 0)


def test_a_click_in_the_chart_selects_the_point_and_shows_its_row(page: Any, study: Results) -> None:
    page.filter("depthwise", "native")
    page.click("th[data-key='cycles'] button")
    best = page.numbers()[0]
    page.js("document.querySelector('#scatter').focus()")
    from selenium.webdriver.common.keys import Keys

    page.find("#scatter").send_keys(Keys.ARROW_RIGHT)
    assert not page.find("#tip").get_property("hidden")
    box = page.js("const b = document.querySelector('#tip b').textContent; return b")
    assert box == f"point {best}"
    page.find("#scatter").send_keys(Keys.ENTER)
    assert page.find(f"tr[data-number='{best}']").get_attribute("aria-selected") == "true"


def drag(page: Any, start: tuple[float, float], end: tuple[float, float]) -> None:
    """Draw in the chart between two places, as parts of its width and height."""
    from selenium.webdriver.common.action_chains import ActionChains

    page.js("document.querySelector('#scatter').scrollIntoView({ block: 'center' })")
    canvas = page.find("#scatter")
    width, height = canvas.size["width"], canvas.size["height"]
    (x0, y0), (x1, y1) = (((x - 0.5) * width, (y - 0.5) * height) for x, y in (start, end))
    moves = ActionChains(page.browser, duration=20).move_to_element_with_offset(canvas, int(x0), int(y0))
    moves.click_and_hold().move_by_offset(int(x1 - x0), int(y1 - y0)).release().perform()
    page.frame()


def test_a_rectangle_in_the_chart_filters_the_table(page: Any, study: Results) -> None:
    drag(page, (0.1, 0.02), (0.97, 0.4))  # the upper part: much SRAM
    large = numbers(study, lambda row: bool(row.costs) and row.config.sram == 256 << 20)
    assert sorted(page.numbers()) == large
    assert "as drawn in the chart" in page.text("#brushed")
    page.click("#brushed")
    assert len(page.numbers()) == 36


def test_a_note_stands_beside_the_letter_of_its_point(page: Any) -> None:
    page.row(20)
    letter, text = "document.querySelector('.host-note .badge')", "document.querySelector('.host-note .badge + span')"
    assert page.js(f"return {text}.offsetLeft - {letter}.offsetLeft") > 18  # the letter's width


def test_words_have_the_colours_of_the_picture(page: Any) -> None:
    """In the order of the axis, whatever the alphabet says."""
    from selenium.webdriver.support.ui import Select

    Select(page.find("#colour")).select_by_value("depthwise")
    page.frame()
    script = (
        "return [...document.querySelectorAll('#scatter-legend span')].slice(0, 3)"
        ".map((e) => [e.textContent, getComputedStyle(e.querySelector('i')).backgroundColor])"
    )
    expected = zip(STUDY_AXES["depthwise"], SERIES, strict=False)
    assert page.js(script) == [[name, f"rgb{tuple(bytes.fromhex(code[1:]))}"] for name, code in expected]


def test_the_axes_can_be_chosen(page: Any, study: Results) -> None:
    from selenium.webdriver.support.ui import Select

    Select(page.find("#x")).select_by_value("fps")
    Select(page.find("#y")).select_by_value("utilisation")
    Select(page.find("#colour")).select_by_value("cycles")
    page.click("#log-x")
    page.frame()
    assert "cycles" in page.text("#scatter-legend b")
    assert Select(page.find("#x")).first_selected_option.text == "frames/s"
    assert page.find("#log-x").get_property("checked")
    assert "without a place" not in page.text("#scatter-legend")
    Select(page.find("#x")).select_by_value("host_macs")
    page.click("#log-x")
    page.frame()
    nothing_left = sum(bool(row.costs) and not row.values["host_macs"] for row in study.rows)
    assert f"{nothing_left} points without a place on these axes" in page.text("#scatter-legend")


def test_the_table_by_keys_alone(page: Any) -> None:
    from selenium.webdriver.common.keys import Keys

    page.find(".tile.front").send_keys(Keys.ENTER)
    assert set(page.texts(".state")) == {"front"}
    assert page.js("return document.activeElement.id") == "points"
    page.find("#clear").send_keys(Keys.ENTER)
    points = page.find("#points")
    points.send_keys(Keys.ARROW_DOWN, Keys.ARROW_DOWN, Keys.ENTER)
    assert page.texts("#selected thead th")[0].startswith("A #2")
    points.send_keys(Keys.END)
    assert page.find("#points").get_attribute("aria-activedescendant") == "row-35"
    points.send_keys(Keys.HOME, Keys.SPACE)
    assert len(page.texts("#selected thead th")) == 2
    points.send_keys(Keys.ESCAPE)
    assert page.texts("#selected thead th") == []


def test_light_and_dark(page: Any) -> None:
    for theme, colour in (("light", "rgb(244, 245, 247)"), ("dark", "rgb(20, 23, 27)"), ("", "rgb(244, 245, 247)")):
        features = [{"name": "prefers-color-scheme", "value": theme}]
        page.browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": features})
        assert page.js("return getComputedStyle(document.body).backgroundColor") == colour


def test_a_narrow_window_needs_no_scrolling_sideways(page: Any) -> None:
    page.row(20)
    page.row(35)
    page.browser.set_window_size(520, 900)
    try:
        page.frame()
        assert page.js("return document.documentElement.scrollWidth <= innerWidth")
        assert page.js("return document.querySelector('#scatter').clientWidth") > 300
    finally:
        page.browser.set_window_size(1500, 1300)


def test_no_point_keeps_the_constraints(open_page: Open, study: Results) -> None:
    rows = tuple(replace(row, feasible=False, front=False) for row in study.rows)
    page = open_page(render(Results(study.space, rows, 36)))
    assert page.texts(".tile") == ["36points", "0on the front", "35infeasible", "1failed"]


def test_a_point_alone_is_shown_by_its_objectives(open_page: Open, study: Results) -> None:
    page = open_page(render(Results(study.space, study.rows[:1], 1)))
    assert [page.find(f"#{axis}").get_property("value") for axis in "xy"] == ["cycles", "sram"]


@pytest.mark.parametrize("kept", [0, 1])
def test_nothing_yet_and_all_failed(open_page: Open, study: Results, kept: int) -> None:
    failed = [row for row in study.rows if row.error][:kept]
    page = open_page(render(Results(study.space, tuple(failed), 36)))
    assert page.text("#count") == ("1 point" if kept else "0 points")
    assert page.numbers() == [row.number for row in failed]
    assert bool(page.find("#failures").get_property("hidden")) is not bool(kept)
