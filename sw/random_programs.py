"""Random programs, legal and illegal, for comparing engines.

A legal program uses every operation the configuration has, with SYNCs from the hazard tracker. An illegal one is a
legal one with something broken; it still has one outcome (no program returned here races, see
:func:`~dovetail.sw.hazards.races`).
"""

import random
from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from dovetail.isa.checks import View, check, claim, lanes_of, regions
from dovetail.isa.config import BUS_WIDTHS, Config, ConfigError, MemoryTiming, ceil_div
from dovetail.isa.instructions import (
    BY_NUMBER,
    INSTRUCTIONS,
    PAGE_BYTES,
    PAGE_WORDS,
    REGISTERS,
    Op,
    Unit,
    cfg,
    pack,
    sync,
    to_bytes,
)
from dovetail.isa.numerics import average_magic
from dovetail.isa.timing.dma import row_addresses
from dovetail.isa.timing.engine import time_program
from dovetail.sw.hazards import Tracker, races

DATA_BYTES = 64 << 10
"""System memory, from BASE on, that random programs read and write."""

_MASK = 0xFFFF_FFFF
_DMA_OPS = {Unit.LOAD: Op.DMA_READ, Unit.STORE: Op.DMA_WRITE}

Registers = dict[str, int]


@dataclass(frozen=True)
class RandomProgram:
    """A program with the memory it runs in, which starts at address 0."""

    config: Config
    memory: npt.NDArray[np.uint8]
    program: int
    pages: int
    base: int
    words: tuple[int, ...]

    def fresh_memory(self) -> npt.NDArray[np.uint8]:
        """A copy of the memory, for a run."""
        return self.memory.copy()


def random_config(rng: random.Random, *, vector: bool | None = None) -> Config:
    """A small accelerator with any lanes, banks, bus and memory timing."""
    while True:
        banks = rng.randint(4, 12)
        depthwise = rng.choice(("native", "native", "emulated", "none"))
        wide = rng.random() < 0.2
        try:
            return Config(
                ic_lanes=rng.choice((1, 2, 3, 5, 8, 12, 16, 64 if wide else 4)),
                oc_lanes=rng.choice((1, 2, 3, 5, 8, 12, 16, 64 if wide else 4)),
                sram=banks * (8 << 10),
                banks=banks,
                stripe=rng.choice((1, 2, 7, 16, 32, 64)),
                requant_lanes=rng.choice((None, None, 1, 2, 3)),
                vector_lanes=rng.choice((None, 1, 3, 4, 8)),
                depthwise=depthwise,
                depthwise_lanes=rng.choice((None, 3, 8)) if depthwise == "native" else None,
                bus=rng.choice(BUS_WIDTHS),
                outstanding=rng.choice((1, 2, 4, 16)),
                vector=rng.random() < 0.85 if vector is None else vector,
                memory=MemoryTiming(
                    read_latency=rng.choice((1, 7, 40)),
                    write_latency=rng.choice((1, 5, 20)),
                    beat_cycles=rng.choice((1, 1, 1, 2, 3)),
                ),
            )
        except ConfigError:
            continue


def operations(config: Config) -> list[Op]:
    """The operations that a configuration has."""
    ops = [Op.DMA_READ, Op.DMA_WRITE, Op.CONV, Op.CONV_RELU]
    if config.dw:
        ops.append(Op.DEPTH_CONV)
    if config.vector:
        ops += [Op.POOL, Op.E_ADD]
    return ops


# --- registers of one operation ----------------------------------------------------------------------------------


