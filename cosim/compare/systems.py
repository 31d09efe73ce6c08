"""A network's plan for a system on RTL, held against the model's bytes and the exact times."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from dovetail.cosim.compare.lockstep import bytes_difference, timeline_difference
from dovetail.cosim.rtl.system_engine import SystemEngine
from dovetail.isa.common.build_cache import default_cache
from dovetail.sw.network.layout import Array
from dovetail.sw.runtime.system_network import SystemNetwork


@dataclass(frozen=True)
class SystemVerdict:
    """What agreed. ``cycles_rtl``: from the system's cycle 0 to the end of the last job. ``first_difference`` is empty
    when everything did."""

    bytes_equal: bool
    starts_equal: bool
    timelines_equal: bool
    cycles_model: int
    cycles_rtl: int
    first_difference: str = ""

    @property
    def equal(self) -> bool:
        """Everything agrees."""
        return not self.first_difference


def verify_system(
    network: SystemNetwork, samples: Sequence[Mapping[str, Array]], *, cache: Path | None = None
) -> SystemVerdict:
    """Run a plan's inferences on the model and on RTL: the same bytes in memory, every job begins in the cycle of the
    host's rule, and every operation starts and ends in its cycle.

    Raises
    ------
    ToolError
        When Verilator or the C++ compiler is missing or fails.
    """
    state = network.state
    model = network.run(samples)
    network.state = state
    rtl = network.run(samples, SystemEngine(network.system, cache=cache or default_cache()))
    times = network.times
    data = bytes_difference("memory", model.memory, rtl.memory)
    starts, lines, ends = "", "", []
    for number, (origin, end, line) in enumerate(zip(rtl.ran.origins, rtl.ran.ends, rtl.ran.timelines, strict=True)):
        expected, past, wanted = times.origins[number], times.ends[number], times.timelines[number]
        if origin != expected:
            starts = starts or f"job {number}: begins in cycle {expected} of the model, {origin} of the RTL"
        if end is None:
            continue
        ends.append(end)
        if wanted is None or line is None:  # the host computes it
            if end != past:
                starts = starts or f"job {number}: is over in cycle {past} of the model, {end} of the RTL"
            continue
        found, _ = timeline_difference(wanted, line)
        if line.cycles != wanted.cycles:
            found = found or f"cycles: model {wanted.cycles}, RTL {line.cycles}"
        if found:
            lines = lines or f"job {number}: {found}"
    return SystemVerdict(not data, not starts, not lines, times.cycles, max(ends, default=0), starts or lines or data)
