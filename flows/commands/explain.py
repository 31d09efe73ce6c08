"""Explain where the cycles of a network go, layer by layer, and why another configuration is not faster."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from rich.console import RenderableType

from dovetail.flows.options.network import add_clock_option, add_network_options, clock_of, compiled_again, compiled_of
from dovetail.flows.options.parameters import SETTINGS, changed, extended
from dovetail.flows.options.system import add_system_options, takes_system
from dovetail.flows.output import explain_tables
from dovetail.flows.output.energy import (
    add_energy_option,
    check_energy_option,
    energy_for,
    energy_table,
    energy_text,
)
from dovetail.flows.output.folder import check_output_folder
from dovetail.flows.output.inference import times
from dovetail.flows.output.printable import block
from dovetail.flows.output.reply import Report
from dovetail.flows.system.explain import explain_on_system
from dovetail.isa.common.files import write_atomically, written_whole
from dovetail.isa.config.given import ConfigError, MemoryTiming
from dovetail.isa.config.resolved import Config
from dovetail.sw.analysis.cost.energy import EnergyReport
from dovetail.sw.analysis.explain.comparison import compare
from dovetail.sw.analysis.explain.explainer import explain
from dovetail.sw.analysis.explain.explanation import Explanation
from dovetail.sw.analysis.explain.sentences import answer, summary
from dovetail.sw.runtime.compiled_network import CompiledNetwork


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_network_options(parser, programs=True)
    add_system_options(parser)
    add_clock_option(parser)
    add_energy_option(parser)
    parser.add_argument(
        "--against",
        metavar="CONFIG",
        help="compare with a second configuration: a preset, a TOML file, or changes of the first such as"
        " pe=128,sram=1MiB",
    )
    parser.add_argument("--layers", action="store_true", help="print tables of the layers, too")
    parser.add_argument("--pictures", metavar="DIR", type=Path, help="draw roofline and shares there, as PNG")


def run(args: argparse.Namespace) -> Report:
    if takes_system(args):
        return explain_on_system(args)
    if args.pictures:
        check_output_folder("--pictures", args.pictures)
    check_energy_option(args)
    clock = clock_of(args)
    compiled = compiled_of(args)
    first = explain(compiled)
    energies = [energy_for(args, compiled)]
    data: dict[str, Any] = first.to_dict() | _more(compiled, clock, energies[0])
    explained = [first]
    text: list[RenderableType] = [
        *_memory(compiled),
        block(summary(first, clock)),
        explain_tables.causes(first),
        explain_tables.what_ifs(first),
    ]
    if args.against is not None:
        other = second_config(args.against, compiled.config)
        if "=" not in args.against:
            other = extended(other, args)
        against = compiled_again(args, compiled, other)
        second = explain(against)
        energies.append(energy_for(args, against))
        comparison = compare(first, second)
        data = {
            "first": data,
            "second": second.to_dict() | _more(against, clock, energies[1]),
            "comparison": comparison.to_dict(),
        }
        explained.append(second)
        text = [block(answer(comparison, clock)), explain_tables.losses(comparison, first, second)]
        if args.layers:
            text.append(explain_tables.differences(comparison))
    text += map(energy_text, energies)
    if args.layers:
        text += [explain_tables.layers(explanation) for explanation in explained]
        text += [energy_table(energy) for energy in energies if energy]
    if args.pictures:
        data["pictures"] = [str(path) for path in _draw(args.pictures, explained)]
        text += [f"picture      {path}" for path in data["pictures"]]
    return Report(data, text)


def _more(compiled: CompiledNetwork, clock: float | None, energy: EnergyReport | None) -> dict[str, Any]:
    """What JSON has beside an explanation: times and energy."""
    exact = {} if isinstance(compiled.config.memory, MemoryTiming) else {"cycles_exact": compiled.report().cycles}
    return {**exact, **(times(compiled.report(), clock) if clock else {}), "energy": energy and energy.to_dict()}


def _memory(compiled: CompiledNetwork) -> list[str]:
    """That causes are told with another memory than the configuration's, where that is so."""
    memory, like = compiled.config.memory, compiled.config.like_fixed
    if isinstance(memory, MemoryTiming):
        return []
    latency = f"{like.read_latency} and {like.write_latency} cycles, a beat in {like.beat_cycles}"
    return [
        f"memory       {memory.label}: {compiled.report().cycles:,} cycles; what follows is with a fixed one about"
        f" like it ({latency})"
    ]


def second_config(text: str, base: Config) -> Config:
    """The configuration of ``--against``: a preset, a TOML file, or changes of ``base`` as in ``pe=128,sram=1MiB``.

    Raises ConfigError.
    """
    if not text.strip():
        raise ConfigError(f"--against must be a preset, a TOML file or changes such as pe=128, not {text!r}")
    if "=" not in text:
        return Config.load(text)
    known = {key: p for p in SETTINGS.values() for key in (p.flag.removeprefix("--"), p.name)}
    changes = {}
    for part in text.split(","):
        name, _, value = (piece.strip() for piece in part.partition("="))
        if name not in known:
            raise ConfigError(f"--against: unknown parameter {name!r}; known: {', '.join(SETTINGS)}")
        try:
            changes[known[name].name] = known[name].parse(value)
        except ConfigError as error:
            raise ConfigError(f"--against: {error}") from None
    return changed(base, changes)


def _draw(folder: Path, explained: Sequence[Explanation]) -> list[Path]:
    """The roofline of all, and the shares of each."""
    # matplotlib takes half a second
    from dovetail.flows.report.pictures.facade import roofline, shares
    from dovetail.flows.report.pictures.render import figure_bytes

    names = ("shares.png", "shares-against.png")
    pictures = {"roofline.png": roofline(*explained), **dict(zip(names, map(shares, explained), strict=False))}
    with written_whole(folder) as place:
        for name, picture in pictures.items():
            write_atomically(place / name, figure_bytes(picture))
    return [folder / name for name in pictures]
