"""The configuration: one frozen object that drives RTL, model, timing, compiler and drivers."""

import hashlib
import json
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from functools import cached_property
from math import gcd, isqrt
from pathlib import Path
from typing import Any, Unpack

from dovetail.isa import extensions
from dovetail.isa.common.html import html_table
from dovetail.isa.common.sizes import Count, ceil_div, format_bytes
from dovetail.isa.common.suggestion import nearest
from dovetail.isa.common.toml import parse_toml
from dovetail.isa.config.given import (
    ALL_PARAMETERS,
    ARRAY_LANES,
    DEFAULT_BANKS,
    DEFAULT_STRIPE,
    MAX_KERNEL_ROWS,
    MAX_LANES,
    MAX_PE,
    MAX_STRIPE,
    MICROCODED,
    MICROCODED_WORD,
    PARAMETERS,
    PIXEL_LANES,
    ROW_VECTOR_LANES,
    ConfigError,
    Given,
    MemoryTiming,
    check_shape,
    read,
)
from dovetail.isa.config.memory import Memory, memory_of, table_of
from dovetail.isa.config.presets import PRESETS

RESULT_STEPS = 3
"""From a pixel's results to those of the next one, where both leave together: at most so many times oc_lanes bytes. A
word holds four times as many, a pixel's int32 results."""

RECORD_BYTES = 16
"""Bytes of a requantisation record."""
LUT_ROWS = 16
"""Rows of records that are kept in LUTs. More would take many of them."""

COLUMN_TAPS = 3
"""Kernel columns of a depthwise convolution where a word has several columns of the input."""
MAX_COLUMNS = 4
"""The most columns of the input that a word of a depthwise convolution has."""

ROW_KERNELS = (3, 5)
"""Kernel columns of a depthwise convolution that takes several kernel rows at once."""
ROW_STEPS = 2
"""The most steps of such a convolution: the row buffer has room for a line's words of so many."""


def _power_of_two(n: int) -> bool:
    return n > 0 and n & (n - 1) == 0


def lanes_of(pe: int, dataflow: str) -> tuple[int, int, int]:
    """(ic_lanes, oc_lanes, pixel_lanes) of the shorthand: ``input`` = (pe, 1, 1), ``output`` = (1, pe, 1), ``mixed`` =
    nearest square, ``balanced`` = :func:`balanced`.

    Raises :class:`ConfigError`.
    """
    PARAMETERS["pe"].check(pe)
    if dataflow == "input":
        return pe, 1, 1
    if dataflow == "output":
        return 1, pe, 1
    if dataflow == "balanced":
        return balanced(pe)
    ic = _divisor(pe, pe)
    return ic, pe // ic, 1


