"""Pictures of networks and explanations, which `dovetail.pictures` offers; those of a sweep are methods of its results.

Each is a matplotlib figure: a notebook shows it, ``savefig`` writes it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from matplotlib.figure import Figure

from dovetail.flows.report.charts.occupancy import chart as occupancy_chart
from dovetail.flows.report.charts.plan import chart as plan_chart
from dovetail.flows.report.charts.roofline import chart as roofline_chart
from dovetail.flows.report.charts.shares import chart as shares_chart
from dovetail.flows.report.charts.timeline import Window
from dovetail.flows.report.charts.timeline import chart as timeline_chart
from dovetail.flows.report.pictures.render import draw
from dovetail.isa.common.sizes import format_bytes
from dovetail.isa.config.resolved import array_of
from dovetail.isa.timing.timeline import Timeline
from dovetail.sw.analysis.explain.comparison import compare
from dovetail.sw.analysis.explain.explanation import Explanation
from dovetail.sw.analysis.history import History, history
from dovetail.sw.errors import DovetailError
from dovetail.sw.runtime.compiled_network import CompiledNetwork
from dovetail.sw.runtime.system_network import SystemNetwork


def roofline(*explanations: Explanation) -> Figure:
    """The layers of one explanation, or of two of the same network, under the ceilings of the array and the bus.

    Raises ValueError for another number of them.
    """
    titles, subtitle = titles_of(explanations) if explanations else ([], "")
    network = explanations[0].network if explanations else ""
    return draw(roofline_chart(explanations, titles, f"{network}: roofline", subtitle))


def shares(explanation: Explanation) -> Figure:
    """Where each layer's cycles go, by cause; of networks of more than 80 layers, each kind's."""
    about = ", ".join(_main(explanation.config))
    return draw(shares_chart(explanation, f"{explanation.network}: where the cycles go", about))


def timeline(
    network: CompiledNetwork, window: Window | None = None, timelines: Sequence[Timeline] | None = None
) -> Figure:
    """What LOAD, ARRAY, VECTOR and STORE do when, the whole run and a window of it.

    Parameters
    ----------
    network: compiled.
    window: the first cycle, and the one after the last; left out, where the layer with most cycles begins.
    timelines: those of a result; left out, the exact ones of the timing rules.

    Raises
    ------
    DovetailError: the window begins after the run's end.
    """
    run = history(network, timelines)
    if window and window[0] >= run.cycles:
        raise DovetailError(f"window must begin before the run's end, cycle {run.cycles}, not {window[0]}")
    return draw(timeline_chart(run, f"{run.network}: timeline", _about(run), window=window))


def occupancy(network: CompiledNetwork, timelines: Sequence[Timeline] | None = None) -> Figure:
    """Which bytes of SRAM hold something still to be read, what it is, and where it lies; see :func:`timeline`."""
    run = history(network, timelines)
    return draw(occupancy_chart(run, f"{run.network}: what SRAM holds", _about(run)))


def plan(network: SystemNetwork) -> Figure:
    """What the host of a system and each accelerator do when, and whose data memory moves."""
    count = f"{network.inferences} inferences" if network.inferences > 1 else "one inference"
    about = f"{network.times.cycles:,} cycles for {count} on {len(network.system.accelerators)} accelerators"
    if network.host_cycles:
        about += f", if the host's layers take {network.host_cycles:,}: an estimate, error {network.options.host.error}"
    return draw(plan_chart(network, f"{network.graph.name}: plan", about))


def _about(run: History) -> str:
    config = run.config
    size = f"{config.array} multipliers, {format_bytes(config.sram)} SRAM, {config.bus}-bit bus"
    return f"{run.cycles:,} cycles on {size}"


def titles_of(explanations: Sequence[Explanation]) -> tuple[list[str], str]:
    """The parameters in which the configurations differ, and those that they share."""
    texts = [_main(explanation.config) for explanation in explanations]
    differ = [len(set(values)) > 1 for values in zip(*texts, strict=True)]
    if len(explanations) > 1 and not any(differ):
        changes = compare(*explanations).changes.items()
        apart = [", ".join(f"{name} {values[n]}" for name, values in changes) for n in (0, 1)]
        return [apart[0] or "first", apart[1] or "second"], ", ".join(texts[0])
    apart = [", ".join(text for text, own in zip(values, differ, strict=True) if own) for values in texts]
    return apart, ", ".join(text for text, own in zip(texts[0], differ, strict=True) if not own)


def _main(config: Mapping[str, Any]) -> tuple[str, str, str]:
    return array_of(config), format_bytes(config["sram"]), f"{config['bus']}-bit bus"
