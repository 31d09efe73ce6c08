"""The plan that makes one inference fast: stages, each shared by all accelerators."""

from __future__ import annotations

from dataclasses import replace

from dovetail.isa.config.system import System
from dovetail.sw.compiler.devices.pieces import Prices, configs_of
from dovetail.sw.compiler.devices.plan import Plan, build
from dovetail.sw.compiler.devices.stages import Stages
from dovetail.sw.compiler.options import Options
from dovetail.sw.compiler.partition.segments import broken_rule
from dovetail.sw.errors import CompileError
from dovetail.sw.network import ir


def latency_plan(system: System, graph: ir.Graph, options: Options, *, longest: int = 8, even: bool = False) -> Plan:
    """The plan of a graph.

    Parameters
    ----------
    options: of the compilation; ``effort`` is that of the search for stages, too.
    longest: nodes of a shared stage, at most.
    even: shares of equal size, however fast the accelerators are.

    Raises
    ------
    CompileError: a layer that no accelerator of the system can compute; memory that is too small.
    """
    check(system, graph, options)
    pieces = replace(options, effort=min(options.effort, 1))
    stages = Stages(system, graph, graph.nodes, Prices(pieces), effort=options.effort, longest=longest, even=even)
    found = stages.find()
    return build(system, graph, [(stage, stages.nodes) for stage in found], pieces)


def check(system: System, graph: ir.Graph, options: Options) -> None:
    """Raises CompileError for a microcoded accelerator, and for a layer that no accelerator can compute."""
    for part in system.accelerators:
        if part.config.serial:
            raise CompileError(f"accelerators.{part.name}: must not be microcoded for a plan")
    for node in graph.nodes:
        if isinstance(node, ir.Host):
            raise CompileError(
                f"layer {node.name!r}: must run on an accelerator, {node.reason or node.label} is the host's"
            )
        broken = [broken_rule(config, options, graph, node) for config in configs_of(system)]
        if all(broken) and broken[0]:
            raise CompileError(f"layer {node.name!r}: no accelerator of the system can compute it: {broken[0][1]}")
