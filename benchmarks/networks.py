"""Every network that is at hand on four configurations: host parts, cycles, bytes, and the runtime's results.

    python benchmarks/networks.py [--output docs/networks.md] [--networks PATTERN] [--jobs 2]

Networks: those of the trained collection beside the project, the nine architectures of the onnx package (weights
replaced by random ones, quantised with random inputs), and the large ones of the zoo. Each is compiled, run on the
model engine, and compared with the runtime that defines its numbers. Records are kept, one file per network and state
of the sources, so that a run can be broken off and taken up again.
"""

from __future__ import annotations

import argparse
import fnmatch
import hashlib
import json
import time
from collections.abc import Iterable, Mapping
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import asdict, dataclass, field
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import numpy as np
from collection import Entry, Made, collection
from numpy.typing import NDArray

from dovetail.isa.config.resolved import Config
from dovetail.sw import frontend
from dovetail.sw.compiler.partition.segments import HOST
from dovetail.sw.errors import DovetailError
from dovetail.sw.frontend.parsed_file import NetworkFile, ParsedFile
from dovetail.sw.network import ir, reference
from dovetail.sw.passes.integer.simplify import simplify
from dovetail.sw.runtime import reference_runtimes
from dovetail.sw.runtime.compiled_network import compile_network

ROOT = Path(__file__).parents[1]
_SMALL = Config(ic_lanes=8, oc_lanes=8)
_LARGE = Config(ic_lanes=16, oc_lanes=16, bus=128)
CONFIGS = {
    f"{name}, {sram}": config.replace(sram=sram, banks=None)
    for name, config in (("8 x 8, 64-bit bus", _SMALL), ("16 x 16, 128-bit bus", _LARGE))
    for sram in ("256 KiB", "1 MiB")
}


@dataclass(frozen=True)
class Agreement:
    """The network's layers on the runtime's own operands, against the runtime's results.

    ``compared``, ``differing``: elements of accelerator layers; ``where``: kinds of layers that differ; ``outputs``:
    whether the network's outputs, each part taking what the part before it made, are the runtime's; ``failure``: why
    there is no comparison.
    """

    runtime: str = ""
    compared: int = 0
    differing: int = 0
    where: tuple[str, ...] = ()
    outputs: bool = False
    failure: str = ""


@dataclass(frozen=True)
class Point:
    """A network on a configuration; ``exact``: whether the engine made what the graph's definition says."""

    share: float = 0.0
    segments: int = 0
    host_steps: int = 0
    cycles: int = 0
    host_cycles: int = 0
    over_bound: float = 0.0
    over_bytes: float = 0.0
    peak_sram: int = 0
    seconds: float = 0.0
    exact: bool = False
    failure: str = ""


@dataclass(frozen=True)
class Record:
    """All about a network."""

    label: str
    macs: int = 0
    layers: int = 0
    agreement: Agreement = field(default_factory=Agreement)
    points: Mapping[str, Point] = field(default_factory=dict)
    failure: str = ""


def measure(entry: Entry) -> Record:
    """Make a network, compare it with its runtime, and put it on every configuration."""
    try:
        made = entry.make()
        source = frontend.parse(NetworkFile(entry.name, made.data))
        graph = simplify(source.graph)
    except DovetailError as error:
        return Record(entry.label, failure=str(error))
    values = reference.evaluate(graph, graph.bind(made.sample), keep_all=True)
    outputs = graph.unbind(values)
    points = {name: _point(graph, config, made, outputs) for name, config in CONFIGS.items()}
    layers = sum(not isinstance(node, ir.FREE) for node in graph.nodes)
    return Record(entry.label, graph.total_macs, layers, _agreement(graph, source, made, outputs), points)


def _point(graph: ir.Graph, config: Config, made: Made, outputs: Mapping[str, NDArray[Any]]) -> Point:
    start = time.process_time()
    try:
        compiled = compile_network(graph, config)
    except DovetailError as error:
        return Point(failure=str(error))
    seconds = time.process_time() - start
    report = compiled.report()
    result = compiled.run(made.sample)
    return Point(
        share=report.macs / graph.total_macs if graph.total_macs else 0.0,
        segments=sum(step.is_program for step in compiled.code.steps),
        host_steps=sum(step.device == HOST for step in compiled.code.steps),
        cycles=report.cycles,
        host_cycles=report.host_work.cycles,
        over_bound=report.over_bound,
        over_bytes=report.moved_bytes / report.least_bytes if report.least_bytes else 0.0,
        peak_sram=report.sram.live,
        seconds=seconds,
        exact=all(np.array_equal(result.outputs[name], value) for name, value in outputs.items()),
    )


