"""Let a language model write: a prompt in, the likeliest tokens out, one run for each.

The network is a decoder that keeps its cache between runs (`dovetail docs state`). The text comes as it is written on
stderr, if that is a terminal.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from rich.console import RenderableType

from dovetail.flows.options.engines import add_engine_options, board_clock, engine_of
from dovetail.flows.options.network import add_clock_option, add_network_options, clock_of, compiled_of
from dovetail.flows.output.inference import describe, layer_table, timing
from dovetail.flows.output.printable import block, printable
from dovetail.flows.output.reply import Report, si
from dovetail.isa.common.files import write_together
from dovetail.sw.errors import NetworkError
from dovetail.sw.files.vocabulary import BEGIN, END, Vocabulary
from dovetail.sw.runtime.clock import clock_text
from dovetail.sw.runtime.compiled_network import CompiledNetwork
from dovetail.sw.runtime.decoder import Decoder, Step

_CHARTS = (".png", ".svg")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add this command's options."""
    add_network_options(parser, programs=True)
    add_clock_option(parser)
    parser.add_argument("--vocabulary", metavar="FILE", type=Path, help="the words: tokenizer.bin of llama2.c")
    begin = parser.add_mutually_exclusive_group()
    begin.add_argument("--prompt", metavar="TEXT", default="", help="how the text begins; needs --vocabulary")
    begin.add_argument("--tokens", metavar="N,...", type=_tokens, help="tokens in place of a text")
    parser.add_argument("--count", metavar="N", type=int, default=64, help="tokens to write; default: %(default)s")
    parser.add_argument(
        "--chart", metavar="FILE", type=Path, help="picture of a token's cycles, by its position (.png, .svg)"
    )
    parser.add_argument("--layers", action="store_true", help="print a table of the last token's layers too")
    add_engine_options(parser)


def _tokens(text: str) -> list[int]:
    if not all(part.strip().isdecimal() for part in text.split(",")):
        raise argparse.ArgumentTypeError(f"must be numbers such as 1,403,407, not {text!r}")
    return [int(part) for part in text.split(",")]


def run(args: argparse.Namespace) -> Report:
    """Run the command."""
    clock, words = clock_of(args), Vocabulary.read(args.vocabulary) if args.vocabulary else None
    _check(args)
    compiled = compiled_of(args)
    with engine_of(args, compiled.config, compiled.code.memory_bytes) as engine:
        decoder = Decoder(compiled, engine)
        if words is not None and len(words.pieces) != decoder.words:
            raise NetworkError(f"{args.vocabulary}: must have {decoder.words} tokens, not {len(words.pieces)}")
        prompt = args.tokens or (words.encode(args.prompt) if words else [BEGIN])
        start = time.perf_counter()
        steps = _written(decoder, prompt, args.count, words, shown=not args.json and sys.stderr.isatty())
        seconds = time.perf_counter() - start
        clock = board_clock(engine, clock)
    tokens = [*prompt, *(step.next for step in steps[len(prompt) - 1 :])]
    text = words.decode(tokens) if words else " ".join(map(str, tokens))
    report = compiled.report()
    kinds = _kinds(compiled, steps) if args.engine != "board" else {}  # a board does not tell when what ran
    cycles = [step.result.cycles for step in steps]
    host = report.host_work.at(clock)
    rate = len(steps) * clock / (sum(cycles) + host * len(steps)) if clock else None
    if args.chart:
        _draw(args.chart, compiled, kinds, host)
    data: dict[str, Any] = describe(compiled, clock)
    data |= {
        "engine": args.engine,
        "prompt": prompt,
        "tokens": tokens,
        "text": text,
        "cycles_by_position": cycles,
        "cycles_by_kind": kinds,
        "tokens_per_second": rate,
        "seconds": seconds,
    }
    mean = sum(cycles) // len(cycles)
    lines: list[RenderableType] = [
        block([text, ""]),
        f"tokens       {len(prompt)} of the prompt and {len(tokens) - len(prompt)} written, in {seconds:.2f} s on"
        f" engine {args.engine}",
        f"a token      {mean:,} cycles on the accelerator ({min(cycles):,} to {max(cycles):,}),"
        f" {report.moved_bytes:,} bytes moved",
        *(f"  of it      {sum(of) // len(steps):,} {kind}" for kind, of in kinds.items()),
        *timing(report, clock),
    ]
    if clock and rate:
        lines.append(f"rate         {rate:.3g} tokens/s at {clock_text(clock)}, with the estimate of the host")
    if args.chart:
        lines.append(f"chart        {args.chart}")
        data["chart"] = str(args.chart)
    return Report(data, [*([layer_table(report, clock)] if args.layers else []), *lines])


def _check(args: argparse.Namespace) -> None:
    """Check the options before anything takes time. Raises NetworkError."""
    if args.prompt and args.vocabulary is None:
        raise NetworkError("--prompt must come with --vocabulary; give tokens without: --tokens 1,403,407")
    if args.count < 1:
        raise NetworkError(f"--count must be at least 1, not {args.count}")
    if args.chart and (args.chart.suffix not in _CHARTS or args.engine == "board"):
        raise NetworkError(f"--chart must be a file .png or .svg, and of the model or the RTL, not {args.chart}")


def _draw(path: Path, compiled: CompiledNetwork, kinds: Mapping[str, Sequence[int]], host: int) -> None:
    """Write the picture of a token's cycles, by position; ``host``: cycles of the host."""
    from dovetail.flows.report.charts.tokens import chart
    from dovetail.flows.report.pictures.render import draw, figure_bytes  # matplotlib takes half a second

    about = f"accelerator {compiled.config.array}; the host's share, {si(host)} cycles (an estimate), is not shown"
    figure = draw(chart(kinds, f"{compiled.graph.name}: cycles of a token", about))
    write_together({path: figure_bytes(figure, path.suffix[1:])})


def _written(
    decoder: Decoder, prompt: Sequence[int], count: int, words: Vocabulary | None, *, shown: bool
) -> list[Step]:
    """All runs. ``shown``: tell what is written while it is."""
    steps: list[Step] = []
    tokens, told = list(prompt), 0
    for step in decoder.write(prompt, count, (BEGIN, END) if words else ()):
        steps.append(step)
        if len(steps) >= len(prompt):
            tokens.append(step.next)
        if shown:
            text = words.decode(tokens) if words else " ".join(map(str, tokens))
            print(printable(text[told:], keep="\n"), end="", flush=True, file=sys.stderr)
            told = len(text)
    if shown:
        print("\n", file=sys.stderr)
    return steps


def _kinds(compiled: CompiledNetwork, steps: Sequence[Step]) -> dict[str, list[int]]:
    """Cycles of each position, by kind of layer."""
    names = [layer.kind for layer in compiled.code.layers]
    found: dict[str, list[int]] = {kind: [0] * len(steps) for kind in names}
    for position, step in enumerate(steps):
        for kind, cycles in zip(names, compiled.layer_cycles(step.result.timeline), strict=True):
            found[kind][position] += cycles
    return dict(sorted(found.items(), key=lambda item: -sum(item[1])))
