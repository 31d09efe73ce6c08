"""The program container: one file that holds everything an engine needs to run a network.

Layout of the file, little-endian (:data:`FORMAT_DOC` is the text of the manual): a fixed header, a JSON
header, the instruction stream, the constant image, the payloads of the host steps, and a CRC-32 of it all.
"""

import json
import math
import struct
import zlib
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field
from numbers import Integral
from pathlib import Path
from typing import Any

from dovetail.isa.common.files import write_atomically
from dovetail.isa.config.given import ConfigError
from dovetail.isa.config.resolved import Config
from dovetail.isa.instructions.table import PAGE_BYTES
from dovetail.isa.parameters import Formula, Parameters, RunInput

MAGIC = b"DOVETAIL"
VERSION = 7
"""Of the file; it rises with that of the instruction set (:data:`dovetail.isa.host.VERSION`), too."""
HEADER = struct.Struct("<8sIIQQ")
"""Magic, version, bytes of the JSON header, configuration hash, bytes of the file."""
CRC = struct.Struct("<I")
ITEM_BYTES = {"bool": 1} | {
    f"{kind}{bits}": bits // 8
    for kind, widths in (("int", (8, 16, 32, 64)), ("uint", (8, 16, 32, 64)), ("float", (16, 32, 64)))
    for bits in widths
}
"""Element types of tensors, by their NumPy names."""

MOST_MEMORY = 1 << 32
"""Bytes of system memory that addresses reach."""

FORMAT_DOC = f"""\
| bytes | content |
|---|---|
| 0..7 | magic `{MAGIC.decode()}` |
| 8..11 | format version, {VERSION} |
| 12..15 | bytes of the JSON header, *h* |
| 16..23 | configuration hash |
| 24..31 | bytes of the file, *n* |
| {HEADER.size}..{HEADER.size}+*h*-1 | JSON header, UTF-8 |
| then | instruction stream, constant image, payloads of the host steps in order: lengths in the JSON header |
| *n*-4..*n*-1 | CRC-32 (IEEE 802.3) of bytes 0..*n*-5 |

The JSON header holds `config` (every hardware parameter and the memory timing), `stream` and `constants`
(offset in system memory, bytes), `memory_bytes`, `segments`, `inputs`, `outputs`, `steps`, `parameters` and `metadata`.
All offsets and addresses are relative to the host register BASE; a segment runs when the host writes its
absolute address to PROGRAM and its pages to PAGES. `parameters` has `inputs`, whole numbers `name` of a run from `low`
to `high`, and `formulas`, of PARAM1 and up: `base` and the sum of `terms`, modulo 2^32. With x = `input` + `offset` a
term is `step` times ceil(x / `divisor`), or, if `rest`, `step` times (x - 1) mod `divisor` + 1."""


class ProgramError(ValueError):
    """A program or its file breaks a rule; the text is one line and names it."""


