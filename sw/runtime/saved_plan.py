"""Plans in files: what the accelerators of a system do with a network, to be used again without a search.

An archive of two members. ``plan.json`` says for which network and system the plan is, and has the jobs and all
addresses; ``memory.bin`` has what is in memory before anything runs, programs and weights. Times are not in it: they
follow from the programs.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

import dovetail
from dovetail.isa.common.files import write_atomically
from dovetail.isa.config.memory import table_of
from dovetail.isa.config.system import System
from dovetail.isa.host import VERSION as INSTRUCTION_SET
from dovetail.isa.instructions.table import PAGE_BYTES
from dovetail.isa.timing.jobs import LONGEST, AnyJob, HostJob, Job
from dovetail.sw.compiler.devices.host_layers import HostLayers
from dovetail.sw.compiler.devices.plan import Plan, Task
from dovetail.sw.compiler.options import MODES, Options
from dovetail.sw.errors import DovetailError, first_line
from dovetail.sw.files.archive import archive, members_of
from dovetail.sw.network import ir
from dovetail.sw.network.digest import digest
from dovetail.sw.runtime.system_network import SystemNetwork

FORMAT, VERSION = "dovetail-plan", 1
TEXT, MEMORY = "plan.json", "memory.bin"
AGAIN = "make the plan again, with --save-plan"
MOST_NAMED = 3
"""Differences of systems that are named, at most."""


class PlanError(DovetailError):
    """A plan's file is damaged, or for another network or system; the text names it."""


def save_plan(network: SystemNetwork, path: str | Path) -> None:
    """Write a network's plan, whole or not at all. Equal plans give equal bytes. Raises OSError."""
    plan = network.plan
    told = {
        "format": FORMAT,
        "version": VERSION,
        "made_by": f"dovetail {dovetail.__version__}",
        "instruction_set": INSTRUCTION_SET,
        "network": {"name": plan.graph.name, "sha256": digest_of(plan.graph)},
        "system": described(plan.system),
        "mode": network.mode,
        "clock_hz": network.clock,
        "options": asdict(network.options),
        "alone_cycles": network.alone,
        "memory_bytes": plan.memory_bytes,
        "contents": [[address, len(content)] for address, content in plan.contents],
        "addresses": plan.where,
        "jobs": [_job(task) for task in plan.tasks],
    }
    text = json.dumps(told, indent=1, allow_nan=False)
    contents = b"".join(content.tobytes() for _, content in plan.contents)
    write_atomically(path, archive({TEXT: text.encode(), MEMORY: contents}))


def load_plan(path: str | Path, graph: ir.Graph, system: System) -> SystemNetwork:
    """Read a plan for a graph and a system.

    Raises
    ------
    PlanError
        The file is damaged or something else, of another version, or for another network or system.
    OSError
        It cannot be read.
    """
    data = Path(path).read_bytes()
    try:
        members = members_of(data)
        told, contents = json.loads(members[TEXT]), members[MEMORY]
        if told["format"] != FORMAT:
            raise KeyError(FORMAT)
    except KeyError:
        raise PlanError(f"{path}: must be a plan that --save-plan has written, not another archive") from None
    except Exception as error:  # a damaged archive fails anywhere in its reader
        raise PlanError(f"{path}: plan must be complete, not damaged ({first_line(error)}); {AGAIN}") from None
    try:
        _check(told, graph, system)
        network = _network(told, contents, graph, system)
    except PlanError as error:
        raise PlanError(f"{path}: {error}; {AGAIN}") from None
    except (LookupError, TypeError, AttributeError, ValueError, OverflowError) as error:
        raise PlanError(f"{path}: plan must be well-formed, not broken at {first_line(error)!r}; {AGAIN}") from None
    return network


def digest_of(graph: ir.Graph) -> str:
    """A hash of all that programs and outputs follow from; the graph's name does not count."""
    return digest(graph.inputs, graph.outputs, graph.tensors, graph.nodes, graph.states, graph.source)


def described(system: System) -> dict[str, Any]:
    """All of a system that a plan follows from, as JSON has it."""
    parts = {}
    for part in system.accelerators:
        config = part.config.to_dict()
        parts[part.name] = {name: value for name, value in config.items() if name != "memory"}
    told = {
        "accelerators": parts,
        "interconnect": {"bus": system.memory_bus},
        "memory": {"size": system.memory_bytes, **table_of(system.memory)},
        "host": {"reaction": system.reaction},
    }
    found: dict[str, Any] = json.loads(json.dumps(told))
    return found


def _job(task: Task) -> dict[str, Any]:
    job = task.job
    if isinstance(job, HostJob):
        told: dict[str, Any] = {"host_cycles": job.cycles}
    else:
        told = {"accelerator": job.accelerator, "address": job.address}
    return told | {
        "after": job.after,
        "earliest": job.earliest,
        "nodes": task.nodes,
        "share": task.share,
        "inference": task.inference,
    }


