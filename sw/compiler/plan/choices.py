"""The ways to plan a network. Remembers which plan has won, in this process and in the schedule cache: the next
compilation writes that one alone. As with schedules it does not matter for the outcome whether a choice was remembered.
"""

from contextlib import suppress
from typing import Any, NamedTuple

from dovetail.isa.config.resolved import Config
from dovetail.sw.compiler.options import Options
from dovetail.sw.compiler.place import Given
from dovetail.sw.compiler.plan import schedule_cache
from dovetail.sw.network import ir
from dovetail.sw.network.digest import digest

_MAX_CHOICES = 1 << 12
"""Choices that are kept in this process."""


class Way(NamedTuple):
    """A way to make a plan.

    Parameters
    ----------
    effort
        Of the search for schedules, see `Options`.
    resident
        Whether tensors may stay in SRAM.
    wide
        Whether the tasks of many steps run beside each other (`overlapped`): tiles of ``rows`` rows, or where that is
        0, those of variables that are updated in place. Then no step follows another one tile by tile.
    rows
        Of a tile, where tasks go along rows.
    keeps
        Banks for weights that stay in SRAM from run to run, where no variables are updated in place.
    by_bank
        Whether buffers for weights go to the banks that have been out of use for longest (`Arena`).
    matrices
        Whether matrices of products are among the tensors that may stay in SRAM, and small tensors share banks.
    overtakes
        Whether loads may go before one that must wait.
    passes
        Into how many passes a layer of one pixel is cut that reads what the layer before it makes channel by channel,
        so that the first ones run before that is complete; 0 if it is not.
    im2col
        Whether kernels of first layers become channels, where that may pay.
    moves
        Whether tensors that stay in SRAM move to make room for others, and copies for first layers run beside the array
        also where all rows are copied.
    """

    effort: int
    resident: bool
    wide: bool = False
    rows: int = 0
    keeps: int = 0
    by_bank: bool = False
    matrices: bool = False
    overtakes: bool = False
    passes: int = 0
    im2col: bool = False
    moves: bool = False

    @property
    def is_narrow(self) -> bool:
        """Whether it leaves less of the SRAM for what is streamed, so that perhaps there is no room."""
        return bool(self.rows or self.keeps or self.matrices or self.passes or self.im2col or self.moves)

    @property
    def is_estimated(self) -> bool:
        """Whether prices of its schedules are estimates, of all the network's layers, and include loads of matrices."""
        return not self.effort and not self.matrices and not self.im2col


class Choice(NamedTuple):
    """A plan: the SRAM that it was made for, in bytes; the way; whether layers run band by band; and the cycles of its
    program."""

    sram: int
    way: Way
    cascaded: bool
    cycles: int


_choices: dict[str, Choice] = {}


def key_of(graph: ir.Graph, config: Config, options: Options, given: Given) -> str:
    """A hash of all that a choice follows from besides this compiler's source."""
    return digest(graph, config, options, given)


def get(key: str) -> Choice | None:
    """The choice for a key, if there is one."""
    if found := _choices.get(key):
        return found
    cache = schedule_cache.current()
    return _read(cache.get(["choice", key])) if cache else None


def put(key: str, choice: Choice) -> None:
    """Remember a choice."""
    if len(_choices) >= _MAX_CHOICES:
        _choices.clear()
    _choices[key] = choice
    if cache := schedule_cache.current():
        cache.put(["choice", key], choice)


def forget() -> None:
    """Forget the choices of this process; those in the schedule cache stay."""
    _choices.clear()


def _read(value: Any) -> Choice | None:
    """A choice that was written; None if it has another form."""
    with suppress(TypeError, ValueError):
        sram, way, cascaded, cycles = value
        choice = Choice(sram, Way(*way), cascaded, cycles)
        if _is_typed(choice) and _is_typed(choice.way):
            return choice
    return None


def _is_typed(found: Choice | Way) -> bool:
    return all(type(part) is found.__annotations__[name] for name, part in zip(found._fields, found, strict=True))