@dataclass(frozen=True, kw_only=True)
class TensorDescriptor:
    """A tensor in system memory.

    Parameters
    ----------
    name: what the network calls it.
    offset: byte offset of its first element in system memory; None for a tensor that stays on the host.
    shape: sizes of its axes, in the order they have in memory.
    strides: bytes between neighbours along each axis, padding included; None where the tensor is dense.
    dtype: NumPy name of the element type.
    scale, zero_point: real value of one step (None where not quantised) and the integer that stands for 0.
    layout: what the axes are, such as "NHWC"; for people and for drivers.
    extra: anything JSON that belongs to the tensor, such as the file's own axis order.
    """

    name: str
    offset: int | None
    shape: tuple[int, ...]
    strides: tuple[int, ...] | None = None
    dtype: str = "int8"
    scale: float | None = None
    zero_point: int = 0
    layout: str = "NHWC"
    extra: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if not isinstance(self.name, str):
            raise ProgramError(f"name of a tensor must be text, not {self.name!r}")
        of = f"of tensor {self.name!r}"
        object.__setattr__(self, "shape", tuple(_whole(f"axes {of}", n) for n in self.shape))
        if self.offset is not None:
            object.__setattr__(self, "offset", _whole(f"offset {of}", self.offset))
        if self.strides is not None:
            object.__setattr__(self, "strides", tuple(_whole(f"strides {of}", n) for n in self.strides))
            if len(self.strides) != len(self.shape):
                raise ProgramError(
                    f"tensor {self.name!r} must have one stride for each of {len(self.shape)} axes,"
                    f" not {len(self.strides)}"
                )
            if min(self.strides, default=0) < 0:
                raise ProgramError(f"strides of tensor {self.name!r} must not be negative, not {self.strides}")
        if min(self.shape, default=1) < 1:
            raise ProgramError(f"axes of tensor {self.name!r} must be at least 1, not {self.shape}")
        if not isinstance(self.dtype, str) or self.dtype not in ITEM_BYTES:
            raise ProgramError(f"dtype of tensor {self.name!r} must be like int8 or float32, not {self.dtype!r}")
        object.__setattr__(self, "scale", None if self.scale is None else float(self.scale))
        if self.scale is not None and not 0 < self.scale < math.inf:
            raise ProgramError(f"scale {of} must be a positive number, not {self.scale}")
        object.__setattr__(self, "zero_point", _whole(f"zero_point {of}", self.zero_point))
        if not isinstance(self.layout, str) or not isinstance(self.extra, Mapping):
            raise ProgramError(f"layout and extra {of} must be text and an object, not {self.layout!r}, {self.extra!r}")

    @property
    def item_bytes(self) -> int:
        """Bytes of an element."""
        return ITEM_BYTES[self.dtype]

    @property
    def span(self) -> int:
        """Bytes from the first element's first to the last element's last."""
        return self.item_bytes + sum((n - 1) * s for n, s in zip(self.shape, self.steps, strict=True))

    @property
    def steps(self) -> tuple[int, ...]:
        """The strides, also of a dense tensor."""
        if self.strides is not None:
            return self.strides
        steps = [self.item_bytes]
        for n in reversed(self.shape[1:]):
            steps.append(steps[-1] * n)
        return tuple(reversed(steps[: len(self.shape)]))


@dataclass(frozen=True)
class Segment:
    """A run of pages that the accelerator executes by itself, up to its END.

    ``address`` is the byte offset of its first page in system memory; ``bound`` the cycles that no run exceeds as long
    as memory is as fast as the configuration says (`dovetail.isa.timing.run`), for watchdogs; 0 where not known.
    ``entry``: pages at its beginning that a run may leave out which finds SRAM as the last run of the segment left it,
    and the variables in system memory as well; they load what stays in SRAM.
    """

    address: int
    pages: int
    name: str = ""
    bound: int = 0
    entry: int = 0

    def __post_init__(self) -> None:
        for name in ("address", "pages", "bound", "entry"):
            _whole(f"{name} of a segment", getattr(self, name))
        if not isinstance(self.name, str):
            raise ProgramError(f"name of a segment must be text, not {self.name!r}")


@dataclass(frozen=True, kw_only=True)
class Step:
    """One step of a run: a segment on the accelerator, or something the host does (``payload``, opaque here).

    ``inputs`` and ``outputs`` are what a host step reads and writes.
    """

    label: str
    segment: int | None = None
    payload: bytes = b""
    inputs: tuple[TensorDescriptor, ...] = ()
    outputs: tuple[TensorDescriptor, ...] = ()

    def __post_init__(self) -> None:
        if not isinstance(self.label, str):
            raise ProgramError(f"label of a step must be text, not {self.label!r}")
        if self.segment is not None:
            _whole(f"segment of step {self.label!r}", self.segment)

    @property
    def on_host(self) -> bool:
        """The host runs it."""
        return self.segment is None


