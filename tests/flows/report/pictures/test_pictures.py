"""Every picture: its bytes, its order and figures, and that labels do not run into one another."""

import json
import struct
from collections.abc import Callable
from dataclasses import replace
from fractions import Fraction
from functools import lru_cache
from itertools import combinations
from xml.etree import ElementTree

import pytest
from matplotlib.colors import to_rgb
from matplotlib.text import Text

from dovetail.flows.explore.results.row import Row
from dovetail.flows.explore.results.sweep_results import Results
from dovetail.flows.explore.space.design_space import Space, Workload
from dovetail.flows.explore.space.metrics import METRICS
from dovetail.flows.report.charts import colours, occupancy, pareto, roofline, shares, timeline
from dovetail.flows.report.charts.chart import Axis, Chart, Dots, Line, Panel, panel_json
from dovetail.flows.report.charts.layers import layer_colours
from dovetail.flows.report.charts.pareto import Spot
from dovetail.flows.report.pictures import render
from dovetail.flows.report.pictures.labels import Spot as Place
from dovetail.flows.report.pictures.labels import place_labels
from dovetail.isa.config.resolved import Config
from dovetail.sw.analysis.explain.causes import BOUNDS, CAUSES
from dovetail.sw.analysis.explain.explanation import Explanation, LayerExplanation
from dovetail.sw.analysis.history import ROLES, History, Span, history
from dovetail.sw.compiler.partition.host_cost import default_host
from dovetail.sw.host.work import HostWork
from dovetail.sw.runtime.compiled_network import compile_network

CYCLES, AREA = METRICS["cycles"], METRICS["lut"]
SPACE = Space((Workload("zoo:dscnn"),), Config(), {"lanes": [(4, 4), (8, 8)], "bus": [32, 64]}, objectives=("cycles",))


@lru_cache
def run() -> History:
    return history(compile_network("zoo:dscnn", Config(sram="64 KiB"), effort=0))


def explanation(*layers: LayerExplanation, peak: int = 64) -> Explanation:
    total = {cause: sum(layer.shares.get(cause, 0) for layer in layers) for cause in CAUSES}
    return Explanation(
        macs=sum(layer.macs for layer in layers),
        cycles=sum(layer.cycles for layer in layers),
        read_bytes=sum(layer.read_bytes for layer in layers),
        write_bytes=sum(layer.write_bytes for layer in layers),
        peak=peak,
        bandwidth=Fraction(8),
        shares={cause: cycles for cause, cycles in total.items() if cycles},
        network="net",
        config={},
        host_macs=0,
        host=HostWork({}, 0, 1, default_host()),
        layers=layers,
        next=(),
    )


