"""The passes by name, and what each of them changes in a network."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from inspect import getdoc
from typing import Any

import onnx_ir as oir

from dovetail.sw.errors import DovetailError
from dovetail.sw.frontend.parsed_file import ParsedFile
from dovetail.sw.network import ir
from dovetail.sw.passes.float import normalise
from dovetail.sw.passes.integer import simplify

QUANTISED, FLOAT = "quantised", "float"
"""Kinds of networks."""
START = "start"
"""What stands for a pass where none has run yet."""


@dataclass(frozen=True)
class NamedPass:
    """A pass: its name, the kind of networks that it is for, and what it does, a sentence."""

    name: str
    kind: str
    does: str


@dataclass(frozen=True)
class Change:
    """What one run of a pass did.

    Parameters
    ----------
    round: of all passes, from 0.
    name: of the pass; `START` for the network before any.
    found: whether it changed anything.
    before, after: nodes.
    removed, added, changed: nodes by name.
    text: the network after it, a line for each node.
    """

    round: int
    name: str
    found: bool
    before: int
    after: int
    removed: tuple[str, ...]
    added: tuple[str, ...]
    changed: tuple[str, ...]
    text: str


@dataclass(frozen=True)
class _View:
    """A network at one moment: its text, and by its nodes' names what is not equal once a node has changed."""

    text: str
    nodes: Mapping[str, object]


def catalogue() -> list[NamedPass]:
    """All passes, each once, in the order in which they first run."""
    kinds: Mapping[str, Sequence[Callable[..., Any]]] = {QUANTISED: simplify.PASSES, FLOAT: normalise.PASSES}
    return [
        NamedPass(name_of(run), kind, (getdoc(run) or "").replace("\n", " ").partition(". ")[0].rstrip("."))
        for kind, passes in kinds.items()
        for run in dict.fromkeys(passes)
    ]


def name_of(run: Callable[..., Any]) -> str:
    """What a pass is called on the command line."""
    return run.__name__.replace("_", "-")


def trace(source: ParsedFile, only: Sequence[str] = (), until: str = "") -> Iterator[Change]:
    """The network as it is, and what every pass does to it in turn, round by round.

    Parameters
    ----------
    source: the network: the passes of its kind run.
    only: run these passes alone.
    until: stop behind the first run of this one.

    Raises
    ------
    DovetailError: a pass is not one of the network's kind; the text lists those.
    NetworkError: the network is malformed.
    """
    kind = FLOAT if source.is_float else QUANTISED
    known = [named.name for named in catalogue() if named.kind == kind]
    for name in (*only, *([until] if until else [])):
        if name not in known:
            raise DovetailError(f"pass of a {kind} network must be one of {', '.join(known)}, not {name!r}")
    views = _float(source, only) if source.is_float else _quantised(source, only)
    _, _, _, before = next(views)
    yield Change(0, START, False, len(before.nodes), len(before.nodes), (), (), (), before.text)
    for number, name, found, after in views:
        kept = [name for name in before.nodes if name in after.nodes]
        yield Change(
            number,
            name,
            found,
            len(before.nodes),
            len(after.nodes),
            tuple(name for name in before.nodes if name not in after.nodes),
            tuple(name for name in after.nodes if name not in before.nodes),
            tuple(name for name in kept if before.nodes[name] != after.nodes[name]),
            after.text,
        )
        if name == until:
            break
        before = after


_Views = Iterator[tuple[int, str, bool, _View]]
"""Round, pass, whether it found anything, and the network after it; the first is the network before any."""


def _chosen(passes: Iterable[Any], only: Sequence[str]) -> list[Any]:
    return [run for run in passes if not only or name_of(run) in only]


def _quantised(source: ParsedFile, only: Sequence[str]) -> _Views:
    graph = source.graph
    yield 0, START, False, _view_of_graph(graph)
    for number, run, after in simplify.steps(graph, _chosen(simplify.PASSES, only)):
        yield number, name_of(run), after is not graph, _view_of_graph(after)
        graph = after


def _float(source: ParsedFile, only: Sequence[str]) -> _Views:
    with normalise.well_formed():
        network = normalise.prepare(source.as_onnx(), {})
        yield 0, START, False, _view_of_model(network)
        for number, run, found in normalise.steps(network, _chosen(normalise.PASSES, only)):
            yield number, name_of(run), found, _view_of_model(network)


def _view_of_graph(graph: ir.Graph) -> _View:
    return _View(str(graph), {node.name: node for node in graph.nodes})


def _view_of_model(network: oir.Model) -> _View:
    lines: dict[str, str] = {}
    for node in network.graph:
        operands = ", ".join(value.name or "" if value is not None else "" for value in node.inputs)
        attributes = " ".join(f"{name}={_shown(attribute)}" for name, attribute in node.attributes.items())
        results = ", ".join(f"{value.name} {value.shape}" for value in node.outputs)
        name = node.name or node.outputs[0].name or ""
        lines[name] = f"  {name} = {node.op_type}({operands}) {attributes}".rstrip() + f" -> {results}"
    ends = (network.graph.inputs, network.graph.outputs)
    inputs, outputs = ([f"{value.name} {value.shape}" for value in values] for values in ends)
    text = [f"float network: {len(lines)} nodes", *(f"  input  {value}" for value in inputs)]
    text += [*lines.values(), *(f"  output {value}" for value in outputs)]
    return _View("\n".join(text), lines)


def _shown(attribute: oir.Attr) -> str:
    """An attribute's value in a few characters."""
    text = str(attribute.value)
    return text if len(text) <= 40 else f"{text[:37]}..."