def dma_registers(rng: random.Random, config: Config, unit: Unit) -> Registers:
    """A strided transfer inside the data area."""
    while True:
        length = rng.choice((rng.randint(1, 40), rng.randint(1, 300), rng.randint(1, 5000)))
        rows = rng.choice((1, 1, 2, rng.randint(1, 8)))
        planes = rng.choice((1, 1, 1, 2, 3))
        if rows * planes * length > 12000:
            continue
        row_step = length + rng.choice((0, 0, 1, rng.randint(0, 64)))
        plane_step = rows * row_step + rng.choice((0, rng.randint(0, 100)))
        sram_row = length + rng.choice((0, 0, 3, rng.randint(0, 64)))
        sram_plane = rows * sram_row + rng.choice((0, rng.randint(0, 50)))
        size = (planes - 1) * sram_plane + (rows - 1) * sram_row + length
        span = (planes - 1) * plane_step + (rows - 1) * row_step + length
        if size > config.sram_bytes // 2 or span > DATA_BYTES // 2:
            continue
        start = rng.randrange(DATA_BYTES - span)
        if rng.random() < 0.3:
            start &= ~63
        if rng.random() < 0.15:  # rows from the last to the first
            start += (rows - 1) * row_step
            row_step = -row_step & _MASK
        if rng.random() < 0.1:
            size = max(1, size - rng.randint(1, length))  # parts of it are dropped
        if rng.random() < 0.05:
            sram_row = rng.getrandbits(32)
        address = rng.randrange(config.sram_bytes - size)
        if rng.random() < 0.3:
            address &= ~63
        return {
            "MEM_ADDR": start,
            "MEM_ROW_STEP": row_step,
            "MEM_PLANE_STEP": plane_step,
            "SRAM_ADDR": address,
            "SRAM_BYTES": size,
            "SRAM_ROW_STEP": sram_row,
            "SRAM_PLANE_STEP": sram_plane,
            "LENGTH": length,
            "COUNT": pack(unit, "COUNT", rows=rows, planes=planes),
        }


def _window(
    rng: random.Random, config: Config, unit: Unit, op: Op, channels: int, kh: int, kw: int, lanes: int
) -> Registers:
    """Window, tile and quantisation registers over an input of ``channels`` bytes per pixel and tap."""
    height, width = rng.randint(1, 6), rng.randint(1, 8)
    stride_y, stride_x = rng.randint(1, 3), rng.randint(1, 3)
    dilation_y, dilation_x = rng.randint(1, 2), rng.randint(1, 2)
    pixel = channels + rng.choice((0, 0, 0, rng.randint(1, 9)))
    top, left = rng.randint(0, kh - 1), rng.randint(0, kw - 1)
    rows = (height - 1) * stride_y + (kh - 1) * dilation_y + 1 - top - rng.choice((0, 0, 1))
    columns = (width - 1) * stride_x + (kw - 1) * dilation_x + 1 - left - rng.choice((0, 0, 1))
    rows, columns = max(rows, 1), max(columns, 1)
    pitch = columns * pixel + rng.choice((0, 0, rng.randint(1, 20)))
    size = rows * pitch
    if rng.random() < 0.08:
        size = max(1, size - rng.randint(1, pitch))
    values = {
        "IN_ADDR": rng.randrange(config.sram_bytes),
        "IN_BYTES": size,
        "ORIGIN": -(top * pitch + left * pixel) & _MASK,
        "Y_STEP": stride_y * pitch,
        "X_STEP": stride_x * pixel,
        "KY_STEP": dilation_y * pitch,
        "KX_STEP": dilation_x * pixel,
        "IN_ROWS": rows,
        "ROW_BYTES": columns * pixel,
        "PAD_TOP": top,
        "PAD_LEFT": left * pixel,
        "GEOMETRY": pack(unit, "GEOMETRY", kh=kh, kw=kw, stride_y=stride_y, dilation_y=dilation_y),
        "TILE": pack(unit, "TILE", height=height, width=width),
    }
    lo, hi = sorted((rng.randint(-128, 127), rng.randint(-128, 127)))
    if rng.random() < 0.7:
        lo, hi = -128, 127
    values["QUANT"] = pack(unit, "QUANT", zero_in=rng.randint(-128, 127), zero_out=rng.randint(-128, 127), lo=lo, hi=hi)
    return values


