"""Measures what a host costs on the simulated SoC, and fits the table `vexriscv` of host costs to it.

    python benchmarks/host_cost.py --rows rows.jsonl [NETWORK ...]        # measure, and append to the file
    python benchmarks/host_cost.py --rows rows.jsonl --fit table.toml     # fit a table to all of it
    python benchmarks/host_cost.py --check NETWORK [--config small]       # a network of its own against a table

Measuring: the generated C of networks with nearly everything on the host, node by node, and networks (given, on the
preset `small`) with little on it, for their inputs, starts of the accelerator, and weights files. A row is a step: its
kind, MACs, values, results and cycles. The cycles of a kind are the sum of `call`, MACs / `macs_per_cycle`, values /
`values_per_cycle` and results / `results_per_cycle`; the fit has the least sum of squares of relative errors, and no
part below zero. A kind that was not measured counts as the middle one of those that were.
"""

import argparse
import itertools
import json
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from onnx import helper

from dovetail.cosim.rtl.rtl_engine import DEFAULT_LIMIT
from dovetail.cosim.soc.inference import SocInference, run_inference
from dovetail.flows.options.network import random_sample
from dovetail.isa.common.build_cache import default_cache
from dovetail.isa.config.resolved import Config
from dovetail.sw import frontend
from dovetail.sw.compiler.compile import generate
from dovetail.sw.compiler.options import Options
from dovetail.sw.compiler.partition.host_cost import DEFAULT, PORTS, HostCost, default_host, load_host_cost
from dovetail.sw.export.codegen.project import project_of
from dovetail.sw.frontend.parsed_file import NetworkFile
from dovetail.sw.random.networks import random_movement, random_network
from dovetail.sw.runtime.compiled_network import CompiledNetwork, compile_network
from dovetail.sw.zoo.onnx_builder import LINEAR
from dovetail.sw.zoo.transformers import OPSET, TransformerBuilder

BARE = Config(
    ic_lanes=4, oc_lanes=4, depthwise="none", matmul=False, pooling=False, elementwise=False, activation=False
)
ON_HOST = replace(default_host(), round_trip=10**9)
"""Only the longest segment pays for itself."""
BLOCKS = (
    *("hard_swish_block", "inception_block", "shuffle_block", "mobilenet_v2_block", "dscnn"),
    "attention_block?tokens=16&channels=32",
)
SMALL = (
    *("bert_tiny?depth=1&channels=16&heads=1&tokens=4", "bert_tiny?depth=1&channels=32&heads=2&tokens=8"),
    *("vit_tiny?depth=1&channels=48&heads=3&patch=8&resolution=16&classes=10", "attention_block?tokens=12&channels=64"),
    "decoder_tiny?depth=1&channels=16&heads=2&groups=1&length=8&words=16",
    "decoder_tiny?depth=1&channels=64&heads=4&groups=2&length=16&words=32",
)
"""On the preset `small`: with floats on the host."""
FLOATS = ((4, 8), (8, 32), (16, 64))
SUMS = (*FLOATS, (64, 32))
"""Rows and columns of `floats` and `sums`."""
RANDOM = range(1, 4)
SPREAD = 4
"""Between the smallest and the largest of a kind; with less, what grows cannot be told from what does not."""
NAME = "VexRiscv with 2 x 4 KiB of cache"


def on_host() -> Iterator[CompiledNetwork]:
    """Networks with nearly everything on the host."""
    for seed in RANDOM:
        for graph in (random_network(seed, 12), random_movement(seed)):
            yield CompiledNetwork(generate(graph, BARE, Options(host=ON_HOST, effort=0)))
    for name in BLOCKS:
        yield compile_network(f"zoo:{name}", BARE, effort=0, host=ON_HOST)
    small = Config.load("small")
    for name in SMALL:
        yield compile_network(f"zoo:{name}", small)
    for make, sizes in ((floats, FLOATS), (sums, SUMS)):
        for size in sizes:
            yield compile_network(frontend.load(NetworkFile(make.__name__, make(*size))), small)


