"""Latencies of the fixed pipelines: cycles from the clock edge that takes an operand to the result's.

They are part of the contract: the timing rules add them up, and the components in ``dovetail.hw`` check that
they keep them. A latency of n means that the output during cycle ``t + n`` belongs to the inputs during cycle
``t``.
"""

REQUANTISE = 10
"""int32 accumulator to int8 (``hw.array.requantiser.Requantiser``).

Left shift, magnitude, rounding to 24 bits, partial products, their inner sum, product, right shift,
rounding, zero point, clamp.
"""

VECTOR_LANE = 18
"""Every operation of the pooling and element-wise pipeline (``hw.vector.rescale.VectorLane``).

Eleven stages form the operand of the final scaling (an int32's left shift; for an addition: differences, partial
products, products, rounding in two, alignment, rounding, sum and comparison, choice, magnitude); then come the last
seven of :data:`REQUANTISE`.
"""

VECTOR_DIRECT = 3
"""Results of the vector unit that need no scaling: MOV, ACT_LUT, E32_ADD, E32_SHIFT.

Look-up or shift, fraction, rounding.
"""
