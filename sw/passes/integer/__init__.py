"""Passes over the graph of an int8 network: the same bytes at every output, from less work.

Each pass is a function from graph to graph in a file of its own and gives back the graph itself where it finds nothing.
None knows the configuration: what they leave out costs time on every accelerator.
"""

from __future__ import annotations

from collections.abc import Callable

from dovetail.sw.network import ir
from dovetail.sw.passes.integer.activations import fuse_activations
from dovetail.sw.passes.integer.channels import permute_weights
from dovetail.sw.passes.integer.constants import fold_constants
from dovetail.sw.passes.integer.dead import drop_dead
from dovetail.sw.passes.integer.duplicates import merge_duplicates
from dovetail.sw.passes.integer.identities import drop_identities
from dovetail.sw.passes.integer.moves import join_moves
from dovetail.sw.passes.integer.pads import fold_pads
from dovetail.sw.passes.integer.tables import tabulate
from dovetail.sw.passes.integer.transposes import sink_transposes

Pass = Callable[[ir.Graph], ir.Graph]

PASSES: tuple[Pass, ...] = (
    drop_dead,
    fold_constants,
    drop_identities,
    merge_duplicates,
    fold_pads,
    tabulate,
    sink_transposes,
    permute_weights,
    join_moves,
    drop_dead,
    fuse_activations,
)
"""In the order in which they run."""

MAX_ROUNDS = 8
"""Rounds of all passes at most: each finds what the one before has made possible, most networks are done after two."""


def run(graph: ir.Graph) -> ir.Graph:
    """The graph after all passes, repeated while they find something; network outputs keep every byte."""
    for _ in range(MAX_ROUNDS):
        before = graph
        for change in PASSES:
            graph = change(graph)
        if graph is before:
            break
    return graph