def _check(told: Mapping[str, Any], graph: ir.Graph, system: System) -> None:
    """Raises PlanError for a plan of another version, network or system."""
    for what, ours, theirs in (
        ("plan must be of version", VERSION, told["version"]),
        ("plan must be for instruction set", INSTRUCTION_SET, told["instruction_set"]),
    ):
        if ours != theirs:
            raise PlanError(f"{what} {ours}, not {theirs!s:.20}")
    if told["network"]["sha256"] != digest_of(graph):
        name = told["network"]["name"]
        other = "another form of it" if name == graph.name else f"{name!s:.60}"
        raise PlanError(f"plan must be for network {graph.name}, not {other}")
    wanted, found = dict(_flat(described(system))), dict(_flat(told["system"]))
    names = [name for name in {**wanted, **found} if wanted.get(name) != found.get(name)]
    if names:
        shown = [
            f"{name} {found.get(name, 'missing')}, not {wanted.get(name, 'missing')}" for name in names[:MOST_NAMED]
        ]
        more = f"; {len(names) - MOST_NAMED} more differ" if len(names) > MOST_NAMED else ""
        raise PlanError(f"plan must be for this system, not another one ({'; '.join(shown)}{more})")
    if list(told["system"]["accelerators"]) != [part.name for part in system.accelerators]:
        raise PlanError("plan must be for this system, not one with its accelerators in another order")


def _flat(value: Any, name: str = "") -> Iterator[tuple[str, Any]]:
    if isinstance(value, dict):
        for key, each in value.items():
            yield from _flat(each, f"{name}.{key}" if name else key)
    else:
        yield name, value


def _network(told: Mapping[str, Any], contents: bytes, graph: ir.Graph, system: System) -> SystemNetwork:
    """The network of a file for this graph and system. Raises PlanError, and what reading a dictionary of another form
    raises."""
    options = Options.from_dict(told["options"])
    if told["mode"] not in MODES:
        raise PlanError(f"mode must be one of {', '.join(MODES)}, not {told['mode']!s:.60}")
    size = _whole(told["memory_bytes"], system.memory_bytes)
    images, begin = dict[int, NDArray[np.uint8]](), 0
    for address, count in told["contents"]:
        _within(address, count, size)
        images[address] = np.frombuffer(contents[begin : begin + count], np.uint8)
        begin += count
    if begin != len(contents):
        raise PlanError(f"contents must be {begin} bytes, not {len(contents)}")
    where = tuple(dict(found) for found in told["addresses"])
    for found in where:
        for name in {*found, *graph.given, *graph.wanted}:
            _within(found[name], graph.tensors[name].bytes, size)
    tasks = tuple(_task(number, job, images, graph, where) for number, job in enumerate(told["jobs"]))
    clock = None if told["clock_hz"] is None else float(told["clock_hz"])
    plan = Plan(system, graph, tasks, where, size, tuple(images.items()))
    network = SystemNetwork(plan, options, told["mode"], clock)
    alone = {part.name: told["alone_cycles"][part.name] for part in system.accelerators}
    network.alone = {name: None if cycles is None else _whole(cycles, LONGEST) for name, cycles in alone.items()}
    return network


def _task(
    number: int,
    told: Mapping[str, Any],
    images: Mapping[int, NDArray[np.uint8]],
    graph: ir.Graph,
    where: Sequence[dict[str, int]],
) -> Task:
    after = tuple(_whole(other, number - 1) for other in told["after"])
    earliest = _whole(told["earliest"], LONGEST)
    inference = _whole(told["inference"], len(where) - 1)
    names = tuple(map(str, told["nodes"]))
    if "host_cycles" in told:
        nodes = {node.name: node for node in graph.nodes}
        layers = HostLayers(graph, tuple(nodes[name] for name in names), where[inference])
        job: AnyJob = HostJob(_whole(told["host_cycles"], LONGEST), after, earliest, layers)
    else:
        image = images[told["address"]]
        if not len(image) or len(image) % PAGE_BYTES:
            raise PlanError(f"job {number}: program must be pages of {PAGE_BYTES} bytes, not {len(image)} bytes")
        words = image.view(np.uint64)
        job = Job(str(told["accelerator"]), words, told["address"], after=after, earliest=earliest)
    return Task(job, names, str(told["share"]), inference)


def _whole(value: Any, most: int) -> int:
    if type(value) is not int or not 0 <= value <= most:
        raise PlanError(f"number in the plan must be 0..{most}, not {value!s:.60}")
    return value


def _within(address: Any, count: Any, size: int) -> None:
    _whole(address, size)
    _whole(count, size - address)
