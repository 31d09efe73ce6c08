"""The manual of the instruction set, ``docs/isa.md``, made from the tables and the docstrings of ``isa/``."""

import ast
import inspect
import re
from collections.abc import Callable, Iterable, Iterator
from itertools import pairwise
from textwrap import dedent
from types import ModuleType
from typing import Any

from dovetail.isa import host, numerics, program
from dovetail.isa.config.given import ALL_PARAMETERS
from dovetail.isa.config.presets import PRESETS
from dovetail.isa.config.resolved import Config
from dovetail.isa.instructions import assembler, table
from dovetail.isa.numerics.add import add
from dovetail.isa.numerics.average import average, average_magic, average_product
from dovetail.isa.numerics.leaky_relu import leaky_relu
from dovetail.isa.numerics.multiplier import encode_multiplier, mean_multiplier
from dovetail.isa.numerics.multiply import multiply
from dovetail.isa.numerics.requantise import requantise, scale_onnx, scale_tflite
from dovetail.isa.numerics.rounding import round_half_even_shift, round_to_24
from dovetail.isa.numerics.shift import shift32
from dovetail.isa.timing import array, depthwise, dma, memory, sequencer, vector
from dovetail.isa.timing.microcoded import durations

HEADER = """\
# The instruction set

<!-- Made by `dovetail isa --manual` from isa/. Change it there; a test compares. -->

A program is a stream of {bits}-bit little-endian words in pages of {words} words ({page} bytes), fetched page
by page. Words go to the queue of their unit ({depth} places each); the units {units}
run concurrently, each in order. What happens when is in [architecture.md](architecture.md); this is the
reference of words, registers, causes, configuration, numbers and durations.
"""

NUMERICS: tuple[Callable[..., Any], ...] = (
    scale_tflite,
    scale_onnx,
    requantise,
    round_to_24,
    round_half_even_shift,
    add,
    multiply,
    leaky_relu,
    shift32,
    average,
    average_product,
    average_magic,
    mean_multiplier,
    encode_multiplier,
)
"""The functions whose docstrings define the arithmetic."""

TIMING: tuple[tuple[ModuleType, tuple[Callable[..., Any], ...]], ...] = (
    (sequencer, ()),
    (memory, ()),
    (array, (array.tree_stages, array.to_accumulator, array.array_duration)),
    (depthwise, (depthwise.to_accumulator, depthwise.Depthwise, depthwise.depthwise_duration)),
    (vector, (vector.table_lanes, vector.table_reads, vector.vector_reads, vector.to_end, vector.vector_duration)),
    (dma, (dma.bursts, dma.Shape)),
    (
        durations,
        (
            durations.codes,
            durations.sums_together,
            durations.sum_cycles,
            durations.depthwise_sum_cycles,
            durations.value_cycles,
            durations.array_cycles,
        ),
    ),
)
"""Timing modules with the functions that are quoted."""


def manual() -> str:
    """The text of ``docs/isa.md``."""
    parts = [
        HEADER.format(
            bits=assembler.WORD_BITS,
            words=table.PAGE_WORDS,
            page=table.PAGE_BYTES,
            depth=table.QUEUE_DEPTH,
            units=", ".join(unit.name for unit in table.Unit),
        ),
        _instructions(),
        _registers(),
        _causes(),
        _host(),
        _configuration(),
        "## Assembly\n\n" + _paragraphs(assembler),
        "## Program file\n\n" + program.FORMAT_DOC + "\n",
        _numerics(),
        _timing(),
    ]
    return "\n".join(part for part in parts if part)


def _table(head: tuple[str, ...], rows: Iterable[tuple[object, ...]]) -> str:
    lines = [head, ("---",) * len(head), *rows]
    return "".join("| " + " | ".join(str(cell).replace("|", "\\|") for cell in row) + " |\n" for row in lines)


def _bits(field: table.Field) -> str:
    high = field.low + field.width - 1
    return f"{high}:{field.low}" if field.width > 1 else str(field.low)


def _instructions() -> str:
    rows = [
        (
            f"`{op.name}`",
            f"`0x{op:02x}`",
            row.unit.name if row.unit is not None else "front end",
            f"`{row.feature}`" if row.feature else "",
            row.doc,
            ", ".join(f"`{trait}`" for trait in table.TRAITS if getattr(row, trait)),
            f"`{row.stage.name}`" if row.stage != table.NO_STAGE else "",
        )
        for op, row in table.INSTRUCTIONS.items()
    ]
    stages = {row.stage: None for row in table.INSTRUCTIONS.values() if row.stage != table.NO_STAGE}
    layout = [("all", _bits(table.OPCODE), f"`{table.OPCODE.name}`", table.OPCODE.doc)]
    for op, row in table.INSTRUCTIONS.items():
        layout += [(f"`{op.name}`", _bits(f), f"`{f.name}`", f.doc) for f in row.fields]
    return (
        "## Instructions\n\n"
        + _table(("mnemonic", "opcode", "unit", "needs", "does", "traits", "stage"), rows)
        + "\n`needs` names the configuration's parameter that an instruction depends on; without it it is trapped"
        " (UNIT_ABSENT). `traits` say what an operation has in common with others:\n\n"
        + _table(("trait", "the operation"), ((f"`{name}`", doc) for name, doc in table.TRAITS.items()))
        + "\n`stage` is what makes the results of an operation of the vector unit:\n\n"
        + _table(("stage", "cycles", "what it does"), ((f"`{s.name}`", s.latency, s.doc) for s in stages))
        + f"\nOpcodes `0x{table.EXTENSIONS[0]:02x}` to `0x{table.EXTENSIONS[-1]:02x}` are reserved for operations that"
        " extensions add to the vector unit.\n"
        + "\nBits of a word; all others are reserved and must be zero. What an operation works on is in"
        " the registers of its unit.\n\n" + _table(("instruction", "bits", "field", "meaning"), layout)
    )


