"""The configuration's parameters as users write them: on the command line and in space files."""

import argparse
import re
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from functools import lru_cache, partial
from typing import Any

from dovetail.isa.common.sizes import format_bytes, parse_bytes
from dovetail.isa.config.given import DATAFLOWS, DEPTHWISE, ConfigError
from dovetail.isa.config.resolved import Config
from dovetail.sw.runtime.clock import CLOCKS

DERIVED = ("requant_lanes", "vector_lanes", "depthwise_lanes", "banks")
"""Parameters that follow from others unless they are given."""


@dataclass(frozen=True)
class Kind:
    """What values a parameter takes.

    ``read`` takes a number, truth value, text or list, as TOML has it, and returns the parameter's value or raises
    ValueError with the rule; ``lexical`` turns a flag's text into such a value first.
    """

    name: str
    read: Callable[[Any], Any]
    lexical: Callable[[str], Any]
    show: Callable[[Any], str] = str
    choices: tuple[str, ...] = ()

    def parse(self, text: str) -> Any:
        """The value of a flag's text. Raises ValueError."""
        return self.read(self.lexical(text))


def _int(value: Any) -> int:
    if isinstance(value, bool) or not isinstance(value, int):
        raise ValueError(f"must be an integer, not {value!r}")
    return value


def _size(value: Any) -> int:
    if isinstance(value, bool) or not isinstance(value, int | str):
        raise ValueError(f'must be a size such as "512 KiB", not {value!r}')
    return parse_bytes(value)


def _switch(value: Any) -> bool:
    if not isinstance(value, bool):
        raise ValueError(f"must be true or false, not {value!r}")
    return value


def _pair(value: Any) -> tuple[int, int]:
    """Lanes as (input, output) channels per cycle."""
    if not isinstance(value, list | tuple) or len(value) != 2 or not all(type(n) is int for n in value):
        raise ValueError(
            f"must be a pair of input and output lanes such as [8, 16], on the command line 8x16, not {value!r}"
        )
    return value[0], value[1]


def _integer(text: str) -> Any:
    try:
        return int(text)
    except ValueError:
        return text


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
FREQUENCY = Kind("frequency", _frequency, _megahertz, lambda value: f"{value / HERTZ['MHz']:g} MHz")
INT = Kind("integer", _int, _integer)
SIZE = Kind("size", _size, str.strip, format_bytes)
SWITCH = Kind("boolean", _switch, lambda text: {"true": True, "false": False}.get(text, text), lambda v: str(v).lower())
LANES = Kind("lanes", _pair, _integers, lambda value: f"{value[0]}x{value[1]}")


def one_of(names: tuple[str, ...]) -> Kind:
    """A parameter that is one of some names."""

    def read(value: Any) -> str:
        if value not in names:
            raise ValueError(f"must be one of {', '.join(names)}, not {value!r}")
        return str(value)

    return Kind("name", read, str.strip, choices=names)


@dataclass(frozen=True)
class Parameter:
    """A configuration parameter as a flag. ``memory`` ones are simulation only."""

    name: str
    flag: str
    kind: Kind
    doc: str
    memory: bool = False
    title: str = ""

    def show(self, value: Any) -> str:
        """The value for labels."""
        return self.kind.show(value)


PARAMETERS: dict[str, Parameter] = {
    p.name: p
    for p in (
        Parameter("pe", "--pe", INT, "multipliers, shared out by --dataflow", title="PEs"),
        Parameter("ic_lanes", "--ic-lanes", INT, "input channels per cycle", title="input lanes"),
        Parameter("oc_lanes", "--oc-lanes", INT, "output channels per cycle", title="output lanes"),
        Parameter("sram", "--sram", SIZE, "on-chip memory, such as 512KiB", title="SRAM"),
        Parameter("banks", "--banks", INT, "SRAM banks"),
        Parameter("dataflow", "--dataflow", one_of(DATAFLOWS), f"how --pe is shared out: {', '.join(DATAFLOWS)}"),
        Parameter("stripe", "--stripe", INT, "output pixels that share a weight load"),
        Parameter("requant_lanes", "--requant-lanes", INT, "results requantised per cycle", title="requantiser lanes"),
        Parameter("vector_lanes", "--vector-lanes", INT, "channels per cycle of the vector unit", title="vector lanes"),
        Parameter("matmul", "--matmul", SWITCH, "whether MAT_MUL is built: true, false"),
        Parameter("pooling", "--pooling", SWITCH, "whether pooling is built: true, false"),
        Parameter("elementwise", "--elementwise", SWITCH, "whether element-wise operations are built: true, false"),
        Parameter("activation", "--activation", SWITCH, "whether activations are built: true, false"),
        Parameter("bus", "--bus", INT, "AXI data width in bits", title="bus bits"),
        Parameter("outstanding", "--outstanding", INT, "bursts in flight per direction", title="bursts in flight"),
        Parameter("read_latency", "--mem-latency", INT, "cycles from a read address to its data", True, "read latency"),
        Parameter("write_latency", "--mem-write-latency", INT, "cycles from the last write beat to the response", True,
                  "write latency"),
        Parameter("beat_cycles", "--beat-cycles", INT, "cycles per beat of the bus", True, "cycles per beat"),
        Parameter("depthwise_lanes", "--depthwise-lanes", INT, "depthwise channels per cycle", title="depthwise lanes"),
        Parameter("depthwise", "--depthwise", one_of(DEPTHWISE), f"depthwise layers: {', '.join(DEPTHWISE)}"),
    )
}  # fmt: skip
"""Every parameter, outermost label of a picture first."""


