"""The ``dovetail`` command: one subcommand per file of this folder."""

import argparse
import os
import sys
from collections.abc import Sequence
from contextlib import redirect_stdout

import dovetail
from dovetail.cosim.verilate import ToolError
from dovetail.flows import (
    area,
    build,
    codegen,
    coverage,
    diff,
    doctor,
    driver,
    explain,
    export,
    faults,
    fuzz,
    inspect,
    isa,
    pack,
    prove,
    quantise,
    report_page,
    run,
    serve,
    sweep,
    systemc,
    verify,
)
from dovetail.flows import compile as compile_
from dovetail.flows.report import Report, to_json
from dovetail.isa.assembler import AssemblyError
from dovetail.isa.config import ConfigError
from dovetail.isa.program import ProgramError
from dovetail.sw.errors import DovetailError

COMMANDS = (
    inspect,
    compile_,
    explain,
    pack,
    quantise,
    run,
    diff,
    verify,
    export,
    codegen,
    fuzz,
    faults,
    coverage,
    prove,
    sweep,
    report_page,
    serve,
    area,
    build,
    driver,
    systemc,
    isa,
    doctor,
)
"""Modules with NAME, HELP, ``add_arguments(parser)`` and ``run(args) -> Report``."""

USER_ERRORS = (DovetailError, ConfigError, ProgramError, AssemblyError, ToolError, OSError)
"""What a user can act on; anything else is a bug and keeps its traceback."""

EXIT_ERROR = 2
EXIT_INTERRUPTED = 130


def parser() -> argparse.ArgumentParser:
    """The parser of the whole command."""
    top = argparse.ArgumentParser(
        prog="dovetail", description="Hardware/software co-design for int8 neural-network accelerators."
    )
    top.add_argument("--version", action="version", version=f"dovetail {dovetail.__version__}")
    commands = top.add_subparsers(metavar="COMMAND", required=True)
    for module in COMMANDS:
        sub = commands.add_parser(module.NAME, help=module.HELP, description=module.__doc__)
        sub.add_argument("--json", action="store_true", help="one JSON object on stdout and nothing else")
        module.add_arguments(sub)
        sub.set_defaults(run=module.run)
    return top


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command; the exit code is 0, 1 (a check did not pass), 2 (user error) or 130 (interrupted)."""
    args = parser().parse_args(argv)
    out = sys.stdout
    try:
        with redirect_stdout(sys.stderr):  # whatever a library prints is not the report
            report: Report = args.run(args)
        report.write(out, args.json)
        out.flush()
        return report.code
    except BrokenPipeError:  # the reader, such as head, has seen enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), out.fileno())
        return 0
    except USER_ERRORS as error:
        text = message(error)
        print(f"dovetail: error: {text}", file=sys.stderr)
        if args.json:
            out.write(to_json({"error": text}))
        return EXIT_ERROR
    except KeyboardInterrupt:
        print("dovetail: interrupted", file=sys.stderr)
        return EXIT_INTERRUPTED


def message(error: BaseException) -> str:
    """The text of a user error."""
    if isinstance(error, OSError) and error.strerror:
        return f"{error.filename}: {error.strerror}" if error.filename else error.strerror
    return str(error) or type(error).__name__