@dataclass(frozen=True, kw_only=True)
class Program:
    """A compiled network.

    Parameters
    ----------
    config: the accelerator it is for.
    stream: whole pages of instructions; they go to ``stream_offset`` of system memory.
    constants: weights, biases and the like; they go to ``constants_offset``.
    memory_bytes: system memory the program needs, from BASE on.
    segments: the accelerator's parts, each with an END of its own.
    steps: segments and host steps in the order of a run.
    inputs, outputs: where the host puts and finds the network's tensors.
    parameters: what a run's host registers PARAM hold.
    metadata: anything JSON, for reports: ``"layers"`` lists {name, kind, pc: [first, past], macs, bytes}.

    Raises :class:`ProgramError` where they do not fit one another.
    """

    config: Config
    stream: bytes
    constants: bytes = b""
    stream_offset: int = 0
    constants_offset: int = 0
    memory_bytes: int
    segments: tuple[Segment, ...]
    inputs: tuple[TensorDescriptor, ...] = ()
    outputs: tuple[TensorDescriptor, ...] = ()
    steps: tuple[Step, ...] = ()
    parameters: Parameters = field(default_factory=Parameters)
    metadata: Mapping[str, Any] = field(default_factory=dict)

    def __repr__(self) -> str:
        return (
            f"<Program {self.config.hash:016x}: {len(self.stream):,} bytes of instructions,"
            f" {len(self.constants):,} of constants, {len(self.segments)} segments>"
        )

    def __post_init__(self) -> None:
        for name in ("segments", "inputs", "outputs", "steps"):
            object.__setattr__(self, name, tuple(getattr(self, name)))
        for name in ("stream_offset", "constants_offset", "memory_bytes"):
            if _whole(name, getattr(self, name)) > MOST_MEMORY:
                raise ProgramError(f"{name} must be at most {MOST_MEMORY}, what the host registers reach")
        if not isinstance(self.metadata, Mapping):
            raise ProgramError(f"metadata must be an object, not {type(self.metadata).__name__}")
        if len(self.stream) % PAGE_BYTES:
            raise ProgramError(f"stream must be whole pages of {PAGE_BYTES} bytes, not {len(self.stream)} bytes")
        if self.stream_offset % PAGE_BYTES:
            raise ProgramError(f"stream_offset must be a multiple of {PAGE_BYTES}, not {self.stream_offset}")
        stream = self._region("stream", self.stream_offset, len(self.stream))
        constants = self._region("constants", self.constants_offset, len(self.constants))
        if stream and constants and max(stream.start, constants.start) < min(stream.stop, constants.stop):
            raise ProgramError("stream and constants must not overlap in system memory")
        if len(self.parameters.formulas) > self.config.parameters:
            raise ProgramError(
                f"parameters must be at most {self.config.parameters}, what the configuration has,"
                f" not {len(self.parameters.formulas)}"
            )
        for number, segment in enumerate(self.segments):
            pages = range(segment.address, segment.address + segment.pages * PAGE_BYTES)
            if segment.pages < 1:
                raise ProgramError(f"segment {number} must have at least 1 page, not {segment.pages}")
            if segment.entry >= segment.pages:
                raise ProgramError(
                    f"entry of segment {number} must be below {segment.pages} pages, not {segment.entry}"
                )
            if (segment.address - self.stream_offset) % PAGE_BYTES:
                raise ProgramError(f"segment {number} must start at a page of the stream, not at {segment.address}")
            if pages.start < stream.start or pages.stop > stream.stop:
                raise ProgramError(f"segment {number} must lie inside the stream {_show(stream)}, not {_show(pages)}")
        for step in self.steps:
            if step.segment is not None and not 0 <= step.segment < len(self.segments):
                raise ProgramError(
                    f"step {step.label!r} must name one of {len(self.segments)} segments, not {step.segment}"
                )
        for tensor in self.tensors:
            if tensor.offset is not None:
                self._region(f"tensor {tensor.name!r}", tensor.offset, tensor.span)

    def _region(self, what: str, offset: int, size: int) -> range:
        region = range(offset, offset + size)
        if offset < 0 or region.stop > self.memory_bytes:
            raise ProgramError(
                f"{what} must lie inside {self.memory_bytes} bytes of system memory, not {_show(region)}"
            )
        return region

    @property
    def tensors(self) -> tuple[TensorDescriptor, ...]:
        """All descriptors: inputs, outputs, operands of the host steps."""
        operands = [tensor for step in self.steps for tensor in (*step.inputs, *step.outputs)]
        return (*self.inputs, *self.outputs, *operands)

    @property
    def images(self) -> tuple[tuple[int, bytes], ...]:
        """(offset in system memory, bytes) of what is loaded before a run."""
        return (self.stream_offset, self.stream), (self.constants_offset, self.constants)

    def check_config(self, config: Config) -> None:
        """Raise :class:`ProgramError` unless ``config`` is the hardware this program is for."""
        if config.hash == self.config.hash:
            return
        ours, theirs = self.config.to_dict(), config.to_dict()
        names = [n for n in sorted({*ours, *theirs} - {"memory"}) if ours.get(n) != theirs.get(n)]
        changes = ", ".join(f"{n} {ours.get(n)}, not {theirs.get(n)}" for n in names)
        raise ProgramError(
            f"program must run on configuration {self.config.hash:016x}, not {config.hash:016x} (it is for {changes})"
        )

    # --- file ---------------------------------------------------------------------------------------

    def to_bytes(self) -> bytes:
        """The file's bytes; equal programs give equal bytes."""
        payloads = b"".join(step.payload for step in self.steps)
        header = self.header().encode()
        size = HEADER.size + len(header) + len(self.stream) + len(self.constants) + len(payloads) + CRC.size
        fixed = HEADER.pack(MAGIC, VERSION, len(header), self.config.hash, size)
        body = b"".join((fixed, header, self.stream, self.constants, payloads))
        return body + CRC.pack(zlib.crc32(body))

    def header(self) -> str:
        """The JSON header: all of a program but its stream, constants and payloads."""
        return json.dumps(self._header(), sort_keys=True, allow_nan=False, default=_plain)

    def _header(self) -> dict[str, Any]:
        steps = [
            {
                "label": step.label,
                "segment": step.segment,
                "bytes": len(step.payload),
                "inputs": [_descriptor(t) for t in step.inputs],
                "outputs": [_descriptor(t) for t in step.outputs],
            }
            for step in self.steps
        ]
        return {
            "config": self.config.to_dict(),
            "stream": {"offset": self.stream_offset, "bytes": len(self.stream)},
            "constants": {"offset": self.constants_offset, "bytes": len(self.constants)},
            "memory_bytes": self.memory_bytes,
            "segments": [
                {name: value for name, value in asdict(segment).items() if name != "entry" or value}
                for segment in self.segments
            ],
            "inputs": [_descriptor(t) for t in self.inputs],
            "outputs": [_descriptor(t) for t in self.outputs],
            "steps": steps,
            "parameters": asdict(self.parameters),
            "metadata": dict(self.metadata),
        }

    @classmethod
    def from_bytes(cls, data: bytes) -> "Program":
        """The inverse of :meth:`to_bytes`. Raises :class:`ProgramError`."""
        header, config_hash, body = _open(data)
        try:
            program = cls._from_header(header, body)
        except ProgramError:
            raise
        except ConfigError as error:
            raise ProgramError(f"configuration in the header must be valid: {error}") from None
        except (KeyError, TypeError, AttributeError, ValueError, OverflowError) as error:
            raise ProgramError(f"header must be complete and well-formed, not broken at {error}") from None
        if program.config.hash != config_hash:
            raise ProgramError(
                f"configuration hash must be that of the header's configuration {program.config.hash:016x},"
                f" not {config_hash:016x}"
            )
        return program

    @classmethod
    def _from_header(cls, header: dict[str, Any], body: bytes) -> "Program":
        sizes = [
            header["stream"]["bytes"],
            header["constants"]["bytes"],
            *(s["bytes"] for s in header["steps"]),
        ]
        if sum(_whole("bytes of a section", size) for size in sizes) != len(body) or min(sizes) < 0:
            raise ProgramError(f"sections must fill {len(body)} bytes, not {sum(sizes)}")
        stream, constants, *payloads = _cut(body, sizes)
        steps = tuple(
            Step(
                label=s["label"],
                segment=s["segment"],
                payload=payload,
                inputs=tuple(TensorDescriptor(**t) for t in s["inputs"]),
                outputs=tuple(TensorDescriptor(**t) for t in s["outputs"]),
            )
            for s, payload in zip(header["steps"], payloads, strict=True)
        )
        return cls(
            config=Config.from_dict(header["config"]),
            stream=stream,
            constants=constants,
            stream_offset=header["stream"]["offset"],
            constants_offset=header["constants"]["offset"],
            memory_bytes=header["memory_bytes"],
            segments=tuple(Segment(**s) for s in header["segments"]),
            inputs=tuple(TensorDescriptor(**t) for t in header["inputs"]),
            outputs=tuple(TensorDescriptor(**t) for t in header["outputs"]),
            steps=steps,
            parameters=Parameters(
                tuple(RunInput(**one) for one in header["parameters"]["inputs"]),
                tuple(Formula.from_dict(one) for one in header["parameters"]["formulas"]),
            ),
            metadata=header["metadata"],
        )

    def save(self, path: str | Path) -> None:
        """Write the file, whole or not at all. Raises OSError."""
        write_atomically(path, self.to_bytes())

    @classmethod
    def load(cls, path: str | Path) -> "Program":
        """Read a file. Raises OSError, or :class:`ProgramError` with the file's name."""
        data = Path(path).read_bytes()
        try:
            return cls.from_bytes(data)
        except ProgramError as error:
            raise ProgramError(f"{path}: {error}") from None


