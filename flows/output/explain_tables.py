"""Tables of explanations and comparisons."""

from fractions import Fraction

from rich import box
from rich.table import Table

from dovetail.flows.output.tables import new_table
from dovetail.sw.analysis.explain.causes import CAUSES, RESOURCES
from dovetail.sw.analysis.explain.comparison import Comparison
from dovetail.sw.analysis.explain.explanation import Explanation, LayerExplanation
from dovetail.sw.analysis.explain.sentences import short, title_of

SMALL = 0.01
"""Causes below this share of a layer's cycles are grouped as "other"."""
NAME, SPENT = 24, 24
"""Characters of a layer's name, at most, and of a line of what its cycles are spent on, at least."""


def causes(explanation: Explanation) -> Table:
    """A line per cause."""
    table = _table("Where the cycles go", "cause", "counts for", ">cycles", ">share", "what it is")
    for name, cycles in explanation.shares.items():
        cause = CAUSES[name]
        table.add_row(
            cause.title, title_of(cause.bound), f"{cycles:,}", f"{cycles / explanation.cycles:.1%}", cause.doc
        )
    return table


def what_ifs(explanation: Explanation) -> Table:
    """A line per resource, the one that matters most first."""
    table = _table(
        "The same program, timed with one thing free",
        "free",
        ">cycles",
        ">change",
        "bound by then",
        "what free means",
    )
    for what in explanation.next:
        change = f"{what.cycles / explanation.cycles - 1:+.1%}" if explanation.cycles else ""
        resource = RESOURCES[what.resource]
        table.add_row(resource.title, f"{what.cycles:,}", change, title_of(what.bound), resource.doc)
    return table


def layers(explanation: Explanation) -> Table:
    """A line per layer: its place on the roofline, its bound, and its cycles without that bound."""
    table = _table(
        f"Layers, {explanation.peak} PEs",
        "#",
        "layer",
        "kind",
        ">cycles",
        ">MACs/cycle",
        ">MACs/byte",
        ">roof",
        "bound by",
    )
    table.add_column("cycles spent on, %", min_width=SPENT)
    table.add_column("without that", justify="right")
    table.add_column("bound then by")
    for number, layer in enumerate(explanation.layers):
        table.add_row(
            str(number),
            short(layer.name, NAME),
            layer.kind,
            f"{layer.cycles:,}",
            *_roofline(layer),
            title_of(layer.bound),
            _spent(layer),
            f"{layer.next.cycles:,}" if layer.next else "",
            title_of(layer.next.bound) if layer.next else "",
        )
    return table


def _roofline(layer: LayerExplanation) -> tuple[str, str, str]:
    if not layer.macs or not layer.cycles:
        return "", "", ""
    intensity = "" if layer.intensity is None else f"{layer.intensity:.1f}"
    return f"{layer.attained:.1f}", intensity, f"{layer.attained / layer.ceiling:.0%}"


def _spent(layer: LayerExplanation) -> str:
    """What a layer's cycles are spent on in per cent, largest first; small parts are grouped."""
    most = sorted(layer.bounds.items(), key=lambda item: -item[1])
    named = [(title_of(bound), cycles) for bound, cycles in most if cycles >= SMALL * layer.cycles]
    rest = layer.cycles - sum(cycles for _, cycles in named)
    parts = [*named, ("other", rest)] if rest else named
    return ", ".join(f"{name} {100 * cycles / layer.cycles:.1f}" for name, cycles in parts)


def losses(comparison: Comparison, first: Explanation, second: Explanation) -> Table:
    """A line per cause: cycles on both configurations, and what is lost."""
    table = _table("Where the difference goes", "cause", "counts for", ">first", ">ideal", ">second", ">lost")
    for name in CAUSES:
        a, b = first.shares.get(name, 0), second.shares.get(name, 0)
        if a or b:
            lost = comparison.losses.get(name, Fraction())
            table.add_row(CAUSES[name].title, title_of(CAUSES[name].bound), *_cycles(a, a / comparison.ratio, b, lost))
    a, b = comparison.cycles
    table.add_section()
    table.add_row("all", "", *_cycles(a, a / comparison.ratio, b, comparison.lost))
    return table


def differences(comparison: Comparison) -> Table:
    """A line per layer: cycles on both configurations, what is lost, and to what most."""
    table = _table(
        "Where the difference goes, by layer",
        "#",
        "layer",
        "kind",
        ">first",
        ">second",
        ">speed-up",
        ">lost",
        "most of it",
    )
    for number, layer in enumerate(comparison.layers):
        a, b = layer.cycles
        sign = 1 if layer.lost >= 0 else -1
        worst = sorted(layer.losses.items(), key=lambda item: -sign * item[1])[:2]
        table.add_row(
            str(number),
            short(layer.name, NAME),
            layer.kind,
            f"{a:,}",
            f"{b:,}",
            f"{a / b:.2f}" if a and b else "",
            f"{round(layer.lost):,}",
            ", ".join(f"{CAUSES[name].title} {round(cycles):,}" for name, cycles in worst if round(cycles)),
        )
    return table


def _cycles(first: int, ideal: Fraction, second: int, lost: Fraction) -> tuple[str, str, str, str]:
    return f"{first:,}", f"{round(ideal):,}", f"{second:,}", f"{round(lost):,}"


def _table(title: str, *columns: str) -> Table:
    return new_table(title, columns, title_justify="left", box=box.SIMPLE_HEAD)