def layer(name: str, cycles: int, macs: int, moved: int, kind: str = "conv") -> LayerExplanation:
    split = {"multiply": cycles // 2, "load": cycles - cycles // 2}
    return LayerExplanation(macs, cycles, moved, 0, 64, Fraction(8), split, name, kind, 0, None)


LAYERS = (layer("first", 1000, 40_000, 900), layer("second", 500, 32_000, 0), layer("sum", 50, 0, 400, "add"))


def results(count: int = 4) -> Results:
    rows = [
        Row(
            n,
            dict(SPACE.point(n).axes),
            Config(),
            values={"cycles": 1000 - n * 100.0, "pe": 16.0 + n, "host_macs": 0, "host_nodes": 0},
        )
        for n in range(count)
    ]
    return Results(SPACE, (*rows, Row(count, {"lanes": (99, 99), "bus": 32}, None, error="no", feasible=False)))


def points() -> Chart:
    chart = pareto.of_results(results())
    assert chart is not None
    return chart


CHARTS: dict[str, Callable[[], Chart]] = {
    "pareto": points,
    "roofline": lambda: roofline.chart([explanation(*LAYERS)], ["a"], "net"),
    "two rooflines": lambda: roofline.chart([explanation(*LAYERS), explanation(*LAYERS, peak=256)], ["a", "b"], "net"),
    "shares": lambda: shares.chart(explanation(*LAYERS), "net"),
    "timeline": lambda: timeline.chart(run(), "net"),
    "occupancy": lambda: occupancy.chart(run(), "net"),
}


def texts_of(chart: Chart) -> str:
    return "\n".join(text.get_text() for text in render.draw(chart).findobj(Text))


@pytest.mark.parametrize("name", CHARTS)
def test_a_png_is_wide_enough_to_read(name: str) -> None:
    data = render.figure_bytes(render.draw(CHARTS[name]()))
    assert data.startswith(b"\x89PNG\r\n\x1a\n")
    width, height = struct.unpack(">II", data[16:24])
    assert width == 9 * render.DPI
    assert height > 300


@pytest.mark.parametrize("name", CHARTS)
def test_an_svg_is_the_same_every_time(name: str) -> None:
    data = render.figure_bytes(render.draw(CHARTS[name]()), "svg")
    assert ElementTree.fromstring(data).tag.endswith("svg")
    assert b"<dc:date>" not in data
    assert render.figure_bytes(render.draw(CHARTS[name]()), "svg") == data


def test_a_notebook_shows_a_picture() -> None:
    """As a PNG, at the size that it is made for."""
    data, about = render.new_figure(9, 3)._repr_png_()
    assert data.startswith(b"\x89PNG")
    assert about == {"width": 864}


def test_a_name_is_no_formula() -> None:
    name = "$a_$"
    several = [explanation(layer(name, cycles, 10, 10)) for cycles in (10, 20)]
    picture = render.draw(roofline.chart(several, ["a", "b"], name, name))
    assert render.figure_bytes(picture, "svg").decode().count(name) >= 3


def test_another_format_is_an_error() -> None:
    with pytest.raises(ValueError, match="fmt must be png or svg, not 'pdf'"):
        render.figure_bytes(render.draw(CHARTS["shares"]()), "pdf")


def test_a_network_without_accelerator_layers_can_be_drawn() -> None:
    empty = History("net", Config(), 0, (), (), (), ())
    assert render.figure_bytes(render.draw(timeline.chart(empty, "net")))
    assert render.figure_bytes(render.draw(occupancy.chart(empty, "net")))
    assert render.figure_bytes(render.draw(shares.chart(explanation(), "net")))
    assert render.figure_bytes(render.draw(roofline.chart([explanation()], [""], "net")))


def test_the_front_is_what_nothing_beats() -> None:
    spots = [Spot(1, 9), Spot(2, 5), Spot(2, 4), Spot(3, 4), Spot(4, 1), Spot(5, 2)]
    assert pareto.front(spots, AREA, CYCLES) == [Spot(1, 9), Spot(2, 4), Spot(4, 1)]
    assert pareto.front(spots, replace(AREA, more=True), CYCLES) == [Spot(5, 2), Spot(4, 1)]
    assert pareto.front(spots, AREA, replace(CYCLES, more=True)) == [Spot(1, 9)]
    assert pareto.front([], AREA, CYCLES) == []


def test_what_leaves_more_to_the_host_is_no_part_of_the_front() -> None:
    found = results()
    last = replace(found.rows[3], values={**found.rows[3].values, "host_macs": 5})
    chart = pareto.of_results(replace(found, rows=(*found.rows[:2], replace(found.rows[2], feasible=False), last)))
    assert chart is not None
    infeasible, aside, kept, _ = [mark for mark in chart.panels[0].marks if isinstance(mark, Dots)]
    assert [len(dots.points) for dots in (infeasible, aside, kept)] == [1, 1, 2]
    assert (infeasible.hollow, aside.hollow, kept.hollow) == (True, True, False)
    assert infeasible.opacity < aside.opacity
    assert [entry.text for entry in chart.legend][-2:] == ["leaves more to the host", "infeasible"]


def test_the_colour_is_the_parameter_that_explains_most() -> None:
    rows = results().rows[:4]
    assert pareto.telling_axis(rows, "cycles") == "lanes"
    assert pareto.telling_axis([replace(row, axes={"bus": 32}) for row in rows], "cycles") is None
    assert pareto.telling_axis([replace(row, axes={}) for row in rows], "cycles") is None


def test_a_sweep_in_which_nothing_was_possible_has_no_picture() -> None:
    assert pareto.of_results(results(0)) is None


def test_labels_stay_apart_and_inside() -> None:
    figure = render.new_figure(6, 4)
    plot = figure.add_axes((0.15, 0.15, 0.8, 0.7))
    plot.set(xlim=(-1, 7), ylim=(-1, 7))
    spots = [Place(n % 7, n // 7, f"point {n}") for n in range(49)]
    dots = Dots([(spot.x, spot.y) for spot in spots], [colours.INK] * 49, [36.0] * 49)
    place_labels(plot, spots, Panel(Axis(-1, 7), Axis(-1, 7), [dots, Line([(0, 0), (6, 6)])], 4), most=100)
    boxes = [text.get_window_extent() for text in plot.texts]
    assert len(boxes) > 5
    assert not any(a.overlaps(b) for a, b in combinations(boxes, 2))
    inside = plot.get_window_extent()
    assert all(inside.x0 <= box.x0 and box.x1 <= inside.x1 for box in boxes)
    centres = plot.transData.transform([(spot.x, spot.y) for spot in spots])
    assert not any(box.contains(*centre) for box in boxes for centre in centres)


def test_a_window_is_where_the_largest_layer_begins() -> None:
    first, last = timeline.window_of(run())
    largest = max(run().layers, key=lambda layer: layer.end - layer.start)
    number = run().layers.index(largest)
    assert first <= min(event.start for event in run().events if event.layer == number) < last
    assert sum(first <= event.start < last for event in run().events) >= timeline.EVENTS


def test_a_large_network_has_bars_of_kinds() -> None:
    many = explanation(*(layer(f"l{n}", 10, 10, 10, "add" if n % 2 else "conv") for n in range(shares.MOST + 2)))
    bars = shares.bars_of(many)
    assert [bar.name for bar in bars] == ["conv (41)", "add (41)"]
    assert sum(bar.cycles for bar in bars) == many.cycles
    assert all(sum(bar.shares.values()) == bar.cycles for bar in bars)


def test_rooflines_are_one_or_two() -> None:
    with pytest.raises(ValueError, match="explanations must be one or two with a title each, not 0"):
        roofline.chart([], [], "net")


def test_every_bound_cause_and_role_has_a_colour() -> None:
    assert set(colours.BOUNDS) == set(BOUNDS)
    assert set(colours.cause_colours()) == set(CAUSES)
    assert set(occupancy.COLOURS) == set(ROLES)


def test_colours_within_a_picture_differ_in_lightness_or_hue() -> None:
    for table in (colours.KINDS, colours.BOUNDS, occupancy.COLOURS):
        for a, b in combinations(table.values(), 2):
            assert sum(abs(x - y) for x, y in zip(to_rgb(a), to_rgb(b), strict=True)) > 0.2, (a, b)


def test_layers_of_one_kind_alternate() -> None:
    spans = [Span("a", "conv", 0, 1), Span("b", "add", 1, 2), Span("c", "conv", 2, 3), Span("d", "conv", 3, 4)]
    first, _, second, third = layer_colours(spans)
    assert first == third != second


@pytest.mark.parametrize(
    ("text", "length", "shown"), [("conv0", 11, "conv0"), ("pointwise13", 9, "poin…se13"), ("abcdef", 1, "…")]
)
def test_names_are_cut_in_the_middle(text: str, length: int, shown: str) -> None:
    assert colours.short(text, length) == shown


@pytest.mark.parametrize(("value", "text"), [(0, "0"), (950, "950"), (12500, "12.5k"), (3e6, "3M"), (2e9, "2G")])
def test_figures_of_axes(value: float, text: str) -> None:
    assert render.count(value) == text


def test_titles_are_not_cut() -> None:
    """A long one goes on in the next line, and what is below moves down."""
    figure = render.new_figure(9, 5)
    assert render.write_title(figure, "net", "small") == 0.62
    assert render.write_title(figure, "a_long_name" * 20, "configurations, " * 30) > 1.2
    assert max(text.get_window_extent().x1 for text in figure.texts) <= 9 * render.DPI


SHAPE = {"ic_lanes": 4, "oc_lanes": 4, "pixel_lanes": 2, "depthwise": "native"}
"""Three of four input lanes have a tap."""


def test_depthwise_layers_have_a_ceiling_of_their_own() -> None:
    layers = (*LAYERS, layer("dw", 100, 900, 100, "depthwise"))
    native = replace(explanation(*layers), config=SHAPE)
    assert native.depthwise_peak == native.to_dict()["depthwise_peak"] == 24
    assert replace(native, config={**SHAPE, "depthwise": "emulated"}).depthwise_peak is None
    assert replace(explanation(*LAYERS), config=SHAPE).depthwise_peak is None
    said = "depthwise, 24 MACs per cycle"
    assert said in texts_of(roofline.chart([native], ["a"], "net"))
    assert said not in texts_of(roofline.chart([replace(native, config={})], ["a"], "net"))


def test_every_objective_of_a_front_is_drawn_or_said() -> None:
    space = replace(SPACE, objectives=("cycles", "pe", "lut", "sram", "bram"))
    rows = [
        replace(r, values={**r.values, "lut": r.number, "sram": 5 - r.number, "bram": 3}) for r in results().rows[:4]
    ]
    chart = pareto.of_results(Results(space, tuple(rows)).marked())
    assert chart is not None
    told = texts_of(chart)
    for text in ("PEs, less is better", "LUTs, less is better", "SRAM, less is better"):
        assert text in told
    assert "objectives that are not drawn: block RAMs" in told
    assert "Pareto front of cycles, PEs, LUTs, SRAM, block RAMs, 4 points" in told


def test_the_page_draws_the_same_roofline() -> None:
    chart = CHARTS["roofline"]()
    data = panel_json(chart)
    assert json.loads(json.dumps(data, allow_nan=False))["legend"] == [["conv", colours.KINDS["conv"]]]
    (panel,) = chart.panels
    assert (data["x"]["low"], data["y"]["title"]) == (panel.x.low, "MACs per cycle")
    lines = [mark for mark in data["marks"] if mark["kind"] == "Line"]
    assert [line["tip"] for line in lines] == ["64 MACs per cycle"]
    places = [place for mark in data["marks"] if mark["kind"] == "Dots" for place in mark["points"]]
    assert sorted(y for _, y in places) == sorted(each.attained for each in LAYERS if each.macs)
    assert [x for x, y in places if y == LAYERS[1].attained] == [None]  # it moves nothing
