"""The ``dovetail`` command: one subcommand per file of `commands`."""

import argparse
import os
import sys
from collections.abc import Sequence
from contextlib import redirect_stdout
from importlib import import_module
from typing import Any, NoReturn

import dovetail
from dovetail.flows.output.printable import printable
from dovetail.flows.output.reply import Report, to_json
from dovetail.flows.output.trouble import USER_ERRORS, message, out_of_memory, unforeseen

COMMANDS = {
    "inspect": "say which nodes run on the accelerator, and why the others do not",
    "compile": "compile a network into a program file",
    "passes": "list the passes on networks, or show what each does to a network",
    "explain": "say where a network's cycles go and what would make it faster",
    "pack": "pack a quantised network into a portable file",
    "quantise": "quantise a float network from calibration inputs",
    "run": "run a network on the model, on the RTL or on a board",
    "chat": "let a language model write, token by token",
    "diff": "compare a network with the reference runtime, layer by layer",
    "verify": "compare model and RTL on a network: bytes, cycles, timeline",
    "export": "write a network's accelerator and host parts as files of their own",
    "codegen": "write a network's inference as C code, for the host beside the accelerator",
    "soc": "run an inference on a RISC-V processor and the accelerator in RTL, from reset to result",
    "fuzz": "compare model and RTL on random programs, over many configurations",
    "faults": "compare model and RTL on faults: bus, memory, reset, start, corrupted programs",
    "coverage": "functional coverage, and line and branch coverage of the RTL, with holes and reasons",
    "prove": "prove properties of the hardware's blocks",
    "sweep": "price networks on many configurations",
    "report": "write a sweep's results as one HTML file",
    "serve": "show a store's results live in a browser",
    "area": "estimate or measure an accelerator's FPGA area",
    "build": "build a bitstream for a board, or a project for Vivado",
    "driver": "write the C99 driver for a configuration, with examples",
    "systemc": "the accelerator as a SystemC module with TLM-2.0 sockets",
    "isa": "the instruction set: manual, C header, register maps, assembler, disassembler",
    "docs": "the pages of the documentation",
    "doctor": "check Python, packages, tools and the cache folder",
}
"""What each subcommand does. Its file in `commands` has ``add_arguments(parser)`` and ``run(args) -> Report``."""

WITHOUT_EXTENSIONS = {"docs", "doctor", "prove", "report", "serve"}
"""Those that have neither a configuration nor a network, so ``--with`` could change nothing."""

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


def parser(words: Sequence[str] | None = None) -> argparse.ArgumentParser:
    """The parser of the command; of the subcommands that are not among the ``words`` it only knows the names.

    A subcommand brings the libraries that it needs, so no other is imported. Without ``words`` all are.
    """
    top = Parser(prog="dovetail", description="Hardware/software co-design for int8 neural-network accelerators.")
    top.add_argument("--version", action="version", version=f"dovetail {dovetail.__version__}")
    add_with(top, "with_first")
    commands = top.add_subparsers(metavar="COMMAND", required=True)
    for name, about in COMMANDS.items():
        sub = commands.add_parser(name, help=about)
        if words is None or name in words:
            module = import_module(f"dovetail.flows.commands.{name}")
            sub.description = module.__doc__
            sub.register("action", None, Once)
            sub.add_argument("--json", action="store_true", help="one JSON object on stdout and nothing else")
            if name not in WITHOUT_EXTENSIONS:
                add_with(sub, "with_more")
            module.add_arguments(sub)
            sub.set_defaults(run=module.run, command=name, with_more=[])
    return top


def add_with(to: argparse.ArgumentParser, name: str) -> None:
    """Add ``--with``, which stands before or after the command."""
    to.add_argument(
        "--with",
        dest=name,
        metavar="NAME[,NAME]",
        type=lambda text: [part.strip() for part in text.split(",")],
        default=[],
        help="add these packages' operations to every configuration of the command (`dovetail docs extending`)",
    )


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command; the exit code is 0, 1 (a check did not pass), 2 (user error), 70 (bug) or 130 (interrupted)."""
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):  # a name that the terminal's encoding lacks is no reason to fail
            stream.reconfigure(errors="backslashreplace")
    words = sys.argv[1:] if argv is None else argv
    try:
        args = parser(words).parse_args(words)
    except UsageError as error:
        return _fail(printable(str(error)), EXIT_ERROR, "--json" in words)
    out = sys.stdout
    try:
        added = vars(args)["with"] = [*args.with_first, *args.with_more]
        if added and args.command in WITHOUT_EXTENSIONS:
            return _fail(f"dovetail {args.command} has no configuration, leave out --with", EXIT_ERROR, args.json)
        with redirect_stdout(sys.stderr):  # whatever a library prints is not the report
            for name in added:
                import_module("dovetail.isa.extensions").load(name)
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
