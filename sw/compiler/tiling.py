"""Chooses tiles: how many output rows and channels at a time, in which order, in which banks.

Effort 0 takes the least estimate of a few hundred tilings. From effort 1 on the candidates are priced exactly, by the
timing of the layer's own program: the best few by estimate, more of them at effort 2, and at effort 3 all whose lower
bound is below the best price. Every effort starts from what the one below it has found.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from functools import lru_cache
from itertools import product

from dovetail.isa.config import Config, ceil_div, format_bytes, round_up
from dovetail.sw.compiler import pricing, schedule_cache
from dovetail.sw.compiler.estimate import Costs, Shape, array_total, costs_of, estimate, lower_bound, transfers
from dovetail.sw.compiler.layer import ConvLayer
from dovetail.sw.compiler.options import Options
from dovetail.sw.compiler.schedule import Copies, Places, Space, Tiling, buffer_bytes, place
from dovetail.sw.errors import CompileError

COUNTS = (1, 2, 3, 4, 5, 6, 7, 8, 10, 12, 14, 16, 20, 24, 28, 32, 40, 48, 56, 64, 96, 128, 192, 256, 512, 1024)
"""Into how many parts an axis is cut at efforts 0 and 1."""

COARSE = (1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024)
"""The same at effort 1 where there are passes over the input channels."""

EXACT = {1: (3, 400), 2: (32, 32768)}
"""Candidates that an effort prices exactly, and their operations, at most (but the first is priced anyway)."""

SLACK = 1.03
"""Estimate over the array's least cycles from which effort 1 tries passes over the input channels."""

BUFFERS: tuple[Copies, ...] = ((2, 2, 2), (2, 2, 1), (1, 2, 1), (2, 1, 1), (1, 1, 1))
"""Numbers of buffers, best first; fewer where there are fewer pieces."""

MOST_BUFFERS = 64
"""The most buffers of an operand whose pieces all stay."""


def choose(config: Config, layer: ConvLayer, space: Space, options: Options) -> Tiling:
    """The cheapest tiling that ``options.effort`` finds within ``space``.

    An output that is resident rules out passes over the input channels. Cutting output channels only, as the
    reference study did, is done by estimate as it was there, whatever the effort.

    Raises
    ------
    CompileError
        Not even the smallest tile fits the SRAM.
    """
    if options.tiling == "channels":
        return _by_estimate(config, layer, space, whole_rows=True)
    return _choose(config, layer, space, options.effort)


@lru_cache(maxsize=4096)
def check(config: Config, layer: ConvLayer, space: Space, *, whole_rows: bool) -> None:
    """Whether there is any tiling, with whole rows only or not. Raises CompileError if there is none."""
    sizes = _sizes(config, layer, space, whole_rows)
    for shapes in sizes.shapes():
        if any(estimated(config, layer, space, reversed(shapes), first=True)):
            return
    raise _too_small(config, layer, space, sizes)


@lru_cache(maxsize=4096)
def _choose(config: Config, layer: ConvLayer, space: Space, effort: int) -> Tiling:
    if effort == 0:
        return _by_estimate(config, layer, space, whole_rows=False)
    cache = schedule_cache.current()
    key = [asdict(layer), config.to_dict(), asdict(space), effort] if cache else []
    if cache and (known := cache.get(key)):
        return Tiling.from_dict(known)
    best = search(config, layer, space, effort)
    if cache:
        cache.put(key, asdict(best))
    return best


def search(config: Config, layer: ConvLayer, space: Space, effort: int) -> Tiling:
    """What an effort from 1 on finds, with its exact price."""
    best = _choose(config, layer, space, effort - 1)
    if effort == 3:
        return _exhaust(config, layer, space, best)
    if effort == 1:
        best = replace(best, price=pricing.exact(config, layer, space, best))
        shapes = _few_shapes(config, layer, space, best)
    else:
        shapes = many_shapes(config, layer, space, best)
    found = sorted(estimated(config, layer, space, shapes), key=lambda tiling: tiling.price)
    most, operations = EXACT[effort]
    for tiling in found[:most]:
        operations -= _operations(layer, tiling)
        if operations < 0 and tiling is not found[0]:
            break
        best = _cheaper(config, layer, space, best, replace(tiling, best_stripe=True))
    return best