def _agreement(graph: ir.Graph, source: ParsedFile, made: Made, outputs: Mapping[str, NDArray[Any]]) -> Agreement:
    try:
        run = reference_runtimes.run(graph, source, made.sample)
    except DovetailError as error:
        return Agreement(failure=str(error))
    values = dict(graph.bind(made.sample))
    compared, apart, where = 0, 0, set()
    for node in graph.nodes:
        results = reference.execute(graph, node, [values[tensor] for tensor in node.inputs])
        for tensor, ours in zip(node.outputs, results, strict=True):
            theirs = run.tensors.get(tensor)
            values[tensor] = ours if theirs is None else theirs.reshape(ours.shape)
            if theirs is None or isinstance(node, (ir.Host, *ir.FREE)):
                continue
            differing = int((values[tensor] != ours).sum())
            compared, apart = compared + ours.size, apart + differing
            if differing:
                where.add(node.op)
    tensors = {port.name: port.tensor for port in graph.outputs}
    wanted = graph.unbind(values)
    same = all(np.array_equal(wanted[name], value) for name, value in outputs.items() if tensors[name] in run.tensors)
    return Agreement(run.runtime, compared, apart, tuple(sorted(where)), same)


# Records ---------------------------------------------------------------------------------------


def state() -> str:
    """Digest of the sources that a record depends on."""
    digest = hashlib.sha256()
    for folder in ("isa", "sw", "benchmarks"):
        for path in sorted((ROOT / folder).rglob("*.py")):
            digest.update(path.read_bytes())
    return digest.hexdigest()[:16]


def records(entries: Iterable[Entry], folder: Path, jobs: int) -> dict[str, Record]:
    """Every network's record, from the folder if it is there."""
    folder.mkdir(parents=True, exist_ok=True)
    found: dict[str, Record] = {}
    pending = []
    for entry in entries:
        path = _path(folder, entry.label)
        if path.exists():
            found[entry.label] = _read(path)
        else:
            pending.append(entry.label)
    # A process per network gives back what the large ones took; entries themselves cannot be sent to it.
    with ProcessPoolExecutor(jobs, mp_context=get_context("spawn"), max_tasks_per_child=1) as pool:
        futures = {pool.submit(_measured, label): label for label in pending}
        for future in as_completed(futures):
            label, error = futures[future], future.exception()
            if error is None:
                found[label] = future.result()
                _path(folder, label).write_text(json.dumps(asdict(found[label]), indent=1))
            else:
                found[label] = Record(label, failure=f"{type(error).__name__}: {error}")
            print(f"{label}: {found[label].failure or 'done'}", flush=True)
    return found


def _measured(label: str) -> Record:
    entries, _ = collection(MODELS)
    return measure(next(entry for entry in entries if entry.label == label))


def _path(folder: Path, label: str) -> Path:
    return folder / f"{label.replace('/', '-')}.json"


def _read(path: Path) -> Record:
    plain = json.loads(path.read_text())
    agreement = plain["agreement"] | {"where": tuple(plain["agreement"]["where"])}
    points = {name: Point(**point) for name, point in plain["points"].items()}
    return Record(**plain | {"agreement": Agreement(**agreement), "points": points})


MODELS = ROOT.parent / "shared" / "models"


# The table -------------------------------------------------------------------------------------

HEADER = """# Networks

<!-- Made by `python benchmarks/networks.py --output docs/networks.md`. -->

What the compiler makes of whole networks. The trained ones are int8 and uint8 files as they are, or float files
quantised with their samples; those of `onnx` are the nine architectures of the onnx package with random weights,
quantised with random inputs; those of `zoo` are built in.

- *layers*: nodes of the graph; *on the accelerator*: share of multiply-accumulates, not of time; *segments*: programs
  started per inference; *host steps*: runs of nodes on the host between them.
- *cycles*: of the accelerator, exact; *host cycles*: what a small RISC-V core takes beside them, an estimate
  ([its error](host-cost.md)); *host's share* of both, one after the other.
- *over roofline*: cycles over max(MACs / multipliers, least bytes / bus width); *DRAM*: bytes moved over the least
  possible (inputs, outputs and weights once); *peak SRAM*: the most that holds something still to be read; *compile*:
  processor time.
- No configuration of this page has SOFTMAX or NORM, so of transformers the host computes these; with them they are one
  program ([quantisation](quantisation.md#a-whole-transformer-in-integers)).
- *equal*: the model engine's outputs are those of the graph's definition, byte for byte, on each configuration, and
  every accelerator layer gives the runtime's bytes on the runtime's own operands. Otherwise: how many of its values
  differ, and in which kinds of layers. Sums of two tensors depart at near ties only (`operators.md`).
"""


