"""What the host takes for nodes that it runs, as the partition weighs it against a round trip."""

from dataclasses import dataclass
from math import ceil

from dovetail.sw import graph as ir
from dovetail.sw.errors import CompileError


@dataclass(frozen=True)
class HostCost:
    """A coarse model of the host, in cycles of the accelerator.

    The defaults stand for a scalar core on the accelerator's clock: a slow host, so that work leaves the accelerator
    only where it hardly matters.

    Parameters
    ----------
    round_trip: a segment's start and end as seen by the host: cache maintenance of its operands, register writes, the
        interrupt. 0 keeps everything that the accelerator can run on it.
    macs_per_cycle: int8 multiply-accumulates; a scalar core loads two operands, multiplies and adds: about two cycles.
    bytes_per_cycle: activations read and written by anything; a byte is loaded, scaled or stored in about four cycles.

    Raises
    ------
    CompileError
        A number below what makes sense.
    """

    round_trip: int = 2000
    macs_per_cycle: float = 0.5
    bytes_per_cycle: float = 0.25

    def __post_init__(self) -> None:
        if self.round_trip < 0:
            raise CompileError(f"round trip must be at least 0 cycles, not {self.round_trip}")
        for name in ("macs_per_cycle", "bytes_per_cycle"):
            if not getattr(self, name) > 0:
                raise CompileError(f"the host's {name} must be above 0, not {getattr(self, name)}")

    def cycles(self, graph: ir.Graph, node: ir.Node) -> int:
        """About the cycles of a node on the host."""
        size = sum(graph.tensors[name].size for name in (*node.inputs, *node.outputs))
        return ceil(graph.macs(node) / self.macs_per_cycle + size / self.bytes_per_cycle)