def floats(rows: int, columns: int) -> bytes:
    """A network with a product, a sum, a difference, a quotient, padding and a softmax of floats."""
    build = TransformerBuilder(f"floats_{rows}x{columns}", 1)
    start = build.start((1, rows, columns), 1 / 32, 0)
    other = build.matmul("other", start, columns, LINEAR)
    made = build.dequantised(start)
    for op in ("Mul", "Add", "Sub", "Div"):
        with_other = op == "Add"  # of one tensor alone it would become a table
        value = build.dequantised(other) if with_other else build.constant(f"{op}_value", np.array(1.7, np.float32))
        build.nodes.append(helper.make_node(op, [made, value], [f"{op}_float"], name=op))
        made = f"{op}_float"
    edges = build.constant("edges", np.array([0, 0, 0, 0, 0, columns - 1], np.int64))
    build.nodes.append(helper.make_node("Pad", [made, edges], ["Pad_float"], name="Pad", mode="reflect"))
    build.nodes.append(helper.make_node("Softmax", ["Pad_float"], ["Softmax_float"], name="Softmax"))
    return build.finish(build.quantised("Softmax", (1, rows, 2 * columns - 1), 1 / 16, 0, 1.0), OPSET)


def sums(rows: int, columns: int) -> bytes:
    """A network with a product whose sums become floats."""
    build = TransformerBuilder(f"sums_{rows}x{columns}", 1)
    start = build.start((1, rows, columns), 1 / 32, 0)
    other = build.transpose("turned", build.matmul("other", start, columns, LINEAR), (0, 2, 1))
    build.nodes.append(helper.make_node("MatMul", [*map(build.dequantised, (start, other))], ["sums"], name="sums"))
    build.nodes.append(helper.make_node("Softmax", ["sums"], ["Softmax_float"], name="Softmax"))
    return build.finish(build.quantised("Softmax", (1, rows, rows), 1 / 256, 0, 1.0), OPSET)


def measured(compiled: CompiledNetwork) -> SocInference:
    """An inference of a random sample."""
    sample = random_sample(compiled.graph, np.random.default_rng(0))
    return run_inference(compiled, sample, cache=default_cache(), limit=DEFAULT_LIMIT)


