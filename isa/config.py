"""The configuration: one frozen object that drives RTL, model, timing, compiler and drivers."""

import hashlib
import json
import tomllib
from dataclasses import asdict, dataclass, fields, replace
from math import isqrt
from pathlib import Path
from typing import Any

from dovetail.isa.common.sizes import ceil_div, format_bytes, parse_bytes
from dovetail.isa.common.suggestion import nearest
from dovetail.isa.common.toml import parse_toml

DATAFLOWS = ("input", "output", "mixed")
DEPTHWISE = ("none", "emulated", "native")
BUS_WIDTHS = (32, 64, 128, 256, 512)
MIN_SRAM, MAX_SRAM = 32 << 10, 256 << 20
DEFAULT_SRAM, DEFAULT_BANKS = 256 << 10, 8
"""The most SRAM that fits an ECP5-85F beside the default array; 16 banks would take 128 block RAMs more."""
MAX_LANES = 128
MAX_PE = 1024
MAX_BANKS = 32
FEATURES = ("matmul", "pooling", "elementwise", "activation")
"""Parameters that say which instructions are built."""
MICROCODED_WORD = 16
"""Bytes of an SRAM word, and of a convolution's weight block, of the microcoded accelerator."""


class ConfigError(ValueError):
    """A configuration breaks a rule; the text names the parameter, the rule and the value."""


def _power_of_two(n: int) -> bool:
    return n > 0 and n & (n - 1) == 0


def lanes_of(pe: int, dataflow: str) -> tuple[int, int]:
    """(ic_lanes, oc_lanes) of the shorthand: ``input`` = (pe, 1), ``output`` = (1, pe), ``mixed`` = nearest square."""
    if dataflow not in DATAFLOWS:
        raise ConfigError(f"dataflow must be one of {', '.join(DATAFLOWS)}, not {dataflow!r}")
    if not 8 <= pe <= MAX_PE:
        raise ConfigError(f"pe must be 8..{MAX_PE}, not {pe}")
    if dataflow == "input":
        return pe, 1
    if dataflow == "output":
        return 1, pe
    ic = next(d for d in range(isqrt(pe), 0, -1) if pe % d == 0)
    return ic, pe // ic


@dataclass(frozen=True, kw_only=True)
class MemoryTiming:
    """System memory behind the AXI port, simulation only: not part of the configuration hash.

    ``read_latency``: cycles from an accepted read address to its first beat.
    ``write_latency``: cycles from the last accepted write beat to the response.
    ``beat_cycles``: cycles per beat, each direction (1 = one beat per cycle).
    """

    read_latency: int = 40
    write_latency: int = 20
    beat_cycles: int = 1

    def __post_init__(self) -> None:
        for name, low, high in (("read_latency", 1, 4096), ("write_latency", 1, 4096), ("beat_cycles", 1, 64)):
            value = getattr(self, name)
            if not isinstance(value, int) or isinstance(value, bool):
                raise ConfigError(f"{name} must be an integer, not {value!r}")
            if not low <= value <= high:
                raise ConfigError(f"{name} must be {low}..{high}, not {value}")
        # So that a transfer's duration does not depend on the transfer before it.
        if self.beat_cycles > min(self.read_latency, self.write_latency) + 10:
            raise ConfigError(
                f"beat_cycles must be at most 10 above read_latency and write_latency, not {self.beat_cycles}"
            )


