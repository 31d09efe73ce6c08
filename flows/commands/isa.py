"""Show the instruction set; make its manual, C header or register maps; assemble and disassemble."""

import argparse
import sys
from pathlib import Path
from typing import Any

from dovetail.flows.output.printable import Block, printable
from dovetail.flows.output.reply import Report
from dovetail.flows.output.tables import new_table
from dovetail.isa.common.files import write_atomically
from dovetail.isa.generate.cheader import cheader
from dovetail.isa.generate.manual import manual
from dovetail.isa.generate.register_maps import svd, systemrdl
from dovetail.isa.instructions import table
from dovetail.isa.instructions.assembler import AssemblyError, assemble, disassemble
from dovetail.isa.program import MAGIC, Program, ProgramError


def add_arguments(parser: argparse.ArgumentParser) -> None:
    what = parser.add_mutually_exclusive_group()
    what.add_argument("--manual", action="store_true", help="the manual, Markdown")
    what.add_argument("--c-header", action="store_true", help="a C99 header: opcodes, registers, fields, causes")
    what.add_argument("--systemrdl", action="store_true", help="the host registers in SystemRDL 2.0")
    what.add_argument("--svd", action="store_true", help="the host registers in CMSIS-SVD 1.3")
    what.add_argument("--assemble", metavar="FILE", help="assembly text to words; - is stdin")
    what.add_argument("--disassemble", metavar="FILE", help="a program file, or raw words, to assembly text")
    parser.add_argument("--output", metavar="FILE", type=Path, help="write there (words as little-endian bytes)")


def run(args: argparse.Namespace) -> Report:
    if args.manual:
        return _text("manual", manual(), args.output)
    if args.c_header:
        return _text("c_header", cheader(), args.output)
    if args.systemrdl:
        return _text("systemrdl", systemrdl(), args.output)
    if args.svd:
        return _text("svd", svd(), args.output)
    if args.assemble:
        return _assemble(args.assemble, args.output)
    if args.disassemble:
        return _text("assembly", disassembly(Path(args.disassemble)), args.output)
    return _summary()


def disassembly(path: Path) -> str:
    """Assembly text of a program file, its parts and layers named in comments, or of a file of raw words.

    Raises OSError or :class:`ProgramError`.
    """
    data = path.read_bytes()
    if not data.startswith(MAGIC):
        if is_text(data):
            raise ProgramError(f"{path}: must be a program file or raw words, not text; --assemble takes assembly text")
        if not data:
            raise ProgramError(f"{path}: must be a program file or raw words, not an empty file")
        if len(data) % table.WORD_BYTES:
            raise ProgramError(f"{path}: words must be {table.WORD_BYTES} bytes each, not {len(data)} bytes in all")
        return disassemble(table.from_bytes(data), numbers=True)
    program = Program.load(path)
    lines = [f"# configuration {program.config.hash:016x}\n"]
    words = list(table.from_bytes(program.stream))
    titles = {}
    for number, segment in enumerate(program.segments):
        title = f"# segment {number} {printable(segment.name)}".rstrip()
        place = (segment.address - program.stream_offset) // table.WORD_BYTES
        titles[place] = f"{title}: {segment.pages} pages at {segment.address:#x}\n"
    starts = sorted({0, *titles})
    for start, end in zip(starts, [*starts[1:], len(words)], strict=True):
        lines += [titles.get(start, ""), disassemble(words[start:end], numbers=True)]
    return "".join(lines)


def is_text(data: bytes) -> bool:
    """Whether bytes are printable text. Words are not: the opcode fills a byte of each, and fields leave zeros."""
    try:
        text = data.decode()
    except UnicodeDecodeError:
        return False
    return bool(text) and all(character.isprintable() or character in "\t\r\n" for character in text)


def _assemble(source: str, output: Path | None) -> Report:
    try:
        words = assemble(sys.stdin.read() if source == "-" else Path(source).read_text())
    except UnicodeDecodeError:
        raise AssemblyError(f"{source}: must be text, not words; see --disassemble") from None
    data: dict[str, Any] = {"words": [f"0x{word:016x}" for word in words], "count": len(words)}
    if output is None:
        return Report(data, [Block("".join(f"0x{word:016x}\n" for word in words))])
    write_atomically(output, table.to_bytes(words))
    return Report({**data, "output": str(output)}, [f"{len(words)} words to {output}"])


def _text(key: str, text: str, output: Path | None) -> Report:
    if output is None:
        return Report({key: text}, [Block(text)])
    write_atomically(output, text)
    return Report({key: text, "output": str(output)}, [f"{len(text.splitlines())} lines to {output}"])


def _summary() -> Report:
    instructions = [
        {"name": op.name, "opcode": int(op), "unit": row.unit.name if row.unit is not None else None, "doc": row.doc}
        for op, row in table.INSTRUCTIONS.items()
    ]
    registers = [
        {"unit": r.unit.name, "name": r.name, "number": r.number, "doc": r.doc}
        | {"fields": [vars(f) for f in r.fields]}
        for r in table.BY_NUMBER.values()
    ]
    causes = [{"name": cause.name, "number": int(cause), "doc": doc} for cause, doc in table.CAUSE_DOC.items()]
    rows = [
        (op.name, f"{int(op):#04x}", row.unit.name if row.unit is not None else "front end", row.doc)
        for op, row in table.INSTRUCTIONS.items()
    ]
    shown = new_table("Instructions", ("instruction", "opcode", "unit", "does"), rows)
    hint = f"{len(registers)} registers and {len(causes)} causes: dovetail isa --manual"
    return Report({"instructions": instructions, "registers": registers, "causes": causes}, [shown, hint])
