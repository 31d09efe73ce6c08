"""Walks over the pixels of an output tile."""

from amaranth import Module, Signal
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out


class PixelWalk(wiring.Component):
    """Row-major walk over the pixels of a tile, with quantities that step along.

    A quantity is ``y * y_step + x * x_step`` modulo 2^32.

    Parameters
    ----------
    names
        The quantities.

    Members
    -------
    width
        Pixels per row.
    <name>_x_step, <name>_y_step
        Steps of a quantity; constant, like ``width``, from the cycle before ``restart`` to the last step.
    restart
        Go to the first pixel.
    step
        Go to the next pixel,
    rewind
        with ``step``: to the pixel that was kept last instead;
    keep
        with ``step``: keep the pixel gone to,
    home
        with ``step``: which is the first.
    <name>
        The quantity at the present pixel.

    Latency
    -------
    The pixel gone to is there in the next cycle.
    """

    def __init__(self, *, names: tuple[str, ...]) -> None:
        self.names = names
        members = {name: In(1) for name in ("restart", "step", "rewind", "keep", "home")}
        members["width"] = In(16)
        for name in names:
            members |= {f"{name}_x_step": In(32), f"{name}_y_step": In(32), name: Out(32)}
        super().__init__(members)

    def elaborate(self, platform: object) -> Module:
        m = Module()
        left, kept_left, next_left = Signal(16, reset_less=True), Signal(16, reset_less=True), Signal(16)
        wraps, kept_wraps, next_wraps = (
            Signal(name=name, reset_less=True) for name in ("wraps", "kept_wraps", "next_wraps")
        )  # `left` is 1: kept, as it decides on all quantities
        begin, back = Signal(), Signal()
        m.d.comb += [begin.eq(self.restart | self.home), back.eq(self.rewind & ~begin)]
        with m.If(back):
            m.d.comb += [next_left.eq(kept_left), next_wraps.eq(kept_wraps)]
        with m.Elif(begin | wraps):
            m.d.comb += [next_left.eq(self.width), next_wraps.eq(self.width == 1)]
        with m.Else():
            m.d.comb += [next_left.eq(left - 1), next_wraps.eq(left == 2)]
        moves, keeps = Signal(), Signal()
        m.d.comb += [moves.eq(self.step | self.restart), keeps.eq(self.restart | (self.step & (self.keep | self.home)))]
        with m.If(moves):
            m.d.sync += [left.eq(next_left), wraps.eq(next_wraps)]
        with m.If(keeps):
            m.d.sync += [kept_left.eq(next_left), kept_wraps.eq(next_wraps)]
        for name in self.names:
            x_step, y_step = self[f"{name}_x_step"], self[f"{name}_y_step"]
            here = self[name]
            row, kept, kept_row = (
                Signal(32, name=f"{name}_{part}", reset_less=True) for part in ("row", "kept", "kept_row")
            )
            following, following_row = Signal(32, name=f"{name}_next"), Signal(32, name=f"{name}_next_row")
            # `row` is the quantity at the first pixel of the next row.
            with m.If(begin):
                m.d.comb += [following.eq(0), following_row.eq(y_step)]
            with m.Elif(back):
                m.d.comb += [following.eq(kept), following_row.eq(kept_row)]
            with m.Elif(wraps):
                m.d.comb += [following.eq(row), following_row.eq(row + y_step)]
            with m.Else():
                m.d.comb += [following.eq(here + x_step), following_row.eq(row)]
            with m.If(moves):
                m.d.sync += [here.eq(following), row.eq(following_row)]
            with m.If(keeps):
                m.d.sync += [kept.eq(following), kept_row.eq(following_row)]
        return m

    def __getitem__(self, name: str) -> Signal:
        return getattr(self, name)