@dataclass(frozen=True, kw_only=True)
class Config:
    """One accelerator. Every parameter not given is derived; all are checked.

    ``Config()`` is the preset ``default``, what a command takes when nothing else is named; it fits an ECP5-85F.

    ``pe``/``dataflow`` (shorthand) or ``ic_lanes``/``oc_lanes``; ``sram`` takes bytes or text with a unit, and is
    256 KiB in 8 banks unless given. An ``sram`` that is given without ``banks`` has as many as it can, up to 16.
    Members after construction: ``ic_lanes``, ``oc_lanes`` (multipliers per cycle = their product), ``sram`` in
    bytes, ``banks``, ``stripe`` (output pixels that share a weight load), ``requant_lanes`` and ``vector_lanes``
    (outputs per cycle of requantiser and vector unit), ``depthwise`` scenario with ``depthwise_lanes`` channels
    per cycle, ``bus`` (AXI data width in bits), ``outstanding`` (bursts in flight per direction), ``memory``
    (simulation only). What is built besides convolution: ``matmul`` (products of two int8 tensors in the array),
    and in the vector unit ``pooling``, ``elementwise`` and ``activation``; without all three there is no vector unit.
    ``serial`` takes the microcoded accelerator (``hw.microcoded``), the smallest: one data path, one thing at a time.
    """

    pe: int | None = None
    dataflow: str | None = None
    ic_lanes: int | None = None
    oc_lanes: int | None = None
    sram: int | str | None = None
    banks: int | None = None
    stripe: int = 32
    requant_lanes: int | None = None
    vector_lanes: int | None = None
    depthwise: str = "native"
    depthwise_lanes: int | None = None
    bus: int = 64
    outstanding: int = 4
    matmul: bool = True
    pooling: bool = True
    elementwise: bool = True
    activation: bool = True
    serial: bool = False
    memory: MemoryTiming = MemoryTiming()

    def __post_init__(self) -> None:
        def put(name: str, value: Any) -> None:
            object.__setattr__(self, name, value)

        for field in fields(self):
            value = getattr(self, field.name)
            number = "int" in str(field.type)
            if "bool" in str(field.type):
                if not isinstance(value, bool):
                    raise ConfigError(f"{field.name} must be true or false, not {value!r}")
            elif isinstance(value, bool) or (number and not isinstance(value, int | str | None)):
                raise ConfigError(f"{field.name} must be an integer, not {value!r}")
        if self.ic_lanes is None and self.oc_lanes is None:
            ic, oc = lanes_of(64 if self.pe is None else self.pe, self.dataflow or "mixed")
            put("ic_lanes", ic)
            put("oc_lanes", oc)
        elif self.pe is not None or self.dataflow is not None:
            raise ConfigError("give either pe and dataflow or ic_lanes and oc_lanes, not both")
        elif self.ic_lanes is None or self.oc_lanes is None:
            raise ConfigError("ic_lanes and oc_lanes must be given together")
        put("pe", None)
        put("dataflow", None)
        if self.sram is None:
            put("sram", DEFAULT_SRAM)
            put("banks", DEFAULT_BANKS if self.banks is None else self.banks)
        else:
            try:
                put("sram", parse_bytes(self.sram))
            except ValueError as error:
                raise ConfigError(str(error)) from None
        if self.depthwise not in DEPTHWISE:
            raise ConfigError(f"depthwise must be one of {', '.join(DEPTHWISE)}, not {self.depthwise!r}")
        self._range("ic_lanes", 1, MAX_LANES)
        self._range("oc_lanes", 1, MAX_LANES)
        if self.macs_per_cycle > MAX_PE:
            raise ConfigError(f"ic_lanes * oc_lanes must be at most {MAX_PE}, not {self.macs_per_cycle}")
        if self.depthwise != "native":
            if self.depthwise_lanes:
                raise ConfigError('depthwise_lanes must be left out unless depthwise is "native"')
            put("depthwise_lanes", 0)
        else:
            if self.depthwise_lanes is None:
                put("depthwise_lanes", min(self.macs_per_cycle, 32 if self.macs_per_cycle < 256 else 64))
            self._range("depthwise_lanes", 1, min(self.macs_per_cycle, 64))
        lanes = self.acc_lanes
        if self.requant_lanes is None:
            put("requant_lanes", min(ceil_div(self.macs_per_cycle, 16), max(self.oc, min(self.dw, 32))))
        self._range("requant_lanes", 1, lanes)
        if self.vector_lanes is None:
            put("vector_lanes", min(self.requant or 1, 4))
        self._range("vector_lanes", 1, 16)
        self._range("stripe", 1, 64)
        self._range("outstanding", 1, 16)
        if self.bus not in BUS_WIDTHS:
            raise ConfigError(f"bus must be one of {', '.join(map(str, BUS_WIDTHS))} bits, not {self.bus}")
        if not MIN_SRAM <= self.sram_bytes <= MAX_SRAM:
            raise ConfigError(
                f"sram must be {format_bytes(MIN_SRAM)}..{format_bytes(MAX_SRAM)}, not {format_bytes(self.sram_bytes)}"
            )
        if self.banks is None:
            put("banks", self._default_banks())
        self._range("banks", 4, MAX_BANKS)
        if self.sram_bytes % self.n_banks or not _power_of_two(self.bank_bytes):
            raise ConfigError(
                f"sram / banks must be a power of two, not {format_bytes(self.sram_bytes)} / {self.banks}"
            )
        if self.bank_bytes < 4 * self.word_bytes:
            raise ConfigError(
                f"a bank must hold at least 4 words of {self.word_bytes} bytes, not {format_bytes(self.bank_bytes)};"
                " use fewer banks or more sram"
            )

        if self.serial:
            self._check_microcoded()

    def _check_microcoded(self) -> None:
        """What the microcoded accelerator can be."""
        for name, value in (
            ("stripe", 1),
            ("requant_lanes", 1),
            ("bus", 32),
            ("outstanding", 1),
            ("matmul", False),
            ("pooling", False),
            ("elementwise", False),
            ("activation", False),
        ):
            if (given := getattr(self, name)) != value:
                raise ConfigError(f"serial needs {name} = {json.dumps(value)}, not {json.dumps(given)}")
        if self.macs_per_cycle != MICROCODED_WORD or self.dw > MICROCODED_WORD:
            raise ConfigError(
                f"serial needs ic_lanes * oc_lanes = {MICROCODED_WORD} and depthwise_lanes up to {MICROCODED_WORD},"
                f" not {self.macs_per_cycle} and {self.dw}"
            )
        if not _power_of_two(self.sram_bytes):
            raise ConfigError(f"serial needs sram of a power of two, not {format_bytes(self.sram_bytes)}")

    def _range(self, name: str, low: int, high: int) -> None:
        value = getattr(self, name)
        if not isinstance(value, int):
            raise ConfigError(f"{name} must be an integer, not {value!r}")
        if not low <= value <= high:
            raise ConfigError(f"{name} must be {low}..{high}, not {value}")

    def _default_banks(self) -> int:
        for banks in range(16, 3, -1):
            bank, rest = divmod(self.sram_bytes, banks)
            if not rest and _power_of_two(bank) and bank >= 4 * self.word_bytes:
                return banks
        raise ConfigError(
            f"sram must split into 4..16 banks of a power of two, not {format_bytes(self.sram_bytes)};"
            " give banks or another size"
        )

    # Typed views of the derived values: after construction none of them is None or text.
    @property
    def ic(self) -> int:
        """Input channels multiplied per cycle."""
        assert self.ic_lanes is not None
        return self.ic_lanes

    @property
    def oc(self) -> int:
        """Output channels per cycle."""
        assert self.oc_lanes is not None
        return self.oc_lanes

    @property
    def dw(self) -> int:
        """Depthwise channels per cycle; 0 without the native instruction."""
        assert self.depthwise_lanes is not None
        return self.depthwise_lanes

    @property
    def requant(self) -> int:
        """Outputs requantised per cycle."""
        assert self.requant_lanes is not None
        return self.requant_lanes

    @property
    def vec(self) -> int:
        """Channels the vector unit handles per cycle."""
        assert self.vector_lanes is not None
        return self.vector_lanes

    @property
    def sram_bytes(self) -> int:
        """On-chip memory in bytes."""
        assert isinstance(self.sram, int)
        return self.sram

    @property
    def n_banks(self) -> int:
        """SRAM banks, each with one read and one write port."""
        assert self.banks is not None
        return self.banks

    @property
    def bank_bytes(self) -> int:
        """Bytes of a bank; a power of two. Bank k holds bytes k * bank_bytes and up."""
        return self.sram_bytes // self.n_banks

    @property
    def vector(self) -> bool:
        """Whether there is a vector unit."""
        return self.pooling or self.elementwise or self.activation

    @property
    def macs_per_cycle(self) -> int:
        """Multipliers in the array."""
        return self.ic * self.oc

    @property
    def acc_lanes(self) -> int:
        """Accumulators per stripe pixel."""
        return max(self.oc, self.dw)

    @property
    def bus_bytes(self) -> int:
        """Bytes of an AXI beat."""
        return self.bus // 8

    @property
    def word_bytes(self) -> int:
        """Bytes of an SRAM word, the widest access: the power of two that covers every port."""
        vector = 4 * self.vec if self.elementwise else self.vec
        widest = max(16, self.ic, self.dw, 4 * self.requant, self.bus_bytes, vector)
        return 1 << (widest - 1).bit_length()

    @property
    def weight_rows(self) -> int:
        """SRAM words of one convolution weight block (ic_lanes x oc_lanes int8)."""
        return ceil_div(self.macs_per_cycle, self.word_bytes)

    def param_rows(self, lanes: int) -> int:
        """SRAM words that hold the 16-byte requantisation records of ``lanes`` channels."""
        return ceil_div(16 * lanes, self.word_bytes)

    def to_dict(self) -> dict[str, Any]:
        """Every hardware parameter and the memory timing, as TOML and the program header spell them."""
        data = {field.name: getattr(self, field.name) for field in fields(self)}
        del data["pe"], data["dataflow"]
        if not self.serial:
            del data["serial"]  # of configurations that are older than the parameter, the hash stays
        data["memory"] = asdict(self.memory)
        if self.depthwise != "native":
            del data["depthwise_lanes"]
        return data

    @classmethod
    def from_dict(cls, data: dict[str, Any]) -> "Config":
        """The inverse of :meth:`to_dict`; also takes the shorthand. Raises :class:`ConfigError`."""
        data = dict(data)
        known = {f.name for f in fields(cls)}
        for name in data:
            if name not in known:
                raise ConfigError(f"unknown parameter {name!r}; known: {', '.join(sorted(known))}")
        memory = data.pop("memory", {})
        if not isinstance(memory, dict) or set(memory) - {f.name for f in fields(MemoryTiming)}:
            names = ", ".join(f.name for f in fields(MemoryTiming))
            raise ConfigError(f"memory must be a table of {names}, not {memory!r}")
        return cls(**data, memory=MemoryTiming(**memory))

    def to_toml(self) -> str:
        """TOML text that :meth:`from_toml` reads back to an equal configuration."""
        lines = []
        for name, value in self.to_dict().items():
            if name == "memory":
                continue
            if name == "sram":
                value = format_bytes(self.sram_bytes)
            lines.append(f"{name} = {json.dumps(value)}")
        lines += ["", "[memory]"] + [f"{name} = {value}" for name, value in asdict(self.memory).items()]
        return "\n".join(lines) + "\n"

    @classmethod
    def from_toml(cls, text: str) -> "Config":
        """Parse TOML text. Raises :class:`ConfigError` with the parameter and the rule."""
        try:
            return cls.from_dict(parse_toml(text))
        except tomllib.TOMLDecodeError as error:
            raise ConfigError(f"configuration is not TOML: {error}") from None

    @classmethod
    def load(cls, source: str | Path) -> "Config":
        """A preset name or the path of a TOML file."""
        if str(source) in PRESETS:
            return PRESETS[str(source)]
        path = Path(source)
        if not path.is_file():
            near = nearest(str(source), PRESETS)
            raise ConfigError(f"{source} must be a TOML file or a preset; there is no such file{near}")
        try:
            return cls.from_toml(path.read_text(encoding="utf-8"))
        except (ConfigError, UnicodeDecodeError) as error:
            raise ConfigError(f"{path}: {error}") from None

    def replace(self, **changes: Any) -> "Config":
        """A copy with some parameters changed. What was derived from a changed parameter must be given or reset
        with ``None``."""
        return replace(self, **changes)

    def __hash__(self) -> int:
        # Timing rules are cached by configuration, so this is kept. Only numbers are hashed, as the hash of a string
        # differs between processes and is pickled along.
        value: int | None = self.__dict__.get("_hash")
        if value is None:
            values = [getattr(self, field.name) for field in fields(self)]
            value = hash(tuple(v for v in values if isinstance(v, (int, MemoryTiming))))
            object.__setattr__(self, "_hash", value)
        return value

    @property
    def hash(self) -> int:
        """64-bit hash of the hardware parameters (the memory timing is left out)."""
        data = {k: v for k, v in self.to_dict().items() if k != "memory"}
        digest = hashlib.sha256(json.dumps(data, sort_keys=True).encode()).digest()
        return int.from_bytes(digest[:8], "little")


