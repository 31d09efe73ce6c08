"""What the harnesses share: a block whose inner signals are in reach, and properties of several blocks.

A harness is a component around a block. Its input ports and the reset are free: a proof covers every value in every
cycle, except what an assumption excludes. Every ``Assert``, ``Assume`` and ``Cover`` carries a sentence, which is
what a failed proof and the documentation show. Sentences that begin with "invariant:" are means to an end: what
k-induction must know about registers.
"""

from amaranth import Cat, Elaboratable, Module, Signal, Value
from amaranth.hdl import Assert, Assume, Fragment
from amaranth.lib import wiring


class Opened(Elaboratable):
    """``block``, elaborated, with the signals inside it in reach: ``opened["bursts.left"]`` is the signal ``left`` of
    the submodule ``bursts``.

    ``module`` is the block's own module: ports may be added to its memories before the first look inside.
    """

    def __init__(self, block: wiring.Component) -> None:
        self.module: Module = block.elaborate(None)
        block._MustUse__used = True  # no module will elaborate it again
        self._fragment: Fragment | None = None

    @property
    def fragment(self) -> Fragment:
        """The block as Amaranth's fragment, elaborated once."""
        if self._fragment is None:
            self._fragment = Fragment.get(self.module, None)
        return self._fragment

    def __getitem__(self, path: str) -> Signal:
        """The signal that is driven under this name. Raises LookupError unless there is exactly one."""
        *folders, name = path.split(".")
        fragment = self.fragment
        for folder in folders:
            fragment = fragment.find_subfragment(folder)
        driven = {
            id(signal): signal
            for statements in fragment.statements.values()
            for signal in statements._lhs_signals()
            if signal.name == name
        }
        if len(driven) != 1:
            raise LookupError(f"{path} must name one signal, not {len(driven)}")
        return next(iter(driven.values()))

    def elaborate(self, platform: object) -> Fragment:
        return self.fragment


def before(m: Module, value: Value) -> Signal:
    """``value`` as it was in the cycle before; 0 in the first one. Not to be called below an ``m.If``."""
    register = Signal(len(Value.cast(value)), name="before")
    m.d.sync += register.eq(value)
    return register


def stable(m: Module, channel: str, valid: Value, ready: Value, *payload: Value, assumed: bool = False) -> None:
    """Asserts, or assumes, the rule of every handshake: what is offered stays offered, unchanged, until it is taken."""
    rule = Assume if assumed else Assert
    waiting = before(m, valid & ~ready)
    was = before(m, Cat(*payload))
    with m.If(waiting):
        m.d.comb += [
            rule(valid, f"{channel}: VALID stays until READY"),
            rule(Cat(*payload) == was, f"{channel}: the payload is stable until READY"),
        ]
