"""Pass: copies that are left out.

What is only made to be concatenated is stored where it belongs at once; a slice whose readers can step over what is
between its pixels is read where it is.
"""

from collections.abc import Mapping, Sequence

from dovetail.isa.config.resolved import Config
from dovetail.sw.compiler.emit.movement import Axis, axes_of, in_bytes
from dovetail.sw.compiler.layer import use_packing
from dovetail.sw.compiler.partition.segments import HOST, Step
from dovetail.sw.compiler.place import Part
from dovetail.sw.network import ir

MAX_PITCHED = 1024
"""The most channels of a tensor that is stored pixel by pixel: some pixels must fit the smallest buffer."""


Readers = Mapping[str, Sequence[ir.Node]]
"""The nodes that read each tensor."""


def parts_of(config: Config, graph: ir.Graph, steps: Sequence[Step]) -> dict[str, Part]:
    """The tensors that need no copy, by name: parts of concatenations, and slices."""
    readers: dict[str, list[ir.Node]] = {}
    for node in graph.nodes:
        for name in node.inputs:
            readers.setdefault(name, []).append(node)
    stored = _stored(config, graph, steps, readers)
    return stored | _slices(config, graph, steps, readers, stored)


def _stored(config: Config, graph: ir.Graph, steps: Sequence[Step], readers: Readers) -> dict[str, Part]:
    """Parts of concatenations that are made, copied and read in one segment, by nodes that can step from pixel to pixel
    and do not make another part of the same concatenation."""
    ports = set(graph.wanted)
    found: dict[str, Part] = {}
    for step in steps:
        if step.device == HOST:
            continue
        makers = {name: node for node in step.nodes for name in node.outputs}
        for node in step.nodes:
            if not isinstance(node, ir.Move):
                continue
            item = graph.tensors[node.outputs[0]].item_bytes
            for name, copy in zip(node.inputs, (in_bytes(copy, item) for copy in node.copies), strict=True):
                alone = name in makers and name not in ports and node.inputs.count(name) == 1
                pitch = _pitch(graph.tensors[name], copy) if alone else 0
                dense = pitch == graph.tensors[name].shape[-1] * item
                others = [user for user in readers[name] if user is not node]
                if (
                    pitch
                    and _can_store(makers[name], dense)
                    and all(
                        user.outputs[0] in makers
                        and user.outputs[0] not in node.inputs
                        and _can_read(config, user, dense)
                        for user in others
                    )
                ):
                    found[name] = Part(node.outputs[0], copy.target, pitch)
    return found


def _slices(
    config: Config, graph: ir.Graph, steps: Sequence[Step], readers: Readers, stored: dict[str, Part]
) -> dict[str, Part]:
    """Slices that are cut and read in one segment, by nodes that can step from pixel to pixel."""
    ports = set(graph.wanted)
    viewed = {node.outputs[0]: node.inputs[0] for node in graph.nodes if isinstance(node, ir.Reshape)}
    found: dict[str, Part] = {}
    for step in steps:
        inside = set() if step.device == HOST else {node.name for node in step.nodes}
        for node in step.nodes:
            if not isinstance(node, ir.Move) or len(node.copies) > 1 or node.outputs[0] in ports or step.device == HOST:
                continue
            name, whole, item = node.outputs[0], node.inputs[0], graph.tensors[node.outputs[0]].item_bytes
            copy = in_bytes(node.copies[0], item)
            while whole in viewed:
                whole = viewed[whole]
            backwards = ir.Copy(copy.sizes, copy.target, copy.target_steps, copy.source, copy.source_steps)
            pitch = 0 if whole in stored else _pitch(graph.tensors[name], backwards)
            dense = pitch == graph.tensors[name].shape[-1] * item
            users = readers.get(name, ())
            if pitch and all(user.name in inside and _can_read(config, user, dense) for user in users):
                found[name] = Part(whole, copy.source, pitch)
    return found


def _pitch(tensor: ir.Tensor, copy: ir.Copy) -> int:
    """Bytes between the pixels of a tensor that is copied whole and in order, byte by byte; 0 if it is not."""
    axes, channels = axes_of(copy), tensor.shape[-1] * tensor.item_bytes
    if copy.source:
        return 0
    if axes == [Axis(tensor.bytes, 1, 1)]:
        return channels
    inner = Axis(channels, 1, 1)
    rows = [axis for axis in axes if axis != inner]
    pixels = len(rows) == 1 and (inner in axes or channels == 1)
    whole = pixels and rows[0].size * channels == tensor.bytes and rows[0].source == channels
    return rows[0].target if whole and channels <= MAX_PITCHED else 0


def _can_store(node: ir.Node, dense: bool) -> bool:
    """Whether a node's code stores pixels apart; results without gaps all can, but for views."""
    if isinstance(node, (*ir.FREE, ir.Move, ir.Update)):
        return False
    return dense or not isinstance(node, ir.MatMul)


def _can_read(config: Config, node: ir.Node, dense: bool) -> bool:
    """Whether a node's code reads pixels apart; those without gaps all can, but for views and copies."""
    if isinstance(node, ir.Host | ir.Move | ir.Update | ir.Reshape):
        return False
    if isinstance(node, ir.Conv) and node.groups == 1:
        return dense or not use_packing(config, node.weights.shape[3], node.kernel, node.dilation[1])
    return dense or not isinstance(node, ir.MatMul)
