"""Cost models: `area` of an accelerator on an FPGA, `activity` of a run, and the `energy` that takes.

Activity is counted, exactly; area and energy are estimates, with their sources and errors.
"""
