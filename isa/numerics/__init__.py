"""Integer-only reference of the arithmetic that follows the int32 accumulators.

Every function is exact, works on NumPy arrays (computing in int64) as well as on Python integers, and is
total: it is defined for every value its operands can take in the hardware's registers, legal encoding or not,
so that the model and the RTL agree on every program.

Two roundings exist (:class:`Rounding`). Their formulas were measured on the runtimes they are named after,
see "Integer semantics" in the README of the reference data: TFLite Micro's kernels, and ONNX Runtime's fused
integer kernels (which are the ONNX operator definitions in float32).

The multiplier encoding
-----------------------
A positive real multiplier is held as ``mult`` (unsigned, 31 bits) and ``shift`` (signed, 6 bits):

======  ==========================  ==============================  ==================
        real multiplier             normalised when                 significant bits
======  ==========================  ==============================  ==================
TFLITE  ``mult * 2**(shift - 31)``  ``2**30 <= mult < 2**31``       31
ONNX    ``mult * 2**(shift - 24)``  ``2**23 <= mult < 2**24``       24 (the low 24 of ``mult`` count)
======  ==========================  ==============================  ==================

Zero is ``(0, 0)``.
"""
