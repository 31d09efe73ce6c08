"""The options that say how hard schedules are searched for, and where they are remembered."""

import argparse
import os
from pathlib import Path

from dovetail.isa.common.build_cache import default_cache
from dovetail.sw.compiler.options import EFFORTS
from dovetail.sw.compiler.plan import schedule_cache

VARIABLE = "DOVETAIL_SCHEDULES"
"""Environment variable with the folder of the schedule cache; "off": there is none."""


def add_schedule_options(parser: argparse.ArgumentParser, *, default: str = "1") -> None:
    """Add effort and schedule cache; ``default``: the effort without the option, in words."""
    parser.add_argument(
        "--effort",
        type=int,
        choices=EFFORTS,
        help="how hard to search for schedules: 0 estimates, 1 prices the best few exactly, 2 more of them, 3 all that"
        f" could be better (minutes); always 0 with --tiling channels; default: {default}",
    )
    add_cache_option(parser)


def add_cache_option(parser: argparse.ArgumentParser) -> None:
    """Add the schedule cache alone, where something else says the effort."""
    parser.add_argument(
        "--no-schedule-cache",
        action="store_true",
        help=f"neither use nor keep earlier runs' schedules (folder: ${VARIABLE}, or below ~/.cache/dovetail)",
    )


def use_schedules(args: argparse.Namespace) -> Path | None:
    """Start using the schedule cache that a command line and the environment ask for; its folder."""
    named = os.environ.get(VARIABLE, "")
    folder = None if args.no_schedule_cache or named == "off" else Path(named or default_cache() / "schedules")
    schedule_cache.use(folder)
    return folder
