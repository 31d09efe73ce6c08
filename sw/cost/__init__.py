"""Cost models: what an accelerator takes of an FPGA (`area`), what a run does (`activity`) and what that takes (`energy`).

Activity is counted, exactly; area and energy are estimates that say where they come from and how far they are off.
"""
