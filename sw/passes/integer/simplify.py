"""`simplify` runs all passes on a quantised network: the same bytes at every output, from less work.

Each pass is a function from graph to graph, and returns the graph itself if it finds nothing. None knows the
configuration: what they remove costs time on every accelerator.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from dovetail.sw.network import ir
from dovetail.sw.passes.integer import elementwise, lookups, movement, tidy, windows

Pass = Callable[[ir.Graph], ir.Graph]

PASSES: tuple[Pass, ...] = (
    tidy.drop_dead,
    tidy.fold_constants,
    tidy.drop_identities,
    tidy.merge_duplicates,
    lookups.compute_tables,
    windows.fold_pads,
    windows.fold_strides,
    elementwise.tabulate,
    movement.sink_transposes,
    windows.permute_weights,
    movement.join_moves,
    tidy.drop_dead,
    elementwise.fuse_activations,
)
"""In the order in which they run."""

MAX_ROUNDS = 8
"""The most rounds of all passes. A round finds what the one before has made possible; most networks are done after
two."""


def simplify(graph: ir.Graph) -> ir.Graph:
    """The graph after all passes, repeated while they find something; network outputs keep every byte."""
    for _, _, after in steps(graph, PASSES):
        graph = after
    return graph


def steps(graph: ir.Graph, passes: Sequence[Pass]) -> Iterator[tuple[int, Pass, ir.Graph]]:
    """Round, pass and the graph after it, for every pass that runs."""
    for number in range(MAX_ROUNDS):
        before = graph
        for change in passes:
            graph = change(graph)
            yield number, change, graph
        if graph is before:
            break
