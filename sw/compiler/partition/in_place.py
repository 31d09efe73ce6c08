"""Pass: states of which a run replaces rows are updated where they lie, by a parameter of the run. And what all
parameters of a run are."""

from collections.abc import Collection, Iterator
from dataclasses import dataclass

from dovetail.isa.config.resolved import Config
from dovetail.isa.parameters import MOST_VALUES, Formula, Parameters, RunInput, Term
from dovetail.sw.compiler.options import Options
from dovetail.sw.compiler.partition.tables import records_of
from dovetail.sw.network import ir


@dataclass(frozen=True)
class Picked:
    """A row that a run picks.

    Parameters
    ----------
    number: of the parameter that is added to the address that it is loaded from.
    size: its bytes.
    reach: bytes from the first row of its table to the last one.
    """

    number: int
    size: int
    reach: int


@dataclass(frozen=True)
class InPlace:
    """An update in place.

    Parameters
    ----------
    node: what is updated.
    number: of the parameter that is added to the address of the rows; 1 is the first.
    step: bytes from a place to the next.
    places: how many places the rows can have.
    """

    node: ir.Update
    number: int
    step: int
    places: int

    @property
    def reach(self) -> int:
        """Bytes from the first place to the last one."""
        return self.step * (self.places - 1)


def updates_in_place(config: Config, options: Options, graph: ir.Graph, node: ir.Node) -> str | None:
    """Rows of a variable are replaced where they lie if the configuration has a parameter for their place, and nothing
    else reads what was there before."""
    if not isinstance(node, ir.Update):
        return None
    state, _, place = node.inputs
    if not config.parameters:
        return "the configuration has parameters = 0"
    if not any((one.read, one.written) == (state, node.outputs[0]) for one in graph.states):
        return "what it updates must be a variable, and what it makes the variable's next value"
    if len(graph.consumers(state)) > 1:
        return f"{state!r} must be read by nothing else, as its rows are replaced where they lie"
    if node.places(graph) > MOST_VALUES:
        return f"{place!r} must have at most {MOST_VALUES} values, not {node.places(graph)}"
    found = next(one for one in _all(graph, ()) if one.node is node)
    if found.number > config.parameters:
        return f"the configuration must have more than {config.parameters} parameters"
    return None


def in_place(graph: ir.Graph, host: Collection[str]) -> dict[str, InPlace]:
    """The updates of a graph that are done in place, by name; ``host``: names of the nodes on the host."""
    return {one.node.name: one for one in _all(graph, host)}


def _all(graph: ir.Graph, host: Collection[str]) -> Iterator[InPlace]:
    numbers = numbers_of(graph, host)
    for node in graph.nodes:
        if isinstance(node, ir.Update) and node.name not in host:
            step = node.step(graph)
            yield InPlace(node, numbers[node.inputs[2], step], step, node.places(graph))


def picked_rows(graph: ir.Graph, host: Collection[str]) -> dict[str, Picked]:
    """The rows that a run picks, by tensor."""
    numbers = numbers_of(graph, host)
    return {
        pick.outputs[0]: Picked(numbers[records.input, records.step], pick.table.shape[1], records.reach)
        for records in records_of(graph.nodes)
        for pick in records.picks
    }


def numbers_of(graph: ir.Graph, host: Collection[str]) -> dict[tuple[str, int], int]:
    """The parameters of a graph's program, 1 is the first, each by its run input and the bytes that it counts in:
    those of updates in place, then those of tables of which rows are picked."""
    updates = (node for node in graph.nodes if isinstance(node, ir.Update) and node.name not in host)
    keys = [(node.inputs[2], node.step(graph)) for node in updates]
    keys += [(records.input, records.step) for records in records_of(graph.nodes)]
    return {key: number for number, key in enumerate(dict.fromkeys(keys), 1)}


def parameters_of(graph: ir.Graph, host: Collection[str]) -> Parameters:
    """What the program's parameters are."""
    most: dict[str, int] = {}
    counts = [(one.node.inputs[2], one.places) for one in in_place(graph, host).values()]
    for name, count in (*counts, *((records.input, records.count) for records in records_of(graph.nodes))):
        most[name] = min(most.get(name, count - 1), count - 1)
    formulas = (Formula(terms=(Term(name, step=step),)) for name, step in numbers_of(graph, host))
    return Parameters(tuple(RunInput(name, 0, high) for name, high in most.items()), tuple(formulas))