NETWORKS = ("network", "MACs", "layers", "runtime", "values compared", "equal")
POINTS = (
    *(
        "network",
        "on the accelerator",
        "segments",
        "host steps",
        "cycles",
        "host cycles",
        "host's share",
        "over roofline",
        "DRAM",
        "peak SRAM",
    ),
    "compile",
)


def table(found: Mapping[str, Record], notes: Iterable[str]) -> str:
    """The page."""
    good = [record for record in found.values() if not record.failure]
    lines = [HEADER, *_rows(NETWORKS, map(_network, good))]
    for name in CONFIGS:
        lines += ["", f"## {name}", "", *_rows(POINTS, ((_title(r), *_point_row(r.points[name])) for r in good))]
    failures = [f"{_title(record)}: {record.failure}" for record in found.values() if record.failure]
    lines += ["", "## Not here", "", *(f"- {text}" for text in (*notes, *failures))] if notes or failures else []
    return "\n".join(lines) + "\n"


def _rows(heads: tuple[str, ...], rows: Iterable[tuple[str, ...]]) -> list[str]:
    return [f"| {' | '.join(cells)} |" for cells in (heads, ("---",) * len(heads), *rows)]


def _title(record: Record) -> str:
    group, name = record.label.split("/")
    return f"zoo:{name}" if group == "zoo" else name


def _network(record: Record) -> tuple[str, ...]:
    agreement = record.agreement
    numbers = f"{record.macs:,}", f"{record.layers}", agreement.runtime, f"{agreement.compared:,}"
    return _title(record), *numbers, _equal(record)


def _equal(record: Record) -> str:
    agreement = record.agreement
    inexact = [name for name, point in record.points.items() if not (point.exact or point.failure)]
    if inexact:
        return f"the engine departs on {', '.join(inexact)}"
    if agreement.failure:
        return f"not compared: {agreement.failure}"
    if agreement.differing:
        return f"all but {agreement.differing:,} values, in layers of kind {', '.join(agreement.where)}"
    return "yes" if agreement.outputs else "layers yes, host parts no"


def _point_row(point: Point) -> tuple[str, ...]:
    if point.failure:
        return point.failure, *(len(POINTS) - 2) * ("",)
    return (
        f"{100 * point.share:.1f} %",
        f"{point.segments}",
        f"{point.host_steps}",
        f"{point.cycles:,}",
        f"{point.host_cycles:,}",
        _share_of_host(point),
        f"{point.over_bound:.3f}",
        f"{point.over_bytes:.2f}",
        f"{-(-point.peak_sram // 1024)} KiB",
        f"{point.seconds:.1f} s",
    )


def _share_of_host(point: Point) -> str:
    total = point.cycles + point.host_cycles
    return f"{100 * point.host_cycles / total:.1f} %" if total else ""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--output", type=Path, metavar="FILE", help="write the page there; by default it is printed")
    parser.add_argument("--networks", default="*", metavar="PATTERN", help="of group/name; default: %(default)s")
    parser.add_argument("--jobs", type=int, default=2, help="networks at a time; default: %(default)s")
    parser.add_argument("--records", type=Path, default=ROOT / "out" / "networks", help="default: %(default)s")
    arguments = parser.parse_args()
    entries, notes = collection(MODELS)
    chosen = [entry for entry in entries if fnmatch.fnmatch(entry.label, arguments.networks)]
    found = records(chosen, arguments.records / state(), arguments.jobs)
    page = table({entry.label: found[entry.label] for entry in chosen}, notes)
    if arguments.output:
        arguments.output.write_text(page)
    else:
        print(page)


if __name__ == "__main__":
    main()