def _registers() -> str:
    text = [
        "## Registers\n\n32 bits each, zero at program start. Reserved bits must be zero. Offsets in SRAM regions, rows"
        " and byte columns are modulo 2^W: of the registers that hold them, or steps of them, the low W bits count."
        " W is one more than the bits of an SRAM address, and 32 in the microcoded accelerator.\n"
    ]
    groups: dict[tuple[tuple[object, ...], ...], list[table.Unit]] = {}
    for unit, registers in table.REGISTERS.items():
        key = tuple((r.index, r.name, r.doc, r.fields) for r in registers.values())
        groups.setdefault(key, []).append(unit)
    for units in groups.values():
        names = ", ".join(f"{u.name} (from `0x{u << 6:02x}`)" for u in units)
        rows: list[tuple[object, ...]] = []
        for r in table.REGISTERS[units[0]].values():
            rows.append((f"`0x{r.index:02x}`", f"`{r.name}`", "31:0" if not r.fields else "", "", r.doc))
            rows += [("", "", _bits(f), f"`{f.name}`", f.doc) for f in r.fields]
        text.append(f"### {names}\n\n" + _table(("index", "register", "bits", "field", "meaning"), rows))
    return "\n".join(text)


def _causes() -> str:
    rows = [(int(cause), f"`{cause.name}`", doc) for cause, doc in table.CAUSE_DOC.items()]
    return "## Causes\n\nWhere several apply to one instruction the lowest is reported.\n\n" + _table(
        ("cause", "name", "meaning"), rows
    )


def _host() -> str:
    rows: list[tuple[object, ...]] = []
    for r in host.HOST_REGISTERS.values():
        rows.append((f"`0x{r.offset:03x}`", f"`{r.name}`", r.access, "", "", r.doc))
        rows += [("", "", "", _bits(f), f"`{f.name}`", f.doc) for f in r.fields]
    return (
        f"## Host registers\n\nAXI4-Lite, 32 bits each. `ID` reads `0x{host.ID:08x}`, `VERSION` reads"
        f" {host.VERSION}; the interrupt is high while `irq_enable` and `done` are set.\n\n"
        + _table(("offset", "register", "access", "bits", "field", "meaning"), rows)
    )


def _configuration() -> str:
    doc = inspect.getdoc(Config) or ""
    rows = [
        (f"`{p.name}`", p.values, "" if p.default is None else p.show(p.default), p.doc)
        for p in ALL_PARAMETERS.values()
    ]
    return (
        "## Configuration\n\n"
        + _prose(doc)
        + "\n\n"
        + _table(("parameter", "values", "default", "meaning"), rows)
        + "\nThe preset `default`, as TOML:\n\n```toml\n"
        + Config().to_toml()
        + "```\n\nPresets: "
        + ", ".join(f"`{name}`" for name in PRESETS)
        + ".\n"
    )


def _numerics() -> str:
    text = ["## Numbers\n\n" + _quote(dedent(numerics.__doc__ or "").strip())]
    for function in (*NUMERICS, *(row.compute for row in table.INSTRUCTIONS.values() if row.extension)):
        names = ", ".join(inspect.signature(function).parameters)
        text.append(f"### {function.__name__}({names})\n\n" + _quote(inspect.getdoc(function) or ""))
    return "\n".join(text)


def _timing() -> str:
    text = ["## Durations\n\nCycles from an instruction's start to its end, quoted from `isa/timing/`.\n"]
    for module, functions in TIMING:
        title, _, rest = _prose(inspect.getdoc(module) or "").partition("\n")
        text.append(f"### {title.rstrip('.')}\n")
        if rest.strip():
            text.append(_quote(rest.strip("\n")))
        text.append(_table(("constant", "value", "meaning"), _constants(module)))
        if functions:
            sources = "\n\n\n".join(inspect.getsource(function).rstrip() for function in functions)
            text.append(f"```python\n{sources}\n```\n")
    return "\n".join(text)


def _constants(module: ModuleType) -> Iterator[tuple[object, ...]]:
    """(name, value, meaning) of a module's documented constants."""
    body = ast.parse(inspect.getsource(module)).body
    for statement, doc in pairwise(body):
        if not isinstance(statement, ast.Assign) or not isinstance(doc, ast.Expr):
            continue
        name = ast.unparse(statement.targets[0])
        value = ast.unparse(statement.value)
        if name.isupper() and isinstance(doc.value, ast.Constant):
            shown = getattr(module, name)
            meaning = _prose(" ".join(str(doc.value.value).split()))
            derived = isinstance(shown, int) and value != str(shown)
            yield f"`{name}`", f"{shown} = {value}" if derived else value, meaning


def _prose(text: str) -> str:
    """Markdown of a docstring's inline markup."""
    return re.sub(r":\w+:`([^`]*)`", r"`\1`", text).replace("``", "`")


def _paragraphs(module: Any) -> str:
    """A module's docstring; its indented blocks become code."""
    out: list[str] = []
    code = False
    for line in dedent(module.__doc__ or "").strip().splitlines():
        indented = line.startswith("    ")
        if indented and not code:
            out.append("```")
        elif line and not indented and code:
            out.insert(len(out) - 1 if out and not out[-1] else len(out), "```")
        code = indented or (code and not line)
        out.append(line[4:] if indented else _prose(line).replace("::", ":"))
    return "\n".join(out) + ("\n```\n" if code else "\n")


def _quote(text: str) -> str:
    return f"```text\n{_prose(text).replace('::', ':')}\n```\n"
