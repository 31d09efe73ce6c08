"""Stages: what is compiled on the way to the path, and for the path."""

from dataclasses import replace

from dovetail.sw.compiler.devices.pieces import Prices
from dovetail.sw.compiler.devices.stages import Stages
from dovetail.sw.compiler.options import Options
from tests.sw.compiler.devices.test_plan import TINY, WIDE, system_of
from tests.sw.compiler.devices.test_shares import graph_of


def test_stages_on_the_path_have_the_better_programs() -> None:
    """Of those without plans for less SRAM, as on the way to the path, and of those with them."""
    graph, options = graph_of("mobilenet_v2_block"), Options(effort=0)
    quick = replace(options, smaller=False)
    search = Stages(system_of(TINY, WIDE), graph, graph.nodes, Prices(), options=options)
    stages = search.find()
    assert [stage.first for stage in stages[1:]] == [stage.last for stage in stages[:-1]]
    for stage in stages:
        each = [search.compiled(stage, options) for options in (quick, options)]
        assert stage.cycles == min(found.cycles for found in each if found)
