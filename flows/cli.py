"""The ``dovetail`` command: one subcommand per file of this folder."""

import argparse
import os
import sys
from collections.abc import Sequence
from contextlib import redirect_stdout
from typing import Any, NoReturn

import dovetail
from dovetail.flows.commands import (
    area,
    build,
    codegen,
    coverage,
    diff,
    docs,
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
    run,
    serve,
    sweep,
    systemc,
    verify,
)
from dovetail.flows.commands import compile as compile_
from dovetail.flows.commands import report as report_page
from dovetail.flows.output.printable import printable
from dovetail.flows.output.reply import Report, to_json
from dovetail.flows.output.trouble import USER_ERRORS, message, out_of_memory, unforeseen

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
    docs,
    doctor,
)
"""Modules with NAME, HELP, ``add_arguments(parser)`` and ``run(args) -> Report``."""

SEEN = "seen"
"""Where a parsed command line keeps which options it has had."""
EXIT_ERROR = 2
EXIT_INTERNAL = 70
EXIT_INTERRUPTED = 130


class UsageError(Exception):
    """A command line is not one that the command takes."""


class Parser(argparse.ArgumentParser):
    """Says what is wrong in one line, as everything else here does; the options are many, and ``--help`` lists them."""

    def error(self, message: str) -> NoReturn:
        """Refuse the command line."""
        raise UsageError(f"{message}; see {self.prog} --help")


class Once(argparse.Action):
    """Stores an option's value, and refuses a second one: which of the two counts would be anybody's guess."""

    def __call__(
        self,
        parser: argparse.ArgumentParser,
        namespace: argparse.Namespace,
        values: Any,
        option_string: str | None = None,
    ) -> None:
        """Take the value."""
        seen: set[str] = vars(namespace).setdefault(SEEN, set())
        if option_string is not None and self.dest in seen:
            raise argparse.ArgumentError(self, "must be given once")
        seen.add(self.dest)
        setattr(namespace, self.dest, values)


def parser() -> argparse.ArgumentParser:
    """The parser of the whole command."""
    top = Parser(prog="dovetail", description="Hardware/software co-design for int8 neural-network accelerators.")
    top.add_argument("--version", action="version", version=f"dovetail {dovetail.__version__}")
    commands = top.add_subparsers(metavar="COMMAND", required=True)
    for module in COMMANDS:
        sub = commands.add_parser(module.NAME, help=module.HELP, description=module.__doc__)
        sub.register("action", None, Once)
        sub.add_argument("--json", action="store_true", help="one JSON object on stdout and nothing else")
        module.add_arguments(sub)
        sub.set_defaults(run=module.run)
    return top


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command; the exit code is 0, 1 (a check did not pass), 2 (user error), 70 (bug) or 130 (interrupted)."""
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):  # a name that the terminal's encoding lacks is no reason to fail
            stream.reconfigure(errors="backslashreplace")
    words = sys.argv[1:] if argv is None else argv
    try:
        args = parser().parse_args(words)
    except UsageError as error:
        return _fail(printable(str(error)), EXIT_ERROR, "--json" in words)
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
        return _fail(message(error), EXIT_ERROR, args.json)
    except KeyboardInterrupt:
        print("dovetail: interrupted", file=sys.stderr)
        return EXIT_INTERRUPTED
    except MemoryError:
        return _fail(out_of_memory(), EXIT_ERROR, args.json)
    except Exception as error:
        return _fail(unforeseen(error, words), EXIT_INTERNAL, args.json)


def _fail(text: str, code: int, as_json: bool) -> int:
    """Say what is wrong, on stderr and as the JSON object."""
    print(f"dovetail: error: {text}", file=sys.stderr)
    if as_json:
        sys.stdout.write(to_json({"error": text}))
    return code
