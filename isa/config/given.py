"""The parameters of a configuration as a user gives them: the one list, with names, values, rules and texts."""

from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Annotated, Any, TypedDict, get_type_hints

from dovetail.isa.common.sizes import format_bytes, parse_bytes

DATAFLOWS = ("input", "output", "mixed", "balanced")
DEPTHWISE = ("none", "emulated", "native")
BUS_WIDTHS = (32, 64, 128, 256, 512)
MIN_SRAM, MAX_SRAM = 32 << 10, 256 << 20
MAX_LANES = 128
MAX_PE = 1024
ARRAY_LANES = ("ic_lanes", "oc_lanes", "pixel_lanes")
"""The array's dimensions, in the order of ``lanes`` and of a shape in words."""
PIXEL_LANES = (1, 2, 4, 8)
MAX_STRIPE, DEFAULT_STRIPE = 64, 32
"""Output pixels of a pixel lane that share a weight load."""
MAX_VECTOR_LANES, ROW_VECTOR_LANES = 32, 16
"""The second where softmax or norm are built, whose sums of a row are trees over the lanes, and by default."""
MAX_BANKS = 32
MAX_KERNEL_ROWS = 3
DEFAULT_SRAM, DEFAULT_BANKS = 256 << 10, 8
"""The most SRAM that fits an ECP5-85F beside the default array; 16 banks would take 128 block RAMs more."""
MAX_PARAMETERS = 15
"""Host registers PARAM that a word can name."""
FEATURES = ("matmul", "pooling", "elementwise", "activation")
"""Parameters that say which instructions are built."""


class ConfigError(ValueError):
    """A configuration breaks a rule; the text names the parameter, the rule and the value."""


def plain(text: str) -> Any:
    """A flag's text as TOML would have it: a number, a truth value, else the text."""
    text = text.strip()
    try:
        return {"true": True, "false": False}[text] if text in ("true", "false") else int(text)
    except ValueError:
        return text


@dataclass(frozen=True)
class Kind:
    """What values a parameter takes.

    ``read`` takes a number, truth value, text or list, as TOML has it, and returns the parameter's value or raises
    ValueError with the rule; ``lexical`` turns a flag's text into such a value first.
    """

    read: Callable[[Any], Any]
    show: Callable[[Any], str] = str
    lexical: Callable[[str], Any] = plain
    choices: tuple[str, ...] = ()

    def parse(self, text: str) -> Any:
        """The value of a flag's text. Raises ValueError."""
        return self.read(self.lexical(text))


def _int(value: Any) -> int:
    if isinstance(value, bool) or not isinstance(value, int):
        raise ValueError(f"must be an integer, not {value!r}")
    return value


def _size(value: Any) -> int:
    try:
        return parse_bytes(value) if isinstance(value, str) else _int(value)
    except ValueError:
        raise ValueError(f'must be a size in B, KiB, MiB or GiB such as "512 KiB", not {value!r}') from None


def _switch(value: Any) -> bool:
    if not isinstance(value, bool):
        raise ValueError(f"must be true or false, not {value!r}")
    return value


def _names(value: Any) -> tuple[str, ...]:
    if not isinstance(value, list | tuple) or not all(isinstance(name, str) for name in value):
        raise ValueError(f"must be a list of names, not {value!r}")
    return tuple(sorted(set(value)))


def one_of(names: tuple[str, ...]) -> Kind:
    """One of some names."""

    def read(value: Any) -> str:
        if value not in names:
            raise ValueError(f"must be one of {', '.join(names)}, not {value!r}")
        return str(value)

    return Kind(read, choices=names)


NONE = "none"
INT = Kind(_int)
SIZE = Kind(_size, format_bytes)
SWITCH = Kind(_switch, lambda value: str(value).lower(), choices=("true", "false"))
NAMES = Kind(
    _names,
    lambda names: "+".join(names) or NONE,
    lambda text: [] if text.strip() == NONE else [name.strip() for name in text.split("+")],
)
"""Names, on the command line ``a+b`` or ``none``."""
KINDS: dict[Any, Kind] = {int: INT, int | str: SIZE, bool: SWITCH, tuple[str, ...]: NAMES}
"""By type."""


