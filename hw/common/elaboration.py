"""Amaranth's warnings about what hardware is made of, as errors: each told of a fault whenever there was one."""

import contextlib
import warnings
from collections.abc import Iterator
from pathlib import Path
from traceback import extract_tb

import amaranth
from amaranth.hdl import SyntaxWarning as HardwareWarning

OTHERS = (Path(amaranth.__file__).parent, Path(contextlib.__file__))
"""Whose lines are not the place of a warning: of Amaranth, and of its ``with m.Case(...)``."""


class ElaborationError(ValueError):
    """Hardware that Amaranth makes, but not as it is written: an initial value that is wider than its signal, a pattern
    that never matches. The text is one line with the place."""


@contextlib.contextmanager
def checked() -> Iterator[None]:
    """Hardware made in here, constructed or elaborated, is as it is written. Raises `ElaborationError`."""
    with warnings.catch_warnings():
        warnings.simplefilter("error", HardwareWarning)
        try:
            yield
        except HardwareWarning as warning:
            frames = extract_tb(warning.__traceback__)
            own = [frame for frame in frames if not any(Path(frame.filename).is_relative_to(path) for path in OTHERS)]
            raise ElaborationError(f"{own[-1].filename}:{own[-1].lineno}: {warning}") from warning
