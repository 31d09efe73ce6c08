"""The engines by name: ``model`` and ``board`` are built in, others register themselves (``rtl`` does, from
``dovetail.cosim``)."""

from collections.abc import Callable

from dovetail.isa.config.resolved import Config
from dovetail.sw.errors import DovetailError
from dovetail.sw.runtime.engine import Engine


def _model(config: Config) -> Engine:
    from dovetail.sw.model.accelerator import Model

    return Model(config)


def _board(config: Config) -> Engine:
    # The only board that is connected; another one is an engine that the caller makes.
    from dovetail.sw.runtime.board.board_engine import BoardEngine

    return BoardEngine(config)


_factories: dict[str, Callable[[Config], Engine]] = {"model": _model, "board": _board}


def register(name: str, factory: Callable[[Config], Engine]) -> None:
    """Make an engine available by name."""
    _factories[name] = factory


def create(name: str, config: Config) -> Engine:
    """A new engine. Raises DovetailError for an unknown name."""
    if name not in _factories:
        raise DovetailError(f"engine must be one of {', '.join(_factories)}, not {name!r}")
    return _factories[name](config)