def forget() -> None:
    """Forget all schedules of this process; those in the cache stay."""
    _choose.cache_clear()
    _by_estimate.cache_clear()


def _cheaper(config: Config, layer: ConvLayer, space: Space, best: Tiling, other: Tiling) -> Tiling:
    """``other`` with its exact price, if that is less than that of ``best``."""
    if bound(config, layer, space, other) >= best.price:
        return best
    price = pricing.exact(config, layer, space, other)
    return replace(other, price=price) if price < best.price else best


def bound(config: Config, layer: ConvLayer, space: Space, tiling: Tiling) -> int:
    """Cycles that the exact price of a tiling cannot be below."""
    shape = Shape(tiling.rows, tiling.columns, tiling.out_channels, tiling.in_channels, tiling.best_stripe)
    costs = costs_of(config, layer, shape, space)
    assert costs
    copies = len(tiling.input_at), len(tiling.weights_at), len(tiling.output_at)
    return lower_bound(config, layer, shape, space, transfers(layer, space, costs, tiling.rows_outer, copies))


def _operations(layer: ConvLayer, tiling: Tiling) -> int:
    """Operations of the array."""
    areas = ceil_div(layer.out_height, tiling.rows) * ceil_div(layer.out_width, tiling.columns or layer.out_width)
    tiles = areas * ceil_div(layer.out_channels, tiling.out_channels)
    if layer.mode == "grouped":
        return tiles * ceil_div(tiling.out_channels, layer.group[1])
    return tiles * (ceil_div(layer.channels, tiling.in_channels) + layer.terms - 1)


# --- effort 0 ---------------------------------------------------------------------------------------------------


def _parts(total: int, quantum: int, counts: Sequence[int] = COUNTS) -> list[int]:
    """Tile sizes worth trying: ``total`` cut into equal parts, rounded up to ``quantum``."""
    sizes = []
    for count in counts:
        size = round_up(ceil_div(total, count), quantum)
        size = min(size, total)
        if size not in sizes:
            sizes.append(size)
        if size <= quantum:
            break
    if quantum not in sizes and quantum < total:
        sizes.append(quantum)
    return sizes


def _splits(config: Config, layer: ConvLayer, space: Space, counts: Sequence[int] = COUNTS) -> list[int]:
    """Input channels of a pass, less than all of them."""
    if layer.separable or layer.packed or space.output_at is not None:
        return []
    return [c for c in _parts(layer.channels, min(config.ic, layer.channels), counts) if c < layer.channels]


@dataclass(frozen=True)
class _Sizes:
    """Tile sizes of effort 0: heights, widths (of one row only), output channels, input channels of a pass."""

    heights: list[int]
    widths: list[int]
    channels: list[int]
    splits: list[int]

    def shapes(self) -> Iterator[list[Shape]]:
        """In groups, of which one is tried if nothing fits of those before."""
        for split in self.splits:
            yield [Shape(rows, 0, channels, split) for rows in self.heights for channels in self.channels]
            yield [Shape(1, columns, channels, split) for columns in self.widths for channels in self.channels]


