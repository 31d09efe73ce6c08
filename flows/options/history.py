"""Options of a run that record it over time: a picture, or a file for trace viewers."""

from __future__ import annotations

import argparse
import re
from collections.abc import Sequence
from pathlib import Path

from dovetail.isa.timing.timeline import Timeline
from dovetail.sw.analysis.chrome_trace import chrome_trace
from dovetail.sw.analysis.history import history
from dovetail.sw.errors import DovetailError
from dovetail.sw.runtime.compiled_network import CompiledNetwork

ENDINGS = {"timeline": (".json", ".png", ".svg"), "occupancy": (".png", ".svg")}
"""Option -> what its file may be."""


def add_history_options(parser: argparse.ArgumentParser) -> None:
    """Add where the pictures and the trace go."""
    group = parser.add_argument_group("what the run looks like", "of the first sample; see `dovetail docs pictures`")
    group.add_argument(
        "--timeline",
        metavar="FILE",
        type=Path,
        help="what each unit does when, with --system what host, accelerators and memory do: a picture (.png, .svg),"
        " or all of it for ui.perfetto.dev (.json)",
    )
    group.add_argument("--window", metavar="A..B", type=_window, help="the cycles that the picture shows enlarged")
    group.add_argument(
        "--occupancy", metavar="FILE", type=Path, help="picture of what SRAM holds over time (.png, .svg)"
    )


def _window(text: str) -> tuple[int, int]:
    match = re.fullmatch(r"([0-9]+)\.\.([0-9]+)", text)
    if match is None or int(match[1]) >= int(match[2]):
        raise argparse.ArgumentTypeError(f"must be two cycles such as 1000..2000, not {text!r}")
    return int(match[1]), int(match[2])


def check_history_options(args: argparse.Namespace) -> None:
    """Check the options before the run. Raises DovetailError."""
    for option, endings in ENDINGS.items():
        path: Path | None = getattr(args, option)
        if path is not None and path.suffix not in endings:
            raise DovetailError(f"--{option} must end in {', '.join(endings)}, not {path}")
        if path is not None and not path.parent.is_dir():
            raise DovetailError(f"--{option}: {path.parent} must be a folder")
        if path is not None and args.engine == "board":
            raise DovetailError(f"--{option} must be left out with --engine board: a board does not tell when what ran")
    if args.window is not None and (args.timeline is None or args.timeline.suffix not in (".png", ".svg")):
        raise DovetailError("--window must come with --timeline FILE.png or .svg")


def draw_history(
    args: argparse.Namespace, compiled: CompiledNetwork, timelines: Sequence[Timeline], clock: float | None
) -> dict[str, bytes | str]:
    """What the command line asks for; option -> content of its file. ``timelines``: of the run, one per segment;
    ``clock``: in Hz, of the trace; without it a cycle is a microsecond there."""
    wanted: dict[str, Path] = {name: path for name in ENDINGS if (path := getattr(args, name)) is not None}
    if not wanted:
        return {}
    if args.window and args.window[0] >= compiled.report().cycles:
        end = compiled.report().cycles
        raise DovetailError(f"--window must begin before the run's end, cycle {end}, not {args.window[0]}")
    # matplotlib takes half a second
    from dovetail.flows.report.pictures.facade import occupancy, timeline
    from dovetail.flows.report.pictures.render import figure_bytes

    drawn: dict[str, bytes | str] = {}
    for name, path in wanted.items():
        kind = path.suffix[1:]
        if kind == "json":
            drawn[name] = chrome_trace(history(compiled, timelines), clock)
        elif name == "timeline":
            drawn[name] = figure_bytes(timeline(compiled, args.window, timelines), kind)
        else:
            drawn[name] = figure_bytes(occupancy(compiled, timelines), kind)
    return drawn