def balanced(pe: int) -> tuple[int, int, int]:
    """(ic_lanes, oc_lanes, pixel_lanes) with little that is idle.

    A step's input comes one pixel per cycle, so a layer keeps all lanes busy if input lanes times pixel lanes are no
    more than its input channels. Hence four pixel lanes at most, and twice as many output lanes as input lanes at
    least. Chosen by `benchmarks/utilisation.py` on MobileNets.
    """
    pixels = max(n for n in PIXEL_LANES if n == 1 or (pe % n == 0 and 8 * n * n <= pe and n <= 4))
    ic = _divisor(pe // pixels, pe // pixels // 2)
    return ic, pe // pixels // ic, pixels


def _divisor(number: int, square: int) -> int:
    """The largest divisor whose square is no more than ``square``."""
    return next(d for d in range(isqrt(square), 0, -1) if number % d == 0)


def array_of(parameters: Mapping[str, Any]) -> str:
    """The lanes of an array in words: ``8 x 8``, with pixel lanes ``16 x 16 x 4``."""
    *lanes, pixels = (parameters.get(name, 1) for name in ARRAY_LANES)
    return " x ".join(map(str, [*lanes, pixels] if pixels > 1 else lanes))


@dataclass(frozen=True, init=False)
class Config:
    """One accelerator: what a user gave, checked, and what follows from it.

    It is made of what :class:`~dovetail.isa.config.given.Given` lists: ``Config(pe=64, sram="512 KiB")``. ``Config()``
    is the preset ``default``, what a command takes when nothing else is named; it fits an ECP5-85F.

    Give ``pe``/``dataflow`` (shorthand) or ``ic_lanes``/``oc_lanes``/``pixel_lanes``; ``sram`` takes bytes or text
    with a unit, and is 256 KiB in 8 banks unless given. An ``sram`` that is given without ``banks`` has as many as it
    can, up to 16.

    Members are the parameters but for ``pe`` and ``dataflow``, and no longer None or text: ``sram`` is in bytes,
    The array has ``ic_lanes`` x ``oc_lanes`` x ``pixel_lanes`` multipliers. Without ``pooling``, ``elementwise`` and
    ``activation`` there is no vector unit.
    """

    ic_lanes: int
    oc_lanes: int
    pixel_lanes: int
    sram: int
    banks: int
    stripe: int
    requant_lanes: int
    vector_lanes: int
    depthwise: str
    kernel_rows: int
    bus: int
    outstanding: int
    matmul: bool
    pooling: bool
    elementwise: bool
    activation: bool
    softmax: int
    norm: int
    norm_bits: int
    parameters: int
    serial: bool
    extensions: tuple[str, ...]
    memory: Memory

    def __init__(self, **given: Unpack[Given]) -> None:
        memory = memory_of(given.pop("memory", MemoryTiming()))
        values = read(given)
        check_shape([name for name, value in given.items() if value is not None])
        put = self.__dict__.update  # frozen: members cannot be assigned

        def settle(name: str, derived: int, high: int | None = None) -> None:
            value = values[name]
            put({name: PARAMETERS[name].check(derived if value is None else value, high)})

        pe, dataflow = values.pop("pe"), values.pop("dataflow")
        put(values, memory=memory)
        for name in self.extensions:
            extensions.load(name)
        shape = [values["ic_lanes"], values["oc_lanes"]]
        if shape == [None, None]:
            *shape, pixels = lanes_of(64 if pe is None else pe, dataflow or "mixed")
            if (pe, dataflow) != (None, None):
                put(pixel_lanes=pixels)
        elif None in shape:
            raise ConfigError("ic_lanes and oc_lanes must be given together")
        settle("ic_lanes", shape[0])
        settle("oc_lanes", shape[1])
        products = self.macs_per_cycle
        if products > MAX_PE:
            names = "ic_lanes * oc_lanes" + " * pixel_lanes" * (self.pixel_lanes > 1)
            raise ConfigError(f"{names} must be at most {MAX_PE}, not {products}")
        settle("stripe", DEFAULT_STRIPE * self.pixel_lanes, MAX_STRIPE * self.pixel_lanes)
        rows = max(1, min(self.ic_lanes // ROW_KERNELS[0], MAX_KERNEL_ROWS))
        settle("kernel_rows", 1 if self.serial else rows, rows)
        if not self.depth_conv:
            put(kernel_rows=1)
        results = self._depthwise_results() if self.depth_conv else 1
        most = self.acc_lanes if self.depth_conv else self.oc_lanes
        settle("requant_lanes", max(min(ceil_div(products, 16), self.oc_lanes), results), most)
        # With fewer, sums take longer than the convolutions of a ResNet beside them.
        settle("vector_lanes", min(self.requant_lanes, max(4, products // 32), ROW_VECTOR_LANES))
        if self.vector_lanes > ROW_VECTOR_LANES and (self.softmax or self.norm):
            raise ConfigError(
                f"vector_lanes must be at most {ROW_VECTOR_LANES} with softmax or norm, not {self.vector_lanes}"
            )
        if self.norm_bits > 8 and not (self.norm and self.elementwise):
            raise ConfigError(f"norm_bits = {self.norm_bits} needs norm and elementwise")
        if self.softmax > self.vector_lanes:
            raise ConfigError(f"softmax must be at most vector_lanes, {self.vector_lanes}, not {self.softmax}")
        if self.banks is None:
            put(banks=DEFAULT_BANKS if given.get("sram") is None else self._default_banks())
        if self.sram % self.banks or not _power_of_two(self.bank_bytes):
            raise ConfigError(f"sram / banks must be a power of two, not {format_bytes(self.sram)} / {self.banks}")
        if self.bank_bytes < 4 * self.word_bytes:
            raise ConfigError(
                f"a bank must hold at least 4 words of {self.word_bytes} bytes, not {format_bytes(self.bank_bytes)};"
                " use fewer banks or more sram"
            )
        if self.serial:
            self._check_microcoded()

    def _check_microcoded(self) -> None:
        for name, value in MICROCODED.items():
            if (given := getattr(self, name)) != value:
                raise ConfigError(f"serial needs {name} = {json.dumps(value)}, not {json.dumps(given)}")
        if self.macs_per_cycle != MICROCODED_WORD:
            raise ConfigError(f"serial needs ic_lanes * oc_lanes = {MICROCODED_WORD}, not {self.macs_per_cycle}")
        if not _power_of_two(self.sram):
            raise ConfigError(f"serial needs sram of a power of two, not {format_bytes(self.sram)}")
        if not isinstance(self.memory, MemoryTiming):
            raise ConfigError(f"serial needs memory of kind fixed, not {self.memory.label}")

    def _depthwise_results(self) -> int:
        """Requantiser lanes with which a depthwise kernel of 3 x 3 does not wait for them: a row of accumulators takes
        a cycle for each step. Where all of the kernel is one they would be too many: there it may wait for a second
        cycle. Convolutions take a set at a time, in equal parts."""
        cycles = max(ceil_div(3, self.kernel_rows) * ceil_div(3, self.ic_lanes), 2)
        of_set = cycles // self.pixel_lanes
        return ceil_div(self.oc_lanes, of_set) if of_set else ceil_div(self.acc_lanes, cycles)

    def _default_banks(self) -> int:
        for banks in range(16, 3, -1):
            bank, rest = divmod(self.sram, banks)
            if not rest and _power_of_two(bank) and bank >= 4 * self.word_bytes:
                return banks
        raise ConfigError(
            f"sram must split into 4..16 banks of a power of two, not {format_bytes(self.sram)};"
            " give banks or another size"
        )

    @property
    def array(self) -> str:
        """Lanes of the array in words, see :func:`array_of`."""
        return array_of(vars(self))

    @property
    def bank_bytes(self) -> int:
        """Bytes of a bank; a power of two. Bank k holds bytes k * bank_bytes and up."""
        return self.sram // self.banks

    @property
    def vector(self) -> bool:
        """Whether there is a vector unit."""
        return self.pooling or self.elementwise or self.activation or bool(self.softmax or self.norm or self.extensions)

    @property
    def norm16(self) -> bool:
        """Whether norms and residual sums may have 16 bits."""
        return self.norm_bits > 8

    @property
    def depth_conv(self) -> bool:
        """Whether there is a DEPTH_CONV."""
        return self.depthwise == "native"

    @property
    def macs_per_cycle(self) -> int:
        """Multipliers in the array."""
        return self.ic_lanes * self.oc_lanes * self.pixel_lanes

    @property
    def acc_lanes(self) -> int:
        """Accumulators that a step adds to: of as many pixels as there are pixel lanes."""
        return self.pixel_lanes * self.oc_lanes

    @property
    def bus_bytes(self) -> int:
        """Bytes of an AXI beat."""
        return self.bus // 8

    @cached_property
    def like_fixed(self) -> MemoryTiming:
        """What is planned with: the memory if it is ``fixed``, else a fixed one of about its latency and rate."""
        return self.memory if isinstance(self.memory, MemoryTiming) else self.memory.like_fixed(self.bus_bytes)

    @property
    def word_bytes(self) -> int:
        """Bytes of an SRAM word, the widest access: the power of two that covers every port."""
        vector = 4 * self.vector_lanes if self.elementwise or self.norm else self.vector_lanes
        inputs = self.pixel_lanes * max(self.ic_lanes, self.oc_lanes if self.depth_conv else 1)
        widest = max(16, inputs, 4 * min(self.requant_lanes, self.oc_lanes), self.bus_bytes, vector)
        return 1 << (widest - 1).bit_length()

    @property
    def weight_bytes(self) -> int:
        """Bytes of one convolution weight block, ic_lanes x oc_lanes int8: one for each multiplier of a pixel lane."""
        return self.ic_lanes * self.oc_lanes

    @property
    def offset_bits(self) -> int:
        """Bits of a byte offset in an SRAM region, and of rows and byte columns of the window walk: all are modulo 2 to
        this. One more than an SRAM address has, so that a negative offset is above every region. The microcoded
        accelerator computes everything with 32."""
        return 32 if self.serial else (self.sram - 1).bit_length() + 1

    @property
    def weight_rows(self) -> int:
        """SRAM words of one convolution weight block."""
        return ceil_div(self.weight_bytes, self.word_bytes)

    @property
    def weight_sets(self) -> int:
        """Convolution weight blocks that the multipliers choose from at the same time."""
        return 1 if self.pixel_lanes == 1 else min(2 * self.pixel_lanes, self.word_bytes // self.ic_lanes)

    @property
    def most_sets(self) -> int:
        """The most weight sets of a step, of convolutions and of depthwise ones."""
        return max(self.weight_sets, self.depthwise_sets)

    @property
    def pair_sets(self) -> int:
        """The most weight blocks held at the same time where a read has the input of two pixels: with more of them
        than this pixels do not wait for reads, or half of a word is too short; 0 with one pixel lane."""
        return min(self.pixel_lanes - 1, self.word_bytes // 2 // self.ic_lanes)

    @property
    def pair_step(self) -> int:
        """The most bytes from a pixel to the next one of a read: those of all channels that a step takes."""
        return self.pair_sets * self.ic_lanes

    @property
    def pair_bytes(self) -> int:
        """Bytes of the input of two pixels that share a read, at most."""
        return 2 * self.pair_step

    @property
    def result_pairs(self) -> bool:
        """Whether there are requantiser lanes for the results of two pixels at once. SRAM in simulation wants both to
        begin at a multiple of 8 bytes."""
        return self.pixel_lanes > 1 and self.requant_lanes >= 2 * self.oc_lanes and self.oc_lanes % 8 == 0

    @property
    def input_bytes(self) -> int:
        """Bytes of a read of the input, at most."""
        depthwise = self.depthwise_sets * self.oc_lanes * self.depth_conv
        return max(self.weight_sets * self.ic_lanes, depthwise, self.pair_bytes)

    @property
    def depthwise_sets(self) -> int:
        """The most weight sets of a depthwise block: so many times oc_lanes channels, which a word must hold. One per
        pixel lane works at the same time; twice as many are for strides of two. Without DEPTH_CONV a word need not
        hold oc_lanes channels; 1 then."""
        word = min(self.word_bytes, MAX_LANES)
        return 1 if self.pixel_lanes == 1 else min(2 * self.pixel_lanes, max(word // self.oc_lanes, 1))

    @property
    def word_columns(self) -> int:
        """The most columns of the input that a word of a depthwise convolution has beside each other: with fewer
        channels than pixel lanes have, pixel lanes take pixels. 1 if there is no room on the lanes."""
        room = self.pixel_lanes > 1 and self.ic_lanes >= COLUMN_TAPS and self.depthwise_sets >= self.pixel_lanes
        return min(self.pixel_lanes, MAX_COLUMNS) if room else 1

    @property
    def has_wide_words(self) -> bool:
        """Whether a word may have two columns of a depthwise convolution that fill the pixel lanes: for strides of
        two."""
        return self.word_columns > 1 and self.depthwise_sets >= 2 * self.pixel_lanes

    def depthwise_rows(self, taps: int) -> int:
        """SRAM words of one depthwise weight set: so many ``taps`` of oc_lanes channels."""
        return ceil_div(taps * self.oc_lanes, self.word_bytes)

    @property
    def stripe_buffers(self) -> int:
        """Buffers of accumulators: one fills while others drain. All of them have 2 x MAX_STRIPE rows."""
        return 4 if 2 * self.stripe_rows <= MAX_STRIPE else 2

    @property
    def line_words(self) -> int:
        """Words of the input, per step, that the row buffer has room for: those of a stripe, and a power of two."""
        return 1 << (self.stripe_rows + 7).bit_length()

    @property
    def stripe_rows(self) -> int:
        """Rows of accumulators that a stripe may take: each of pixel_lanes x oc_lanes sums."""
        return ceil_div(self.stripe, self.pixel_lanes)

    def row_kernels(self, rows: int) -> list[int]:
        """Columns of the depthwise kernels of which so many rows have an input lane for each tap."""
        return [columns for columns in ROW_KERNELS if rows * columns <= self.ic_lanes]

    def depthwise_visits(self, sets: Count) -> Count:
        """Rows of accumulators per pixel of a depthwise convolution with so many weight sets: a set per pixel lane."""
        return ceil_div(sets, self.pixel_lanes)

    def depthwise_pixels(self, sets: Count) -> Count:
        """Pixels of a stripe of such a convolution, at most."""
        return self.stripe_rows // self.depthwise_visits(sets)

    def depthwise_span(self, *, int32: bool) -> int:
        """Channels of a pixel of a depthwise convolution that leave together: a row of accumulators, as int32 a set."""
        return self.oc_lanes if int32 else self.acc_lanes

    @property
    def records_at_once(self) -> int:
        """Requantisation records of a read: those of a word, or fewer, so that they go side by side to the lanes of the
        requantiser."""
        return gcd(self.word_bytes // RECORD_BYTES, self.requant_lanes, self.oc_lanes)

    @property
    def record_groups(self) -> int:
        """Groups of ``requant_lanes`` records that a block has, at most: channels that leave together begin one."""
        groups = ceil_div(self.oc_lanes, self.requant_lanes)
        if not self.depth_conv:
            return groups
        of_row = ceil_div(self.acc_lanes, self.requant_lanes)
        return max(groups * self.depthwise_sets, of_row * self.depthwise_visits(self.depthwise_sets))

    def param_rows(self, lanes: int) -> int:
        """SRAM words that hold the 16-byte requantisation records of ``lanes`` channels."""
        return ceil_div(RECORD_BYTES * lanes, self.word_bytes)

    def to_dict(self) -> dict[str, Any]:
        """Every hardware parameter and the memory timing, as TOML and the program header spell them."""
        data = {field.name: getattr(self, field.name) for field in fields(self)}
        for name in ("pixel_lanes", "softmax", "norm", "norm_bits", "parameters", "serial", "extensions"):
            if data[name] == ALL_PARAMETERS[name].default:
                del data[name]  # of configurations that are older than the parameter, the hash stays
        data["memory"] = table_of(self.memory)
        return data

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> "Config":
        """The inverse of :meth:`to_dict`; also takes the shorthand. Raises :class:`ConfigError`."""
        return cls(**data)

    def to_toml(self) -> str:
        """TOML text that :meth:`from_toml` reads back to an equal configuration."""
        lines = []
        for name, value in self.to_dict().items():
            if name == "memory":
                continue
            if name == "sram":
                value = format_bytes(self.sram)
            lines.append(f"{name} = {json.dumps(value)}")
        lines += ["", "[memory]"] + [f"{name} = {json.dumps(value)}" for name, value in table_of(self.memory).items()]
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
        if (preset := PRESETS.get(str(source))) is not None:
            return cls(**preset)
        path = Path(source)
        if not path.is_file():
            near = nearest(str(source), PRESETS)
            raise ConfigError(f"{source} must be a TOML file or a preset; there is no such file{near}")
        try:
            return cls.from_toml(path.read_text(encoding="utf-8"))
        except (ConfigError, UnicodeDecodeError) as error:
            raise ConfigError(f"{path}: {error}") from None

    def _repr_html_(self) -> str:
        values = {**self.to_dict(), "sram": format_bytes(self.sram)}
        values |= values.pop("memory")
        switches = {name: values.pop(name) for name, value in list(values.items()) if isinstance(value, bool)}
        lacks = ", ".join(name for name, is_there in switches.items() if not is_there)
        rows = [*values.items(), ("has", ", ".join(filter(switches.get, switches)) or "no optional unit")]
        return html_table("Config", (), "lr", [*rows, ("lacks", lacks)] if lacks else rows)

    def replace(self, **changes: Any) -> "Config":
        """A copy with some parameters changed. What was derived from a changed parameter must be given or reset
        with ``None``."""
        return replace(self, **changes)

    def __reduce__(self) -> tuple[Any, ...]:
        return Config.from_dict, (self.to_dict(),)  # another process must load the extensions

    def __hash__(self) -> int:
        return self._hash

    @cached_property  # as timing rules are cached by configuration
    def _hash(self) -> int:
        return hash(tuple(getattr(self, field.name) for field in fields(self)))

    @property
    def hash(self) -> int:
        """64-bit hash of the hardware parameters (the memory timing is left out)."""
        data = {k: v for k, v in self.to_dict().items() if k != "memory"}
        if self.extensions:
            data["extensions"] = {name: extensions.digest(name) for name in self.extensions}
        digest = hashlib.sha256(json.dumps(data, sort_keys=True).encode()).digest()
        return int.from_bytes(digest[:8], "little")