@dataclass(frozen=True)
class Parameter:
    """A parameter of the configuration.

    doc: a sentence for help and tables.
    low, high: the range of a number. Other parameters may narrow it.
    default: None if it follows from other parameters.
    title: for labels, where its name does not do.
    kind: what values it takes, where its type does not say it.
    among: the only numbers that it can be.
    option: its flag, where that is not its name.
    """

    doc: str
    low: int | None = None
    high: int | None = None
    default: Any = None
    title: str = ""
    kind: Kind = INT
    among: tuple[int, ...] = ()
    option: str = ""
    memory: bool = False
    name: str = ""

    @property
    def flag(self) -> str:
        """Its flag on the command line."""
        return self.option or "--" + self.name.replace("_", "-")

    def show(self, value: Any) -> str:
        """The value for labels."""
        return self.kind.show(value)

    @property
    def values(self) -> str:
        """What it can be, in words."""
        if self.low is None:
            return ", ".join(self.kind.choices or map(str, self.among))
        return self.show(self.low) + (" or more" if self.high is None else f"..{self.show(self.high)}")

    def read(self, value: Any) -> Any:
        """The value of what is given, as TOML has it. Raises :class:`ConfigError`."""
        try:
            return self.kind.read(value)
        except ValueError as error:
            raise ConfigError(f"{self.name} {error}") from None

    def parse(self, text: str) -> Any:
        """The value of a flag's text. Raises :class:`ConfigError`."""
        return self.read(self.kind.lexical(text))

    def check(self, value: Any, high: int | None = None) -> Any:
        """The value within its range, which ``high`` narrows. Raises :class:`ConfigError`."""
        value, high = self.read(value), self.high if high is None else high
        if self.among and value not in self.among:
            raise ConfigError(f"{self.name} must be one of {self.values}, not {value}")
        if self.low is not None and high is not None and not self.low <= value <= high:
            raise ConfigError(f"{self.name} must be {self.show(self.low)}..{self.show(high)}, not {self.show(value)}")
        return value


@dataclass(frozen=True, kw_only=True)
class MemoryTiming:
    """System memory behind the AXI port, in cycles. Simulation only: not part of the configuration hash."""

    read_latency: Annotated[
        int, Parameter("cycles from an read address to its first beat", 1, 4096, option="--mem-latency")
    ] = 40
    write_latency: Annotated[
        int,
        Parameter("cycles from the last write beat to the response", 1, 4096, option="--mem-write-latency"),
    ] = 20
    beat_cycles: Annotated[int, Parameter("cycles per beat of the bus", 1, 64, title="cycles per beat")] = 1

    def __post_init__(self) -> None:
        for name, value in vars(self).items():
            PARAMETERS[name].check(value)
        # So that a transfer's duration does not depend on the transfer before it.
        if self.beat_cycles > min(self.read_latency, self.write_latency) + 10:
            raise ConfigError(
                f"beat_cycles must be at most 10 above read_latency and write_latency, not {self.beat_cycles}"
            )


