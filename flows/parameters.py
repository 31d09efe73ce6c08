"""The configuration on the command line: a preset or a TOML file, changed by flags."""

import argparse
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from typing import Any

from dovetail.isa.config import DATAFLOWS, DEPTHWISE, Config, ConfigError, format_bytes, parse_bytes

DERIVED = ("requant_lanes", "vector_lanes", "depthwise_lanes", "banks")
"""Parameters that follow from others unless they are given."""


def _boolean(text: str) -> bool:
    if text not in ("true", "false"):
        raise ValueError(f"must be true or false, not {text!r}")
    return text == "true"


def _size(text: str) -> int:
    try:
        return parse_bytes(text)
    except ConfigError as error:
        raise argparse.ArgumentTypeError(str(error)) from None


_boolean.__name__, _size.__name__ = "boolean", "size"


@dataclass(frozen=True)
class Parameter:
    """A configuration parameter as a flag. ``memory`` ones are simulation only."""

    name: str
    flag: str
    convert: Callable[[str], Any]
    doc: str
    memory: bool = False
    title: str = ""

    def show(self, value: Any) -> str:
        """The value for labels."""
        if self.convert is _size:
            return format_bytes(value).replace(" ", " ")
        return str(value).lower() if isinstance(value, bool) else str(value)


PARAMETERS: dict[str, Parameter] = {
    p.name: p
    for p in (
        Parameter("pe", "--pe", int, "multipliers, shared out by --dataflow", title="PEs"),
        Parameter("ic_lanes", "--ic-lanes", int, "input channels per cycle", title="input lanes"),
        Parameter("oc_lanes", "--oc-lanes", int, "output channels per cycle", title="output lanes"),
        Parameter("sram", "--sram", _size, "on-chip memory, such as 512KiB", title="SRAM"),
        Parameter("banks", "--banks", int, "SRAM banks"),
        Parameter("dataflow", "--dataflow", str, f"how --pe is shared out: {', '.join(DATAFLOWS)}"),
        Parameter("stripe", "--stripe", int, "output pixels that share a weight load"),
        Parameter("requant_lanes", "--requant-lanes", int, "results requantised per cycle", title="requantiser lanes"),
        Parameter("vector_lanes", "--vector-lanes", int, "channels per cycle of the vector unit", title="vector lanes"),
        Parameter("matmul", "--matmul", _boolean, "whether MAT_MUL is built: true, false"),
        Parameter("pooling", "--pooling", _boolean, "whether pooling is built: true, false"),
        Parameter("elementwise", "--elementwise", _boolean, "whether element-wise operations are built: true, false"),
        Parameter("activation", "--activation", _boolean, "whether activations are built: true, false"),
        Parameter("bus", "--bus", int, "AXI data width in bits", title="bus bits"),
        Parameter("outstanding", "--outstanding", int, "bursts in flight per direction", title="bursts in flight"),
        Parameter("read_latency", "--mem-latency", int, "cycles from a read address to its data", True, "read latency"),
        Parameter("write_latency", "--mem-write-latency", int, "cycles from the last write beat to the response", True,
                  "write latency"),
        Parameter("beat_cycles", "--beat-cycles", int, "cycles per beat of the bus", True, "cycles per beat"),
        Parameter("depthwise_lanes", "--depthwise-lanes", int, "depthwise channels per cycle", title="depthwise lanes"),
        Parameter("depthwise", "--depthwise", str, f"depthwise layers: {', '.join(DEPTHWISE)}"),
    )
}  # fmt: skip
"""Every parameter, outermost label of a picture first."""


def add_options(parser: argparse.ArgumentParser, *, lists: bool = False) -> None:
    """Add ``--config`` and a flag per parameter; with ``lists`` each takes several values, separated by commas."""
    group = parser.add_argument_group("configuration", "flags change what --config names (a preset or a TOML file)")
    group.add_argument("--config", metavar="FILE|PRESET", help="default: the preset default")
    for p in PARAMETERS.values():
        convert = _list_of(p.convert) if lists else p.convert
        group.add_argument(p.flag, dest=p.name, type=convert, metavar="LIST" if lists else "VALUE", help=p.doc)


def _list_of(convert: Callable[[str], Any]) -> Callable[[str], list[Any]]:
    def parse(text: str) -> list[Any]:
        values = [convert(part.strip()) for part in text.split(",")]
        if len({str(v) for v in values}) != len(values):
            raise argparse.ArgumentTypeError(f"values must differ, not {text!r}")
        return values

    parse.__name__ = f"list of {convert.__name__}"
    return parse


def given(args: argparse.Namespace) -> dict[str, Any]:
    """The parameters that the command line gives, by name."""
    return {name: value for name in PARAMETERS if (value := getattr(args, name)) is not None}


def base_of(args: argparse.Namespace) -> Config:
    """What ``--config`` names. Raises :class:`ConfigError`."""
    return Config.load(args.config or "default")


def config_of(args: argparse.Namespace) -> Config:
    """The configuration of a command. Raises :class:`ConfigError`."""
    return changed(base_of(args), given(args))


def product_of(lists: Mapping[str, Sequence[Any]]) -> Iterator[dict[str, Any]]:
    """Every combination of the listed values, the last parameter of :data:`PARAMETERS` fastest."""
    names = [name for name in PARAMETERS if name in lists]
    for values in product(*(lists[name] for name in names)):
        yield dict(zip(names, values, strict=True))


def changed(base: Config, changes: Mapping[str, Any]) -> Config:
    """``base`` with parameters changed; what merely followed from the changed ones is derived anew.

    Raises :class:`ConfigError`.
    """
    if not changes:
        return base
    data = _chosen(base)
    memory = {**data.pop("memory"), **{n: v for n, v in changes.items() if PARAMETERS[n].memory}}
    hardware = {n: v for n, v in changes.items() if not PARAMETERS[n].memory}
    if {"pe", "dataflow"} & set(hardware):
        if {"ic_lanes", "oc_lanes"} & set(hardware):
            raise ConfigError("give either pe and dataflow or ic_lanes and oc_lanes, not both")
        data.pop("ic_lanes")
        data.pop("oc_lanes")
        hardware = {"pe": base.macs_per_cycle, **hardware}
    if hardware.get("depthwise", "native") != "native":
        data.pop("depthwise_lanes", None)
    return Config.from_dict({**data, **hardware, "memory": memory})


def _chosen(config: Config) -> dict[str, Any]:
    """The configuration's parameters without those that follow from the others."""
    data = config.to_dict()
    for name in DERIVED:
        without = {key: value for key, value in data.items() if key != name}
        try:
            same = Config.from_dict(without) == config
        except ConfigError:
            same = False
        if same:
            data = without
    return data


def flat(config: Config) -> dict[str, Any]:
    """Every parameter of a finished configuration by the names of :data:`PARAMETERS`, for tables."""
    values = config.to_dict() | vars(config.memory) | {"pe": config.macs_per_cycle, "dataflow": dataflow(config)}
    return {name: values.get(name, 0) for name in PARAMETERS}


def dataflow(config: Config) -> str:
    """The shorthand's name for the shape of the array."""
    if config.ic == 1 or config.oc == 1:
        return "input" if config.oc == 1 else "output"
    return "mixed"
