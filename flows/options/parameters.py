"""The configuration's parameters as users write them: on the command line and in space files."""

import argparse
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import fields
from functools import lru_cache, partial
from typing import Any

from dovetail.flows.options.system_parameters import NEW
from dovetail.isa.config.given import ARRAY_LANES, INT, PARAMETERS, SIZE, ConfigError, Kind, Parameter, check_shape
from dovetail.isa.config.memory import NAMES_OF_MEMORIES, named_memory, table_of
from dovetail.isa.config.resolved import Config
from dovetail.sw.runtime.clock import CLOCKS

DERIVED = ("stripe", "kernel_rows", "requant_lanes", "vector_lanes", "banks")
"""Parameters that follow from others unless they are given."""


def _lanes(value: Any) -> tuple[int, ...]:
    """Lanes as (input channels, output channels) per cycle, and pixels if these are several."""
    if not isinstance(value, list | tuple) or len(value) not in (2, 3) or not all(type(n) is int for n in value):
        raise ValueError(
            "must be input and output lanes such as [8, 16], or these and pixel lanes such as [8, 16, 2], on the"
            f" command line 8x16 or 8x16x2, not {value!r}"
        )
    *channels, pixels = value if len(value) == 3 else (*value, 1)
    return (*channels, pixels) if pixels != 1 else tuple(channels)


def _integers(text: str) -> Any:
    parts = text.lower().split("x")
    return [int(part) for part in parts] if all(part.strip().isdigit() for part in parts) else text


def _frequency(value: Any) -> float:
    """Hz, of a number or of a text with a unit."""
    found = re.fullmatch(r"\s*(\d+(?:\.\d+)?)\s*(Hz|kHz|MHz|GHz)\s*", value) if isinstance(value, str) else None
    hertz = float(found[1]) * HERTZ[found[2]] if found else value
    if isinstance(hertz, bool) or not isinstance(hertz, int | float) or not CLOCKS[0] <= hertz <= CLOCKS[1]:
        raise ValueError(
            f'must be a frequency such as "100 MHz", or Hz as a number, {CLOCKS[0]:g} to {CLOCKS[1]:g}, not {value!r}'
        )
    return float(hertz)


def _megahertz(text: str) -> Any:
    """A frequency on the command line: without a unit it is in MHz."""
    try:
        return float(text) * HERTZ["MHz"]
    except ValueError:
        return text


HERTZ = {"Hz": 1.0, "kHz": 1e3, "MHz": 1e6, "GHz": 1e9}
FREQUENCY = Kind(_frequency, lambda value: f"{value / HERTZ['MHz']:g} MHz", _megahertz)
LANES = Kind(_lanes, lambda value: "x".join(map(str, value)), _integers)


_ALL_LANES = Parameter(
    "input and output channels per cycle, such as 8x16, and pixels, such as 8x16x2",
    title="lanes",
    kind=LANES,
    name="lanes",
)


def _memory(value: Any) -> str:
    if not isinstance(value, str):
        raise ValueError(f"must be a name such as ddr4-2400-x16@200MHz, not {value!r}")
    try:
        named_memory(value)
    except ConfigError as error:
        raise ValueError(str(error).removeprefix("memory").removeprefix(":").strip()) from None
    return value


_MEMORY = Parameter(
    "memory behind the bus, and the accelerator's clock where it matters, such as ddr4-2400-x16@200MHz",
    title="memory",
    kind=Kind(_memory, choices=NAMES_OF_MEMORIES),
    option="--mem-model",
    memory=True,
    name="memory_model",
)
SETTINGS: dict[str, Parameter] = {_ALL_LANES.name: _ALL_LANES, **PARAMETERS, _MEMORY.name: _MEMORY}
"""What a user may set: ``lanes``, shorthand for ic_lanes, oc_lanes and pixel_lanes together, every parameter, and
``memory_model``, which names a whole memory."""
CLOCK = Parameter("frequency of the accelerator", title="clock", kind=FREQUENCY, name="clock")
"""Of a point of a sweep: cycles do not depend on it, times and rates do."""
AXES: dict[str, Parameter] = {**SETTINGS, **NEW, CLOCK.name: CLOCK}
"""What an axis of a sweep may be, of configurations or of systems."""
LONGEST = 10_000
"""The most values of a range."""


def label(axes: Mapping[str, Any]) -> str:
    """Values of settings in a line."""
    named = (f"{AXES[name].title} {AXES[name].show(value)}" for name, value in axes.items())
    return ", ".join(named) or "as configured"


def add_options(parser: argparse.ArgumentParser, *, lists: bool = False) -> None:
    """Add ``--config`` and a flag per setting; with ``lists`` each takes several values (:func:`values_of_text`)."""
    about = "flags change what --config names (a preset or a TOML file)"
    if lists:
        about += "; LIST: values separated by commas, or A..B (doubled from A up to B), or A..B:STEP"
    group = parser.add_argument_group("configuration", about)
    group.add_argument("--config", metavar="FILE|PRESET", help="default: the preset default")
    _add(group, SETTINGS.values(), lists=lists)


def add_lists(group: argparse._ArgumentGroup, settings: Iterable[Parameter]) -> None:
    """Add a flag per setting that takes several values (:func:`values_of_text`)."""
    _add(group, settings, lists=True)


