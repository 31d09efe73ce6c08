"""Provoke faults on model and RTL: bus errors, slow memory, resets, spurious starts, flipped bits of a program.

Each time both must end in the same way and in time. Only bytes that a store may write may change, and the next program
must run correctly.
"""

from __future__ import annotations

import argparse
import sys
import time

import numpy as np
from rich.table import Table

from dovetail.cosim.compare.campaign import in_processes
from dovetail.cosim.compare.faults import KINDS, Record, executed_bits, run_flips, run_kind, sampled_bits
from dovetail.cosim.rtl.setting import settings_of
from dovetail.flows.options.campaign import (
    add_campaign_options,
    add_count,
    check_counts,
    config_label,
    configurations_of,
)
from dovetail.flows.options.network import random_sample
from dovetail.flows.output.reply import Report
from dovetail.flows.output.tables import new_table
from dovetail.isa.common.build_cache import default_cache
from dovetail.isa.config.resolved import Config
from dovetail.isa.instructions.table import Cause
from dovetail.sw.errors import DovetailError
from dovetail.sw.random.programs.configurations import WHOLE
from dovetail.sw.runtime.compiled_network import compile_network

CHUNKS = 4
"""Parts that the flipped bits are shared out in, per process."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_count(parser, "--programs", 40, "per kind and configuration")
    add_count(parser, "--flips", 400, "bits to flip")
    parser.add_argument(
        "--network", default="zoo:dscnn", metavar="NETWORK", help="whose program they are of; default: %(default)s"
    )
    add_count(parser, "--seed", 0, "of programs and bits")
    add_campaign_options(parser, 2)


def run(args: argparse.Namespace) -> Report:
    check_counts(args, programs=0, flips=0, seed=0, configs=1, config_seed=0, jobs=1)
    configs = configurations_of(args)
    seeds = range(args.seed * args.programs, (args.seed + 1) * args.programs)
    parts = [(config, kind, seeds, default_cache(), args.form) for config in configs for kind in KINDS if args.programs]
    records: dict[str, Record] = {}
    lines, start = [], time.monotonic()
    for (config, kind, *_), record in zip(parts, in_processes(run_kind, parts, args.jobs), strict=True):
        lines.append(f"{kind:12} {config_label(config)}: {_counts(record)}")
        lines += [f"    {text}" for text in record.wrong]
        print(f"{lines[-1 - len(record.wrong)]} [{time.monotonic() - start:.0f} s]", file=sys.stderr)
        records.setdefault(kind, Record()).__iadd__(record)
    if args.flips:
        name, record = _flips(args, configs[0] if args.config else WHOLE)
        lines.append(f"{'flipped bits':12} {name}: {_counts(record)}")
        lines += [f"    {text}" for text in record.wrong]
        records["flipped bits"] = record
    wrong = sum(len(record.wrong) for record in records.values())
    runs = sum(record.runs for record in records.values())
    data = {
        "seed": args.seed,
        "form": args.form,
        "runs": runs,
        "wrong": wrong,
        "kinds": {
            kind: {
                "runs": record.runs,
                "long": record.long,
                "causes": {cause.name: count for cause, count in sorted(record.causes.items())},
                "wrong": record.wrong,
            }
            for kind, record in records.items()
        },
    }
    head = f"seed {args.seed}, {len(configs)} configurations, {args.form} form"
    verdict = f"verdict: {'EQUAL' if not wrong else 'DIFFERENT'}: {runs:,} runs, {wrong} differing"
    return Report(data, [head, *lines, _table(records), verdict], int(wrong > 0))


def _flips(args: argparse.Namespace, config: Config) -> tuple[str, Record]:
    """The network's first segment with bits flipped; what was run, and how it went."""
    compiled = compile_network(args.network, config)
    if not compiled.code.segments:
        raise DovetailError(f"{args.network}: must have a layer on the accelerator, not only on the host")
    setting = settings_of(compiled, random_sample(compiled.graph, np.random.default_rng(args.seed)))[0]
    bits = sampled_bits(setting.text, args.flips, args.seed)
    chunk = -(-len(bits) // (CHUNKS * args.jobs))
    parts = [(config, setting, bits[n : n + chunk], default_cache(), args.form) for n in range(0, len(bits), chunk)]
    total = Record()
    for record in in_processes(run_flips, parts, args.jobs):
        total += record
        print(f"{total.runs} bits flipped", file=sys.stderr)
    return f"{len(bits)} of {executed_bits(setting.text)} of {compiled.graph.name}, {config_label(config)}", total


def _counts(record: Record) -> str:
    return f"{record.runs} runs, {len(record.wrong)} differing"


def _table(records: dict[str, Record]) -> Table:
    """How the runs of each kind ended."""
    table = new_table("How runs ended", ("cause", *(f">{kind}" for kind in records)))
    for cause in Cause:
        counts = [record.causes[cause] for record in records.values()]
        if any(counts):
            table.add_row(cause.name, *map(str, counts))
    if any(record.long for record in records.values()):
        table.add_row("(beginning only)", *(str(record.long) for record in records.values()))
    return table