def _presets() -> dict[str, Config]:
    presets = {
        "default": Config(),
        "8x8": Config(ic_lanes=8, oc_lanes=8, sram="512 KiB"),
        "16x16": Config(ic_lanes=16, oc_lanes=16, sram="512 KiB"),
        "small": Config(ic_lanes=8, oc_lanes=8, sram="32 KiB", banks=4, depthwise_lanes=8, requant_lanes=2, stripe=16),
    }
    presets["icebreaker"] = Config(
        ic_lanes=4,
        oc_lanes=4,
        sram="64 KiB",
        banks=4,
        stripe=1,
        requant_lanes=1,
        depthwise_lanes=16,
        bus=32,
        outstanding=1,
        matmul=False,
        pooling=False,
        elementwise=False,
        activation=False,
        serial=True,
    )
    # For an ECP5-85F, the faster the smaller: few narrow banks keep the SRAM's multiplexers small.
    board: dict[str, Any] = {"ic_lanes": 8, "banks": 4, "vector_lanes": 1, "elementwise": False, "bus": 32}
    small: dict[str, Any] = {"sram": "64 KiB", "matmul": False, **board}
    presets["ulx3s"] = Config(oc_lanes=8, depthwise_lanes=8, requant_lanes=1, **small)
    presets["ulx3s-8x16"] = Config(oc_lanes=16, depthwise_lanes=16, requant_lanes=2, **small)
    presets["ecp5-evn"] = Config(oc_lanes=8, depthwise_lanes=8, requant_lanes=1, sram="128 KiB", **board)
    for pe in (64, 128):
        for sram in ("512KiB", "1MiB", "256MiB"):
            for dataflow in ("input", "output"):
                presets[f"study-{pe}-{sram}-{dataflow}"] = Config(pe=pe, dataflow=dataflow, sram=sram)
    return presets


PRESETS = _presets()
