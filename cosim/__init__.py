"""The Verilated RTL behind the engine interface, and the lockstep comparison."""

from dovetail.isa.config import Config
from dovetail.sw import engines
from dovetail.sw.engine import Engine


def _rtl(config: Config) -> Engine:
    from dovetail.cosim.rtl import RtlEngine

    return RtlEngine(config)


def register() -> None:
    """Make the engine ``"rtl"`` available by name (see `dovetail.sw.engines`)."""
    engines.register("rtl", _rtl)
