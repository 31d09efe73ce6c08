"""Remembers which plan of a network has won, in this process and in the schedule cache: the next compilation writes
that one alone. As with schedules it does not matter for the outcome whether a choice was remembered."""

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


class Choice(NamedTuple):
    """A plan: the SRAM that it was made for, in bytes; its effort; whether tensors stay in SRAM; whether the tasks
    of many steps run beside each other, and the rows of a tile if these go along rows; banks of weights that stay from
    run to run; whether layers run band by band; and the cycles of its program."""

    sram: int
    effort: int
    resident: bool
    wide: bool
    rows: int
    keeps: int
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
    with suppress(TypeError):
        choice = Choice(*value)
        if all(type(part) is Choice.__annotations__[name] for name, part in zip(choice._fields, choice, strict=True)):
            return choice
    return None
