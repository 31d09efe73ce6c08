"""The space of a sweep on a command line: a space file, or a network and lists of values."""

from __future__ import annotations

import argparse
from dataclasses import replace
from pathlib import Path

from dovetail.flows.explore.space.deployment import SYSTEM_PARAMETERS, Deployment
from dovetail.flows.explore.space.design_space import METHODS, STUDY, Space, Workload, usual_goals
from dovetail.flows.explore.space.file import NEEDS, load
from dovetail.flows.options.goals import add_goals, with_goals
from dovetail.flows.options.network import (
    NETWORK_HELP,
    add_host_cost_option,
    add_keep_weights_option,
    add_shape_option,
    shapes_of,
)
from dovetail.flows.options.parameters import AXES, SETTINGS, add_lists, base_of, extended, given
from dovetail.flows.options.system_parameters import NEW
from dovetail.isa.config.system import System
from dovetail.sw.compiler.options import TILINGS
from dovetail.sw.compiler.partition.host_cost import load_host_cost
from dovetail.sw.errors import DovetailError

_SPACE = ("shape", "study", "config", "system", *NEW, *SETTINGS)
"""Options that make a space."""
_OF_ONE = (
    "study",
    "config",
    "tiling",
    "keep_weights",
    "with",
    *(name for name in SETTINGS if name not in SYSTEM_PARAMETERS),
)
"""Options that mean nothing for a system."""
_CHANGES = ("with", "tiling", "keep_weights", "effort", "search", "points", "seed", "host_cost")
"""Options that change one."""


def add_space_options(parser: argparse.ArgumentParser) -> None:
    """Add network or space file, goals and search; those of the configuration are `add_options`."""
    parser.add_argument(
        "network",
        metavar="NETWORK|SPACE.toml",
        nargs="?",
        help=f"{NETWORK_HELP}, or a space file (`dovetail docs spaces`)",
    )
    add_shape_option(parser)
    parser.add_argument(
        "--study", action="store_true", help="the reference study's 36 configurations, tiled as it did (--tiling)"
    )
    parser.add_argument("--tiling", choices=TILINGS, help="default: free, with --study channels")
    add_keep_weights_option(parser)
    group = parser.add_argument_group("system", "several accelerators (`dovetail docs systems`); LIST as below")
    group.add_argument("--system", metavar="FILE", type=Path, help="the TOML file of a system: its parts are varied")
    add_lists(group, NEW.values())
    add_goals(parser)
    add_host_cost_option(parser)
    parser.add_argument("--search", choices=METHODS, help="how points are chosen; default: exhaustive")
    parser.add_argument("--points", metavar="N", type=int, help="how many points the search may evaluate")
    parser.add_argument("--seed", metavar="N", type=int, help="of the search; default: 0")


def space_of(args: argparse.Namespace) -> Space:
    """The space of a command line. Raises DovetailError or ConfigError."""
    if args.network is None:
        raise DovetailError("sweep must have a network or a space file, or --resume with a store")
    if str(args.network).endswith(".toml"):
        _refuse(args, _SPACE, "a space file says that itself")
        space = load(args.network)
        if isinstance(space.base, Deployment):
            _refuse(args, _OF_ONE, "the space is of systems")
        else:
            space = replace(space, base=extended(space.base, args))
        return _searched(with_goals(space, args), args)
    return _searched(with_goals(_space_of_flags(args), args), args)


def _space_of_flags(args: argparse.Namespace) -> Space:
    if args.system:
        _refuse(args, _OF_ONE, "accelerators are those of --system and --accelerators")
        base = Deployment(System.load(args.system))
        axes = {name: tuple(values) for name in SYSTEM_PARAMETERS if (values := getattr(args, name)) is not None}
        workload = Workload(args.network, shapes=shapes_of(args))
        return Space((workload,), base, axes, **usual_goals(base, axes))
    for name in NEW:
        if getattr(args, name) is not None:
            raise DovetailError(f"{AXES[name].flag} must come with --system")
    lists = {**(STUDY if args.study else {}), **given(args)}
    axes = {name: tuple(lists[name]) for name in SETTINGS if name in lists}
    tiling = "channels" if args.study else "free"
    return Space((Workload(args.network, shapes=shapes_of(args)),), base_of(args), axes, tiling=tiling)


def _searched(space: Space, args: argparse.Namespace) -> Space:
    """The space with the command line's search and compiler effort.

    Raises DovetailError.
    """
    plan = {"method": args.search, "points": args.points, "seed": args.seed}
    options = {"tiling": args.tiling, "effort": args.effort, "keep_weights": args.keep_weights}
    options["host_cost"] = args.host_cost and load_host_cost(args.host_cost)
    changed = {name: value for name, value in options.items() if value is not None}
    search = replace(space.search, **{name: value for name, value in plan.items() if value is not None})
    for name in ("points", "seed"):
        if plan[name] is not None and search.method not in NEEDS[name]:
            methods = ", ".join(NEEDS[name])
            raise DovetailError(f"--{name} must be left out of the search {search.method}; {methods} take it")
    if search.method in ("random", "optuna") and not search.points:
        raise DovetailError(f"the search {search.method} must have --points, how many to evaluate")
    if search.method not in NEEDS["points"]:
        search = replace(search, points=0)  # those of a space file are of its own search
    return replace(space, search=search, **changed)


def check_resumed(args: argparse.Namespace) -> None:
    """Raise DovetailError for an option that makes or changes a space, which a resumed sweep has."""
    _refuse(args, ("network", *_SPACE, *_CHANGES), "--resume takes the space from the store")


def _refuse(args: argparse.Namespace, names: tuple[str, ...], reason: str) -> None:
    for name in names:
        if getattr(args, name) not in (None, False, []):
            option = name if name == "network" else "--" + name.replace("_", "-")
            flag = AXES[name].flag if name in AXES else option
            raise DovetailError(f"{reason}; leave out {flag}")
