"""Masks of scores that the array applies: a mask of two values, seen and hidden, becomes the biases of a product's
columns.

A sum of scores and such a mask leaves a score as it is where the mask says seen, and makes it the least one where it
says hidden. So does the product with a bias of 0 or of `HIDDEN`. A run looks up the highest byte of each column's bias,
before the scores are computed; the sum needs no instruction then.
"""

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from dovetail.isa.config.resolved import Config
from dovetail.isa.instructions.table import TABLE_BYTES, Op
from dovetail.isa.numerics.requantise import requantise
from dovetail.isa.numerics.vector import VectorOperation
from dovetail.sw.compiler.emit.arena import Arena, Room
from dovetail.sw.compiler.emit.elementwise import Operation, Walk, instruction
from dovetail.sw.compiler.emit.operations import Task, Transfer
from dovetail.sw.compiler.partition.outline import Partition
from dovetail.sw.compiler.place import Place
from dovetail.sw.compiler.plan.schedule import Space
from dovetail.sw.host.kernels import OnnxOp
from dovetail.sw.network import ir
from dovetail.sw.network.reference import elementwise

HIDDEN = -(1 << 30)
"""The bias of a hidden column. Its highest byte is the only one that is not 0."""
LARGEST = 1 << 28
"""Sums of products must be below this, so that such a bias outweighs them."""
RECORD, TOP = 16, 3
"""Bytes of a column's record, and the place of the bias's highest byte in it."""


@dataclass(frozen=True, eq=False)
class Mask:
    """A product of so many ``columns`` and the sum, ``total``, that masks its result.

    ``mask``: the other operand of the sum; ``top``: by the bits of an element of it, the highest byte of the bias.
    """

    product: ir.MatMul
    total: ir.Elementwise
    mask: str
    top: NDArray[np.uint8]
    columns: int

    def tasks(
        self, config: Config, index: int, mask: Place, table: int, records: int, space: Space, arena: Arena
    ) -> Iterator[Task]:
        """The task that puts biases in their place.

        Parameters
        ----------
        config: the accelerator.
        index: the layer's number.
        mask: where it is.
        table, records: SRAM addresses of `top` and of the product's records.
        space, arena: what is free, for a mask that is not in SRAM.
        """
        columns, task, at = self.columns, Task(index), mask.sram
        if at is None:
            assert mask.memory is not None
            at, _ = Room(config, arena, space.free, operands=True, results=False).place(columns, 0)
            task.loads.append(Transfer(mask.memory, at, columns))
        look_up = Operation(Op.ACT_LUT, {}, table=TABLE_BYTES)
        biases = Walk(records + TOP, (columns - 1) * RECORD + 1, 0, RECORD)
        walk = Walk(at, columns, 0, 1)
        task.computes = [instruction(config, look_up, (1, columns, 1), [walk], biases, (table, TABLE_BYTES))]
        yield task


def masks_of(partition: Partition, nodes: Sequence[ir.Node], stored: Collection[str]) -> list[Mask]:
    """The products among the nodes whose results nothing reads but a sum with a mask that their records can have;
    ``stored``: roots that somebody outside reads."""
    config, graph, roots = partition.config, partition.graph, partition.roots
    if config.param_rows(config.oc_lanes) * config.word_bytes != RECORD * config.oc_lanes:
        return []
    products = {roots[node.outputs[0]]: node for node in nodes if isinstance(node, ir.MatMul)}
    readers = [roots[name] for node in nodes for name in node.inputs]
    found = []
    for node in nodes:
        if not isinstance(node, ir.Elementwise) or node.own is not None or node.params.operation != VectorOperation.ADD:
            continue
        for scores, mask in (node.inputs, node.inputs[::-1]):
            product, columns = products.get(roots[scores]), graph.tensors[node.outputs[0]].shape[-1]
            alone = readers.count(roots[scores]) == 1 and roots[scores] not in stored
            alike = graph.tensors[scores].shape == graph.tensors[node.outputs[0]].shape
            if (
                product is None
                or not alone
                or not alike
                or not graph.tensors[mask].shape[-1] == columns == graph.tensors[mask].size
            ):
                continue
            channels, first = partition.layers[product.name].channels, scores == node.inputs[0]
            top = _top(node, product, channels, values_of(graph, mask), first)
            if top is not None:
                found.append(Mask(product, node, mask, top, columns))
    return found


def _top(
    total: ir.Elementwise, product: ir.MatMul, depth: int, values: Collection[int], first: bool
) -> NDArray[np.uint8] | None:
    """``top`` of a mask of some values; ``first``: whether scores are the first operand. None if a value does something
    else, or if nothing is known of the values."""
    scores, requant = np.arange(-128, 128).astype(np.int8), product.requant
    top, most = np.zeros(TABLE_BYTES, np.uint8), depth << 16
    hidden = requantise(
        np.array([HIDDEN - most, HIDDEN + most])[:, None],
        requant.mult,
        requant.shift,
        requant.rounding,
        requant.zero_out,
        requant.lo,
        requant.hi,
    )
    for value in values:
        mask = np.full_like(scores, value)
        sums = elementwise(total, *((scores, mask) if first else (mask, scores)))
        if np.array_equal(sums, scores):
            continue
        if most >= LARGEST or (sums != hidden.ravel()[0]).any() or (hidden != hidden.ravel()[0]).any():
            return None
        top[value & 0xFF] = HIDDEN >> 24 & 0xFF
    return top if values else None


def values_of(graph: ir.Graph, name: str) -> set[int]:
    """All values that elements of a tensor can have, where that is known: of rows of a table that a run picks, and of
    what ONNX's Where picks between constants."""
    node = next((node for node in graph.nodes if name in node.outputs), None)
    if isinstance(node, ir.Reshape):
        return values_of(graph, node.inputs[0])
    if isinstance(node, ir.Pick):
        return {int(value) for value in np.unique(node.table)}
    if (
        isinstance(node, ir.Host)
        and node.label == "where"
        and len(node.inputs) == 1
        and isinstance(node.payload, OnnxOp)
    ):
        shape = graph.tensors[node.inputs[0]].shape
        picked = (node.payload.run([np.full(shape, which)])[0] for which in (False, True))
        return {int(value) for values in picked for value in np.unique(values)}
    return set()