def _sizes(config: Config, layer: ConvLayer, space: Space, whole_rows: bool) -> _Sizes:
    lanes = min(layer.lanes(config), layer.out_channels)
    channels = _parts(layer.out_channels, lanes)
    splits = [layer.channels, *_splits(config, layer, space)]
    if not whole_rows:
        return _Sizes(_parts(layer.out_height, 1), _parts(layer.out_width, 1)[1:], channels, splits)
    group = layer.group[1]
    if layer.lanes(config) > 1:
        channels += range((lanes - 1) // group * group, 0, -group)
    return _Sizes([layer.out_height], [], channels, splits)


@lru_cache(maxsize=4096)
def _by_estimate(config: Config, layer: ConvLayer, space: Space, whole_rows: bool) -> Tiling:
    """The least estimate; parts of rows, and passes over the input channels, where nothing else fits."""
    sizes = _sizes(config, layer, space, whole_rows)
    for shapes in sizes.shapes():
        if found := list(estimated(config, layer, space, shapes, first=True)):
            return min(found, key=lambda tiling: tiling.price)
    raise _too_small(config, layer, space, sizes)


def _too_small(config: Config, layer: ConvLayer, space: Space, sizes: _Sizes) -> CompileError:
    width = sizes.widths[-1] if sizes.widths else layer.out_width
    rows, channels = sizes.heights[-1], sizes.channels[-1]
    smallest = buffer_bytes(config, layer, rows, channels, sizes.splits[-1], space, width)
    return CompileError(
        f"its smallest tile ({rows} row(s) of {width} pixel(s), {channels} channel(s)) needs"
        f" {smallest.input} + {smallest.weights} + {smallest.output} bytes of input, weights and output, in banks of"
        f" their own; {format_bytes(config.sram_bytes)} of SRAM in {config.n_banks} banks is too small:"
        " give more SRAM"
    )


def estimated(
    config: Config, layer: ConvLayer, space: Space, shapes: Iterable[Shape], first: bool = False
) -> Iterator[Tiling]:
    """Tilings of some shapes with their estimates. ``first``: with :data:`BUFFERS` only, and none behind one in which
    nothing waits for a buffer."""
    for shape in shapes:
        costs = costs_of(config, layer, shape, space)
        if costs is None:
            continue
        for rows_outer in _orders(costs):
            for copies in _buffers(layer, space, costs, rows_outer, first):
                if placed := place(config, costs.sizes, copies, space):
                    at, shared = placed
                    price = estimate(layer, space, costs, rows_outer, copies, shared)
                    yield _tiling(shape, rows_outer, at, price)
                    if copies == _most(layer, space, costs, rows_outer):
                        break


def _tiling(shape: Shape, rows_outer: bool, at: Places, price: int) -> Tiling:
    return Tiling(
        shape.rows, shape.out_channels, shape.in_channels, rows_outer, *at, price, shape.best_stripe, shape.columns
    )


def _orders(costs: Costs) -> tuple[bool, ...]:
    """Whether rows are the outer loop, where there are two loops."""
    return (True, False) if costs.areas > 1 and costs.columns > 1 else (costs.areas > 1,)


def _most(layer: ConvLayer, space: Space, costs: Costs, rows_outer: bool) -> Copies:
    """As many buffers as the layer itself can use, up to two."""
    inputs, weights, outputs = transfers(layer, space, costs, rows_outer, (2, 2, 2))
    return min(inputs, 2), min(weights, 2), min(outputs, 2)


def _buffers(layer: ConvLayer, space: Space, costs: Costs, rows_outer: bool, first: bool) -> list[Copies]:
    """Numbers of buffers to try: where all pieces of an operand stay, as many as there are, or else BUFFERS."""
    most = _most(layer, space, costs, rows_outer)
    found = []
    if not first:
        for inputs, weights in _staying(layer, space, costs, rows_outer):
            found += [(inputs or most[0], weights or most[1], outputs) for outputs in range(most[2], 0, -1)]
    for copies in BUFFERS:
        found.append((min(most[0], copies[0]), min(most[1], copies[1]), min(most[2], copies[2])))
    return list(dict.fromkeys(found))


def _staying(layer: ConvLayer, space: Space, costs: Costs, rows_outer: bool) -> list[tuple[int, int]]:
    """(input, weight) buffers with which all pieces of one of them, or of both, stay while they are used; 0: as
    otherwise."""
    own = 1 if rows_outer else costs.areas
    inputs = own * costs.passes
    weights = (costs.columns if rows_outer else 1) * (costs.passes + layer.terms - 1)
    found = []
    if inputs > 2 and not layer.separable and space.input_at is None and costs.columns > 1:
        found.append((inputs, 0))
    if weights > 2 and costs.areas > 1:
        found.append((0, weights))
    return [pair for pair in found if max(pair) <= MOST_BUFFERS]


# --- more effort ------------------------------------------------------------------------------------------------


def _few_shapes(config: Config, layer: ConvLayer, space: Space, before: Tiling) -> Iterator[Shape]:
    """The shapes of effort 1: parts of rows where ``before`` has no more than one; passes over the input channels where
    it leaves the array idle."""
    lanes = min(layer.lanes(config), layer.out_channels)
    for rows, channels in product(_parts(layer.out_height, 1), _parts(layer.out_channels, lanes)):
        yield Shape(rows, 0, channels, layer.channels)
    heights, channel_tiles = _parts(layer.out_height, 1, COARSE), _parts(layer.out_channels, lanes, COARSE)
    widths = _parts(layer.out_width, 1, COARSE)[1:] if before.rows == 1 else []
    for columns, rows, channels in product(widths, heights, channel_tiles):
        yield Shape(rows, columns, channels, layer.channels)
    shape = Shape(before.rows, before.columns, before.out_channels, layer.channels)
    if before.in_channels < layer.channels or before.price > SLACK * array_total(config, layer, shape, 0):
        sizes = product(_splits(config, layer, space, COARSE), [0, *widths], heights, channel_tiles)
        for split, columns, rows, channels in sizes:
            yield Shape(rows, columns, channels, split)


def many_shapes(config: Config, layer: ConvLayer, space: Space, before: Tiling) -> Iterator[Shape]:
    """The shapes of effort 2: all equal parts, of rows too where ``before`` has no more than one."""
    lanes = min(layer.lanes(config), layer.out_channels)
    splits = [layer.channels, *_all_splits(config, layer, space)]
    widths = [0, *(_all_parts(layer.out_width, 1)[1:] if before.rows == 1 else [])]
    sizes = product(splits, widths, _all_parts(layer.out_height, 1), _all_parts(layer.out_channels, lanes))
    for split, columns, rows, channels in sizes:
        yield Shape(rows, columns, channels, split)


def _all_parts(total: int, quantum: int) -> list[int]:
    """Every size of equal parts of ``total``, rounded up to ``quantum``."""
    units = ceil_div(total, quantum)
    return sorted({min(ceil_div(units, count) * quantum, total) for count in range(1, units + 1)}, reverse=True)


def _all_splits(config: Config, layer: ConvLayer, space: Space) -> list[int]:
    if not _splits(config, layer, space):
        return []
    return [c for c in _all_parts(layer.channels, min(config.ic, layer.channels)) if c < layer.channels]


def _exhaust(config: Config, layer: ConvLayer, space: Space, before: Tiling) -> Tiling:
    """Branch and bound: every size of rows and channels, every order and number of buffers."""
    lanes = min(layer.lanes(config), layer.out_channels)
    channel_tiles = [min(n, layer.out_channels) for n in range(lanes, layer.out_channels + lanes, lanes)]
    widths = [0, *(_all_parts(layer.out_width, 1)[1:] if before.rows == 1 else [])]
    splits = [layer.channels, *_all_splits(config, layer, space)]
    bounded = []
    for split, columns, rows, channels in product(splits, widths, range(1, layer.out_height + 1), channel_tiles):
        shape = Shape(rows, columns, channels, split, True)
        costs = costs_of(config, layer, shape, space)
        if costs is None or array_total(config, layer, shape, 1) >= before.price:
            continue
        for tiling, loads in _largest(config, layer, space, shape, costs):
            least = lower_bound(config, layer, shape, space, loads)
            if least < before.price:
                bounded.append((least, tiling))
    best = before
    for _, tiling in sorted(bounded, key=lambda item: item[0]):
        best = _cheaper(config, layer, space, best, tiling)
    return best


def _largest(
    config: Config, layer: ConvLayer, space: Space, shape: Shape, costs: Costs
) -> Iterator[tuple[Tiling, Copies]]:
    """Tilings of a shape, and their transfers, with as many buffers as fit: none of which has room for another one."""
    for rows_outer in _orders(costs):
        sizes = costs.sizes.input, costs.sizes.weights, costs.sizes.output
        choices = [[3, 2, 1] if size else [0] for size in sizes]
        for inputs, weights in _staying(layer, space, costs, rows_outer):
            choices[0][:0] = [inputs] if inputs > 3 else []
            choices[1][:0] = [weights] if weights > 3 else []
        kept: list[Copies] = []
        for inputs, weights, outputs in product(*choices):
            copies = inputs, weights, outputs
            if any(all(a >= b for a, b in zip(other, copies, strict=True)) for other in kept):
                continue
            if placed := place(config, costs.sizes, copies, space):
                kept.append(copies)
                at, _ = placed
                loads = transfers(layer, space, costs, rows_outer, copies)
                yield _tiling(shape, rows_outer, at, 0), loads


__all__ = ["Space", "Tiling", "bound", "check", "choose", "estimated", "forget", "many_shapes", "search"]