def _open(data: bytes) -> tuple[dict[str, Any], int, bytes]:
    """(JSON header, configuration hash, sections) of a file whose frame is sound."""
    if data[: len(MAGIC)] != MAGIC[: len(data)] or not data:
        raise ProgramError(f"file must be a Dovetail program (magic {MAGIC.decode()}), not something else")
    if len(data) < HEADER.size:
        raise ProgramError(f"file must be complete, not cut off after {len(data)} bytes")
    _, version, header_bytes, config_hash, size = HEADER.unpack_from(data)
    if version != VERSION:
        raise ProgramError(f"format version must be {VERSION}, not {version}; compile the network again")
    if len(data) < size:
        raise ProgramError(f"file must be complete, not cut off after {len(data)} of {size} bytes")
    if len(data) > size or size < HEADER.size + header_bytes + CRC.size:
        raise ProgramError(f"file must be {size} bytes, as its header says, not {len(data)}")
    body = data[: -CRC.size]
    expected, actual = CRC.unpack(data[-CRC.size :])[0], zlib.crc32(body)
    if expected != actual:
        raise ProgramError(f"CRC must be {expected:08x}, not {actual:08x}: the file is damaged")
    try:
        header = json.loads(body[HEADER.size : HEADER.size + header_bytes], parse_constant=_no_number)
    except ValueError as error:
        raise ProgramError(f"header must be JSON: {error}") from None
    except RecursionError:
        raise ProgramError("header must be JSON without deep nesting") from None
    if not isinstance(header, dict):
        raise ProgramError(f"header must be a JSON object, not {type(header).__name__}")
    return header, config_hash, body[HEADER.size + header_bytes :]


def _whole(what: str, value: Any) -> int:
    """A whole number, NumPy's included; a file may hold anything."""
    if isinstance(value, bool) or not isinstance(value, Integral):
        raise ProgramError(f"{what} must be a whole number, not {value!r}")
    return int(value)


def _no_number(text: str) -> None:
    raise ValueError(f"numbers must be finite, not {text}")


def _cut(body: bytes, sizes: Iterable[int]) -> list[bytes]:
    parts, start = [], 0
    for size in sizes:
        parts.append(body[start : start + size])
        start += size
    return parts


def _show(region: range) -> str:
    return f"{region.start:#x}..{region.stop - 1:#x}"


def _descriptor(tensor: TensorDescriptor) -> dict[str, Any]:
    """A descriptor as JSON has it."""
    return {**vars(tensor), "extra": dict(tensor.extra)}


def _plain(value: Any) -> Any:
    """A NumPy number or array as a Python one, for JSON."""
    for method in ("tolist", "item"):
        if hasattr(value, method):
            return getattr(value, method)()
    if isinstance(value, Mapping):
        return dict(value)
    raise TypeError(f"metadata must be JSON, not {type(value).__name__}")
