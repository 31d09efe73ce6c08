"""Pass: states of which a run replaces rows are updated where they lie, by a parameter of the run."""

from collections.abc import Collection, Iterator
from dataclasses import dataclass

from dovetail.isa.config.resolved import Config
from dovetail.isa.parameters import MOST_VALUES, Formula, Parameters, RunInput, Term
from dovetail.sw.compiler.options import Options
from dovetail.sw.network import ir


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
    numbers: dict[tuple[str, int], int] = {}
    for node in graph.nodes:
        if isinstance(node, ir.Update) and node.name not in host:
            step = node.step(graph)
            number = numbers.setdefault((node.inputs[2], step), len(numbers) + 1)
            yield InPlace(node, number, step, node.places(graph))


def parameters_of(graph: ir.Graph, host: Collection[str]) -> Parameters:
    """What the program's parameters are."""
    found = in_place(graph, host).values()
    most: dict[str, int] = {}
    formulas: dict[int, Formula] = {}
    for one in found:
        place = one.node.inputs[2]
        most[place] = min(most.get(place, one.places - 1), one.places - 1)
        formulas[one.number] = Formula(terms=(Term(place, step=one.step),))
    inputs = tuple(RunInput(name, 0, high) for name, high in most.items())
    return Parameters(inputs, tuple(formulas[number] for number in sorted(formulas)))
