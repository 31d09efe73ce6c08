"""Options that say what counts in a sweep. They override those of a space file or a store, and price nothing anew."""

from __future__ import annotations

import argparse
from dataclasses import replace
from typing import Any

from dovetail.flows.explore.space.design_space import PART_NAMES, SCENARIOS, Space
from dovetail.flows.explore.space.near_miss import check
from dovetail.flows.options.parameters import AXES, CLOCK, SETTINGS, values_of_text
from dovetail.isa.config.given import ConfigError
from dovetail.sw.analysis.cost.energy import DEFAULT_TABLE, load_table
from dovetail.sw.errors import DovetailError

NONE = "none"
"""Word for no constraints."""
_OPTIONS = ("objectives", "constraint", "metric", "part", "scenario", "clock", "energy_table")


def add_goals(parser: argparse.ArgumentParser) -> None:
    """Add the options."""
    group = parser.add_argument_group("goals", "in place of a space file's or a store's; nothing is priced anew")
    group.add_argument(
        "--objectives", metavar="LIST", help='what the front is made of, separated by commas: metrics or expressions'
        ' such as "energy * latency"; after "max", more is better'
    )  # fmt: skip
    group.add_argument(
        "--constraint", metavar="RULE", action="append", default=[],
        help=f'such as "resnet8.latency < 20 ms"; may be repeated; {NONE}: no constraints',
    )  # fmt: skip
    group.add_argument(
        "--metric", metavar="NAME=EXPRESSION", action="append", default=[], help="a metric of your own; may be repeated"
    )
    group.add_argument("--part", choices=(*PART_NAMES, NONE), help="FPGA that the estimated area must fit")
    group.add_argument(
        "--scenario", metavar="WHICH",
        help=f"of several memory timings, what counts: {', '.join(SCENARIOS)}, or one such as read_latency=40",
    )  # fmt: skip
    group.add_argument(CLOCK.flag, metavar="LIST", help=f"{CLOCK.doc} in MHz, or several; default: 100")
    group.add_argument(
        "--energy-table",
        metavar="FILE|NAME",
        help=f"energies of events (`dovetail docs energy`); default: {DEFAULT_TABLE}",
    )


def has_goals(args: argparse.Namespace) -> bool:
    """Whether a command line has one of the options."""
    return any(getattr(args, name) not in (None, []) for name in _OPTIONS)


def with_goals(space: Space, args: argparse.Namespace) -> Space:
    """The space with the goals of a command line in place of its own. Raises DovetailError, ConfigError."""
    changes: dict[str, Any] = {}
    if args.clock is not None:
        space = _with_clock(space, args.clock)
    if args.metric:
        changes["metrics"] = {**space.metrics, **dict(map(_metric, args.metric))}
    if args.objectives is not None:
        changes["objectives"] = tuple(_split(args.objectives))
    if args.constraint:
        changes["constraints"] = tuple(rule for rule in args.constraint if rule != NONE)
    if args.part:
        changes["part"] = "" if args.part == NONE else args.part
    if args.scenario:
        changes["scenario"] = _scenario(args.scenario)
    if args.energy_table:
        load_table(args.energy_table)  # a bad one ends the sweep before it begins
        changes["energy_table"] = args.energy_table
    space = replace(space, **changes)
    check(space)
    return space


def _with_clock(space: Space, text: str) -> Space:
    """The space with one clock, or several as its last axis, so that the numbers of the other axes' values stay."""
    try:
        clocks = values_of_text(CLOCK.kind, text)
    except ValueError as error:
        raise DovetailError(f"{CLOCK.name} {error}") from None
    axes = {name: values for name, values in space.axes.items() if name != CLOCK.name}
    return replace(space, axes=axes | ({CLOCK.name: clocks} if len(clocks) > 1 else {}), clock=clocks[0])


def _metric(text: str) -> tuple[str, str]:
    name, equals, expression = text.partition("=")
    if not equals or not name.strip() or not expression.strip():
        raise DovetailError(f'metric must be NAME=EXPRESSION such as "score=energy * latency", not {text!r}')
    return name.strip(), expression.strip()


def _scenario(text: str) -> Any:
    """A word, or values of the memory's timing."""
    if "=" not in text:
        return text
    chosen = {}
    for part in text.split(","):
        name, _, value = (word.strip() for word in part.partition("="))
        if name not in SETTINGS or not AXES[name].memory:
            raise DovetailError(f"scenario must be of the memory's timing, such as read_latency=40, not {part!r}")
        try:
            chosen[name] = AXES[name].parse(value)
        except ConfigError as error:
            raise DovetailError(f"scenario: {error}") from None
    return chosen


def _split(text: str) -> list[str]:
    """Parts between commas outside of brackets."""
    parts, depth = [""], 0
    for letter in text:
        depth += (letter == "(") - (letter == ")")
        if letter == "," and depth == 0:
            parts.append("")
        else:
            parts[-1] += letter
    return [part.strip() for part in parts]
