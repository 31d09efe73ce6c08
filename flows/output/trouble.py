"""Errors of the command: one line, for user errors and for bugs."""

import os
import platform
import sys
import tempfile
import traceback
from collections.abc import Sequence
from pathlib import Path

import dovetail
from dovetail.flows.output.printable import printable
from dovetail.isa.common.cplusplus import ToolError
from dovetail.isa.config.given import ConfigError
from dovetail.isa.instructions.assembler import AssemblyError
from dovetail.isa.program import ProgramError
from dovetail.sw.errors import DovetailError

USER_ERRORS = (DovetailError, ConfigError, ProgramError, AssemblyError, ToolError, OSError)
"""What a user can act on; anything else is a bug."""
LONGEST = 2000
"""Characters of an error, at most: names of files and nodes have any length."""


def message(error: BaseException) -> str:
    """The text of a user error: one line, unless it ends with a tool's last ones."""
    if isinstance(error, OSError) and error.strerror:
        text = f"{error.filename}: {error.strerror}" if error.filename else error.strerror
    else:
        text = str(error) or type(error).__name__
    if isinstance(error, ToolError):
        return printable(text, keep="\n\t")
    text = printable(" ".join(text.split()))
    return text if len(text) <= LONGEST else f"{text[:LONGEST]} ..."


def unforeseen(error: BaseException, argv: Sequence[str]) -> str:
    """One line for an error that is a bug, with the place of a file that holds the trace and what else a report needs.

    The file is the reporter's to send: it holds the command line, versions, and the trace with its source lines.
    """
    what = printable(" ".join(f"{type(error).__name__}: {error}".split()))[:200]
    return f"internal error, please report it with the trace in {_trace(error, argv)} ({what})"


def out_of_memory() -> str:
    """The error for too little memory."""
    return "this takes more memory than there is: use a smaller network, input or configuration, or a larger machine"


def _trace(error: BaseException, argv: Sequence[str]) -> str:
    about = [
        f"dovetail {dovetail.__version__}, Python {platform.python_version()}, {platform.platform()}",
        f"dovetail {' '.join(map(repr, argv))}",
        "",
        *traceback.format_exception(error, limit=-100),
    ]
    text = "\n".join(about).encode("utf-8", "backslashreplace")
    for folder in (None, Path.cwd()):
        try:
            handle, name = tempfile.mkstemp(".txt", "dovetail-error-", folder)
        except OSError:
            continue
        with os.fdopen(handle, "wb") as file:
            file.write(text)
        return name
    sys.stderr.buffer.write(text)
    return "the lines above, since no file could be written"
