"""Reads of a window walk: which lanes of an access count, and where it is in SRAM."""

from amaranth import Const, Module, Mux, Signal, Value
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from dovetail.hw.common.pipeline import delayed
from dovetail.hw.common.walk import PARTS
from dovetail.isa.config.resolved import Config
from dovetail.isa.timing.memory import SRAM_READ

INT32_BYTES = 4


class LanesBelow:
    """Which lanes l have ``position + item * l < limit``, modulo 2^32 and unsigned, in two pipeline stages.

    A position below the limit has its lanes up to the limit, and those past the wrap-around of the sum. Another
    has those that are both.

    Parameters
    ----------
    name
        Prefix of the registers.
    lanes
        How many.
    item
        Largest distance of the lanes, a power of two.
    """

    def __init__(self, name: str, lanes: int, item: int = 1) -> None:
        self.lanes = lanes
        self.item = item
        self.bits = max((item * (lanes - 1)).bit_length(), item.bit_length())
        self.room = Signal(33, name=f"{name}_room", reset_less=True)
        self.near = Signal(name=f"{name}_near", reset_less=True)
        self.low = Signal(self.bits, name=f"{name}_low", reset_less=True)

    def measure(self, m: Module, enable: Value, position: Value, limit: Value) -> None:
        """First stage: add the registers to ``m``."""
        with m.If(enable):
            m.d.sync += [
                self.room.eq(limit - position - 1),
                self.near.eq(position[self.bits :].all()),
                self.low.eq(position),
            ]

    def mask(self, item: int | None = None) -> Value:
        """Second stage: one bit per lane, from the registers. A smaller ``item`` is another power of two."""
        shift = (self.item if item is None else item).bit_length() - 1
        reach = self.room[shift : self.bits]
        ones = Const((1 << (1 << len(reach))) - 1, 1 << len(reach))
        far = self.room[self.bits : 32].any()
        to_limit = (ones >> ~reach)[: self.lanes] | far.replicate(self.lanes)
        past_wrap = ~(ones >> self.low[shift:])[: self.lanes] & self.near.replicate(self.lanes)
        return Mux(self.room[32], to_limit & past_wrap, to_limit | past_wrap)


class WindowReads(wiring.Component):
    """From positions to reads and the lanes that count in them.

    Parameters
    ----------
    config
        The accelerator.
    lanes
        Bytes that an access needs.

    Members
    -------
    valid
        There is a step.
    pixel_off .. tap_row
        Its position is the sum of the two places.
    old
        Instead of int8 lanes of the input, the step reads int32 lanes (``word_bytes / 4``) of the output region, where
        only ``off`` matters.
    in_addr, in_bytes, in_rows, row_bytes
        Input region and image; constant while steps are under way, like the following.
    out_addr, out_bytes
        Output region.
    en, addr
        Read port. ``en`` only if a lane counts: no other read touches a byte of its region.
    mask
        Lanes that count, ``LATENCY`` cycles after the step, with the bytes.
    old_mask
        Likewise of an ``old`` step; zero for others.

    Latency
    -------
    ``READ`` cycles from a step to its read, ``LATENCY`` to its bytes.
    """

    READ = 4
    LATENCY = READ + SRAM_READ

    def __init__(self, config: Config, *, lanes: int) -> None:
        self.config = config
        self.lanes = lanes
        super().__init__(
            {
                "valid": In(1),
                **{f"pixel_{part}": In(32) for part in PARTS},
                **{f"tap_{part}": In(32) for part in PARTS},
                "old": In(1),
                "in_addr": In(32),
                "in_bytes": In(32),
                "in_rows": In(32),
                "row_bytes": In(32),
                "out_addr": In(32),
                "out_bytes": In(32),
                "en": Out(1),
                "addr": Out((config.sram - 1).bit_length()),
                "mask": Out(lanes),
                "old_mask": Out(config.word_bytes // INT32_BYTES),
            }
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()

        # 0: position.
        valid_1, old_1 = Signal(), Signal()
        off, col, row = (Signal(32, name=part, reset_less=True) for part in PARTS)
        m.d.sync += [valid_1.eq(self.valid), old_1.eq(self.old)]
        with m.If(self.valid):
            for part, sum_ in zip(PARTS, (off, col, row), strict=True):
                m.d.sync += sum_.eq(getattr(self, f"pixel_{part}") + getattr(self, f"tap_{part}"))

        # 1: address; distances to the bounds.
        valid_2, old_2, row_inside = Signal(), Signal(), Signal()
        address = Signal(32, reset_less=True)
        whole = Signal(32, reset_less=True)  # where an int32 can begin in the output region
        m.d.sync += whole.eq(Mux(self.out_bytes >= INT32_BYTES, self.out_bytes - (INT32_BYTES - 1), 0))
        m.d.sync += [valid_2.eq(valid_1 & ~old_1), old_2.eq(valid_1 & old_1)]
        with m.If(valid_1):
            m.d.sync += [
                address.eq(Mux(old_1, self.out_addr, self.in_addr) + off),
                row_inside.eq(row < self.in_rows),
            ]
        in_region, in_row = LanesBelow("region", self.lanes), LanesBelow("row", self.lanes)
        in_region.measure(m, valid_1 & ~old_1, off, self.in_bytes)
        in_row.measure(m, valid_1 & ~old_1, col, self.row_bytes)
        items = LanesBelow("items", len(self.old_mask), INT32_BYTES)
        items.measure(m, valid_1 & old_1, off, whole)

        # 2: lanes. A position below the region, possibly below 0, can have lanes inside: ports wrap at a power of two.
        mask_3, old_3 = Signal(len(self.mask)), Signal(len(self.old_mask))
        address_3 = Signal(len(self.addr), reset_less=True)
        inside = valid_2 & row_inside
        m.d.sync += [
            mask_3.eq(in_region.mask() & in_row.mask() & inside.replicate(len(mask_3))),
            old_3.eq(items.mask() & old_2.replicate(len(old_3))),
            address_3.eq(address),
        ]

        # 3: the read.
        m.d.sync += [self.en.eq(mask_3.any() | old_3.any()), self.addr.eq(address_3)]
        m.d.comb += [
            self.mask.eq(delayed(m, "mask", mask_3, self.LATENCY - 3)[-1]),
            self.old_mask.eq(delayed(m, "old_mask", old_3, self.LATENCY - 3)[-1]),
        ]
        return m