def _add(group: argparse._ArgumentGroup, settings: Iterable[Parameter], *, lists: bool) -> None:
    for p in settings:
        convert = partial(_argument, values_of_text if lists else Kind.parse, p.kind)
        flags = dict.fromkeys((p.flag, "--" + p.name.replace("_", "-")))  # the name in files is understood as well
        text = f"{p.doc}: {p.values}" if p.values else p.doc
        group.add_argument(*flags, dest=p.name, type=convert, metavar="LIST" if lists else "VALUE", help=text)


def _argument(parse: Callable[[Kind, str], Any], kind: Kind, text: str) -> Any:
    try:
        return parse(kind, text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from None


def values_of_text(kind: Kind, text: str) -> list[Any]:
    """The values of ``a,b,c``, ``a..b`` (doubled from a up to b) or ``a..b:step``. Raises ValueError."""
    low, dots, rest = text.partition("..")
    if dots:
        high, colon, step = rest.partition(":")
        if kind not in (INT, SIZE):
            raise ValueError(f"must be a list of values, not the range {text!r}")
        return values_between(
            kind.parse(low), kind.parse(high), **({"step": kind.parse(step)} if colon else {"factor": 2})
        )
    values = [kind.parse(part.strip()) for part in text.split(",")]
    if len(set(values)) != len(values):
        raise ValueError(f"values must differ, not {text!r}")
    return values


def values_between(low: int, high: int, *, step: int = 0, factor: float = 0) -> list[int]:
    """``low`` and what follows by adding ``step``, or by multiplying with ``factor``, up to ``high`` inclusive.

    Raises ValueError.
    """
    if low > high:
        raise ValueError(f"must go up, not from {low} to {high}")
    if high >= 1 << 63:
        raise ValueError(f"must end below 2^63, not at {high}")
    if step < 1 if not factor else not 1 < factor < 1 << 63 or low < 1:
        raise ValueError("must have a step of at least 1, or a factor above 1 and start above 0")
    values, value = [low], low
    while (value := value + step if step else max(value + 1, round(value * factor))) <= high:
        values.append(value)
        if len(values) > LONGEST:
            raise ValueError(f"must have {LONGEST:,} values or fewer; take a larger step or factor")
    return values


def given(args: argparse.Namespace) -> dict[str, Any]:
    """The settings that the command line gives, by name."""
    return {name: value for name in SETTINGS if (value := getattr(args, name)) is not None}


def extended(config: Config, args: argparse.Namespace) -> Config:
    """A configuration with the extensions of ``--with``, which every command takes. Raises :class:`ConfigError`."""
    added = getattr(args, "with", None)
    return config.replace(extensions=(*config.extensions, *added)) if added else config


def base_of(args: argparse.Namespace) -> Config:
    """What ``--config`` names, with the extensions of ``--with``. Raises :class:`ConfigError`."""
    return extended(Config.load(args.config or "default"), args)


def config_of(args: argparse.Namespace) -> Config:
    """The configuration of a command. Raises :class:`ConfigError`."""
    return changed(base_of(args), given(args))


def changed(base: Config, changes: Mapping[str, Any]) -> Config:
    """``base`` with settings changed; what merely followed from the changed ones is derived anew.

    Raises :class:`ConfigError`.
    """
    if not changes:
        return base
    data = dict(chosen(base))
    memory = data.pop("memory")
    if _MEMORY.name in changes:
        memory = table_of(named_memory(changes[_MEMORY.name]))
    memory = memory | {n: v for n, v in changes.items() if n in PARAMETERS and PARAMETERS[n].memory}
    hardware = {n: v for n, v in changes.items() if not SETTINGS[n].memory}
    check_shape(hardware)
    if "lanes" in hardware:
        hardware |= named_lanes(hardware.pop("lanes"))
    if {"pe", "dataflow"} & set(hardware):
        data = {name: value for name, value in data.items() if name not in ARRAY_LANES}
        hardware = {"pe": base.macs_per_cycle, **hardware}
    return Config.from_dict({**data, **hardware, "memory": memory})


@lru_cache(maxsize=64)
def chosen(config: Config) -> Mapping[str, Any]:
    """The configuration's parameters without those that follow from the others."""
    data = config.to_dict()
    for names in (("sram", "banks"), *((name,) for name in DERIVED)):  # the default SRAM has banks of its own
        without = {key: value for key, value in data.items() if key not in names}
        try:
            same = Config.from_dict(without) == config
        except ConfigError:
            same = False
        if same:
            data = without
    return data


def flat(config: Config) -> dict[str, Any]:
    """Every parameter of a finished configuration by the names of :data:`PARAMETERS`, for tables."""
    values = (
        {field.name: getattr(config, field.name) for field in fields(config)}
        | vars(config.like_fixed)
        | {"pe": config.macs_per_cycle}
        | {"dataflow": dataflow_of(config.ic_lanes, config.oc_lanes, config.pixel_lanes)}
        | {"extensions": PARAMETERS["extensions"].show(config.extensions)}
    )
    return {name: values[name] for name in PARAMETERS}


def named_lanes(lanes: Sequence[int]) -> dict[str, int]:
    """The parameters that a value of ``lanes`` stands for."""
    return dict(zip(ARRAY_LANES, (*lanes, 1), strict=False))


def dataflow_of(ic: int, oc: int, pixels: int) -> str:
    """The shorthand's name for the shape of the array."""
    if pixels > 1:
        return "balanced"
    if ic == 1 or oc == 1:
        return "input" if oc == 1 else "output"
    return "mixed"
