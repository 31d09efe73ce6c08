"""The Verilated RTL: behind the engine interface, in lockstep with the model, as an interactive handle."""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from dovetail.isa.config.resolved import Config
    from dovetail.sw.runtime.engine import Engine


def _rtl(config: "Config") -> "Engine":
    # Imported when needed: Amaranth and Verilator are no matter of those who only use the model.
    from dovetail.cosim.rtl.rtl_engine import RtlEngine
    from dovetail.isa.common.build_cache import default_cache

    return RtlEngine(config, cache=default_cache())


def register() -> None:
    """Make the RTL known as engine ``rtl``; builds are kept in the default cache."""
    from dovetail.sw.runtime.engines import register as register_engine

    register_engine("rtl", _rtl)


def __getattr__(name: str) -> Any:
    if name != "Handle":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from dovetail.cosim.handle.design import Handle

    return Handle
