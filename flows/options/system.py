"""Options of commands that take a system in the place of a configuration."""

from __future__ import annotations

import argparse
from collections.abc import Collection
from pathlib import Path

import numpy as np

from dovetail.flows.options.network import clock_of, options_of, random_sample, samples_in, shapes_of
from dovetail.flows.options.parameters import SETTINGS
from dovetail.isa.config.system import System
from dovetail.sw.compiler.options import MODES
from dovetail.sw.errors import DovetailError, NetworkError
from dovetail.sw.network.layout import Sample
from dovetail.sw.runtime.system_network import SystemNetwork, plan_network

OF_ONE = ("config", "tiling", "round_trip", *SETTINGS)
"""Options about one accelerator, as arguments are called."""


def add_system_options(parser: argparse.ArgumentParser) -> None:
    """Add the system, and what its plan is for."""
    group = parser.add_argument_group("system", "several accelerators (`dovetail docs systems`)")
    group.add_argument("--system", metavar="FILE", type=Path, help="the TOML file of a system")
    group.add_argument("--mode", choices=MODES, help=f"what the plan makes fast; default: {MODES[0]}")
    group.add_argument(
        "--inferences", metavar="N", type=int, help="of the plan, with --mode throughput; default: one per accelerator"
    )


def takes_system(args: argparse.Namespace) -> bool:
    """Whether a command line names a system. Raises DovetailError for options that need one."""
    if args.system is not None:
        return True
    for name in ("mode", "inferences"):
        if getattr(args, name) is not None:
            raise DovetailError(f"--{name} must come with --system")
    return False


def planned_of(args: argparse.Namespace, unused: Collection[str]) -> SystemNetwork:
    """The network of a command line, planned for its system. ``unused``: the command's options that mean nothing for
    a system, as arguments are called.

    Raises DovetailError.
    """
    for name in (*OF_ONE, *unused):
        if getattr(args, name) not in (None, False):
            flag = SETTINGS[name].flag if name in SETTINGS else "--" + name.replace("_", "-")
            raise DovetailError(f"{flag} must be left out with --system")
    system = System.load(args.system)
    mode = args.mode or MODES[0]
    count = args.inferences
    if count is None:
        count = 1 if mode == MODES[0] else len(system.accelerators)
    options = options_of(args)
    return plan_network(
        args.network,
        system,
        shapes=shapes_of(args),
        mode=mode,
        inferences=count,
        effort=options.effort,
        host=options.host,
        clock=clock_of(args),
    )


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
