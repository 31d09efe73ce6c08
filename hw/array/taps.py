"""The array's walk over the taps of a window."""

from amaranth import Cat, Module, Mux, Signal, Value
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from dovetail.hw.array.registers import ARRAY_REGISTERS
from dovetail.isa.config.resolved import Config

PARTS = ("off", "col", "row")
"""Parts of a position, modulo 2^32: byte offset in the region, byte column, row."""


class TapWalk(wiring.Component):
    """Walks over the steps (ky, kx, input block) of a stripe, again and again.

    Parameters
    ----------
    config
        The accelerator.

    Members
    -------
    regs, depthwise, inputs
        Registers and operation: depthwise, a block of output channels has ``inputs`` input channels.
    load
        Pulse: go to the first step of the first block.
    advance
        Pulse: go to the next step; at least 3 cycles after ``load`` and the last one.
    onward
        From the ``last`` one ``advance`` goes to the next block of output channels. To be right from the cycle before
        ``advance`` on.
    last
        The step is the last of its stripe.
    off, col, row
        Where the tap is, relative to an output pixel's place in the input. Two cycles after ``advance``.
    """

    def __init__(self, config: Config) -> None:
        self.config = config
        super().__init__(
            {
                "regs": In(ARRAY_REGISTERS),
                "depthwise": In(1),
                "inputs": In(range(config.depthwise_lanes + 1)),
                "load": In(1),
                "advance": In(1),
                "onward": In(1),
                "last": Out(1),
                **{part: Out(32) for part in PARTS},
            }
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        config, regs = self.config, self.regs
        counts = {
            "channels": Mux(self.depthwise, 1, regs.KC.blocks) if config.depthwise_lanes else regs.KC.blocks,
            "kx": regs.GEOMETRY.kw,
            "ky": regs.GEOMETRY.kh,
        }
        ends: list[Value] = []
        for name, count in counts.items():
            left = Signal(len(count), name=f"{name}_left", reset_less=True)
            end = Signal(name=f"{name}_end", reset_less=True)
            following = Signal(len(count), name=f"{name}_next")
            m.d.comb += following.eq(Mux(self.load | end, count, left - 1))
            with m.If(self.load | (self.advance & Cat(ends).all() if ends else self.advance)):
                m.d.sync += [left.eq(following), end.eq(following == 1)]
            ends.append(end)
        m.d.comb += self.last.eq(Cat(ends).all())

        # For each loop, the position of the tap with all inner loops at their start. The next depthwise block reads
        # other channels.
        shift = Mux(self.onward & self.depthwise, self.inputs, 0)
        steps = {
            "off": (config.ic_lanes, regs.KX_STEP, regs.KY_STEP, shift),
            "col": (config.ic_lanes, regs.KX_STEP, 0, shift),
            "row": (0, 0, regs.GEOMETRY.dilation_y, 0),
        }
        first = {"off": regs.ORIGIN, "col": -regs.PAD_LEFT, "row": -regs.PAD_TOP}
        # `moves` is decided one cycle before the places move. The next place takes two cycles to compute: the first
        # selects base and step, the second adds them.
        loaded = Signal()
        moves = Signal(4)
        m.d.sync += [
            loaded.eq(self.load),
            moves.eq(self.load.replicate(4) | Cat(self.advance & Cat(ends[:n]).all() for n in range(4))),
        ]
        for part in PARTS:
            here = getattr(self, part)
            at_kx, at_ky, at_stripe = (
                Signal(32, name=f"{part}_{loop}", reset_less=True) for loop in ("kx", "ky", "stripe")
            )
            base, step = (Signal(32, name=f"{part}_{name}", reset_less=True) for name in ("base", "step"))
            following = Signal(32, name=f"{part}_next", reset_less=True)
            conditions = (~ends[0], ~ends[1], ~ends[2], 1)
            for condition, source, amount in zip(conditions, (here, at_kx, at_ky, at_stripe), steps[part], strict=True):
                with m.If(condition) if source is here else m.Elif(condition):
                    m.d.sync += [base.eq(source), step.eq(amount)]
            m.d.sync += following.eq(base + step)
            for n, target in enumerate((here, at_kx, at_ky, at_stripe)):
                with m.If(moves[n]):
                    m.d.sync += target.eq(Mux(loaded, first[part], following))
        return m