class Given(TypedDict, total=False):
    """What a user gives. What is left out, or None, follows from the rest."""

    pe: Annotated[int, Parameter("multipliers, shared out by --dataflow", 8, MAX_PE, title="PEs")]
    ic_lanes: Annotated[int, Parameter("input channels per cycle", 1, MAX_LANES, title="input lanes")]
    oc_lanes: Annotated[int, Parameter("output channels per cycle", 1, MAX_LANES, title="output lanes")]
    pixel_lanes: Annotated[int, Parameter("output pixels per cycle", default=1, title="pixel lanes", among=PIXEL_LANES)]
    sram: Annotated[int | str, Parameter("on-chip memory, such as 512KiB", MIN_SRAM, MAX_SRAM, DEFAULT_SRAM, "SRAM")]
    banks: Annotated[int | None, Parameter("SRAM banks", 4, MAX_BANKS)]
    dataflow: Annotated[str, Parameter("how --pe is shared out", kind=one_of(DATAFLOWS))]
    stripe: Annotated[
        int,
        Parameter("output pixels that share a weight load, up to 64 per pixel lane", 1, MAX_STRIPE * PIXEL_LANES[-1]),
    ]
    requant_lanes: Annotated[int | None, Parameter("results requantised per cycle", 1, title="requantiser lanes")]
    vector_lanes: Annotated[int | None, Parameter("channels per cycle of the vector unit", 1, MAX_VECTOR_LANES)]
    matmul: Annotated[bool, Parameter("whether MAT_MUL is built", default=True)]
    pooling: Annotated[bool, Parameter("whether pooling is built", default=True)]
    elementwise: Annotated[bool, Parameter("whether element-wise operations are built", default=True)]
    activation: Annotated[bool, Parameter("whether activations are built", default=True)]
    softmax: Annotated[
        int, Parameter("rows of a softmax at once, 0: SOFTMAX is not built", default=0, among=(0, 1, 2, 4))
    ]
    norm: Annotated[int, Parameter("rows of a norm at once, 0: NORM is not built", default=0, among=(0, 1, 4))]
    norm_bits: Annotated[int, Parameter("of an element of a norm, 16: also of residual sums", default=8, among=(8, 16))]
    parameters: Annotated[
        int, Parameter("host registers PARAM, which a program's words may add to their values", 0, MAX_PARAMETERS, 0)
    ]
    serial: Annotated[bool, Parameter("whether it is the microcoded accelerator, the smallest", default=False)]
    extensions: Annotated[
        tuple[str, ...], Parameter("packages whose operations are built (`dovetail docs extending`)", default=())
    ]
    bus: Annotated[int, Parameter("AXI data width in bits", default=64, title="bus bits", among=BUS_WIDTHS)]
    outstanding: Annotated[int, Parameter("bursts in flight per direction", 1, 16, 4, "bursts in flight")]
    memory: Any
    depthwise: Annotated[str, Parameter("depthwise layers", default="native", kind=one_of(DEPTHWISE))]
    kernel_rows: Annotated[
        int | None, Parameter("rows of a depthwise kernel at once; a buffer keeps the input's", 1, MAX_KERNEL_ROWS)
    ]


MICROCODED: Given = {
    "pixel_lanes": 1,
    "stripe": 1,
    "requant_lanes": 1,
    "kernel_rows": 1,
    "bus": 32,
    "outstanding": 1,
    "matmul": False,
    "pooling": False,
    "elementwise": False,
    "activation": False,
    "softmax": 0,
    "norm": 0,
    "norm_bits": 8,
    "parameters": 0,
    "extensions": (),
}
"""What the microcoded accelerator (``serial``) is made of."""
MICROCODED_WORD = 16
"""Bytes of an SRAM word, and of a convolution's weight block, of the microcoded accelerator."""


def _parameters(of: type, memory: bool = False) -> Iterator[Parameter]:
    for name, hint in get_type_hints(of, include_extras=True).items():
        if name == "memory":  # its kinds: dovetail.isa.config.memory
            yield from _parameters(MemoryTiming, memory=True)
        else:
            p = hint.__metadata__[0]
            default, title = getattr(of, name, p.default), p.title or name.replace("_", " ")
            kind = KINDS.get(hint.__origin__, p.kind)
            yield replace(p, name=name, title=title, kind=kind, default=default, memory=memory)


ALL_PARAMETERS = {parameter.name: parameter for parameter in _parameters(Given)}
"""Every parameter, outermost label of a picture first."""
PARAMETERS = {name: parameter for name, parameter in ALL_PARAMETERS.items() if name != "serial"}
"""What flags, space files and tables have. ``serial`` needs values of many others, so presets and files give it."""


def read(given: Mapping[str, Any]) -> dict[str, Any]:
    """The checked value of every parameter of the hardware: what is given, or its default.

    Raises :class:`ConfigError`.
    """
    hardware = {name: p for name, p in ALL_PARAMETERS.items() if not p.memory}
    for name in given:
        if name not in hardware:
            raise ConfigError(f"unknown parameter {name!r}; known: {', '.join(sorted((*hardware, 'memory')))}")
    return {name: p.default if given.get(name) is None else p.check(given[name]) for name, p in hardware.items()}


def check_shape(names: Collection[str]) -> None:
    """Raise :class:`ConfigError` unless the shape of the array is given in one way only."""
    if {"pe", "dataflow"} & set(names) and set(ARRAY_LANES) & set(names):
        raise ConfigError("give either pe and dataflow or ic_lanes, oc_lanes and pixel_lanes, not both")
    if "lanes" in names and {"pe", "dataflow", *ARRAY_LANES} & set(names):
        raise ConfigError("give lanes without pe, dataflow, ic_lanes, oc_lanes and pixel_lanes")