def _output(
    rng: random.Random, config: Config, unit: Unit, values: Registers, count: int, last: int, lanes: int, item: int
) -> None:
    """Add the output registers for ``count`` blocks."""
    height, width = values["TILE"] & 0xFFFF, values["TILE"] >> 16
    pixel = ((count - 1) * lanes + last) * item
    x_step = pixel + rng.choice((0, 0, 0, rng.randint(1, 9)))
    y_step = width * x_step + rng.choice((0, 0, rng.randint(1, 30)))
    size = (height - 1) * y_step + (width - 1) * x_step + pixel
    if rng.random() < 0.08:
        size = max(1, size - rng.randint(1, pixel))
    values |= {
        "OUT_ADDR": rng.randrange(config.sram_bytes),
        "OUT_BYTES": size,
        "OUT_Y_STEP": y_step,
        "OUT_X_STEP": x_step,
        "BLOCKS": pack(unit, "BLOCKS", count=count, last=last),
    }


_STEPS = ("ORIGIN", "Y_STEP", "X_STEP", "KY_STEP", "KX_STEP", "IN_ROWS", "ROW_BYTES", "PAD_TOP", "PAD_LEFT")


def _spoil(rng: random.Random, values: Registers) -> None:
    """Now and then, steps that no compiler would choose: still one defined outcome."""
    if rng.random() < 0.12:
        for name in rng.sample(_STEPS, rng.randint(1, 3)):
            values[name] = rng.choice((0, rng.randint(0, 300), rng.getrandbits(32), _MASK - rng.randint(0, 99)))
    if rng.random() < 0.08:
        for name in rng.sample(("OUT_Y_STEP", "OUT_X_STEP"), rng.randint(1, 2)):
            values[name] = rng.choice((0, rng.randint(0, 300), rng.getrandbits(32)))


