"""Options of commands that run random programs on model and RTL, over many configurations."""

from __future__ import annotations

import argparse
from pathlib import Path

from dovetail.flows.options.engines import add_form_option
from dovetail.flows.options.parameters import extended
from dovetail.isa.common.sizes import format_bytes
from dovetail.isa.config.given import FEATURES
from dovetail.isa.config.resolved import Config
from dovetail.sw.errors import DovetailError
from dovetail.sw.random.programs.configurations import configurations


def add_count(parser: argparse.ArgumentParser, flag: str, default: int, about: str) -> None:
    """Add a count or a seed; :func:`check_counts` checks its range."""
    parser.add_argument(flag, type=int, default=default, metavar="N", help=f"{about}; default: %(default)s")


def add_campaign_options(parser: argparse.ArgumentParser, configs: int) -> None:
    """Add configurations, the RTL's form and processes; ``configs``: how many there are without the option."""
    add_count(parser, "--configs", configs, "configurations")
    add_count(parser, "--config-seed", 0, "of the configurations: with the same one, builds are reused")
    parser.add_argument(
        "--config", metavar="FILE|PRESET", action="append", help="this configuration instead; may be repeated"
    )
    add_form_option(parser)
    add_count(parser, "--jobs", 2, "processes")


def check_counts(args: argparse.Namespace, **least: int) -> None:
    """Raise DovetailError for an option below its least number."""
    for name, number in least.items():
        if getattr(args, name) < number:
            raise DovetailError(f"--{name.replace('_', '-')} must be at least {number}, not {getattr(args, name)}")


def configurations_of(args: argparse.Namespace) -> list[Config]:
    """The configurations of a command line. Raises DovetailError, ConfigError."""
    if args.config:
        found = [Config.load(name) for name in args.config]
    else:
        found = configurations(args.config_seed, args.configs)
    return [extended(config, args) for config in found]


def check_report(path: Path) -> None:
    """Raise DovetailError at once for a path that cannot be written."""
    if path.suffix not in (".md", ".json"):
        raise DovetailError(f"a report must be a .md or .json file, not {path}")
    if not path.parent.is_dir():
        raise DovetailError(f"{path.parent}: No such directory")


def config_label(config: Config) -> str:
    """A configuration in a line."""
    parts = [
        config.array.replace(" ", ""),
        f"{format_bytes(config.sram)} in {config.banks}",
        f"stripe {config.stripe}",
        f"requant {config.requant_lanes}",
        f"vector {config.vector_lanes}",
        f"depthwise {config.depthwise}" + f" of {config.kernel_rows} rows" * (config.kernel_rows > 1),
        f"bus {config.bus} x {config.outstanding}",
    ]
    parts += [f"no {name}" for name in FEATURES if not getattr(config, name)]
    parts += [f"softmax {config.softmax}"] if config.softmax else []
    parts += [f"norm {config.norm}" + f" of {config.norm_bits} bits" * config.norm16] if config.norm else []
    parts += [f"with {name}" for name in config.extensions]
    return ", ".join(parts)
