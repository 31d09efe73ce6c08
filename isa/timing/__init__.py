"""Timing rules: when every instruction starts and ends, as integer functions of registers and configuration.

One file per unit, obeyed by the RTL of that unit to the cycle; :mod:`dovetail.isa.timing.sequencer` chains them
through queues and completion counts. Durations do not depend on when an instruction starts, so they are cached.
"""