LANES_PAIR = Parameter("lanes", "--lanes", LANES, "input and output channels per cycle, such as 8x16", title="lanes")
"""Shorthand for ic_lanes and oc_lanes together."""
SETTINGS: dict[str, Parameter] = {LANES_PAIR.name: LANES_PAIR, **PARAMETERS}
"""What a user may set: the shorthand and every parameter."""
CLOCK = Parameter("clock", "--clock", FREQUENCY, "frequency of the accelerator", title="clock")
"""Of a point of a sweep: cycles do not depend on it, times and rates do."""
AXES: dict[str, Parameter] = {**SETTINGS, CLOCK.name: CLOCK}
"""What an axis of a sweep may be."""
LONGEST = 10_000
"""The most values of a range."""


def label(axes: Mapping[str, Any]) -> str:
    """Values of settings in a line."""
    named = (f"{AXES[name].title or name} {AXES[name].show(value)}" for name, value in axes.items())
    return ", ".join(named) or "as configured"


def add_options(parser: argparse.ArgumentParser, *, lists: bool = False) -> None:
    """Add ``--config`` and a flag per setting; with ``lists`` each takes several values (:func:`values_of_text`)."""
    about = "flags change what --config names (a preset or a TOML file)"
    if lists:
        about += "; LIST: values separated by commas, or A..B (doubled from A up to B), or A..B:STEP"
    group = parser.add_argument_group("configuration", about)
    group.add_argument("--config", metavar="FILE|PRESET", help="default: the preset default")
    for p in SETTINGS.values():
        convert = partial(_values if lists else _value, p.kind)
        flags = dict.fromkeys((p.flag, "--" + p.name.replace("_", "-")))  # the name in files is understood as well
        group.add_argument(*flags, dest=p.name, type=convert, metavar="LIST" if lists else "VALUE", help=p.doc)


def _value(kind: Kind, text: str) -> Any:
    try:
        return kind.parse(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from None


def _values(kind: Kind, text: str) -> list[Any]:
    try:
        return values_of_text(kind, text)
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


def base_of(args: argparse.Namespace) -> Config:
    """What ``--config`` names. Raises :class:`ConfigError`."""
    return Config.load(args.config or "default")


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
    memory = {**data.pop("memory"), **{n: v for n, v in changes.items() if SETTINGS[n].memory}}
    hardware = {n: v for n, v in changes.items() if not SETTINGS[n].memory}
    check_shape(hardware)
    if "lanes" in hardware:
        hardware["ic_lanes"], hardware["oc_lanes"] = hardware.pop("lanes")
    if {"pe", "dataflow"} & set(hardware):
        data.pop("ic_lanes")
        data.pop("oc_lanes")
        hardware = {"pe": base.macs_per_cycle, **hardware}
    if hardware.get("depthwise", "native") != "native":
        data.pop("depthwise_lanes", None)
    return Config.from_dict({**data, **hardware, "memory": memory})


def check_shape(names: Collection[str]) -> None:
    """Raise :class:`ConfigError` unless the shape of the array is given in one way only."""
    if {"pe", "dataflow"} & set(names) and {"ic_lanes", "oc_lanes"} & set(names):
        raise ConfigError("give either pe and dataflow or ic_lanes and oc_lanes, not both")
    if "lanes" in names and {"pe", "dataflow", "ic_lanes", "oc_lanes"} & set(names):
        raise ConfigError("give lanes without pe, dataflow, ic_lanes and oc_lanes")


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
        config.to_dict()
        | vars(config.memory)
        | {"pe": config.macs_per_cycle, "dataflow": dataflow_of(config.ic_lanes, config.oc_lanes)}
    )
    return {name: values.get(name, 0) for name in PARAMETERS}


def dataflow_of(ic: int, oc: int) -> str:
    """The shorthand's name for the shape of the array."""
    if ic == 1 or oc == 1:
        return "input" if oc == 1 else "output"
    return "mixed"