def array_registers(rng: random.Random, config: Config, op: Op) -> Registers:
    """A convolution or depthwise convolution."""
    unit = Unit.ARRAY
    depthwise = op == Op.DEPTH_CONV
    lanes = lanes_of(config, op)
    kh, kw = rng.choice((1, 1, 2, 3)), rng.choice((1, 1, 2, 3))
    count, last = rng.randint(1, 3), rng.randint(1, lanes)
    kc = 1
    if depthwise:
        channels = (count - 1) * lanes + last
    else:
        kc = rng.randint(1, max(1, min(3, 48 // config.ic)))
        channels = max(1, kc * config.ic - rng.randint(0, config.ic - 1))
    values = _window(rng, config, unit, op, channels, kh, kw, lanes)
    mode = {
        "rounding": rng.randint(0, 1),
        "int32": int(rng.random() < 0.2),
        "accumulate": int(rng.random() < 0.2),
    }
    item = 4 if mode["int32"] or mode["accumulate"] else 1  # accumulation reads int32 slots whatever it writes
    _output(rng, config, unit, values, count, last, lanes, item)
    rows = 1 if depthwise else config.weight_rows
    steps = kh * kw * (1 if depthwise else kc)
    stream = count * (config.param_rows(lanes) + steps * rows) * config.word_bytes
    if rng.random() < 0.08:
        stream = max(config.word_bytes, stream - rng.randint(0, 3) * config.word_bytes)
    values |= {
        "KC": kc if not depthwise else rng.randint(0, 3),
        "W_ADDR": rng.randrange(config.sram_bytes) // config.word_bytes * config.word_bytes,
        "W_BYTES": stream,
        "STRIPE": rng.choice((config.stripe, rng.randint(1, config.stripe))),
        "MODE": pack(unit, "MODE", **mode),
    }
    _spoil(rng, values)
    return values


def vector_registers(rng: random.Random, config: Config, op: Op) -> Registers:
    """A pooling or an addition."""
    unit = Unit.VECTOR
    lanes = config.vec
    count, last = rng.randint(1, 4), rng.randint(1, lanes)
    channels = (count - 1) * lanes + last
    kh, kw = (1, 1) if op == Op.E_ADD else (rng.randint(1, 4), rng.randint(1, 4))
    values = _window(rng, config, unit, op, channels, kh, kw, lanes)
    _output(rng, config, unit, values, count, last, lanes, 1)
    height, width = values["TILE"] & 0xFFFF, values["TILE"] >> 16
    b_x = channels + rng.choice((0, 0, rng.randint(1, 5)))
    b_y = width * b_x + rng.choice((0, rng.randint(1, 20)))
    taps = rng.choice((kh * kw, rng.randint(1, 100)))
    magic, shift = average_magic(taps)
    onnx = rng.random() < 0.5
    values |= {
        "MODE": pack(unit, "MODE", rounding=onnx, average=int(rng.random() < 0.6), requantise=int(rng.random() < 0.4)),
        "B_ADDR": rng.randrange(config.sram_bytes),
        "B_BYTES": max(1, height * b_y - rng.choice((0, 0, rng.randint(0, 40)))),
        "B_Y_STEP": b_y,
        "B_X_STEP": b_x,
        "B_ZERO": pack(unit, "B_ZERO", zero_b=rng.randint(-128, 127)),
        "A_MULT": random_multiplier(rng, onnx)[0],
        "B_MULT": random_multiplier(rng, onnx)[0],
        "OUT_MULT": random_multiplier(rng, onnx)[0],
        "SHIFTS": pack(unit, "SHIFTS", a=rng.choice((0, -1, -3)), b=rng.choice((0, -1, -3)), out=rng.randint(-22, 2)),
        "SUM_BIAS": rng.choice((0, rng.randint(-5000, 5000) & _MASK, rng.getrandbits(32))),
        "POOL_COUNT": taps,
        "POOL_MAGIC": magic,
        "POOL_SHIFT": pack(unit, "POOL_SHIFT", shift=shift),
    }
    if rng.random() < 0.1:
        for name in rng.sample(("B_Y_STEP", "B_X_STEP", "SHIFTS", "A_MULT", "POOL_MAGIC", "POOL_SHIFT"), 2):
            values[name] = rng.getrandbits(32) & REGISTERS[unit][name].mask
    apart = height == 1 or values["Y_STEP"] >= (width - 1) * values["X_STEP"] + channels
    if op == Op.E_ADD and apart and rng.random() < 0.2:  # in place
        values |= {"OUT_ADDR": values["IN_ADDR"], "OUT_BYTES": values["IN_BYTES"]}
        values |= {"OUT_X_STEP": values["X_STEP"], "OUT_Y_STEP": values["Y_STEP"]}
    else:
        _spoil(rng, values)
    return values


def random_multiplier(rng: random.Random, onnx: bool) -> tuple[int, int]:
    """(mult, shift), usually normalised and of a size that makes int8 of a sum."""
    if rng.random() < 0.1:
        return rng.getrandbits(31), rng.randint(-32, 31)
    return rng.randrange(1 << 23, 1 << 24) if onnx else rng.randrange(1 << 30, 1 << 31), rng.randint(-12, -2)


def weight_stream(rng: random.Random, config: Config, op: Op, values: Registers) -> bytes:
    """Bytes for an ARRAY operation's weight stream: records that make sense, random weights."""
    lanes = lanes_of(config, op)
    view = View(Unit.ARRAY, _sequence(Unit.ARRAY, values))
    taps = view["GEOMETRY", "kh"] * view["GEOMETRY", "kw"]
    steps = taps * (1 if op == Op.DEPTH_CONV else view["KC", "blocks"] * config.weight_rows)
    onnx = view["MODE", "rounding"] == 1
    stream = b""
    for _ in range(view["BLOCKS", "count"]):
        records = b""
        for _ in range(lanes):
            mult, shift = random_multiplier(rng, onnx)
            bias = rng.choice((rng.randint(-20000, 20000), rng.randint(-(1 << 31), (1 << 31) - 1)))
            records += (bias & _MASK).to_bytes(4, "little") + mult.to_bytes(4, "little")
            records += (shift & _MASK).to_bytes(4, "little") + bytes(4)
        stream += records.ljust(config.param_rows(lanes) * config.word_bytes, b"\0")
        stream += rng.randbytes(steps * config.word_bytes)
    return stream


def _sequence(unit: Unit, values: Registers) -> list[int]:
    return [values[name] for name in REGISTERS[unit]]


# --- programs ----------------------------------------------------------------------------------------------------


@dataclass
class Builder:
    """Puts a program together; ``data`` is the system memory from BASE on."""

    config: Config
    rng: random.Random
    words: list[int] = field(default_factory=list)
    data: npt.NDArray[np.uint8] = field(default_factory=lambda: np.zeros(DATA_BYTES, np.uint8))

    def __post_init__(self) -> None:
        self.tracker = Tracker(self.config)
        self.current = {unit: dict.fromkeys(registers, 0) for unit, registers in REGISTERS.items()}
        self._constants = 0

    def emit(self, op: Op, values: Registers) -> None:
        """CFG words for what changes (and some that does not), SYNCs, the operation."""
        unit = INSTRUCTIONS[op].unit
        assert unit is not None
        view = View(unit, _sequence(unit, values))
        spaces = regions(op, view)
        memory = (memory_span(view),) if unit in _DMA_OPS else ()
        syncs = self.tracker.issue(
            unit,
            reads=spaces.reads,
            writes=spaces.writes,
            mem_reads=memory if unit == Unit.LOAD else (),
            mem_writes=memory if unit == Unit.STORE else (),
        )
        configs = []
        names = list(values)
        self.rng.shuffle(names)
        for name in names:
            if values[name] != self.current[unit][name] or self.rng.random() < 0.03:
                configs.append(cfg(unit, name, values[name]))
        self.current[unit] |= values
        first, second = (syncs, configs) if self.rng.random() < 0.3 else (configs, syncs)
        self.words += first + second
        if self.rng.random() < 0.05:
            on = self.rng.choice(_units(self.config))
            self.words.append(sync(unit, on, self.rng.choice((0, 1, 5, _MASK))))
        self.words.append(int(op))

    def constant(self, content: bytes) -> int:
        """Place bytes in the lower half of the data area; what was there may be lost. Their address."""
        if self._constants + len(content) > DATA_BYTES // 2:
            self._constants = 0
        start = self._constants
        self._constants += len(content) + self.rng.choice((0, 0, 7, 64))
        self.data[start : start + len(content)] = np.frombuffer(content, np.uint8)
        return start

    def load(self, content_at: int, address: int, size: int) -> None:
        """LOAD of contiguous bytes."""
        values = {
            "MEM_ADDR": content_at,
            "MEM_ROW_STEP": 0,
            "MEM_PLANE_STEP": 0,
            "SRAM_ADDR": address,
            "SRAM_BYTES": size,
            "SRAM_ROW_STEP": 0,
            "SRAM_PLANE_STEP": 0,
            "LENGTH": size,
            "COUNT": pack(Unit.LOAD, "COUNT", rows=1, planes=1),
        }
        self.emit(Op.DMA_READ, values)


def _units(config: Config) -> list[Unit]:
    return [u for u in Unit if config.vector or u != Unit.VECTOR]


def memory_span(view: View) -> tuple[int, int]:
    """(first byte, bytes) of system memory, relative to BASE, that a DMA touches (no address wraps)."""
    rows = list(
        row_addresses(
            view["MEM_ADDR"],
            view["COUNT", "rows"],
            view["COUNT", "planes"],
            view["MEM_ROW_STEP"],
            view["MEM_PLANE_STEP"],
        )
    )
    return min(rows), max(rows) + view["LENGTH"] - min(rows)


def _overlap(a: tuple[int, int], b: tuple[int, int]) -> bool:
    return a[0] < b[0] + b[1] and b[0] < a[0] + a[1]


def legal_registers(rng: random.Random, config: Config, op: Op) -> Registers:
    """Registers for ``op`` that pass its checks; its output does not overlap what it reads, unless in place."""
    unit = INSTRUCTIONS[op].unit
    assert unit is not None
    while True:
        if unit in _DMA_OPS:
            values = dma_registers(rng, config, unit)
        elif unit == Unit.ARRAY:
            values = array_registers(rng, config, op)
        else:
            values = vector_registers(rng, config, op)
        view = View(unit, _sequence(unit, values))
        if check(config, op, view) or claim(config, op, view).twice:
            continue
        spaces = regions(op, view)
        targets = spaces.writes
        sources = [s for s in spaces.reads if s not in targets]
        if not any(_overlap(s, t) for s in sources for t in targets):
            return values


def _add_operation(builder: Builder, op: Op) -> None:
    rng, config = builder.rng, builder.config
    values = legal_registers(rng, config, op)
    if op in (Op.CONV, Op.CONV_RELU, Op.DEPTH_CONV) and rng.random() < 0.7:
        stream = weight_stream(rng, config, op, values)[: values["W_BYTES"]]
        if len(stream) < DATA_BYTES // 4:
            at = builder.constant(stream)
            builder.load(at, values["W_ADDR"], len(stream))
    if "IN_ADDR" in values and rng.random() < 0.5:
        size = values["IN_BYTES"]
        if size < DATA_BYTES // 4:
            builder.load(rng.randrange(DATA_BYTES - size), values["IN_ADDR"], size)
    builder.emit(op, values)
    if "OUT_ADDR" in values and rng.random() < 0.4:
        values = dma_registers(rng, config, Unit.STORE)
        values |= {"SRAM_ADDR": builder.current[INSTRUCTIONS[op].unit or Unit.ARRAY]["OUT_ADDR"]}
        view = View(Unit.STORE, _sequence(Unit.STORE, values))
        if not check(config, Op.DMA_WRITE, view):
            builder.emit(Op.DMA_WRITE, values)


def _build(rng: random.Random, config: Config, count: int) -> Builder:
    builder = Builder(config, rng)
    builder.data[:] = np.frombuffer(rng.randbytes(DATA_BYTES), np.uint8)
    ops = operations(config)
    for _ in range(count):
        _add_operation(builder, rng.choice(ops))
    return builder


def _finish(rng: random.Random, builder: Builder, words: list[int], *, cut: bool = False) -> RandomProgram:
    """Lay out memory: space below BASE, data, program. ``cut``: memory ends before the last page."""
    base = 4096 * rng.randint(0, 3)
    pages = max(1, ceil_div(len(words), PAGE_WORDS))
    stream = to_bytes(words).ljust(pages * PAGE_BYTES, b"\0")
    gap = PAGE_BYTES * rng.randint(0, 3)
    program = base + DATA_BYTES + gap
    if cut:
        # The program starts below the end of memory; what is beyond is never read.
        program = base + DATA_BYTES + 4096 - PAGE_BYTES * rng.randint(0, min(pages - 1, 3))
        stream = stream[: base + DATA_BYTES + 4096 - program]
    size = program + len(stream)
    memory = np.zeros(ceil_div(size, 4096) * 4096, np.uint8)
    memory[base : base + DATA_BYTES] = builder.data
    memory[program:size] = np.frombuffer(stream, np.uint8)
    return RandomProgram(builder.config, memory, program, pages, base, tuple(words))


def legal_program(rng: random.Random, config: Config, *, count: int = 12) -> RandomProgram:
    """A program of ``count`` random operations (and the loads and stores around them) that runs to its END."""
    builder = _build(rng, config, count)
    return _finish(rng, builder, [*builder.words, int(Op.END)])


# --- breaking them -----------------------------------------------------------------------------------------------

Words = list[int]


def _bad_opcode(rng: random.Random, config: Config, words: Words) -> None:
    known = {int(op) for op in Op}
    words.insert(rng.randrange(len(words)), rng.choice([n for n in range(256) if n not in known]))


def _reserved_bit(rng: random.Random, config: Config, words: Words) -> None:
    n = rng.randrange(len(words))
    reserved = INSTRUCTIONS[Op(words[n] & 0xFF)].reserved
    words[n] |= 1 << rng.choice([b for b in range(64) if reserved >> b & 1] or [16])


def _bad_register(rng: random.Random, config: Config, words: Words) -> None:
    unit = rng.choice(list(Unit))
    number = unit << 6 | rng.randrange(len(REGISTERS[unit]), 64)
    word = rng.choice((Op.CFG | number << 8, Op.SYNC | rng.randint(4, 255) << rng.choice((8, 16))))
    words.insert(rng.randrange(len(words)), int(word))


def _reserved_value(rng: random.Random, config: Config, words: Words) -> None:
    packed = [r for u in REGISTERS.values() for r in u.values() if r.mask != _MASK]
    register = rng.choice(packed)
    bit = rng.choice([b for b in range(32) if not register.mask >> b & 1])
    words.insert(rng.randrange(len(words)), Op.CFG | register.number << 8 | 1 << 32 + bit)


def _absent(rng: random.Random, config: Config, words: Words) -> None:
    missing = [op for op in (Op.POOL, Op.E_ADD, Op.DEPTH_CONV) if op not in operations(config)]
    if missing:
        words.insert(rng.randrange(len(words)), int(rng.choice(missing)))


def _no_end(rng: random.Random, config: Config, words: Words) -> None:
    words.pop()
    while len(words) % PAGE_WORDS:
        words.append(cfg(Unit.STORE, "MEM_ADDR", rng.getrandbits(32)))


def _wild_value(rng: random.Random, config: Config, words: Words) -> None:
    """Another value in a CFG: zero sizes, regions out of range, misaligned weights, bus errors."""
    where = [n for n, w in enumerate(words) if w & 0xFF == Op.CFG]
    if not where:
        return
    for n in rng.sample(where, min(len(where), rng.randint(1, 4))):
        register = BY_NUMBER[words[n] >> 8 & 0xFF]
        if register.name in ("TILE", "COUNT", "LENGTH", "KC", "GEOMETRY", "BLOCKS"):
            value = 0 if rng.random() < 0.5 else (words[n] >> 32) ^ 1
        else:
            value = rng.choice((0, rng.randrange(DATA_BYTES), rng.getrandbits(32))) & register.mask
        words[n] = words[n] & _MASK | value << 32


def _limits(rng: random.Random, config: Config, words: Words) -> None:
    """A stripe or last block beyond what there is, or a weight stream off its alignment."""
    changes = {
        REGISTERS[Unit.ARRAY]["STRIPE"].number: rng.randint(config.stripe + 1, 127),
        REGISTERS[Unit.ARRAY]["BLOCKS"].number: pack(Unit.ARRAY, "BLOCKS", count=1, last=config.acc_lanes + 1),
        REGISTERS[Unit.ARRAY]["W_ADDR"].number: rng.randrange(config.sram_bytes) | 1,
        REGISTERS[Unit.ARRAY]["W_BYTES"].number: rng.randrange(3000) | 1,
        REGISTERS[Unit.VECTOR]["BLOCKS"].number: pack(Unit.VECTOR, "BLOCKS", count=1, last=config.vec + 1),
    }
    where = [n for n, w in enumerate(words) if w & 0xFF == Op.CFG and w >> 8 & 0xFF in changes]
    if where:
        n = rng.choice(where)
        words[n] = words[n] & _MASK | changes[words[n] >> 8 & 0xFF] << 32


def _bus(rng: random.Random, config: Config, words: Words) -> None:
    """A transfer that leaves system memory, at its start or further on."""
    numbers = {REGISTERS[u]["MEM_ADDR"].number for u in (Unit.LOAD, Unit.STORE)}
    where = [n for n, w in enumerate(words) if w & 0xFF == Op.CFG and w >> 8 & 0xFF in numbers]
    if where:
        n = rng.choice(where)
        value = rng.choice((DATA_BYTES + 4096 * rng.randint(0, 4) - rng.randint(0, 300), rng.getrandbits(32)))
        words[n] = words[n] & _MASK | value << 32


def _conflict(rng: random.Random, config: Config, words: Words) -> None:
    """An address of one region moved into the banks of another."""
    for _ in range(3):
        where = [n for n, w in enumerate(words) if w & 0xFF == Op.CFG]
        names = ("IN_ADDR", "OUT_ADDR", "SRAM_ADDR", "B_ADDR")
        where = [n for n in where if (r := BY_NUMBER.get(words[n] >> 8 & 0xFF)) and r.name in names]
        if where:
            n = rng.choice(where)
            words[n] = words[n] & _MASK | rng.randrange(config.sram_bytes) << 32
    _drop_syncs(rng, config, words)


def _drop_syncs(rng: random.Random, config: Config, words: Words) -> None:
    share = rng.choice((0.1, 0.5, 1.0))
    words[:] = [w for w in words if w & 0xFF != Op.SYNC or rng.random() >= share]


def _swap(rng: random.Random, config: Config, words: Words) -> None:
    if len(words) > 3:
        n = rng.randrange(len(words) - 2)
        words[n], words[n + 1] = words[n + 1], words[n]


def _nothing(rng: random.Random, config: Config, words: Words) -> None:
    """For what is broken elsewhere."""


BREAKS: dict[str, Callable[[random.Random, Config, Words], None]] = {
    "opcode": _bad_opcode,
    "reserved": _reserved_bit,
    "register": _bad_register,
    "value": _reserved_value,
    "absent": _absent,
    "end": _no_end,
    "wild": _wild_value,
    "limits": _limits,
    "bus": _bus,
    "conflict": _conflict,
    "syncs": _drop_syncs,
    "swap": _swap,
    "fetch": _nothing,
}
"""Ways to break a program; each may also leave it legal."""

_MAX_CYCLES = 400_000


def illegal_program(rng: random.Random, config: Config, *, count: int = 8, ways: tuple[str, ...] = ()) -> RandomProgram:
    """A program broken in one or more of ``ways`` (names of :data:`BREAKS`; random when left out).

    Now and then the outcome is legal all the same. Programs that race or last for ages are not returned.
    """
    while True:
        builder = _build(rng, config, count)
        words = [*builder.words, int(Op.END)]
        chosen = ways or tuple(rng.sample(sorted(BREAKS), rng.choice((1, 1, 2))))
        for way in chosen:
            BREAKS[way](rng, config, words)
        program = _finish(rng, builder, words, cut="fetch" in chosen)
        if bounded(config, words) and settled(program):
            return program


def bounded(config: Config, words: Words) -> bool:
    """Whether no operation of the program is too large to simulate."""
    values = {unit: dict.fromkeys(registers, 0) for unit, registers in REGISTERS.items()}
    for word in words:
        code = word & 0xFF
        if code == Op.CFG and (register := BY_NUMBER.get(word >> 8 & 0xFF)):
            values[register.unit][register.name] = word >> 32
        elif code in Op.__members__.values() and (unit := INSTRUCTIONS[Op(code)].unit) is not None:
            view = View(unit, _sequence(unit, values[unit]))
            if unit in _DMA_OPS:
                work = view["LENGTH"] * view["COUNT", "rows"] * view["COUNT", "planes"]
            else:
                work = view["TILE", "height"] * view["TILE", "width"] * view["BLOCKS", "count"]
                work *= max(1, view["GEOMETRY", "kh"] * view["GEOMETRY", "kw"])
                work *= view["KC", "blocks"] if code in (Op.CONV, Op.CONV_RELU) else 1
            if work > 200_000:
                return False
    return True


def settled(program: RandomProgram) -> bool:
    """Whether a program has one outcome, and soon."""
    timeline = time_program(
        program.config,
        list(program.words),
        address=program.program,
        base=program.base,
        memory_bytes=program.memory.size,
    )
    return timeline.cycles <= _MAX_CYCLES and not races(program.config, timeline, program.base)
