"""Timing rules: when every instruction starts and ends, as integer functions of registers and configuration.

One file per unit, obeyed by the RTL of that unit to the cycle. Durations do not depend on when an instruction starts,
so those of all operations of a program are found at once. :mod:`dovetail.isa.timing.core` then plays the program
through queues and completion counts, and finds where it faults.
"""
