"""The Verilated RTL behind the engine interface, and the lockstep comparison."""

from dovetail.isa.config import Config
from dovetail.sw.engine import Engine
from dovetail.sw.engines import register as _register


def _rtl(config: Config) -> Engine:
    # Imported when needed: Amaranth and Verilator are no matter of those who only use the model.
    from dovetail.cosim.rtl import RtlEngine
    from dovetail.cosim.verilate import default_cache

    return RtlEngine(config, cache=default_cache())


def register() -> None:
    """Make the RTL known as engine ``rtl``; builds are kept in the default cache."""
    _register("rtl", _rtl)
