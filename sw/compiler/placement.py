"""Pass: what is only made to be concatenated is stored where it belongs at once, and the copy is left out."""

from collections.abc import Sequence
from dataclasses import dataclass

from dovetail.sw import graph as ir
from dovetail.sw.compiler.movement import Axis, axes_of
from dovetail.sw.compiler.partition import Step

MAX_PITCHED = 1024
"""The most channels of a tensor that is stored pixel by pixel: some pixels must fit the smallest buffer."""


@dataclass(frozen=True)
class Part:
    """A tensor inside another one, ``whole``: ``offset`` bytes from its start, pixels ``pitch`` bytes apart."""

    whole: str
    offset: int
    pitch: int


def parts_of(graph: ir.Graph, steps: Sequence[Step]) -> dict[str, Part]:
    """The tensors that need no copy, by name: made and copied in one segment, and used for nothing else."""
    ports = {port.tensor for port in graph.outputs}
    found: dict[str, Part] = {}
    for step in steps:
        if step.host:
            continue
        makers = {name: node for node in step.nodes for name in node.outputs}
        for node in step.nodes:
            if not isinstance(node, ir.Move):
                continue
            for name, copy in zip(node.inputs, node.copies, strict=True):
                alone = graph.consumers(name) == (node,) and node.inputs.count(name) == 1 and name not in ports
                pitch = _pitch(graph.tensors[name], copy) if alone and name in makers else 0
                if pitch and _can_store(makers[name], pitch == graph.tensors[name].shape[-1]):
                    found[name] = Part(node.outputs[0], copy.target, pitch)
    return found


def _pitch(tensor: ir.Tensor, copy: ir.Copy) -> int:
    """Bytes between the pixels of a tensor that is copied whole and in order; 0 if it is not."""
    axes, channels = axes_of(copy), tensor.shape[-1]
    if copy.source:
        return 0
    if axes == [Axis(tensor.size, 1, 1)]:
        return channels
    inner = Axis(channels, 1, 1)
    rows = [axis for axis in axes if axis != inner]
    whole = len(rows) == 1 and rows[0].size * channels == tensor.size and rows[0].source == channels
    return rows[0].target if whole and channels <= MAX_PITCHED else 0


def _can_store(node: ir.Node, dense: bool) -> bool:
    """Whether a node's code stores pixels apart; results without gaps all can, but for views."""
    if isinstance(node, (*ir.FREE, ir.Move)):
        return False
    return dense or not isinstance(node, ir.MatMul)