def rows_of(compiled: CompiledNetwork) -> Iterator[dict[str, Any]]:
    """What each step of a network takes."""
    graph, found = compiled.graph, measured(compiled)
    project = project_of(compiled)
    weights = len(project.files[project.weights])
    yield {"kind": "start_up", "weights": weights, "memory": project.memory_bytes, "cycles": found.start_up}
    nodes = {f"{node.op} {node.name}": node for node in graph.nodes}
    ports = {
        f"{way} {port.name}": (PORTS[not port.layout.is_plain], 2 * graph.tensors[port.tensor].size)
        for way, each in (("input", graph.inputs), ("output", graph.outputs))
        for port in each
    }
    segments = iter(found.segments)
    for step in found.steps:
        row: dict[str, Any] = {"cycles": step.cycles}
        if node := nodes.get(step.name):
            values = sum(graph.tensors[name].size for name in (*node.inputs, *node.outputs))
            row |= {"values": values, "results": graph.tensors[node.outputs[0]].size}
            yield {"kind": HostCost.kind(graph, node), "macs": graph.macs(node), **row}
        elif step.name in ports:
            kind, values = ports[step.name]
            yield {"kind": kind, "macs": 0, "values": values, "results": values // 2, **row}
        elif step.name.startswith("segment"):
            yield {"kind": "round_trip", "cycles": step.cycles - next(segments).run.cycles}


def least(parts: npt.NDArray[np.float64], cycles: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    """The factors of the parts, none below zero, with the least squares of relative errors."""
    best, found = np.inf, np.zeros(parts.shape[1])
    for count in range(1, parts.shape[1] + 1):
        for chosen in itertools.combinations(range(parts.shape[1]), count):
            scaled = parts[:, chosen] / cycles[:, None]
            factors, *_ = np.linalg.lstsq(scaled, np.ones(len(cycles)), rcond=None)
            error = float(((scaled @ factors - 1) ** 2).sum())
            if (factors >= 0).all() and error < best - 1e-9:
                best, found = error, np.zeros(parts.shape[1])
                found[list(chosen)] = factors
    return found


def fitted(rows: Sequence[dict[str, Any]]) -> str:
    """The text of a table."""
    kinds: dict[str, list[dict[str, Any]]] = defaultdict(list)
    for row in rows:
        kinds[row["kind"]].append(row)

    def columns(kind: str, *names: str) -> npt.NDArray[np.float64]:
        return np.array([[row.get(name, 1) for name in names] for row in kinds[kind]], float)

    start = least(columns("start_up", "weights", "memory"), columns("start_up", "cycles")[:, 0])
    lines = [f"round_trip = {round(float(np.median(columns('round_trip', 'cycles'))))}"]
    lines += [f"{name}_bytes_per_cycle = {rate(factor)}" for name, factor in zip(("load", "clear"), start, strict=True)]
    errors = []
    for kind in sorted(set(kinds) - {"start_up", "round_trip"}):
        names: tuple[str, ...] = ("macs",) if min(columns(kind, "macs")) else ("values",)
        sizes = columns(kind, *names)
        if max(sizes) >= SPREAD * min(sizes):
            names = ("call", "macs", "values", "results") if len(sizes) > 3 else ("call", *names)
        parts, cycles = columns(kind, *names), columns(kind, "cycles")[:, 0]
        factors = dict(zip(names, least(parts, cycles).tolist(), strict=True))
        own = np.abs(parts @ list(factors.values()) / cycles - 1)
        errors += own.tolist()
        lines += ["", f"[operators.{kind}] # {len(own)} measured, at most {own.max():.0%} off"]
        lines += [f"call = {round(factors['call'])}"] if factors.get("call", 0) >= 0.5 else []
        lines += [f"{name}_per_cycle = {rate(factors.get(name, 0))}" for name in ("macs", "values")]
        lines += [f"results_per_cycle = {rate(factors['results'])}"] if factors.get("results") else []
    middle, most = np.median(errors), np.quantile(errors, 0.9)
    head = [
        "# Made by benchmarks/host_cost.py from the cycles of generated C on the SoC of `dovetail soc`.",
        f'name = "{NAME}"',
        f'error = "of {len(errors)} layers that it was fitted to, half within {middle:.0%}, 9 of 10 within {most:.0%}"',
        "",
        "# Of kinds that were not measured: the middle one of those that were.",
    ]
    for name, others in (("macs", ()), ("values", ("macs",))):
        layers = [[row for row in each if row.get(name) and not any(map(row.get, others))] for each in kinds.values()]
        middles = [np.median([row["cycles"] / row[name] for row in each]) for each in layers if each]
        head.append(f"{name}_per_cycle = {rate(float(np.median(middles)))}")
    head += ["", "# Starts of the accelerator, and the start-up."]
    return "\n".join([*head, *lines]) + "\n"


def rate(factor: float) -> str:
    """Per cycle, of cycles each."""
    return f"{1 / max(factor, 1e-9):.4g}"


def check(network: str, config: Config, cost: HostCost) -> None:
    """Print what a table says of a network, beside what is measured."""
    compiled = compile_network(network, config, host=cost)
    found, work = measured(compiled), compiled.report().host_work
    project = project_of(compiled)
    start_up = cost.start_up(len(project.files[project.weights]), project.memory_bytes) or 0
    for name, ours, theirs in (
        ("start-up", start_up, found.start_up),
        ("host", work.cycles, found.host),
        ("reset to result", start_up + work.cycles + compiled.report().cycles, found.cycles),
    ):
        print(f"{name:16} estimated {ours:>12,} measured {theirs:>12,}  {ours / theirs - 1:+.1%}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("networks", nargs="*", metavar="NETWORK", help="measured on small; default: those on the host")
    parser.add_argument("--rows", type=Path, help="what was measured, a line each")
    parser.add_argument("--fit", type=Path, help="the table to write")
    parser.add_argument("--check", metavar="NETWORK")
    parser.add_argument("--config", default="small")
    parser.add_argument("--table", default=DEFAULT, help="of --check; default: %(default)s")
    args = parser.parse_args()
    if args.check:
        check(args.check, Config.load(args.config), load_host_cost(args.table))
    elif args.fit:
        args.fit.write_text(fitted([json.loads(line) for line in args.rows.read_text().splitlines()]))
    else:
        small = Config.load("small")
        given = (compile_network(network, small) for network in args.networks)
        for compiled in given if args.networks else on_host():
            with args.rows.open("a") as file:
                for row in rows_of(compiled):
                    print(json.dumps(row), file=file)
            print(compiled.graph.name, flush=True)


if __name__ == "__main__":
    main()
