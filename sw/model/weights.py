"""Decoding weight streams, once: tiles and inferences that use a stream again find it here."""

from collections import OrderedDict
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from dovetail.isa.config.resolved import Config
from dovetail.sw.model.base import Bytes, Int8s, Sram

Int32s = npt.NDArray[np.int32]

_MAX_BYTES = 256 << 20


@dataclass(frozen=True)
class Shape:
    """What of an instruction decides how its weight stream is read.

    ``blocks`` of ``lanes`` output channels, ``last`` in the last. A matrix product has no ``taps`` here: its stream
    holds no weights. Of a depthwise convolution: ``sets`` of weights, each for ``together`` taps, else 0.
    """

    taps: int
    kc: int
    blocks: int
    lanes: int
    last: int
    sets: int = 0
    together: int = 1

    @property
    def steps(self) -> int:
        """Weight sets per block of output channels."""
        return self.taps // self.together * self.sets if self.sets else self.taps * self.kc

    @property
    def channels(self) -> int:
        """Output channels."""
        return (self.blocks - 1) * self.lanes + self.last


class Weights:
    """A decoded stream.

    ``values`` is int8 (int16 of a matrix product), [taps, kc * ic_lanes, channels] of a convolution, [taps, channels]
    depthwise. ``used`` input lanes matter: the weights of the others are zero. ``bound`` is the largest
    ``sum(|w|) * largest`` of a channel, where ``largest`` is the greatest magnitude of an input.
    """

    def __init__(
        self,
        values: Int8s | npt.NDArray[np.int16],
        bias: Int32s,
        mult: Int32s,
        shift: Int32s,
        *,
        largest: int = 128,
    ) -> None:
        self.values, self.bias, self.mult, self.shift = values, bias, mult, shift
        magnitude = np.abs(values.astype(np.int16, copy=False))
        axes = tuple(range(values.ndim - 1))
        self.bound = int(magnitude.sum(axis=axes, dtype=np.int64).max(initial=0)) * largest
        self.bias_bound = int(np.abs(bias.astype(np.int64)).max(initial=0))
        if values.ndim == 3:
            lanes = np.flatnonzero(magnitude.any(axis=(0, 2)))
            self.used = int(lanes[-1]) + 1 if len(lanes) else 1
        else:
            self.used = values.shape[-1]
        self._floats: dict[str, npt.NDArray[np.floating]] = {}

    def floats(self, dtype: type[np.floating]) -> npt.NDArray[np.floating]:
        """The used weights as floating point numbers, [taps, used, channels] or [taps, channels]."""
        name = dtype.__name__
        if name not in self._floats:
            used = self.values[:, : self.used] if self.values.ndim == 3 else self.values
            self._floats[name] = used.astype(dtype)
        return self._floats[name]

    @property
    def size(self) -> int:
        """About how many bytes this takes."""
        return 6 * self.values.size


def decode(config: Config, stream: Bytes, shape: Shape) -> Weights:
    """Decode the bytes of a weight stream; what is missing at the end reads as zero."""
    lanes, channels = config.oc_lanes, shape.channels
    word = config.word_bytes
    params = config.param_rows(lanes * (shape.sets or 1)) * word
    per_step = (config.depthwise_rows(shape.together) if shape.sets else config.weight_rows) * word
    block = params + shape.steps * per_step
    total = shape.blocks * block
    if len(stream) < total:
        stream = np.concatenate([stream, np.zeros(total - len(stream), np.uint8)])
    blocks = stream[:total].reshape(shape.blocks, block)
    records = np.ascontiguousarray(blocks[:, : 16 * shape.lanes]).view("<i4").reshape(-1, 4)[:channels]
    steps = blocks[:, params:].view(np.int8).reshape(shape.blocks, shape.steps, per_step)
    if shape.sets:
        grid = steps[:, :, : shape.together * lanes].reshape(shape.blocks, -1, shape.sets, shape.together, lanes)
        grid = grid[:, :, :, ::-1].transpose(1, 3, 0, 2, 4)  # input lane 0 has the last of the taps
        values: Int8s = grid.reshape(shape.taps, shape.blocks, -1)[:, :, : shape.lanes].reshape(shape.taps, -1)
    else:
        rows = shape.kc * config.ic_lanes
        grid = steps[:, :, : config.ic_lanes * lanes].reshape(shape.blocks, shape.taps, rows, lanes)
        values = grid.transpose(1, 2, 0, 3).reshape(shape.taps, rows, shape.blocks * lanes)
    bias, mult, shift = (np.ascontiguousarray(records[:, n], np.int32) for n in range(3))
    shift = ((shift & 0x3F) ^ 0x20) - 0x20
    return Weights(np.ascontiguousarray(values[..., :channels]), bias, mult & 0x7FFF_FFFF, shift)


class WeightCache:
    """Decoded streams by their bytes; and, until their place in SRAM is written, by their place."""

    def __init__(self, config: Config) -> None:
        self.config = config
        self._by_place: dict[tuple[int, int, Shape], tuple[int, Weights]] = {}
        self._by_bytes: OrderedDict[tuple[bytes, Shape], Weights] = OrderedDict()
        self._size = 0

    def find(self, sram: Sram, address: int, size: int, shape: Shape) -> Weights:
        """The stream of ``size`` bytes at ``address``."""
        place = (address, size, shape)
        age = sram.age(address, size)
        known = self._by_place.get(place)
        if known and known[0] == age:
            return known[1]
        stream = sram.data[address : address + size]
        key = (stream.tobytes(), shape)
        weights = self._by_bytes.get(key)
        if weights is None:
            weights = decode(self.config, stream.copy(), shape)
            self._by_bytes[key] = weights
            self._size += weights.size + size
            while self._size > _MAX_BYTES and len(self._by_bytes) > 1:
                (old, _), dropped = self._by_bytes.popitem(last=False)
                self._size -= dropped.size + len(old)
        if len(self._by_place) > 4096:
            self._by_place.clear()
        self._by_place[place] = (age, weights)
        return weights
