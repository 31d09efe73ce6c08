"""What a run does: exact counts of events, from its timeline and registers; no tensor data is touched."""

from __future__ import annotations

from collections.abc import Mapping

from dovetail.sw.network import CompiledNetwork

EVENTS: Mapping[str, str] = {
    "cycles": "cycles of all segments",
    "busy_load": "cycles in which LOAD runs a transfer or a fetch",
    "busy_array": "cycles in which ARRAY runs an operation",
    "busy_vector": "cycles in which VECTOR runs an operation",
    "busy_store": "cycles in which STORE runs a transfer",
    "macs": "multiply-accumulates that the network asks for",
    "multiplies": "products that the array takes: steps times multipliers in use, padding and unused lanes included",
    "accumulates": "accumulators that a step adds to or sets, unused lanes included",
    "requantises": "results of the array's requantiser, unused lanes included",
    "vector_taps": "bytes or int32 values that VECTOR takes in, unused lanes included",
    "vector_results": "results that VECTOR computes, unused lanes included",
    "sram_read_input": "SRAM reads of ARRAY: activations and old int32 values",
    "sram_read_weights": "SRAM reads of ARRAY: weights, records, matrix",
    "sram_read_vector": "SRAM reads of VECTOR",
    "sram_read_store": "SRAM reads of STORE",
    "sram_write_load": "SRAM writes of LOAD",
    "sram_write_array": "SRAM writes of ARRAY",
    "sram_write_vector": "SRAM writes of VECTOR",
    "dram_read_bytes": "bytes that LOAD takes from system memory, instructions left out",
    "dram_read_beats": "beats of these on the bus",
    "dram_read_bursts": "bursts of these",
    "dram_write_bytes": "bytes that STORE writes to system memory",
    "dram_write_beats": "beats of these on the bus",
    "dram_write_bursts": "bursts of these",
    "fetched_words": "64-bit instruction words that are fetched, in whole pages",
}
"""Names of the events, and what they count. An SRAM access is one use of a port, a word wide or less."""


def activity_of(compiled: CompiledNetwork) -> Mapping[str, int]:
    """The number of each of `EVENTS` in one inference; what the host does is not counted."""
    raise NotImplementedError(compiled)
