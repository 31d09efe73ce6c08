"""Options of commands that take a system in the place of a configuration."""

from __future__ import annotations

import argparse
from collections.abc import Collection
from pathlib import Path

import numpy as np

from dovetail.flows.options.network import clock_of, options_of, random_sample, samples_in, shapes_of, states_of
from dovetail.flows.options.parameters import SETTINGS
from dovetail.isa.config.system import System
from dovetail.sw.compiler.options import MODES
from dovetail.sw.errors import DovetailError, NetworkError
from dovetail.sw.network.layout import Sample
from dovetail.sw.runtime.clock import clock_text
from dovetail.sw.runtime.saved_plan import load_plan, save_plan
from dovetail.sw.runtime.system_network import SystemNetwork, plan_network, read_graph

OF_ONE = ("config", "tiling", "round_trip", "exact", "keep_weights", *SETTINGS)
"""Options about one accelerator, as arguments are called."""
OF_PLANNING = ("mode", "inferences", "effort", "host_cost", "save_plan")
"""Those that a plan follows from, or that write one."""
OF_SYSTEMS = ("mode", "inferences", "plan", "save_plan")
"""Those that mean something for a system only."""


def add_system_options(parser: argparse.ArgumentParser) -> None:
    """Add the system, and what its plan is for."""
    group = parser.add_argument_group("system", "several accelerators (`dovetail docs systems`)")
    group.add_argument("--system", metavar="FILE", type=Path, help="the TOML file of a system")
    group.add_argument("--mode", choices=MODES, help=f"what the plan makes fast; default: {MODES[0]}")
    group.add_argument(
        "--inferences", metavar="N", type=int, help="of the plan, with --mode throughput; default: one per accelerator"
    )
    group.add_argument("--plan", metavar="FILE", type=Path, help="use the plan that --save-plan has written")
    group.add_argument(
        "--save-plan", metavar="FILE", type=Path, help="write the plan, to use it again without a search"
    )


def takes_system(args: argparse.Namespace) -> bool:
    """Whether a command line names a system. Raises DovetailError for options that need one."""
    if args.system is not None:
        return True
    for name in OF_SYSTEMS:
        if getattr(args, name) is not None:
            raise DovetailError(f"{_flag(name)} must come with --system")
    return False


def planned_of(args: argparse.Namespace, unused: Collection[str]) -> SystemNetwork:
    """The network of a command line, planned for its system. ``unused``: the command's options that mean nothing for
    a system, as arguments are called.

    Raises DovetailError or OSError.
    """
    for name in (*OF_ONE, *unused):
        if getattr(args, name) not in (None, False):
            raise DovetailError(f"{_flag(name)} must be left out with --system")
    system = System.load(args.system)
    if args.plan is not None:
        for name in OF_PLANNING:
            if getattr(args, name) is not None:
                raise DovetailError(f"{_flag(name)} must be left out with --plan")
        saved = load_plan(args.plan, read_graph(args.network, shapes_of(args), states_of(args)), system)
        if saved.host_cycles and saved.clock != clock_of(args):
            wanted = "left out" if saved.clock is None else clock_text(saved.clock)
            raise DovetailError(f"--clock must be {wanted} with {args.plan}, whose cycles of the host follow from it")
        return saved
    mode = args.mode or MODES[0]
    count = args.inferences
    if count is None:
        count = 1 if mode == MODES[0] else len(system.accelerators)
    options = options_of(args)
    network = plan_network(
        read_graph(args.network, shapes_of(args), states_of(args)),
        system,
        mode=mode,
        inferences=count,
        effort=options.effort,
        host=options.host,
        clock=clock_of(args),
    )
    if args.save_plan is not None:
        save_plan(network, args.save_plan)
    return network


def _flag(name: str) -> str:
    return SETTINGS[name].flag if name in SETTINGS else "--" + name.replace("_", "-")


def samples_for(args: argparse.Namespace, network: SystemNetwork) -> list[Sample]:
    """A sample for each inference: those of ``--input``, or random ones. Raises NetworkError or OSError."""
    if args.input is None:
        random = np.random.default_rng(args.seed)
        return [random_sample(network.graph, random) for _ in range(network.inferences)]
    samples, _ = samples_in(args.input, network.graph)
    if len(samples) != network.inferences:
        raise NetworkError(
            f"{args.input}: must have {network.inferences} samples, one per inference, not {len(samples)}"
        )
    return samples
